#![doc = include_str!("../README.md")]
#![cfg_attr(not(any(feature = "std", test)), no_std)]

extern crate alloc;

mod error;
mod format;
mod names;
pub mod p3109;
mod pack;
mod quantize;
mod round;
#[cfg(feature = "std")]
mod statistics;

pub use format::{
    BlockFormat, ElementConversion, ElementFormat, ElementOverflow, ElementRounding, FieldValue,
    FloatFormat, FormatError, Headroom, NonFinite, OuterScale, ParseFormatError, ScaleFormat,
    ScaleMode, SharedExpMethod, Shifts, SpecialCodes, SubScales, Subnormals,
};
pub use names::NameError;
#[cfg(feature = "safetensors")]
pub use pack::checkpoint::safetensors;
pub use pack::{
    DecodeNumber, Dialect, DialectError, DialectTensor, EncodeNumber, FusedGroup, FusedLayers,
    FusedLayersError, FusedNames, PackError, Packed, PackedDifference, PackedParts, PackedView,
    StoredTensor, StoredType, StoredView, WeightLayout, WeightLayoutError,
};
pub use quantize::{OperandQuantization, QuantizeError, RandomHadamard, Signs};
pub use round::mode::{Rounder, Rounding};
pub use round::random::RandomStream;
#[cfg(feature = "std")]
pub use statistics::{Comparison, ErrorParts, PartStatistics, Statistics, StatisticsParts};

/// Items for the other crates of the project.
#[doc(hidden)]
pub mod internal {
    pub use crate::format::element::table::round_on_side;
    pub use crate::format::text::parameters::Parameters;
    #[cfg(feature = "serde")]
    pub use crate::names::TextVisitor;
    pub use crate::names::parse;
    pub use crate::pack::DialectRule;
    #[cfg(feature = "safetensors")]
    pub use crate::pack::checkpoint::quark;
    #[cfg(feature = "safetensors")]
    pub use crate::pack::checkpoint::safetensors::compressed::{
        CompressedElement, CompressedNumbers, nvfp4_of_halves,
    };
    pub use crate::pack::codes::ElementCodes;
    pub use crate::quantize::PowerScale;
    pub use crate::quantize::blocks::contiguous::largest_of_block;
    pub use crate::quantize::hadamard::{LineFactors, inverse_root};
    pub use crate::quantize::largest::largest;
    pub use crate::quantize::rules::{
        FloatScaleRule, PlainBlocks, PlainRounding, PowerRules, ScaleAbove, ScalePair, Steps,
        SubScaleRule, TAME_END, TOGETHER, UnitElement, is_large,
    };
    pub use crate::round::bits;
    pub use crate::round::draws::PartStream;
    pub use crate::round::mode::{Even, Floor, Nearest, RoundingRule, Stochastic};
    pub use crate::round::words::{Condition, Int, Word};
    pub use crate::{impl_by_name, impl_serde_by_text, with_rule};
    pub use microscaling_processor::keep_freed_memory;

    /// Parts that the suite tests alone.
    pub mod parts {
        pub use crate::pack::codes::{bitstream, eights};
        pub use crate::pack::number::sealed::{FromPattern, Widen};
        pub use crate::pack::plan::elements_shape;
    }
}
