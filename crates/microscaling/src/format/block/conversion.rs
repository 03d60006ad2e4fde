//! Switches of hardware: how a chip converts numbers to elements where chips differ.

use crate::format::FieldValue;
use crate::names::NameError;
use crate::p3109::StochasticVariant;
use core::fmt;
use core::str::FromStr;

/// How elements are converted, where hardware differs from this library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ElementConversion {
    /// The rounding of elements. `None` leaves the choice to the caller's [`Rounding`](crate::Rounding). A
    /// [stochastic](ElementRounding::Stochastic) variant says how [`Rounding::Stochastic`](crate::Rounding::Stochastic) rounds. Any
    /// other mode is the format's own: it replaces each rounding of the caller, stochastic rounding, too.
    pub rounding: Option<ElementRounding>,
    /// N, the bits of the random number of stochastic rounding: the highest N bits of the draw, 1 to 31.
    pub random_bits: u32,
    /// The element for a number beyond the largest one.
    pub overflow: ElementOverflow,
    /// Whether an element that is subnormal after rounding becomes zero.
    pub flush_outputs: bool,
    /// Whether elements have a −0. Otherwise −0 becomes +0.
    pub negative_zero: bool,
}

impl ElementConversion {
    /// The library's conversion: the caller's rounding with 31 random bits, saturation, subnormal elements, and −0.
    pub const LIBRARY: Self = Self {
        rounding: None,
        random_bits: Self::MOST_RANDOM_BITS,
        overflow: ElementOverflow::Saturate,
        flush_outputs: false,
        negative_zero: true,
    };

    pub(crate) const MOST_RANDOM_BITS: u32 = 31;

    /// Whether this is the library's conversion.
    pub const fn is_of_library(&self) -> bool {
        let same_random = self.random_bits == Self::MOST_RANDOM_BITS && self.rounding.is_none();
        let saturates = matches!(self.overflow, ElementOverflow::Saturate);
        same_random && saturates && !self.flush_outputs && self.negative_zero
    }

    /// The first switch that differs from the library's conversion, its value and the library's.
    pub(crate) fn first_switch(&self) -> Option<(&'static str, FieldValue, &'static str)> {
        let Self {
            rounding,
            random_bits,
            overflow,
            flush_outputs,
            negative_zero,
        } = *self;
        let rounding_name = rounding.map_or("none", ElementRounding::name);
        let is_most = random_bits == Self::MOST_RANDOM_BITS;
        let saturates = overflow == ElementOverflow::Saturate;
        let switches = [
            (
                "rounding",
                rounding.is_none(),
                FieldValue::Name(rounding_name),
                "none",
            ),
            (
                "random_bits",
                is_most,
                FieldValue::Number(random_bits),
                "31",
            ),
            (
                "overflow",
                saturates,
                FieldValue::Name(overflow.name()),
                "saturate",
            ),
            (
                "flush_outputs",
                !flush_outputs,
                flush_outputs.into(),
                "false",
            ),
            ("negative_zero", negative_zero, negative_zero.into(), "true"),
        ];
        let differs = switches.into_iter().find(|(_, is_usual, ..)| !is_usual);
        differs.map(|(field, _, got, usual)| (field, got, usual))
    }

    /// The mode that replaces the caller's rounding.
    pub(crate) const fn own_rounding(&self) -> Option<ElementRounding> {
        match self.rounding {
            Some(ElementRounding::Stochastic(_)) | None => None,
            own => own,
        }
    }

    /// Whether the conversion may draw random numbers.
    pub(crate) const fn draws(&self) -> bool {
        self.own_rounding().is_none()
    }
}

impl Default for ElementConversion {
    fn default() -> Self {
        Self::LIBRARY
    }
}

/// How a number between two codes is rounded: the modes of hardware.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ElementRounding {
    /// `even`: to nearest, ties to the even code.
    TiesToEven,
    /// `nearest`: to nearest, ties away from zero.
    TiesToAway,
    /// `ties-to-zero`: to nearest, ties toward zero.
    TiesToZero,
    /// `ties-to-odd`: to nearest, ties to the odd code.
    TiesToOdd,
    /// `ties-up`: to nearest, ties toward +∞.
    TiesTowardPositive,
    /// `ties-down`: to nearest, ties toward −∞.
    TiesTowardNegative,
    /// `floor`: toward zero.
    TowardZero,
    /// `away`: away from zero.
    AwayFromZero,
    /// `up`: toward +∞.
    TowardPositive,
    /// `down`: toward −∞.
    TowardNegative,
    /// `odd`: an inexact number becomes the neighbour with the odd code.
    ToOdd,
    /// `stochastic`, `stochastic-b`, `stochastic-c`: the variants of P3109.
    Stochastic(StochasticVariant),
}

/// Name, P3109's name if it has one, mode.
const ROUNDINGS: [(&str, &str, ElementRounding); 14] = [
    ("even", "NearestTiesToEven", ElementRounding::TiesToEven),
    ("nearest", "NearestTiesToAway", ElementRounding::TiesToAway),
    ("ties-to-zero", "", ElementRounding::TiesToZero),
    ("ties-to-odd", "", ElementRounding::TiesToOdd),
    ("ties-up", "", ElementRounding::TiesTowardPositive),
    ("ties-down", "", ElementRounding::TiesTowardNegative),
    ("floor", "TowardZero", ElementRounding::TowardZero),
    ("away", "", ElementRounding::AwayFromZero),
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
    pub const FIXED: [Self; 11] = [
        Self::TiesToEven,
        Self::TiesToAway,
        Self::TiesToZero,
        Self::TowardZero,
        Self::TowardPositive,
        Self::TowardNegative,
        Self::ToOdd,
        Self::TiesToOdd,
        Self::TiesTowardPositive,
        Self::TiesTowardNegative,
        Self::AwayFromZero,
    ];

    /// The names.
    pub const NAMES: [&'static str; ROUNDINGS.len()] = {
        let mut names = [""; ROUNDINGS.len()];
        let mut i = 0;
        while i < names.len() {
            names[i] = ROUNDINGS[i].0;
            i += 1;
        }
        names
    };

    /// The name.
    pub fn name(self) -> &'static str {
        let found = ROUNDINGS.iter().find(|(.., own)| *own == self);
        found.map_or("", |(name, ..)| name)
    }

    /// Whether the mode draws random numbers.
    pub const fn is_stochastic(self) -> bool {
        matches!(self, Self::Stochastic(_))
    }

    /// Whether a finite number of this sign beyond the largest one stays finite, as rounding goes toward zero there.
    pub const fn stays_finite(self, negative: bool) -> bool {
        match self {
            Self::TowardZero => true,
            Self::TowardNegative => !negative,
            Self::TowardPositive => negative,
            Self::TiesToEven
            | Self::TiesToAway
            | Self::TiesToZero
            | Self::TiesToOdd
            | Self::TiesTowardPositive
            | Self::TiesTowardNegative
            | Self::AwayFromZero
            | Self::ToOdd
            | Self::Stochastic(_) => false,
        }
    }
}

impl FromStr for ElementRounding {
    type Err = NameError;

    /// The mode of a name, or of P3109's name.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let of_name = |(name, report, _): &&(&str, &str, Self)| {
            *name == text || (*report == text && !text.is_empty())
        };
        let found = ROUNDINGS.iter().find(of_name);
        found
            .map(|(.., own)| *own)
            .ok_or_else(|| NameError::new("rounding of elements", text, Self::NAMES.to_vec()))
    }
}

impl fmt::Display for ElementRounding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The element for a number beyond the largest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ElementOverflow {
    /// `saturate`: the largest number, for Inf, too (SatFinite of P3109).
    #[default]
    Saturate,
    /// `propagate`: the largest number; Inf stays Inf (SatPropagate). In blocks, where NaN and Inf are a matter of the block, this is
    /// `saturate`.
    Propagate,
    /// `infinity`: by the direction of rounding Inf or the largest number, as IEEE 754 has it (SatNone). A format without Inf has NaN
    /// there; a format of P3109 without Inf has the largest number.
    Infinity,
    /// `nan`: NaN, for Inf, too.
    Nan,
    /// `renormalize`: the exponent of the block grows by one, and the whole block is rounded again from its numbers. Of `bfp16ebs8`
    /// alone. A two's complement keeps its most negative code.
    Renormalize,
}

/// Name, P3109's name if it has one, kind.
const OVERFLOWS: [(&str, &str, ElementOverflow); 5] = [
    ("saturate", "SatFinite", ElementOverflow::Saturate),
    ("propagate", "SatPropagate", ElementOverflow::Propagate),
    ("infinity", "SatNone", ElementOverflow::Infinity),
    ("nan", "", ElementOverflow::Nan),
    ("renormalize", "", ElementOverflow::Renormalize),
];

impl ElementOverflow {
    /// The names of the kinds that single elements have: all but `renormalize`.
    pub const NAMES: [&'static str; OVERFLOWS.len() - 1] = {
        let mut names = [""; OVERFLOWS.len() - 1];
        let mut i = 0;
        while i < names.len() {
            names[i] = OVERFLOWS[i].0;
            i += 1;
        }
        names
    };
}

impl ElementOverflow {
    /// The name.
    pub fn name(self) -> &'static str {
        let found = OVERFLOWS.iter().find(|(.., own)| *own == self);
        found.map_or("", |(name, ..)| name)
    }

    /// The name of the saturation mode of P3109, if the kind is one.
    pub fn report_name(self) -> Option<&'static str> {
        let found = OVERFLOWS.iter().find(|(.., own)| *own == self);
        found
            .map(|(_, name, _)| *name)
            .filter(|name| !name.is_empty())
    }
}

impl FromStr for ElementOverflow {
    type Err = NameError;

    /// The kind of a name, or of P3109's name.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let of_name = |(name, report, _): &&(&str, &str, Self)| {
            *name == text || (*report == text && !text.is_empty())
        };
        let found = OVERFLOWS.iter().find(of_name);
        let allowed = || OVERFLOWS.iter().map(|(name, ..)| *name).collect();
        found
            .map(|(.., own)| *own)
            .ok_or_else(|| NameError::new("overflow of elements", text, allowed()))
    }
}

impl fmt::Display for ElementOverflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
