//! The formats, and the values of their codes.

use super::{P3109Error, ParseP3109Error};
use alloc::string::ToString;
use core::fmt;
use core::str::FromStr;

/// Most bits of a format.
const MOST_BITS: u32 = 16;

/// A format `binary{bits}p{precision}{s|u}{e|f}`. The bias is 2^(bits − precision − 1) for signed and 2^(bits − precision) for
/// unsigned formats. A format has one NaN, and no −0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct P3109Format {
    bits: u32,
    precision: u32,
    signed: bool,
    extended: bool,
}

/// The value of a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CodeValue {
    /// Not a number.
    Nan,
    /// ±Inf.
    Infinite {
        /// Whether this is −Inf.
        negative: bool,
    },
    /// ±significand · 2^exponent.
    Finite {
        /// Whether the number is below 0.
        negative: bool,
        /// The magnitude in units of 2^exponent, less than 2^16.
        significand: u32,
        /// The exponent of the unit.
        exponent: i32,
    },
}

/// A decimal number, or powers of two where float64 does not hold the value: `3 · 2^-2000`.
impl fmt::Display for CodeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.to_f64(), self) {
            (
                None,
                Self::Finite {
                    negative,
                    significand,
                    exponent,
                },
            ) => {
                let sign = if *negative { "-" } else { "" };
                write!(f, "{sign}{significand} · 2^{exponent}")
            }
            (Some(x), _) if x == 0.0 || (1e-4..1e16).contains(&x.abs()) || !x.is_finite() => {
                write!(f, "{x}")
            }
            (Some(x), _) => write!(f, "{x:e}"),
            (None, Self::Nan | Self::Infinite { .. }) => unreachable!("float64 has NaN and Inf"),
        }
    }
}

impl P3109Format {
    /// A format of 3 to 16 bits. The precision counts the implicit bit: 1 to bits − 1 for signed formats, 1 to bits for unsigned
    /// ones. An extended format has infinities.
    ///
    /// # Errors
    /// [`P3109Error::Range`] names the parameter, its value and its range.
    pub const fn new(
        bits: u32,
        precision: u32,
        signed: bool,
        extended: bool,
    ) -> Result<Self, P3109Error> {
        if bits < 3 || bits > MOST_BITS {
            return Err(P3109Error::Range {
                field: "bits",
                min: 3,
                max: MOST_BITS,
                got: bits,
            });
        }
        let most = bits - signed as u32;
        if precision < 1 || precision > most {
            return Err(P3109Error::Range {
                field: "precision",
                min: 1,
                max: most,
                got: precision,
            });
        }
        Ok(Self {
            bits,
            precision,
            signed,
            extended,
        })
    }

    /// Bits of a code.
    pub const fn bits(self) -> u32 {
        self.bits
    }

    /// Bits of a significand, with the implicit bit.
    pub const fn precision(self) -> u32 {
        self.precision
    }

    /// Whether there are numbers below 0.
    pub const fn is_signed(self) -> bool {
        self.signed
    }

    /// Whether there are infinities.
    pub const fn is_extended(self) -> bool {
        self.extended
    }

    /// The bias of the exponent field.
    pub const fn bias(self) -> i32 {
        1 << (self.bits - self.precision - self.signed as u32)
    }

    /// The code of NaN.
    pub const fn nan(self) -> u32 {
        match self.signed {
            true => 1 << (self.bits - 1),
            false => (1 << self.bits) - 1,
        }
    }

    /// The code of an infinity. `None` for finite formats, and for −Inf in unsigned ones.
    pub const fn infinity(self, negative: bool) -> Option<u32> {
        if !self.extended || (negative && !self.signed) {
            return None;
        }
        let positive = self.largest() + 1;
        Some(positive + self.sign(negative))
    }

    /// The largest number.
    pub const fn max(self) -> CodeValue {
        self.decode(self.largest())
    }

    /// The smallest number above 0.
    pub const fn min_positive(self) -> CodeValue {
        self.decode(1)
    }

    /// The code of the largest number.
    pub(super) const fn largest(self) -> u32 {
        let codes = 1 << (self.bits - self.signed as u32);
        codes - 1 - self.extended as u32 - !self.signed as u32
    }

    /// The part of a code that says the sign.
    pub(super) const fn sign(self, negative: bool) -> u32 {
        match negative {
            true => 1 << (self.bits - 1),
            false => 0,
        }
    }

    /// The value of a code, whose bits above the format's are ignored.
    pub const fn decode(self, code: u32) -> CodeValue {
        let code = code & ((1 << self.bits) - 1);
        if code == self.nan() {
            return CodeValue::Nan;
        }
        let negative = self.signed && code >= self.sign(true);
        let magnitude = code - self.sign(negative);
        if magnitude > self.largest() {
            return CodeValue::Infinite { negative };
        }
        let implicit = 1 << (self.precision - 1);
        let (trailing, field) = (
            magnitude & (implicit - 1),
            magnitude >> (self.precision - 1),
        );
        let unit = 1 - self.precision as i32 - self.bias();
        let (significand, exponent) = match field {
            0 => (trailing, unit + 1),
            field => (implicit + trailing, unit + field as i32),
        };
        CodeValue::Finite {
            negative,
            significand,
            exponent,
        }
    }

    /// Whether a text begins as the names of these formats do.
    pub fn has_name(text: &str) -> bool {
        text.starts_with("binary") || text.starts_with("Binary")
    }

    /// Whether float32 holds every number of the format.
    pub const fn fits_float32(self) -> bool {
        let CodeValue::Finite { exponent, .. } = self.min_positive() else {
            return false;
        };
        let CodeValue::Finite {
            significand,
            exponent: of_largest,
            ..
        } = self.max()
        else {
            return false;
        };
        exponent >= -149 && significand.ilog2() as i32 + of_largest <= 127
    }
}

impl CodeValue {
    /// The number as float64, if float64 holds it; NaN and ±Inf as such.
    pub const fn to_f64(self) -> Option<f64> {
        match self.pattern(52, 1023) {
            Some(pattern) => Some(f64::from_bits(pattern)),
            None => None,
        }
    }

    /// The number as float32, if float32 holds it; NaN and ±Inf as such.
    pub const fn to_f32(self) -> Option<f32> {
        match self.pattern(23, 127) {
            Some(pattern) => Some(f32::from_bits(pattern as u32)),
            None => None,
        }
    }

    /// The bits of the number in an IEEE 754 format with this number of mantissa bits and this bias, if the format holds the number.
    /// Integers alone: a thread may flush subnormal numbers.
    const fn pattern(self, mantissa_bits: i32, bias: i32) -> Option<u64> {
        let infinity = (2 * bias as u64 + 1) << mantissa_bits;
        let sign = infinity + (1 << mantissa_bits);
        let (negative, significand, exponent) = match self {
            Self::Nan => return Some(infinity | 1 << (mantissa_bits - 1)),
            Self::Infinite { negative } => {
                return Some(if negative { sign | infinity } else { infinity });
            }
            Self::Finite { significand: 0, .. } => return Some(0),
            Self::Finite {
                negative,
                significand,
                exponent,
            } => (negative, significand, exponent),
        };
        let zeros = significand.trailing_zeros();
        let (odd, unit) = ((significand >> zeros) as u64, exponent + zeros as i32);
        let own = odd.ilog2() as i32 + unit;
        let smallest = 1 - bias - mantissa_bits;
        if own > bias || unit < smallest {
            return None;
        }
        let magnitude = match own >= 1 - bias {
            // The implicit bit counts as one in the exponent field.
            true => {
                (odd << (mantissa_bits - own + unit))
                    + ((own + bias - 1) as u64) * (1 << mantissa_bits)
            }
            false => odd << (unit - smallest),
        };
        Some(if negative {
            sign | magnitude
        } else {
            magnitude
        })
    }
}

/// `binary8p4se`
impl fmt::Display for P3109Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.signed { 's' } else { 'u' };
        let domain = if self.extended { 'e' } else { 'f' };
        f.pad(&alloc::format!(
            "binary{}p{}{sign}{domain}",
            self.bits,
            self.precision
        ))
    }
}

impl FromStr for P3109Format {
    type Err = ParseP3109Error;

    /// The format of a name, such as `binary8p4se`; `Binary8p4se`, as the report has names, is the same.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || ParseP3109Error::Name {
            value: text.to_string(),
        };
        let rest = text
            .strip_prefix("binary")
            .or_else(|| text.strip_prefix("Binary"))
            .ok_or_else(unknown)?;
        let (bits, rest) = rest.split_once('p').ok_or_else(unknown)?;
        let letters = rest.len().saturating_sub(2);
        let (precision, letters) = rest.split_at_checked(letters).ok_or_else(unknown)?;
        let (signed, extended) = match letters {
            "se" => (true, true),
            "sf" => (true, false),
            "ue" => (false, true),
            "uf" => (false, false),
            _ => return Err(unknown()),
        };
        let number = |text: &str| match text.starts_with('+') {
            true => None,
            false => text.parse().ok(),
        };
        let bits = number(bits).ok_or_else(unknown)?;
        let precision = number(precision).ok_or_else(unknown)?;
        Ok(Self::new(bits, precision, signed, extended)?)
    }
}
