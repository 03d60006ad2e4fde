#![doc = include_str!("../README.md")]
#![cfg_attr(not(any(feature = "std", test)), no_std)]

extern crate alloc;

mod error;
mod format;
mod names;
mod pack;
mod product;
mod quantize;
#[cfg(feature = "safetensors")]
#[doc(hidden)]
pub mod quark;
mod round;
#[cfg(feature = "std")]
mod statistics;

pub use format::{
    BlockFormat, ElementFormat, FloatFormat, FormatError, Headroom, NonFinite, OuterScale,
    ParseFormatError, ScaleFormat, ScaleMode, SharedExpMethod, Shifts, SpecialCodes, SubScales,
    Subnormals,
};
#[doc(hidden)]
pub use microscaling_processor::keep_freed_memory;
pub use names::NameError;
#[cfg(feature = "safetensors")]
pub use pack::checkpoint::safetensors;
pub use pack::{
    DecodeNumber, Dialect, DialectError, DialectTensor, EncodeNumber, PackError, Packed,
    PackedDifference, PackedParts, PackedView, StoredTensor, StoredType, StoredView, WeightLayout,
    WeightLayoutError,
};
#[cfg(feature = "std")]
pub use product::accumulate::SumStatistics;
pub use product::accumulate::{
    AccumulateError, Accumulation, Accumulator, AccumulatorMatrix, AccumulatorOperand, Chip,
    OperandKind, OperandType, Order, Overflow, ScaleAt, ScaleType, SumFormat,
};
pub use product::{
    Axis, DenseAxis, Epilogue, Line, Matrices, OperandQuantization, Panels, PanelsError,
    ProductPath, Side,
};
#[doc(hidden)]
pub use quantize::PowerScale;
pub use quantize::{QuantizeError, RandomHadamard, Signs};
pub use round::mode::{Rounder, Rounding};
pub use round::random::RandomStream;
#[cfg(feature = "std")]
pub use statistics::{Comparison, PartStatistics, Statistics, StatisticsParts};
