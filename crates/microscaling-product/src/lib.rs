//! Matrix products of operands in the formats of [`microscaling`].
//!
//! * An operand whose numbers are exact in bfloat16 is quantized straight into [`Panels`]: bfloat16 numbers in the order in which
//!   the kernels read them. [`Panels::multiply`] multiplies two panels. Its documentation has the rule of the sum, which every path
//!   keeps to the bit.
//! * An [`Accumulator`] sums as a chip's matrix unit does, from V100 to B200 and MI300, or as a unit that you describe: with its
//!   alignment, its roundings and its promotions. [`Chip`] has the units of chips.

#![cfg_attr(not(any(feature = "std", test)), no_std)]

extern crate alloc;

mod accumulate;
mod epilogue;
mod error;
mod fill;
mod kernels;
mod matrices;
mod multiply;
mod panels;
mod path;
mod pieces;
mod tile_blocks;
mod transpose;

#[cfg(feature = "std")]
pub use accumulate::SumStatistics;
pub use accumulate::{
    AccumulateError, Accumulation, Accumulator, AccumulatorError, AccumulatorMatrix,
    AccumulatorOperand, Chip, OperandKind, OperandType, Order, Overflow, ParseAccumulatorError,
    ScaleAt, ScaleType, SumFormat,
};
pub use epilogue::Epilogue;
pub use error::PanelsError;
pub use fill::DenseAxis;
pub use matrices::{Axis, Matrices};
pub use panels::{Panels, Side};
pub use path::ProductPath;
pub use pieces::Line;
