//! Element formats: what one number of a block may be.

use super::parameters::{Parameters, impl_serde_by_text};
use super::table::{Table, Tables};
use super::text::one_of;
use crate::round::bits::{self, BIAS};
use crate::{FormatError, NameError, ParseFormatError};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// The format of one element: a small float, a fixed-point number, or a table of numbers. Those with names are constants; any
/// other one is made by [`float`](Self::float), [`fixed`](Self::fixed) or [`tables`](Self::tables).
///
/// A float element is `(−1)^sign · 2^(exponent − bias) · 1.mantissa`, with subnormals below exponent
/// field 1. A fixed-point element is a two's complement; its most negative code is never produced, so that the range is
/// symmetric.
///
/// As elements of a block all of them saturate: a value beyond [`max`](Self::max) becomes ±max, and
/// neither NaN nor Inf is ever produced, even where the format has codes for them. A block that
/// holds a NaN or an Inf says so in its scale.
///
/// As text (`FromStr`, `Display`, serde) it is a [name](Self::NAMES), or `float(exponent_bits=3,mantissa_bits=4,bias=3,specials=none)`,
/// `fixed(bits=5,fraction_bits=3)`, `table(-1 -0.5 0 0.5 1)`, `table(0 1 2 -1/0 1 3 -1)` (two tables), `table(nf4)`; what may be left out is the bias (2^(exponent bits − 1) − 1, and 1 of a single exponent
/// bit) and the specials (none).
///
/// ```
/// use microscaling::{ElementFormat, SpecialCodes};
///
/// let e3m4 = ElementFormat::float(3, 4, 3, SpecialCodes::None)?;
/// assert_eq!((e3m4.bits(), e3m4.max(), e3m4.min_subnormal()), (8, 31.0, 1.0 / 64.0));
/// assert_eq!("float(exponent_bits=3,mantissa_bits=4)".parse(), Ok(e3m4));
/// assert_eq!("e2m1".parse(), Ok(ElementFormat::FP4_E2M1));
/// # Ok::<(), microscaling::FormatError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ElementFormat {
    kind: Kind,
    mantissa_bits: u8,
    /// Exponent of the smallest normal number.
    emin: i16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// All numbers have one exponent.
    Fixed,
    Table(Tables),
    Float {
        exponent_bits: u8,
        specials: SpecialCodes,
    },
}

/// Which codes of a float element are no numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum SpecialCodes {
    /// `none`: every code is a number, as in OCP's FP6 and FP4.
    #[default]
    None,
    /// `ieee`: Inf and NaN where all exponent bits are set, as in OCP's FP8 E5M2.
    Ieee,
    /// `nan`: NaN where all bits but the sign are set, as in OCP's FP8 E4M3.
    Nan,
    /// `fnuz`: the code that elsewhere is −0 is NaN, the only one; there is no −0.
    Fnuz,
}

impl SpecialCodes {
    /// Every choice.
    pub const ALL: [Self; 4] = [Self::None, Self::Ieee, Self::Nan, Self::Fnuz];

    /// The name, for example `ieee`: what `Display`, `FromStr` and serde use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Ieee => "ieee",
            Self::Nan => "nan",
            Self::Fnuz => "fnuz",
        }
    }

    const fn aliases(self) -> &'static [&'static str] {
        &[]
    }
}

super::names::impl_by_name!(SpecialCodes, "choice of special codes");

/// The table of numbers that are right.
const fn table(numbers: &[f32]) -> Table {
    match Table::new(numbers) {
        Ok(table) => table,
        Err(_) => panic!("all tables with a name are tables"),
    }
}

#[rustfmt::skip] // by rows
const NF4: &[Table] = &[table(&[
    -1.0, -0.696_192_8, -0.525_073_05, -0.394_917_5, -0.284_441_38, -0.184_773_43, -0.091_050_036, 0.0,
    0.079_580_3, 0.160_930_2, 0.246_112_3, 0.337_915_24, 0.440_709_83, 0.562_617, 0.722_956_84, 1.0,
])];

/// The magnitudes of FP4 E2M1, and their negatives, with this one for −0.
#[rustfmt::skip] // by rows
const fn fp4(negative_zero: f32) -> Table {
    table(&[
        0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0,
        negative_zero, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0,
    ])
}

const IF4: &[Table] = &[fp4(-0.0), {
    let mut numbers = [0.0; 16];
    let mut i = 0;
    while i < 8 {
        numbers[i] = i as f32 * 6.0 / 7.0;
        numbers[8 + i] = -numbers[i];
        i += 1;
    }
    table(&numbers)
}];

const RAZER: &[Table] = &[fp4(5.0), fp4(-5.0)];

const FLOAT_FIELDS: &[&str] = &["exponent_bits", "mantissa_bits", "bias", "specials"];
const FIXED_FIELDS: &[&str] = &["bits", "fraction_bits"];

impl ElementFormat {
    /// `fp8_e5m2`: 5 exponent bits, 2 mantissa bits, with Inf and NaN. Max 57344.
    pub const FP8_E5M2: Self = Self::of_float(5, 2, 15, SpecialCodes::Ieee);
    /// `fp8_e4m3`: 4 exponent bits, 3 mantissa bits, one NaN code for each sign, no Inf. Max 448.
    pub const FP8_E4M3: Self = Self::of_float(4, 3, 7, SpecialCodes::Nan);
    /// `fp6_e3m2`: 3 exponent bits, 2 mantissa bits, every code a number. Max 28.
    pub const FP6_E3M2: Self = Self::of_float(3, 2, 3, SpecialCodes::None);
    /// `fp6_e2m3`: 2 exponent bits, 3 mantissa bits, every code a number. Max 7.5.
    pub const FP6_E2M3: Self = Self::of_float(2, 3, 1, SpecialCodes::None);
    /// `fp4_e2m1` (alias `fp4`): 2 exponent bits, 1 mantissa bit, every code a number. Max 6.
    pub const FP4_E2M1: Self = Self::of_float(2, 1, 1, SpecialCodes::None);
    /// `int8`: 6 fraction bits. Max 127/64.
    pub const INT8: Self = Self::of_fixed(8, 6);
    /// `int4`: 2 fraction bits. Max 7/4.
    pub const INT4: Self = Self::of_fixed(4, 2);
    /// `int2`: no fraction bits. Max 1.
    pub const INT2: Self = Self::of_fixed(2, 0);
    /// `float16` (alias `fp16`): IEEE binary16. Max 65504.
    pub const FLOAT16: Self = Self::of_float(5, 10, 15, SpecialCodes::Ieee);
    /// `bfloat16` (alias `bf16`): the upper half of an IEEE binary32. Max 2^127 · (2 − 2^−7).
    pub const BFLOAT16: Self = Self::of_float(8, 7, 127, SpecialCodes::Ieee);

    /// `table(nf4)`: the sixteen numbers of QLoRA's NF4 (arXiv 2305.14314), which are quantiles of the normal distribution, by the codes
    /// of bitsandbytes.
    pub const NF4: Self = Self::of_tables(Tables(&NF4));
    /// `table(if4)`: FP4 E2M1 or, multiples of 6/7 up to 6, as a 4-bit integer is (arXiv 2603.28765). The codes are
    /// a sign above a magnitude.
    pub const IF4: Self = Self::of_tables(Tables(&IF4));
    /// `table(razer)`: FP4 E2M1 whose code of −0 is 5 or −5 (arXiv 2501.04052).
    pub const RAZER: Self = Self::of_tables(Tables(&RAZER));

    const TABLES: [(&'static str, Self); 3] = [
        ("nf4", Self::NF4),
        ("if4", Self::IF4),
        ("razer", Self::RAZER),
    ];

    /// The names that `table(…)` understands.
    pub const TABLE_NAMES: [&'static str; Self::TABLES.len()] = {
        let mut names = [""; Self::TABLES.len()];
        let mut i = 0;
        while i < names.len() {
            names[i] = Self::TABLES[i].0;
            i += 1;
        }
        names
    };

    /// The formats with a name: name, alias if there is one, format. First those of OCP MX v1.0, and `int4`, `int2`,
    /// `float16` and `bfloat16`, which the reference emulation library has beside them.
    #[rustfmt::skip] // one row per format
    const ROWS: [(&'static str, &'static str, Self); 21] = {
        use SpecialCodes::{Fnuz, Ieee, None};
        [
            ("fp8_e5m2", "e5m2", Self::FP8_E5M2),
            ("fp8_e4m3", "e4m3", Self::FP8_E4M3),
            ("fp6_e3m2", "e3m2", Self::FP6_E3M2),
            ("fp6_e2m3", "e2m3", Self::FP6_E2M3),
            ("fp4_e2m1", "e2m1", Self::FP4_E2M1),
            ("int8", "", Self::INT8),
            ("int4", "", Self::INT4),
            ("int2", "", Self::INT2),
            ("float16", "fp16", Self::FLOAT16),
            ("bfloat16", "bf16", Self::BFLOAT16),
            ("fp8_e3m4", "e3m4", Self::of_float(3, 4, 3, Ieee)),
            ("fp8_e2m5", "e2m5", Self::of_float(2, 5, 1, None)),
            ("fp8_e4m3fnuz", "e4m3fnuz", Self::of_float(4, 3, 8, Fnuz)),
            ("fp8_e4m3b11fnuz", "e4m3b11fnuz", Self::of_float(4, 3, 11, Fnuz)),
            ("fp8_e5m2fnuz", "e5m2fnuz", Self::of_float(5, 2, 16, Fnuz)),
            ("fp5_e3m1", "e3m1", Self::of_float(3, 1, 3, None)),
            ("fp5_e2m2", "e2m2", Self::of_float(2, 2, 1, None)),
            ("fp4_e3m0", "e3m0", Self::of_float(3, 0, 3, None)),
            ("fp4_e1m2", "e1m2", Self::of_float(1, 2, 1, None)),
            ("fp3_e2m0", "e2m0", Self::of_float(2, 0, 1, None)),
            ("int6", "", Self::of_fixed(6, 4)),
        ]
    };

    /// The formats with a name.
    pub const NAMED: [Self; Self::ROWS.len()] = {
        let mut formats = [Self::INT2; Self::ROWS.len()];
        let mut i = 0;
        while i < formats.len() {
            formats[i] = Self::ROWS[i].2;
            i += 1;
        }
        formats
    };

    /// Their names.
    pub const NAMES: [&'static str; Self::ROWS.len()] = {
        let mut names = [""; Self::ROWS.len()];
        let mut i = 0;
        while i < names.len() {
            names[i] = Self::ROWS[i].0;
            i += 1;
        }
        names
    };

    const fn of_float(
        exponent_bits: u8,
        mantissa_bits: u8,
        bias: i16,
        specials: SpecialCodes,
    ) -> Self {
        Self {
            kind: Kind::Float {
                exponent_bits,
                specials,
            },
            mantissa_bits,
            emin: 1 - bias,
        }
    }

    const fn of_fixed(bits: u8, fraction_bits: i16) -> Self {
        Self {
            kind: Kind::Fixed,
            mantissa_bits: bits - 2,
            emin: bits as i16 - 2 - fraction_bits,
        }
    }

    /// A float of 3 to 16 bits, all of whose numbers are normal numbers of float32, or subnormal ones as those of
    /// [`BFLOAT16`](Self::BFLOAT16).
    ///
    /// # Errors
    /// [`FormatError::Field`]: unless there are 1 to 8 exponent bits, 0 to 10 mantissa bits, at most 16 bits with the sign, and
    /// the bias is such that the smallest normal number is 2^−126 to 1, and the largest number at least 1 and less than 2^128. With
    /// [`Ieee`](SpecialCodes::Ieee) there are at least 2 exponent bits, and with [`Nan`](SpecialCodes::Nan) a mantissa bit.
    pub const fn float(
        exponent_bits: u32,
        mantissa_bits: u32,
        bias: i32,
        specials: SpecialCodes,
    ) -> Result<Self, FormatError> {
        let (least_exponent, least_mantissa) = match specials {
            SpecialCodes::Ieee => (2, 0),
            SpecialCodes::Nan => (1, 1),
            SpecialCodes::None | SpecialCodes::Fnuz => (1, 0),
        };
        if exponent_bits < least_exponent || exponent_bits > 8 {
            return Err(out_of_range(
                "float",
                "exponent_bits",
                exponent_bits as i32,
                least_exponent as i32,
                8,
            ));
        }
        let most_mantissa = if exponent_bits > 5 {
            15 - exponent_bits
        } else {
            10
        };
        if mantissa_bits < least_mantissa || mantissa_bits > most_mantissa {
            return Err(out_of_range(
                "float",
                "mantissa_bits",
                mantissa_bits as i32,
                least_mantissa as i32,
                most_mantissa as i32,
            ));
        }
        // The largest exponent field of a number.
        let top = (1 << exponent_bits)
            - if matches!(specials, SpecialCodes::Ieee) {
                2
            } else {
                1
            };
        let least = if top > BIAS { top - BIAS } else { 1 };
        let most = if top < BIAS { top } else { BIAS };
        if bias < least || bias > most {
            return Err(out_of_range("float", "bias", bias, least, most));
        }
        Ok(Self::of_float(
            exponent_bits as u8,
            mantissa_bits as u8,
            bias as i16,
            specials,
        ))
    }

    /// Multiples of 2^−`fraction_bits` of 2 to 16 bits, sign included.
    ///
    /// # Errors
    /// [`FormatError::Field`]: unless there are 2 to 16 bits, and the fraction has 2 bits less to 6 bits more: a block's scale makes any others of them.
    pub const fn fixed(bits: u32, fraction_bits: i32) -> Result<Self, FormatError> {
        if bits < 2 || bits > 16 {
            return Err(out_of_range("fixed", "bits", bits as i32, 2, 16));
        }
        let least = bits as i32 - 2;
        let most = bits as i32 + 6;
        if fraction_bits < least || fraction_bits > most {
            return Err(out_of_range(
                "fixed",
                "fraction_bits",
                fraction_bits,
                least,
                most,
            ));
        }
        Ok(Self::of_fixed(bits as u8, fraction_bits as i16))
    }

    /// Any numbers, in the order of their codes: tables of the same number of bits, of which each block has the one with the least
    /// squared error, of equal ones the first. An error is measured as
    /// [`Nvfp4Format::block_scale_of`](crate::Nvfp4Format::block_scale_of) does, but in units of 2^(e − 15).
    /// Such elements are for blocks whose scale is a float.
    ///
    /// A table has a 0. Numbers are rounded as magnitudes: a tie is at the mean of two neighbours, rounded to float32; even are 0
    /// and every other magnitude from there on; the fraction of a step that [`Rounding::Stochastic`](crate::Rounding::Stochastic) looks
    /// at is (x − below) / (above − below) of float32 operations, cut to 24 bits.
    ///
    /// ```
    /// use microscaling::{BlockFormat, ElementFormat, FloatScaleFormat, Rounder, ScaleFormat};
    ///
    /// let thirds = ElementFormat::tables(&[&[0.0, 1.0 / 3.0, 1.0, -1.0]])?;
    /// let format = FloatScaleFormat::new(thirds, ScaleFormat::FLOAT32, 32);
    /// let mut x = [6.0, 2.5, -2.5, -3.5];
    /// BlockFormat::from(format).quantize(&mut x, &[4], 0, Rounder::NearestEven)?;
    /// assert_eq!(x, [6.0, 2.0, 0.0, -6.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// * [`FormatError::Field`]: unless there are 1 to 16 tables of 3 to 256 numbers.
    /// * [`FormatError::TableNumber`]: a number that is not 0 nor a magnitude of 2^−32 to 2^32, or is there twice; no 0;
    ///   none of at least 1.
    /// * [`FormatError::TableBits`]: codes of different numbers of bits.
    pub fn tables(tables: &[&[f32]]) -> Result<Self, FormatError> {
        Ok(Self::of_tables(Tables::new(tables)?))
    }

    const fn of_tables(tables: Tables) -> Self {
        Self {
            kind: Kind::Table(tables),
            mantissa_bits: tables.significant_bits() as u8 - 1,
            emin: bits::exponent(tables.min()) as i16,
        }
    }

    /// Whether the numbers are those of [tables](Self::tables).
    pub const fn is_table(self) -> bool {
        matches!(self.kind, Kind::Table(_))
    }

    /// The tables, if there are any.
    pub(crate) const fn as_tables(self) -> Option<Tables> {
        match self.kind {
            Kind::Table(tables) => Some(tables),
            _ => None,
        }
    }

    /// The name, for example `fp8_e4m3`, of a format that has one.
    pub fn name(self) -> Option<&'static str> {
        let row = Self::ROWS.iter().find(|(.., format)| *format == self);
        row.map(|(name, ..)| *name)
    }

    /// Bits of one element, sign included.
    pub const fn bits(self) -> u32 {
        match self.kind {
            Kind::Fixed => self.mantissa_bits as u32 + 2,
            Kind::Table(tables) => tables.0[0].bits(),
            Kind::Float { exponent_bits, .. } => {
                1 + exponent_bits as u32 + self.mantissa_bits as u32
            }
        }
    }

    /// Bits of the exponent field; 0 for fixed point and tables.
    pub const fn exponent_bits(self) -> u32 {
        match self.kind {
            Kind::Fixed | Kind::Table(_) => 0,
            Kind::Float { exponent_bits, .. } => exponent_bits as u32,
        }
    }

    /// Explicit mantissa bits; for fixed point those below the highest bit of a magnitude, two less than
    /// [`bits`](Self::bits); for tables what the number with the longest significand has.
    pub const fn mantissa_bits(self) -> u32 {
        self.mantissa_bits as u32
    }

    /// True for fixed point.
    pub const fn is_integer(self) -> bool {
        matches!(self.kind, Kind::Fixed)
    }

    /// Exponent of the largest normal number: floor(log2([`max`](Self::max))).
    pub const fn emax(self) -> i32 {
        match self.kind {
            Kind::Fixed => self.emin as i32,
            Kind::Table(tables) => bits::exponent(tables.0[0].max()),
            Kind::Float {
                exponent_bits,
                specials,
            } => {
                let top = if matches!(specials, SpecialCodes::Ieee) {
                    2
                } else {
                    1
                };
                (1 << exponent_bits) - top - self.bias()
            }
        }
    }

    /// Exponent of the smallest normal number. For fixed point it is [`emax`](Self::emax): the numbers below are spaced
    /// like subnormals. For tables it is that of the smallest magnitude.
    pub const fn emin(self) -> i32 {
        self.emin as i32
    }

    const fn bias(self) -> i32 {
        1 - self.emin as i32
    }

    /// The largest number; of tables the largest magnitude of the first one.
    pub const fn max(self) -> f32 {
        if let Kind::Table(tables) = self.kind {
            return f32::from_bits(tables.0[0].max());
        }
        // The significand counts units of 2^-mantissa_bits.
        let top = match self.kind {
            Kind::Float {
                specials: SpecialCodes::Nan,
                ..
            } => 2,
            _ => 1,
        };
        let significand: u32 = (2 << self.mantissa_bits) - top;
        let significand = (significand as f32).to_bits();
        f32::from_bits(bits::scale(
            significand,
            self.emax() - self.mantissa_bits as i32,
        ))
    }

    /// The smallest positive number: 2^(emin − mantissa bits). For fixed point this is its step, for tables the smallest
    /// magnitude.
    pub const fn min_subnormal(self) -> f32 {
        if let Kind::Table(tables) = self.kind {
            return f32::from_bits(tables.min());
        }
        f32::from_bits(bits::pow2(self.emin() - self.mantissa_bits as i32))
    }

    /// Whether there is a −0, in each table if there are several.
    pub const fn has_negative_zero(self) -> bool {
        match self.kind {
            Kind::Fixed => false,
            Kind::Table(tables) => tables.have_negative_zeros(),
            Kind::Float { specials, .. } => !matches!(specials, SpecialCodes::Fnuz),
        }
    }

    /// Which codes of a float are no numbers; `None` for fixed point and tables.
    pub const fn special_codes(self) -> Option<SpecialCodes> {
        match self.kind {
            Kind::Fixed | Kind::Table(_) => None,
            Kind::Float { specials, .. } => Some(specials),
        }
    }

    /// The value of an element code, exactly; bits of `code` above [`bits`](Self::bits) are ignored.
    ///
    /// Float codes are sign and magnitude (0x80 of an fp8 is −0), but for the [special](SpecialCodes) ones; any NaN code gives
    /// [`f32::NAN`]. Fixed-point codes are two's complement, the most negative one
    /// is no number that quantization produces. Of several tables it is that of the first.
    pub const fn decode(self, code: u32) -> f32 {
        if let Kind::Table(tables) = self.kind {
            let mask = (1 << self.bits()) - 1;
            return f32::from_bits(tables.0[0].number(code & mask));
        }
        let mantissa_bits = self.mantissa_bits as i32;
        let Kind::Float {
            exponent_bits,
            specials,
        } = self.kind
        else {
            let unused = 32 - self.bits();
            let steps = ((code << unused) as i32) >> unused;
            // At most 16 bits and a power of two: exact, and never subnormal.
            return steps as f32 * self.min_subnormal();
        };
        let negative = (code >> (self.bits() - 1)) & 1 == 1;
        let sign = if negative { bits::SIGN } else { 0 };
        let field = (code >> mantissa_bits) & ((1 << exponent_bits) - 1);
        let mantissa = code & ((1 << mantissa_bits) - 1);
        let top = field == (1 << exponent_bits) - 1;
        let special = match specials {
            SpecialCodes::None => false,
            SpecialCodes::Ieee => top,
            SpecialCodes::Nan => top && mantissa == (1 << mantissa_bits) - 1,
            SpecialCodes::Fnuz => negative && field == 0 && mantissa == 0,
        };
        if special {
            let inf = matches!(specials, SpecialCodes::Ieee) && mantissa == 0;
            return f32::from_bits(if inf {
                sign | bits::INFINITY
            } else {
                bits::NAN
            });
        }
        let (significand, exponent) = if field == 0 {
            (mantissa, self.emin())
        } else {
            (mantissa | (1 << mantissa_bits), field as i32 - self.bias())
        };
        if significand == 0 {
            return f32::from_bits(sign);
        }
        let significand = (significand as f32).to_bits();
        f32::from_bits(sign | bits::scale(significand, exponent - mantissa_bits))
    }

    /// What an error lists as allowed: the names, then the families.
    pub(crate) fn expected() -> impl Iterator<Item = &'static str> {
        Self::NAMES
            .into_iter()
            .chain(["float(…)", "fixed(…)", "table(…)"])
    }
}

const fn out_of_range(
    format: &'static str,
    field: &'static str,
    got: i32,
    min: i32,
    max: i32,
) -> FormatError {
    FormatError::Element {
        format,
        field,
        min,
        max,
        got,
    }
}

impl FromStr for ElementFormat {
    type Err = ParseFormatError;

    /// The format that the text says, spelled exactly.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = |(name, alias, _): &&(&str, &str, _)| *name == text || *alias == text;
        if let Some((.., format)) = Self::ROWS.iter().find(named)
            && !text.is_empty()
        {
            return Ok(*format);
        }
        if text == "fp4" {
            return Ok(Self::FP4_E2M1);
        }
        let number = || String::from("a number");
        if let Some(parameters) = Parameters::of(text, "float", FLOAT_FIELDS) {
            let mut parameters = parameters?;
            let exponent_bits = parameters.take("exponent_bits", "", 0_u32, number)?;
            let mantissa_bits = parameters.take("mantissa_bits", "", 0, number)?;
            let usual = match exponent_bits {
                0..=1 => 1,
                bits => (1 << (bits.min(9) - 1)) - 1,
            };
            let bias = parameters.take("bias", "", usual, number)?;
            let specials = parameters.take("specials", "", SpecialCodes::None, || {
                "one of none, ieee, nan, fnuz".to_string()
            })?;
            parameters.finish()?;
            return Ok(Self::float(exponent_bits, mantissa_bits, bias, specials)?);
        }
        if let Some(parameters) = Parameters::of(text, "fixed", FIXED_FIELDS) {
            let mut parameters = parameters?;
            let bits = parameters.take("bits", "", 0_u32, number)?;
            let usual = bits as i32 - 2;
            let fraction_bits = parameters.take("fraction_bits", "", usual, number)?;
            parameters.finish()?;
            return Ok(Self::fixed(bits, fraction_bits)?);
        }
        if let Some(inside) = text
            .strip_prefix("table(")
            .and_then(|text| text.strip_suffix(')'))
        {
            return parse_tables(inside);
        }
        Err(ParseFormatError::Unknown(NameError::new(
            "element format",
            text.to_string(),
            Self::expected().collect(),
        )))
    }
}

/// What stands between the parentheses of `table(…)`.
fn parse_tables(inside: &str) -> Result<ElementFormat, ParseFormatError> {
    let named = |(name, _): &&(&str, _)| *name == inside;
    if let Some((_, format)) = ElementFormat::TABLES.iter().find(named) {
        return Ok(*format);
    }
    let number = |text: &str| {
        text.parse::<f32>()
            .map_err(|_| ParseFormatError::FieldValue {
                format: "table",
                field: "number",
                value: text.to_string(),
                allowed: one_of(["a number"].into_iter().chain(ElementFormat::TABLE_NAMES)),
            })
    };
    let table = |text: &str| {
        text.split_ascii_whitespace()
            .map(number)
            .collect::<Result<Vec<f32>, _>>()
    };
    let tables: Vec<Vec<f32>> = inside.split('/').map(table).collect::<Result<_, _>>()?;
    let tables: Vec<&[f32]> = tables.iter().map(Vec::as_slice).collect();
    Ok(ElementFormat::tables(&tables)?)
}

impl fmt::Display for ElementFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => f.pad(&self.parameters()),
        }
    }
}

impl ElementFormat {
    /// The text that any format has.
    pub(crate) fn parameters(&self) -> String {
        let mantissa_bits = self.mantissa_bits;
        match self.kind {
            Kind::Table(tables) => {
                let named = |(_, format): &&(&str, Self)| format == self;
                if let Some((name, _)) = Self::TABLES.iter().find(named) {
                    return alloc::format!("table({name})");
                }
                let numbers = |table: &Table| {
                    let numbers = table.numbers().map(|number| number.to_string());
                    numbers.collect::<Vec<_>>().join(" ")
                };
                let tables = tables.0.iter().map(numbers).collect::<Vec<_>>();
                alloc::format!("table({})", tables.join("/"))
            }
            Kind::Fixed => alloc::format!(
                "fixed(bits={},fraction_bits={})",
                self.bits(),
                i32::from(mantissa_bits) - self.emin()
            ),
            Kind::Float {
                exponent_bits,
                specials,
            } => alloc::format!(
                "float(exponent_bits={exponent_bits},mantissa_bits={mantissa_bits},bias={},specials={specials})",
                self.bias()
            ),
        }
    }
}

impl_serde_by_text!(ElementFormat, "the name of an element format");
