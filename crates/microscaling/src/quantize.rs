//! Quantizing slices: every format's `quantize`, and its parts.

pub(crate) mod blocks;
mod clipped;
mod eden;
mod elementwise;
mod error;
pub(crate) mod hadamard;
pub(crate) mod largest;
pub(crate) mod layout;
mod operand;
pub(crate) mod rules;
mod tensor;

pub use error::QuantizeError;
pub use hadamard::{RandomHadamard, Signs};
pub use operand::OperandQuantization;
pub use rules::PowerScale;

use crate::format::BlockFormat;
use crate::round::draws::PartStream;
use crate::round::mode::{Rounder, Rounding};
use largest::largest;
use layout::{BlockShape, checked_layout, square_axes};
use rules::{BlockRule, is_large};
use tensor::quantize_blocks;

impl BlockFormat {
    /// [`quantize`](Self::quantize) without the tensor scale, which is returned instead. The values then have the format's
    /// [significant bits](Self::significant_bits). The values times the tensor scale equal [`quantize`](Self::quantize)'s,
    /// up to the rounding of this product to `f32`.
    ///
    /// `None`, with unchanged data, if the format has no tensor scale, or if the data's tensor scale is NaN, Inf or below
    /// 2^−80. A scale below 2^−80 takes part in the rounding of elements.
    ///
    /// # Errors
    /// The errors of [`quantize`](Self::quantize). After an error the data are unchanged.
    pub fn quantize_without_tensor_scale(
        &self,
        data: &mut [f32],
        shape: &[usize],
        axis: usize,
        rounder: Rounder,
    ) -> Result<Option<f32>, QuantizeError> {
        self.validate()?;
        let scale = self.tensor_scale(|| largest(data));
        let scale = scale.filter(|scale| scale.is_finite() && is_large(*scale));
        match scale {
            Some(scale) => {
                let stream = rounder.stream().into();
                self.quantize_part(Some(scale), data, shape, axis, rounder.rounding(), stream)?;
            }
            None => _ = checked_layout(data, shape, axis, self.block_shape())?,
        }
        Ok(scale)
    }

    /// Quantizes a part of a tensor. The format must be [valid](Self::validate). The stream has the part's places in the tensor. A tensor
    /// scale is left out of the results, which have the format's [significant bits](Self::significant_bits); the
    /// scale must be a number, and [large](is_large).
    #[doc(hidden)]
    pub fn quantize_part(
        &self,
        tensor_scale: Option<f32>,
        data: &mut [f32],
        shape: &[usize],
        axis: usize,
        rounding: Rounding,
        stream: PartStream,
    ) -> Result<(), QuantizeError> {
        let layout = checked_layout(data, shape, axis, self.block_shape())?;
        let rule = match tensor_scale {
            Some(_) => BlockRule::of(self, tensor_scale).in_units_of_the_tensor_scale(),
            None => BlockRule::of(self, None),
        };
        quantize_blocks(rule, layout, data, rounding, stream);
        Ok(())
    }

    /// How long the blocks are.
    pub(crate) const fn block_shape(&self) -> BlockShape {
        BlockShape {
            size: self.group_size(),
            square: self.square,
        }
    }

    /// The two axes that [square](Self::square) blocks along `axis` lie along, in their order; `None` if blocks are not
    /// square.
    pub const fn square_axes(&self, axis: usize) -> Option<[usize; 2]> {
        match self.square {
            true => Some(square_axes(axis)),
            false => None,
        }
    }

    /// Replaces every element of a tensor by the value it has in this format ("fake quantization").
    ///
    /// `data` are the elements in row-major order without gaps, `shape` the lengths of the axes, and blocks lie along
    /// `axis`, counted from 0. The first block starts at the beginning of the axis, and sub-blocks start anew at the beginning of
    /// each block. The last block is shorter if the
    /// block size does not divide the axis, as if padded with zeros. A block size larger than the axis gives one short
    /// block, and block size 0 one block of the whole axis.
    ///
    /// [`round_element`](Self::round_element) defines the new value of every element, also for NaN, Inf, zero,
    /// saturation and overflow. The draw of an element for [`Rounder::Stochastic`] is word number i of its stream, with
    /// i its position in `data`. Results depend neither on the number of threads nor on the processor. A tensor may
    /// have no elements.
    ///
    /// [Square](Self::square) blocks lie along `axis` and the axis before it, or after it if `axis` is 0. For a matrix both
    /// axes give the same blocks.
    ///
    /// One pass over memory for any axis, in place: nothing is transposed. A tensor scale takes one more pass, which only reads the
    /// data. The threads of the current rayon pool share the work on large tensors (feature `rayon`).
    ///
    /// # Errors
    /// The data are untouched then.
    /// * [`QuantizeError::Format`]: the format is not [valid](Self::validate).
    /// * [`QuantizeError::AxisOutOfRange`]: `axis` is not less than the rank, `shape.len()`.
    /// * [`QuantizeError::OneAxis`]: square blocks in a tensor with one axis.
    /// * [`QuantizeError::LengthMismatch`]: `data.len()` is not the product of `shape`.
    /// * [`QuantizeError::ShapeOverflow`]: that product overflows.
    pub fn quantize(
        &self,
        data: &mut [f32],
        shape: &[usize],
        axis: usize,
        rounder: Rounder,
    ) -> Result<(), QuantizeError> {
        self.validate()?;
        let layout = checked_layout(data, shape, axis, self.block_shape())?;
        let rule = BlockRule::of(self, self.tensor_scale(|| largest(data)));
        let stream = rounder.stream().into();
        quantize_blocks(rule, layout, data, rounder.rounding(), stream);
        Ok(())
    }
}
