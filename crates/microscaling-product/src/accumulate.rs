//! Sums of products as the matrix units of chips make them.
//!
//! [`Accumulator`] describes such a unit as data, [`Chip`] has the units of chips. [`rule`] is the specification:
//! scalar, in integers. [`multiply`] computes whole products, to the bit of the rule.

mod accumulator;
mod error;
mod kernels;
mod multiply;
mod operand;
mod rule;

pub use accumulator::accumulation::Accumulation;
pub use accumulator::chip::Chip;
pub use accumulator::output::SumFormat;
pub use accumulator::{Accumulator, Order, Overflow, ScaleAt};
pub use error::{AccumulateError, AccumulatorError, ParseAccumulatorError};
pub use operand::AccumulatorOperand;
pub use operand::kind::{OperandKind, OperandType, ScaleType};
pub use operand::matrix::AccumulatorMatrix;
#[cfg(feature = "std")]
pub use rule::SumStatistics;
