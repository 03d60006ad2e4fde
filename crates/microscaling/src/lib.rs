#![doc = include_str!("../README.md")]
#![cfg_attr(not(any(feature = "std", test)), no_std)]

extern crate alloc;

mod format;
mod pack;
mod processor;
mod product;
mod quantize;
mod round;
#[cfg(feature = "std")]
mod statistics;

pub use format::{
    BfpFormat, BlockFormat, ElementFormat, FloatFormat, FloatScaleFormat, FormatError, Headroom,
    MicroexponentFormat, MxFormat, NameError, Nvfp4Format, ParseFormatError, ScaleFormat,
    ScaleMode, SharedExpMethod, SpecialCodes, SubScales,
};
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
    Axis, DenseAxis, Line, Matrices, OperandQuantization, Panels, PanelsError, ProductPath, Side,
};
pub use quantize::{QuantizeError, RandomHadamard, Signs};
pub use round::mode::{Rounder, Rounding};
pub use round::random::RandomStream;
#[cfg(feature = "std")]
pub use statistics::{Comparison, PartStatistics, Statistics, StatisticsParts};

/// Makes what an error says what `Debug` says: a `main` that returns an error prints its `Debug`.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_is_display {
    ($($error:ty),+) => {$(
        impl ::core::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::fmt::Display::fmt(self, f)
            }
        }
    )+};
}
