//! The format of a running sum.

use crate::accumulate::error::{AccumulatorError, ParseAccumulatorError};
use alloc::{format, string::ToString, vec};
use core::fmt;
use core::str::FromStr;
use microscaling::Rounding;
use microscaling::{NameError, internal::impl_serde_by_text};

/// The float format of a running sum, and how a sum is rounded to it.
///
/// An IEEE 754 format has the same numbers, subnormals included. A sum whose exponent is beyond the largest one is ±Inf, with
/// either rounding. As text it is `e8m13_rz`: 8 exponent bits, 13 mantissa bits, rounded toward zero (`rz`) or to nearest,
/// half to even (`rne`). `f32` stands for `e8m23`, `f16` for `e5m10`, `bf16` for `e8m7`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SumFormat {
    exponent_bits: u32,
    mantissa_bits: u32,
    rounding: Rounding,
}

/// Formats with a name: name, exponent bits, mantissa bits.
const NAMED: [(&str, u32, u32); 3] = [("f32", 8, 23), ("f16", 5, 10), ("bf16", 8, 7)];

impl SumFormat {
    /// `f32_rz`: float32, rounded toward zero.
    pub const F32_RZ: Self = Self::of(8, 23, Rounding::TowardZero);
    /// `f32_rne`: float32, rounded to nearest, half to even.
    pub const F32_RNE: Self = Self::of(8, 23, Rounding::NearestEven);
    /// `f16_rne`: float16, rounded to nearest, half to even.
    pub const F16_RNE: Self = Self::of(5, 10, Rounding::NearestEven);
    /// `e8m13_rz`: float32's exponents and 13 mantissa bits, rounded toward zero.
    pub const E8M13_RZ: Self = Self::of(8, 13, Rounding::TowardZero);

    const fn of(exponent_bits: u32, mantissa_bits: u32, rounding: Rounding) -> Self {
        Self {
            exponent_bits,
            mantissa_bits,
            rounding,
        }
    }

    /// A format of 2 to 8 exponent bits and 1 to 23 mantissa bits.
    ///
    /// # Errors
    /// [`AccumulatorError::Range`] names the argument that is out of range, [`AccumulatorError::SumRounding`] a rounding that is
    /// neither [`TowardZero`](Rounding::TowardZero) nor [`NearestEven`](Rounding::NearestEven).
    pub const fn new(
        exponent_bits: u32,
        mantissa_bits: u32,
        rounding: Rounding,
    ) -> Result<Self, AccumulatorError> {
        if exponent_bits < 2 || exponent_bits > 8 {
            return Err(out_of_range("exponent_bits", exponent_bits, 2, 8));
        }
        if mantissa_bits < 1 || mantissa_bits > 23 {
            return Err(out_of_range("mantissa_bits", mantissa_bits, 1, 23));
        }
        match rounding {
            Rounding::TowardZero | Rounding::NearestEven => {
                Ok(Self::of(exponent_bits, mantissa_bits, rounding))
            }
            got => Err(AccumulatorError::SumRounding { got }),
        }
    }

    /// Bits of the exponent field.
    pub const fn exponent_bits(self) -> u32 {
        self.exponent_bits
    }

    /// Explicit mantissa bits.
    pub const fn mantissa_bits(self) -> u32 {
        self.mantissa_bits
    }

    /// How a sum is rounded.
    pub const fn rounding(self) -> Rounding {
        self.rounding
    }

    /// Exponent of the smallest normal number.
    pub const fn emin(self) -> i32 {
        1 - self.emax()
    }

    /// Exponent of the largest number.
    pub const fn emax(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    /// Whether a sum is rounded to nearest.
    pub(in crate::accumulate) const fn is_nearest(self) -> bool {
        matches!(self.rounding, Rounding::NearestEven)
    }
}

const fn out_of_range(field: &'static str, got: u32, min: i64, max: i64) -> AccumulatorError {
    AccumulatorError::Range {
        order: "output",
        field,
        min,
        max,
        got: got as i64,
    }
}

impl fmt::Display for SumFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = (self.exponent_bits, self.mantissa_bits);
        let rounding = if self.is_nearest() { "rne" } else { "rz" };
        f.pad(&match NAMED.iter().find(|(_, e, m)| (*e, *m) == bits) {
            Some((name, ..)) => format!("{name}_{rounding}"),
            None => format!("e{}m{}_{rounding}", bits.0, bits.1),
        })
    }
}

/// The allowed texts for a [`SumFormat`].
pub(super) const EXPECTED: &str = "a format, f32, f16, bf16 or e…m… of 2 to 8 exponent and 1 to 23 mantissa bits, then _rz or _rne, as e8m13_rz";

impl FromStr for SumFormat {
    type Err = ParseAccumulatorError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || {
            ParseAccumulatorError::from(NameError::new(
                "format of a sum",
                text.to_string(),
                vec![
                    "f32_rz",
                    "f32_rne",
                    "f16_rne",
                    "e8m13_rz",
                    "e…m…_rz",
                    "e…m…_rne",
                ],
            ))
        };
        let (format, rounding) = text.split_once('_').ok_or_else(unknown)?;
        let rounding = match rounding {
            "rz" => Rounding::TowardZero,
            "rne" => Rounding::NearestEven,
            _ => return Err(unknown()),
        };
        let named = NAMED.iter().find(|(name, ..)| *name == format);
        let bits = match named {
            Some((_, exponent, mantissa)) => Some((*exponent, *mantissa)),
            None => format
                .strip_prefix('e')
                .and_then(|bits| bits.split_once('m'))
                .and_then(|(e, m)| Some((e.parse().ok()?, m.parse().ok()?))),
        };
        let (exponent_bits, mantissa_bits) = bits.ok_or_else(unknown)?;
        Ok(Self::new(exponent_bits, mantissa_bits, rounding)?)
    }
}

impl_serde_by_text!(SumFormat, "the format of a sum");
