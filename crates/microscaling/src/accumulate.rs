//! Sums of products as the matrix units of chips make them.
//!
//! [`Accumulator`] describes such a unit as data, [`Chip`] has the units of chips. [`rule`] is the specification:
//! scalar, in integers. [`multiply`] computes whole products, to the bit of the rule.

mod accumulation;
mod accumulator;
mod additions;
mod chip;
mod elements_and_scales;
mod exact;
mod kernels;
mod kind;
mod lanes;
mod matrix;
mod multiply;
mod operand;
mod output;
mod pack;
mod rule;
mod text;

pub use accumulation::Accumulation;
pub use accumulator::{Accumulator, Order, Overflow, ScaleAt};
pub use chip::Chip;
pub use kind::{OperandKind, OperandType, ScaleType};
pub use matrix::AccumulatorMatrix;
pub use operand::AccumulatorOperand;
pub use output::SumFormat;
#[cfg(feature = "std")]
pub use rule::SumStatistics;
