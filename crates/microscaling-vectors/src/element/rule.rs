//! The rule of a conversion: one description, whose fields a neighbouring rule changes.

use super::format::{CodePlan, SignKind};
use super::input::ExactInput;
use super::modes::{ElementOverflow, ElementRounding};
use crate::error::VectorsError;
use microscaling::p3109::StochasticVariant;
use microscaling::{BlockFormat, ElementConversion, Subnormals};

/// The treatment of results below the smallest normal number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SmallResults {
    /// Themselves.
    Kept,
    /// Zero, if the rounded number is subnormal.
    FlushedAfterRounding,
    /// Zero, if the number is below the smallest normal one before rounding.
    FlushedBeforeRounding,
}

/// The rule of a conversion to one format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ElementRule {
    /// The rounding mode.
    pub rounding: ElementRounding,
    /// N, the bits of the random word of stochastic rounding, 1 to 31. The library's own stochastic rounding is variant A with the
    /// upper 31 bits of its random word.
    pub random_bits: u32,
    /// The treatment of numbers beyond the largest one.
    pub overflow: ElementOverflow,
    /// Whether subnormal inputs count as zero.
    pub flush_inputs: bool,
    /// The treatment of results below the smallest normal number.
    pub small: SmallResults,
    /// Whether results that are −0 become +0.
    pub lose_negative_zero: bool,
    /// A known fault of devices: every number from 2^emax on becomes the largest one.
    pub top_binade_saturates: bool,
}

impl Default for ElementRule {
    /// Ties to even, saturating, with subnormal inputs and outputs and −0.
    fn default() -> Self {
        Self {
            rounding: ElementRounding::TiesToEven,
            random_bits: 31,
            overflow: ElementOverflow::Saturate,
            flush_inputs: false,
            small: SmallResults::Kept,
            lose_negative_zero: false,
            top_binade_saturates: false,
        }
    }
}

impl ElementRule {
    /// The rule of a block format's elements.
    pub fn of(format: &BlockFormat) -> Self {
        let ElementConversion {
            rounding,
            random_bits,
            overflow,
            flush_outputs,
            negative_zero,
        } = format.conversion;
        Self {
            rounding: rounding.unwrap_or(ElementRounding::TiesToEven),
            random_bits,
            overflow,
            flush_inputs: format.subnormals == Subnormals::FlushElements,
            small: match flush_outputs {
                true => SmallResults::FlushedAfterRounding,
                false => SmallResults::Kept,
            },
            lose_negative_zero: !negative_zero,
            top_binade_saturates: false,
        }
    }

    /// The conversion of a block format; `None` for a rule that no format has, and for random words that are inputs.
    pub(crate) fn conversion(&self) -> Option<ElementConversion> {
        let Self {
            rounding,
            random_bits: _,
            overflow,
            flush_inputs: _,
            small,
            lose_negative_zero,
            top_binade_saturates,
        } = *self;
        let is_known = small != SmallResults::FlushedBeforeRounding && !top_binade_saturates;
        (is_known && !rounding.is_stochastic()).then_some(ElementConversion {
            rounding: Some(rounding),
            overflow,
            flush_outputs: small == SmallResults::FlushedAfterRounding,
            negative_zero: !lose_negative_zero,
            ..ElementConversion::LIBRARY
        })
    }

    /// The fields as a text.
    pub(crate) fn describe(&self) -> String {
        let Self {
            rounding,
            random_bits,
            overflow,
            flush_inputs,
            small,
            lose_negative_zero,
            ..
        } = *self;
        let random = if rounding.is_stochastic() {
            format!(" random_bits={random_bits}")
        } else {
            String::new()
        };
        let flushed = if flush_inputs { " flush_inputs" } else { "" };
        let small = if small == SmallResults::Kept {
            ""
        } else {
            " flush_outputs"
        };
        let zero = if lose_negative_zero {
            " no_negative_zero"
        } else {
            ""
        };
        format!("rounding={rounding}{random} overflow={overflow}{flushed}{small}{zero}")
    }

    pub(crate) fn validate(&self) -> Result<(), VectorsError> {
        match self.random_bits {
            1..=31 => Ok(()),
            got => Err(VectorsError::option("random-bits", got, "1 to 31")),
        }
    }

    /// Whether numbers beyond the largest one have another code than that.
    pub(crate) fn check_overflow(&self, plan: &CodePlan) -> Result<(), VectorsError> {
        if self.overflow == ElementOverflow::Renormalize {
            return Err(VectorsError::option(
                "overflow",
                self.overflow,
                ElementOverflow::NAMES.join(", "),
            ));
        }
        let has_special = plan.nan.is_some() || plan.infinity.is_some();
        match has_special || self.overflow == ElementOverflow::Saturate {
            true => Ok(()),
            false => Err(VectorsError::option(
                "overflow",
                self.overflow,
                "saturate, as the format has neither Inf nor NaN",
            )),
        }
    }

    /// The code of a number.
    pub(crate) fn convert(&self, plan: &CodePlan, x: ExactInput, random: u32) -> u32 {
        let (negative, significand, exponent) = match x {
            ExactInput::Nan => return plan.nan.unwrap_or(0),
            ExactInput::Infinite { negative } => return self.of_infinity(plan, negative),
            ExactInput::Finite {
                subnormal: true,
                negative,
                ..
            } if self.flush_inputs => (negative, 0, 0),
            ExactInput::Finite {
                negative,
                significand,
                exponent,
                ..
            } => (negative, significand, exponent),
        };
        if significand == 0 {
            return self.zero(plan, negative);
        }
        let place = Place::of(plan, significand, exponent);
        let up = !place.is_exact() && place.is_up(self, negative, random);
        let mut magnitude = place.code + u64::from(up);
        let flushed = match self.small {
            SmallResults::Kept => false,
            SmallResults::FlushedAfterRounding => plan.is_subnormal(magnitude),
            SmallResults::FlushedBeforeRounding => {
                plan.subnormals && place.code < 1 << plan.mantissa_bits
            }
        };
        if flushed {
            magnitude = 0;
        }
        if self.top_binade_saturates && magnitude >= plan.top {
            magnitude = magnitude.max(plan.largest);
        }
        if magnitude == 0 {
            return self.zero(plan, negative);
        }
        let beyond = match negative && plan.sign == SignKind::Unsigned {
            true => true,
            false => magnitude > plan.largest,
        };
        match beyond {
            true => self.of_overflow(plan, negative),
            false => plan.signed(magnitude, negative),
        }
    }

    fn zero(&self, plan: &CodePlan, negative: bool) -> u32 {
        plan.signed(0, negative && !self.lose_negative_zero)
    }

    fn extreme(plan: &CodePlan, negative: bool) -> u32 {
        match negative && plan.sign == SignKind::Unsigned {
            true => 0,
            false => plan.signed(plan.largest, negative),
        }
    }

    /// Inf, or its substitute where there is none.
    fn infinity(plan: &CodePlan, negative: bool) -> u32 {
        let unsigned = plan.sign == SignKind::Unsigned;
        match (plan.infinity, plan.nan) {
            (Some(infinity), _) if !(negative && unsigned) => plan.signed(infinity, negative),
            (_, Some(nan)) if !plan.is_p3109 || (negative && unsigned) => nan,
            _ => Self::extreme(plan, negative),
        }
    }

    fn of_infinity(&self, plan: &CodePlan, negative: bool) -> u32 {
        match self.overflow {
            ElementOverflow::Saturate | ElementOverflow::Renormalize => {
                Self::extreme(plan, negative)
            }
            ElementOverflow::Propagate if plan.infinity.is_none() && plan.is_p3109 => {
                Self::extreme(plan, negative)
            }
            ElementOverflow::Propagate if negative && plan.sign == SignKind::Unsigned => 0,
            ElementOverflow::Propagate | ElementOverflow::Infinity => {
                Self::infinity(plan, negative)
            }
            ElementOverflow::Nan => plan.nan.unwrap_or_else(|| Self::extreme(plan, negative)),
        }
    }

    fn of_overflow(&self, plan: &CodePlan, negative: bool) -> u32 {
        match self.overflow {
            ElementOverflow::Saturate
            | ElementOverflow::Propagate
            | ElementOverflow::Renormalize => Self::extreme(plan, negative),
            ElementOverflow::Nan => plan.nan.unwrap_or_else(|| Self::extreme(plan, negative)),
            ElementOverflow::Infinity => {
                // P3109 has this exception.
                let is_exception = self.rounding == ElementRounding::ToOdd
                    && !negative
                    && plan.sign == SignKind::Unsigned
                    && plan.infinity.is_some();
                let stays = self.rounding.stays_finite(negative) || is_exception;
                if stays {
                    Self::extreme(plan, negative)
                } else {
                    Self::infinity(plan, negative)
                }
            }
        }
    }
}

/// A magnitude among the codes: at least the number of `code`, by this part of the distance to the next code.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) code: u64,
    numerator: u64,
    shift: u32,
}

impl Place {
    pub(crate) fn of(plan: &CodePlan, significand: u64, exponent: i32) -> Self {
        let own = 63 - significand.leading_zeros() as i32 + exponent;
        let binade = if plan.subnormals {
            own.max(plan.emin)
        } else {
            plan.emin
        };
        let unit = binade - plan.mantissa_bits as i32;
        let (whole, numerator, shift) = match exponent - unit {
            // Beyond any format's largest number.
            up @ 0.. => (
                significand
                    .checked_shl(up.unsigned_abs())
                    .filter(|_| up < 38)
                    .unwrap_or(1 << 62),
                0,
                0,
            ),
            down => {
                let shift = down.unsigned_abs();
                let whole = significand.checked_shr(shift).unwrap_or(0);
                (
                    whole,
                    significand - whole.checked_shl(shift).unwrap_or(0),
                    shift,
                )
            }
        };
        let base = ((binade - plan.emin) as u64) << plan.mantissa_bits;
        Self {
            code: base + whole,
            numerator,
            shift,
        }
    }

    pub(crate) fn is_exact(self) -> bool {
        self.numerator == 0
    }

    /// The fraction against one half.
    pub(crate) fn half(self) -> std::cmp::Ordering {
        (u128::from(self.numerator) << 1).cmp(&1_u128.checked_shl(self.shift).unwrap_or(u128::MAX))
    }

    /// ⌊fraction · 2^bits⌋, for at most 32 bits.
    pub(crate) fn floor(self, bits: u32) -> u64 {
        (u128::from(self.numerator) << bits)
            .checked_shr(self.shift)
            .unwrap_or(0) as u64
    }

    fn has_rest(self, bits: u32) -> bool {
        let scaled = u128::from(self.numerator) << bits;
        scaled != 0 && scaled.trailing_zeros() < self.shift
    }

    fn is_up(self, rule: &ElementRule, negative: bool, random: u32) -> bool {
        let is_odd = self.code & 1 == 1;
        match rule.rounding {
            ElementRounding::TiesToEven => self.half().is_gt() || (self.half().is_eq() && is_odd),
            ElementRounding::TiesToAway => self.half().is_ge(),
            ElementRounding::TiesToZero => self.half().is_gt(),
            ElementRounding::TiesToOdd => self.half().is_gt() || (self.half().is_eq() && !is_odd),
            ElementRounding::TiesTowardPositive => {
                self.half().is_gt() || (self.half().is_eq() && !negative)
            }
            ElementRounding::TiesTowardNegative => {
                self.half().is_gt() || (self.half().is_eq() && negative)
            }
            ElementRounding::AwayFromZero => true,
            ElementRounding::TowardZero => false,
            ElementRounding::TowardPositive => !negative,
            ElementRounding::TowardNegative => negative,
            ElementRounding::ToOdd => !is_odd,
            ElementRounding::Stochastic(variant) => {
                let (bits, random) = (rule.random_bits, u64::from(random));
                match variant {
                    StochasticVariant::A => self.floor(bits) + random >= 1 << bits,
                    StochasticVariant::B => {
                        self.floor(bits + 1) + 2 * random + 1 >= 1 << (bits + 1)
                    }
                    StochasticVariant::C => {
                        let twice = self.floor(bits + 1);
                        let (floor, half) = (twice >> 1, twice & 1 == 1);
                        let up = half && (self.has_rest(bits + 1) || floor & 1 == 1);
                        floor + u64::from(up) + random >= 1 << bits
                    }
                }
            }
        }
    }
}
