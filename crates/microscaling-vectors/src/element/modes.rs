//! Rounding modes and overflow as what a device does, in words.

use microscaling::p3109::StochasticVariant;
pub use microscaling::{ElementOverflow, ElementRounding};

/// The rule of a device, in words.
pub(crate) trait InWords {
    fn words(self) -> &'static str;
}

impl InWords for ElementRounding {
    fn words(self) -> &'static str {
        match self {
            Self::TiesToEven => "ties to even",
            Self::TiesToAway => "ties away from zero",
            Self::TiesToZero => "ties toward zero",
            Self::TiesToOdd => "ties to odd",
            Self::TiesTowardPositive => "ties toward +Inf",
            Self::TiesTowardNegative => "ties toward -Inf",
            Self::TowardZero => "truncation (toward zero)",
            Self::AwayFromZero => "rounding away from zero",
            Self::TowardPositive => "rounding toward +Inf",
            Self::TowardNegative => "rounding toward -Inf",
            Self::ToOdd => "rounding to odd",
            Self::Stochastic(StochasticVariant::A) => {
                "stochastic rounding, variant A (fraction cut off)"
            }
            Self::Stochastic(StochasticVariant::B) => {
                "stochastic rounding, variant B (half a unit added)"
            }
            Self::Stochastic(StochasticVariant::C) => {
                "stochastic rounding, variant C (fraction rounded)"
            }
        }
    }
}

/// The kinds of overflow that single elements have.
pub(crate) const OVERFLOWS: [ElementOverflow; 4] = [
    ElementOverflow::Nan,
    ElementOverflow::Infinity,
    ElementOverflow::Saturate,
    ElementOverflow::Propagate,
];

impl InWords for ElementOverflow {
    fn words(self) -> &'static str {
        match self {
            Self::Saturate => "overflow and Inf become the maximum",
            Self::Propagate => "overflow becomes the maximum, Inf stays Inf",
            Self::Infinity => "overflow becomes Inf",
            Self::Nan => "overflow and Inf become NaN",
            Self::Renormalize => "the block is rounded again with a larger exponent",
        }
    }
}
