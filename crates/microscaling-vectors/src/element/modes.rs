//! The names of rounding modes and of overflow.

use crate::error::VectorsError;
use microscaling::p3109::StochasticVariant;
use std::fmt;
use std::str::FromStr;

/// How a number between two codes is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementRounding {
    /// `even`: to nearest, ties to the even code.
    TiesToEven,
    /// `nearest`: to nearest, ties away from zero.
    TiesToAway,
    /// `ties-to-zero`: to nearest, ties toward zero.
    TiesToZero,
    /// `floor`: toward zero.
    TowardZero,
    /// `up`: toward +∞.
    TowardPositive,
    /// `down`: toward −∞.
    TowardNegative,
    /// `odd`: an inexact number becomes the neighbour with the odd code.
    ToOdd,
    /// `stochastic`, `stochastic-b`, `stochastic-c`: the variants of P3109. Each case has a random word.
    Stochastic(StochasticVariant),
}

const ROUNDINGS: [(&str, &str, ElementRounding); 10] = [
    ("even", "NearestTiesToEven", ElementRounding::TiesToEven),
    ("nearest", "NearestTiesToAway", ElementRounding::TiesToAway),
    ("ties-to-zero", "", ElementRounding::TiesToZero),
    ("floor", "TowardZero", ElementRounding::TowardZero),
    ("up", "TowardPositive", ElementRounding::TowardPositive),
    ("down", "TowardNegative", ElementRounding::TowardNegative),
    ("odd", "ToOdd", ElementRounding::ToOdd),
    (
        "stochastic",
        "StochasticA",
        ElementRounding::Stochastic(StochasticVariant::A),
    ),
    (
        "stochastic-b",
        "StochasticB",
        ElementRounding::Stochastic(StochasticVariant::B),
    ),
    (
        "stochastic-c",
        "StochasticC",
        ElementRounding::Stochastic(StochasticVariant::C),
    ),
];

impl ElementRounding {
    /// The modes without random numbers.
    pub(crate) const FIXED: [Self; 7] = [
        Self::TiesToEven,
        Self::TiesToAway,
        Self::TiesToZero,
        Self::TowardZero,
        Self::TowardPositive,
        Self::TowardNegative,
        Self::ToOdd,
    ];

    /// Whether each case has a random word.
    pub const fn is_stochastic(self) -> bool {
        matches!(self, Self::Stochastic(_))
    }

    /// The rule of a device, in words.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::TiesToEven => "ties to even",
            Self::TiesToAway => "ties away from zero",
            Self::TiesToZero => "ties toward zero",
            Self::TowardZero => "truncation (toward zero)",
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

impl FromStr for ElementRounding {
    type Err = VectorsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = ROUNDINGS
            .iter()
            .find(|(name, report, _)| *name == text || (*report == text && !text.is_empty()));
        let allowed = || {
            ROUNDINGS.map(|(name, ..)| name).join(", ")
                + ", or a name of P3109 such as NearestTiesToEven"
        };
        found
            .map(|(.., own)| *own)
            .ok_or_else(|| VectorsError::option("rounding", text, allowed()))
    }
}

impl fmt::Display for ElementRounding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = ROUNDINGS.iter().find(|(.., own)| own == self);
        f.pad(found.map_or("", |(name, ..)| name))
    }
}

/// The code for a number beyond the largest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementOverflow {
    /// `saturate`: the largest number, for Inf, too (SatFinite of P3109).
    Saturate,
    /// `propagate`: the largest number; Inf stays Inf (SatPropagate).
    Propagate,
    /// `infinity`: by the direction of rounding Inf or the largest number, as IEEE 754 has it (SatNone). A format without Inf has NaN
    /// there, a format of P3109 without Inf the largest number.
    Infinity,
    /// `nan`: NaN, for Inf, too.
    Nan,
}

const OVERFLOWS: [(&str, &str, ElementOverflow); 4] = [
    ("saturate", "SatFinite", ElementOverflow::Saturate),
    ("propagate", "SatPropagate", ElementOverflow::Propagate),
    ("infinity", "SatNone", ElementOverflow::Infinity),
    ("nan", "", ElementOverflow::Nan),
];

impl ElementOverflow {
    pub(crate) const ALL: [Self; 4] = [Self::Nan, Self::Infinity, Self::Saturate, Self::Propagate];

    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Saturate => "overflow and Inf become the maximum",
            Self::Propagate => "overflow becomes the maximum, Inf stays Inf",
            Self::Infinity => "overflow becomes Inf",
            Self::Nan => "overflow and Inf become NaN",
        }
    }
}

impl FromStr for ElementOverflow {
    type Err = VectorsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = OVERFLOWS
            .iter()
            .find(|(name, report, _)| *name == text || (*report == text && !text.is_empty()));
        let allowed = || {
            OVERFLOWS.map(|(name, ..)| name).join(", ") + ", or a name of P3109 such as SatFinite"
        };
        found
            .map(|(.., own)| *own)
            .ok_or_else(|| VectorsError::option("overflow", text, allowed()))
    }
}

impl fmt::Display for ElementOverflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = OVERFLOWS.iter().find(|(.., own)| own == self);
        f.pad(found.map_or("", |(name, ..)| name))
    }
}
