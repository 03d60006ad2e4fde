#![doc = include_str!("../README.md")]
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
mod piece_plan;
mod sources;
mod tile_blocks;
mod tiles;

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
pub use path::{ProductCounts, ProductPath, are_products_reproducible, reproducible_products};
pub use sources::Line;
