//! Sums of products as the matrix units of chips make them.
//!
//! [`Accumulator`] is a description of such a unit as data, [`Chip`] has those of chips. [`rule`] is the specification:
//! scalar, in integers. [`multiply`] computes whole products, to the bit of the rule.

mod accumulator;
mod additions;
mod chip;
mod elements_and_scales;
mod exact;
mod kernels;
mod lanes;
mod multiply;
mod operand;
mod output;
mod pack;
mod rule;
mod text;

pub use accumulator::{Accumulator, Order, Overflow, ScaleAt};
pub use chip::{Accumulation, Chip};
pub use operand::{AccumulatorOperand, OperandKind, OperandType, ScaleType};
pub use output::SumFormat;
