//! The formats of scales.

use crate::format::{ElementFormat, FormatError, ParseFormatError, SpecialCodes};
use crate::names::{NameError, impl_serde_by_text};
use crate::p3109::P3109Format;
use crate::round::bits;
use alloc::format;
use alloc::string::ToString;
use core::fmt;
use core::str::FromStr;

/// The format of a block's scale: a power of two, the magnitudes of a small float, a format of P3109, or float32.
///
/// The text form is a [name](Self::NAMES), `e4m0` of a power of two with 4 bits, or the text of an [`ElementFormat`] that is a float
/// with a code for NaN: `float(exponent_bits=6,mantissa_bits=2,bias=48,specials=nan)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ScaleFormat(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// The number of bits.
    Exponent(u8),
    Float(ElementFormat),
    Float32,
}

impl ScaleFormat {
    /// `e8m0`: 2^−127 … 2^127, and NaN. OCP MX's.
    pub const E8M0: Self = Self(Kind::Exponent(8));
    /// `ue4m3`: the magnitudes of [`FP8_E4M3`](ElementFormat::FP8_E4M3). Max 448. NVFP4's.
    pub const UE4M3: Self = Self::of(ElementFormat::FP8_E4M3);
    /// `ue5m3`: 5 exponent bits, 3 mantissa bits, bias 15. Max 114688.
    pub const UE5M3: Self = Self::of_float(5, 3, 15);
    /// `ue5m2`: the magnitudes of [`FP8_E5M2`](ElementFormat::FP8_E5M2). Max 57344.
    pub const UE5M2: Self = Self::of(ElementFormat::FP8_E5M2);
    /// `ue3m3`: 3 exponent bits, 3 mantissa bits, bias 3. Max 28.
    pub const UE3M3: Self = Self::of_float(3, 3, 3);
    /// `ue6m2`: 6 exponent bits, 2 mantissa bits, bias 48. Max 1.5 · 2^15. HiF4's, whose scales below 2^−47 are not subnormal.
    pub const UE6M2: Self = Self::of_float(6, 2, 48);
    /// `bfloat16`: the magnitudes of [`BFLOAT16`](ElementFormat::BFLOAT16).
    pub const BFLOAT16: Self = Self::of(ElementFormat::BFLOAT16);
    /// `float32`: the scale is not rounded any more.
    pub const FLOAT32: Self = Self(Kind::Float32);

    const ROWS: [(&'static str, Self); 8] = [
        ("e8m0", Self::E8M0),
        ("ue4m3", Self::UE4M3),
        ("ue5m3", Self::UE5M3),
        ("ue5m2", Self::UE5M2),
        ("ue3m3", Self::UE3M3),
        ("ue6m2", Self::UE6M2),
        ("bfloat16", Self::BFLOAT16),
        ("float32", Self::FLOAT32),
    ];

    /// The names.
    pub const NAMES: [&'static str; Self::ROWS.len()] = {
        let mut names = [""; Self::ROWS.len()];
        let mut i = 0;
        while i < names.len() {
            names[i] = Self::ROWS[i].0;
            i += 1;
        }
        names
    };

    const fn of(float: ElementFormat) -> Self {
        Self(Kind::Float(float))
    }

    const fn of_float(exponent_bits: u32, mantissa_bits: u32, bias: i32) -> Self {
        match ElementFormat::float(exponent_bits, mantissa_bits, bias, SpecialCodes::Nan) {
            Ok(float) => Self::of(float),
            Err(_) => panic!("it is one"),
        }
    }

    /// The magnitudes of a float that has a code for NaN. This code is the scale of a block that becomes NaN. `None` for any
    /// other element format.
    pub fn of_magnitudes(float: ElementFormat) -> Option<Self> {
        let has_nan = matches!(
            float.special_codes()?,
            SpecialCodes::Nan | SpecialCodes::NanInf | SpecialCodes::Ieee
        );
        has_nan.then_some(Self::of(float))
    }

    /// A format of P3109, all of whose numbers float32 holds: [bits](P3109Format::bits) − [precision](P3109Format::precision) is at most
    /// 8 with a sign, and at most 7 without, where there are at most 15 bits. `binary8p1uf` is E8M0 with a 0, and with powers from 2^−127
    /// to 2^126. No block gets a scale below 0, but bytes of other programs may have one.
    ///
    /// # Errors
    /// [`FormatError::P3109`], for any other format.
    pub const fn of_p3109(format: P3109Format) -> Result<Self, FormatError> {
        match ElementFormat::of_p3109(format) {
            Ok(float) if format.is_signed() || format.bits() < 16 => {
                Ok(Self::of(float.with_sign()))
            }
            _ => Err(FormatError::P3109 {
                role: "scale",
                got: format,
                allowed: "a format whose bits exceed its precision by at most 8 with a sign, by at most 7 and with at most 15 bits without; `microscaling vectors elements`, `check`, `c-reference` and `p3109` have all formats",
            }),
        }
    }

    /// Whether codes have a sign, as in a signed format of P3109. Scales of other floats are magnitudes.
    pub const fn is_signed(self) -> bool {
        matches!(
            self.0,
            Kind::Float(float) if matches!(float.special_codes(), Some(SpecialCodes::Fnuz | SpecialCodes::Extended))
        )
    }

    /// A power of two of 1 to 8 bits: one of 2^−E … 2^E with E = 2^(bits − 1) − 1, or NaN.
    ///
    /// # Errors
    /// [`FormatError::ScaleBits`] unless there are 1 to 8 bits.
    pub const fn exponent(bits: u32) -> Result<Self, FormatError> {
        if bits < 1 || bits > 8 {
            return Err(FormatError::ScaleBits {
                min: 1,
                max: 8,
                got: bits,
            });
        }
        Ok(Self(Kind::Exponent(bits as u8)))
    }

    /// Whether scales are powers of two.
    pub const fn is_exponent(self) -> bool {
        matches!(self.0, Kind::Exponent(_))
    }

    /// The float whose numbers or magnitudes these are; `None` for powers of two and float32.
    pub const fn float(self) -> Option<ElementFormat> {
        match self.0 {
            Kind::Float(float) => Some(float),
            Kind::Exponent(_) | Kind::Float32 => None,
        }
    }

    /// Bits of a scale's code, which has no sign but in the signed formats of P3109.
    pub const fn bits(self) -> u32 {
        match self.0 {
            Kind::Exponent(bits) => bits as u32,
            Kind::Float(float) => float.bits() - !self.is_signed() as u32,
            Kind::Float32 => 32,
        }
    }

    /// The code of NaN, the scale of a block that becomes NaN; of float32 the pattern.
    pub const fn nan_code(self) -> u32 {
        match self.0 {
            Kind::Exponent(_) => 255,
            Kind::Float(float) if self.is_signed() => float.sign_bit(),
            Kind::Float(float) => float.sign_bit() - 1,
            Kind::Float32 => bits::NAN,
        }
    }

    /// Explicit mantissa bits.
    pub const fn mantissa_bits(self) -> u32 {
        match self.0 {
            Kind::Exponent(_) => 0,
            Kind::Float(float) => float.mantissa_bits(),
            Kind::Float32 => 23,
        }
    }

    /// E, the exponent of the largest power of two.
    const fn largest_exponent(bits: u8) -> i32 {
        (1 << (bits - 1)) - 1
    }

    /// Exponent of the smallest normal number.
    pub const fn emin(self) -> i32 {
        match self.0 {
            Kind::Exponent(bits) => -Self::largest_exponent(bits),
            Kind::Float(float) => float.emin(),
            Kind::Float32 => -126,
        }
    }

    /// The smallest number: a subnormal one, but of float32 the smallest normal number.
    pub const fn min(self) -> f32 {
        match self.0 {
            Kind::Exponent(bits) => f32::from_bits(bits::pow2(-Self::largest_exponent(bits))),
            Kind::Float(float) => float.min_subnormal(),
            Kind::Float32 => f32::MIN_POSITIVE,
        }
    }

    /// The largest number.
    pub const fn max(self) -> f32 {
        match self.0 {
            Kind::Exponent(bits) => f32::from_bits(bits::pow2(Self::largest_exponent(bits))),
            Kind::Float(float) => float.max(),
            Kind::Float32 => f32::MAX,
        }
    }

    /// The allowed values that an error lists.
    pub(crate) fn expected() -> impl Iterator<Item = &'static str> {
        Self::NAMES
            .into_iter()
            .chain(["float(…)", "binary8p1uf (P3109)"])
    }
}

impl FromStr for ScaleFormat {
    type Err = ParseFormatError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some((_, format)) = Self::ROWS.iter().find(|(name, _)| *name == text) {
            return Ok(*format);
        }
        let unknown = || {
            ParseFormatError::Unknown(NameError::new(
                "scale format",
                text.to_string(),
                Self::expected().collect(),
            ))
        };
        if P3109Format::has_name(text) {
            return Ok(Self::of_p3109(text.parse()?)?);
        }
        if text.starts_with("float(") {
            let float: ElementFormat = text.parse()?;
            return Self::of_magnitudes(float).ok_or_else(|| ParseFormatError::FieldValue {
                format: "scale float",
                field: "specials",
                value: float.special_codes().unwrap_or_default().to_string(),
                allowed: "nan, nan_inf or ieee: the scale of a block that becomes NaN".to_string(),
            });
        }
        let bits = text
            .strip_prefix('e')
            .and_then(|text| text.strip_suffix("m0"));
        let bits = bits.and_then(|bits| bits.parse().ok());
        bits.and_then(|bits| Self::exponent(bits).ok())
            .ok_or_else(unknown)
    }
}

impl fmt::Display for ScaleFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = Self::ROWS.iter().find(|(_, format)| format == self) {
            return f.pad(name);
        }
        match self.0 {
            Kind::Exponent(bits) => f.pad(&format!("e{bits}m0")),
            Kind::Float(float) => {
                let codes = match self.is_signed() {
                    true => float,
                    false => float.magnitudes(),
                };
                match codes.to_p3109() {
                    Some(format) => f.pad(&format.to_string()),
                    None => f.pad(&float.parameters()),
                }
            }
            Kind::Float32 => f.pad("float32"),
        }
    }
}

impl_serde_by_text!(ScaleFormat, "the name of a scale format");
