#![doc = include_str!("../README.md")]
#![cfg_attr(not(any(feature = "std", test)), no_std)]

extern crate alloc;

mod accumulate;
mod error;
mod float_state;
mod format;
mod pack;
mod product;
mod quantize;
mod round;
#[cfg(feature = "std")]
mod statistics;

#[cfg(feature = "std")]
pub use accumulate::SumStatistics;
pub use accumulate::{
    Accumulation, Accumulator, AccumulatorMatrix, AccumulatorOperand, Chip, OperandKind,
    OperandType, Order, Overflow, ScaleAt, ScaleType, SumFormat,
};
pub use error::{
    AccumulateError, FormatError, NameError, PackError, PanelsError, ParseFormatError,
    QuantizeError,
};
pub use format::{
    BfpFormat, BlockFormat, ElementFormat, FloatFormat, FloatScaleFormat, Headroom,
    MicroexponentFormat, MxFormat, Nvfp4Format, ScaleFormat, ScaleMode, SharedExpMethod,
    SpecialCodes, SubScales,
};
#[cfg(feature = "safetensors")]
pub use pack::safetensors;
pub use pack::{
    DecodeNumber, Dialect, DialectError, DialectTensor, EncodeNumber, Packed, PackedDifference,
    PackedParts, PackedView, StoredTensor, StoredType, StoredView, WeightLayout, WeightLayoutError,
};
pub use product::{
    Axis, DenseAxis, Line, Matrices, OperandQuantization, Panels, ProductPath, Side,
};
pub use quantize::{RandomHadamard, Signs};
pub use round::mode::{Rounder, Rounding};
pub use round::random::RandomStream;
#[cfg(feature = "std")]
pub use statistics::{Comparison, PartStatistics, Statistics, StatisticsParts};
