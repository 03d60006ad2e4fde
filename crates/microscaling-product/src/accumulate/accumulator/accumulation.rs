//! A choice of an accumulator: by a chip's name, or by its fields.

use super::text::{promotion_text, take_promotion};
use crate::accumulate::error::{AccumulatorError, ParseAccumulatorError};
use crate::accumulate::operand::kind::OperandKind;
use crate::accumulate::{AccumulateError, Accumulator, Chip, ScaleAt};
use alloc::{format, vec::Vec};
use core::fmt;
use core::str::FromStr;
use microscaling::internal::Parameters;
use microscaling::{NameError, internal::impl_serde_by_text};

/// A choice of an accumulator: a chip, whose operands select the accumulator, or one accumulator for all operands.
///
/// As text (`FromStr`, `Display`, serde) it is the name of a chip, `hopper_promote128` (as DeepSeek-V3 has it: the partial sum moves
/// to float32 every 128 elements), `hopper(promote_every=32,scale_at=promotion)`, or an [`Accumulator`].
///
/// ```
/// use microscaling::ElementFormat;
/// use microscaling_product::{Accumulation, OperandKind};
///
/// let hopper: Accumulation = "hopper".parse()?;
/// let fp8 = OperandKind::from(ElementFormat::FP8_E4M3);
/// assert_eq!(
///     hopper.of(fp8, fp8)?.to_string(),
///     "accumulator(order=joint,terms=32,fraction_bits=13,output=e8m13_rz)"
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Accumulation {
    /// The accumulator that a chip has for the operands.
    Chip {
        /// The chip.
        chip: Chip,
        /// See [`Accumulator::promote_every`].
        promote_every: usize,
        /// See [`Accumulator::scale_at`].
        scale_at: ScaleAt,
    },
    /// This one.
    Accumulator(Accumulator),
}

impl From<Chip> for Accumulation {
    fn from(chip: Chip) -> Self {
        Self::Chip {
            chip,
            promote_every: 0,
            scale_at: ScaleAt::Product,
        }
    }
}

impl From<Accumulator> for Accumulation {
    fn from(accumulator: Accumulator) -> Self {
        Self::Accumulator(accumulator)
    }
}

/// A chip with an interval of promotion that has a name.
const NAMED: (&str, Accumulation) = (
    "hopper_promote128",
    Accumulation::Chip {
        chip: Chip::Hopper,
        promote_every: 128,
        scale_at: ScaleAt::Product,
    },
);

impl Accumulation {
    /// The accumulator for operands of these kinds.
    ///
    /// # Errors
    /// * [`AccumulateError::Chip`]: the chip has no matrix unit for them.
    /// * The errors of [`Accumulator::check`].
    pub fn of(&self, lhs: OperandKind, rhs: OperandKind) -> Result<Accumulator, AccumulateError> {
        let accumulator = match *self {
            Self::Accumulator(accumulator) => accumulator,
            Self::Chip {
                chip,
                promote_every,
                scale_at,
            } => Accumulator {
                promote_every,
                scale_at,
                ..chip.accumulator(lhs, rhs)?
            },
        };
        accumulator.check(lhs, rhs)?;
        Ok(accumulator)
    }

    /// The allowed values that an error lists.
    fn expected() -> Vec<&'static str> {
        let chips = Chip::ALL.map(Chip::name).into_iter();
        chips
            .chain([NAMED.0, "hopper(…)", "accumulator(…)"])
            .collect()
    }
}

impl fmt::Display for Accumulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == NAMED.1 {
            return f.pad(NAMED.0);
        }
        let (chip, promotion) = match self {
            Self::Accumulator(accumulator) => return accumulator.fmt(f),
            Self::Chip {
                chip,
                promote_every,
                scale_at,
            } => (
                chip.name(),
                promotion_text(*promote_every, *scale_at, ScaleAt::Product),
            ),
        };
        match promotion.strip_prefix(',') {
            None => f.pad(chip),
            Some(promotion) => f.pad(&format!("{chip}({promotion})")),
        }
    }
}

impl FromStr for Accumulation {
    type Err = ParseAccumulatorError;

    /// The choice that the text says, spelled exactly.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == NAMED.0 {
            return Ok(NAMED.1);
        }
        for chip in Chip::ALL {
            let fields = &["promote_every", "scale_at"];
            let Some(parameters) = Parameters::of(text, chip.name(), fields) else {
                continue;
            };
            let mut parameters = parameters?;
            let (promote_every, scale_at) = take_promotion(&mut parameters, ScaleAt::Product)?;
            parameters.finish()?;
            if scale_at == ScaleAt::Promotion && promote_every == 0 {
                return Err(ParseAccumulatorError::Accumulator(
                    AccumulatorError::Field {
                        order: chip.name(),
                        field: "promote_every",
                        got: 0,
                        allowed: "at least 1 with scale_at promotion",
                    },
                ));
            }
            return Ok(Self::Chip {
                chip,
                promote_every,
                scale_at,
            });
        }
        match text.starts_with("accumulator") {
            true => Ok(Self::Accumulator(text.parse()?)),
            false => Err(ParseAccumulatorError::from(NameError::new(
                "accumulator",
                text,
                Self::expected(),
            ))),
        }
    }
}

impl_serde_by_text!(Accumulation, "a chip or an accumulator");
