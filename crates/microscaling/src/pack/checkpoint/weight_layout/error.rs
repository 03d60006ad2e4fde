//! Why a weight is not laid out, or is none of a layout.

use super::{StoredType, WeightLayout};
use crate::format::BlockFormat;
use crate::pack::PackError;
use alloc::{boxed::Box, string::String, vec::Vec};
use thiserror::Error;

/// Why a layout cannot represent a weight, or why a file's tensors are not a weight in the layout.
#[derive(Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum WeightLayoutError {
    /// The layout is of another format.
    #[error("layout {layout}: `{name}` is {format}, expected {}", .layout.format())]
    Format {
        /// The layout.
        layout: WeightLayout,
        /// Name of the weight.
        name: String,
        /// Its format, which differs from [the layout's format](WeightLayout::format). The scale's rule does not
        /// matter.
        format: Box<BlockFormat>,
    },
    /// The layout has no place for such a shape, or for blocks along such an axis.
    #[error(
        "layout {layout}: `{name}` has shape {shape:?} with blocks along axis {axis}, expected {} with blocks along the last \
         one, a multiple of {block}",
        if .layout.any_rank() { "two axes or more" } else { "two axes" }
    )]
    Shape {
        /// The layout.
        layout: WeightLayout,
        /// Name of the weight.
        name: String,
        /// Its shape.
        shape: Vec<usize>,
        /// The axis that its blocks lie along.
        axis: usize,
        /// Elements in a block.
        block: usize,
    },
    /// A block, or the whole weight, is NaN or Inf. Readers of the layout would take the scale for a number.
    #[error("layout {layout}: block {block} of `{name}` is NaN or Inf, expected numbers")]
    NotANumber {
        /// The layout.
        layout: WeightLayout,
        /// Name of the weight.
        name: String,
        /// Number of the block, in the order of the scales.
        block: usize,
    },
    /// No float32 has the tensor scale for its reciprocal.
    #[error(
        "layout nvfp4-pack-quantized: the tensor scale of `{name}` is {tensor_scale:e}, expected the reciprocal of a float32, \
         rounded: the layout stores that number (the dialect compressed-tensors packs weights with such a scale, and knows \
         the number; the layout modelopt-nvfp4 stores any scale itself)"
    )]
    Divisor {
        /// Name of the weight.
        name: String,
        /// Its tensor scale.
        tensor_scale: f32,
    },
    /// The file has no tensor of this name.
    #[error("layout: `{part}` is missing")]
    Missing {
        /// Name of the tensor.
        part: String,
    },
    /// A tensor is of another type.
    #[error("layout: `{part}` is {got:?}, expected {expected:?}")]
    Type {
        /// Name of the tensor.
        part: String,
        /// The expected type.
        expected: StoredType,
        /// The value in the file.
        got: StoredType,
    },
    /// The layout does not have a tensor of this shape, or the shape contradicts the number of bytes.
    #[error(
        "layout: `{part}` has shape {shape:?} and {bytes} bytes, which matches no part of a weight in this layout"
    )]
    Part {
        /// Name of the tensor.
        part: String,
        /// Its shape.
        shape: Vec<usize>,
        /// How many bytes it has.
        bytes: usize,
    },
    /// There are more or fewer scales than blocks.
    #[error("layout: `{part}` has shape {got:?}, expected {expected:?}")]
    Scales {
        /// Name of the tensor.
        part: String,
        /// The shape that belongs to the elements.
        expected: Vec<usize>,
        /// The value in the file.
        got: Vec<usize>,
    },
    /// The parts do not make up a packed tensor.
    #[error("layout: `{name}`: {source}")]
    Pack {
        /// Name of the weight.
        name: String,
        /// The defect.
        source: PackError,
    },
}

crate::error::debug_is_display!(WeightLayoutError);
