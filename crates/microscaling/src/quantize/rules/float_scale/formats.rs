//! The formats' functions for one block and one element.

use super::{FloatScaleRule, OuterScaleRule};
use crate::format::{BlockFormat, FloatScaleFormat, Nvfp4Format};
use crate::processor::float_state::ieee;
use crate::quantize::rules::BlockRule;
use crate::round::bits::{self, ABS, INFINITY, NAN, ONE};
use crate::round::mode::Rounding;
use crate::round::with_rule;

impl BlockFormat {
    /// The tensor scale where there is one, of a tensor whose largest magnitude has the float32 pattern that `amax`
    /// gives.
    pub(crate) fn tensor_scale(&self, amax: impl FnOnce() -> u32) -> Option<f32> {
        let format = self.float_scale().filter(|format| format.tensor_scale)?;
        Some(format.tensor_scale_of(amax()))
    }
}

impl FloatScaleFormat {
    /// The tensor scale t. `amax` is the float32 pattern of the tensor's largest magnitude; its sign bit is ignored.
    ///
    /// A format without a tensor scale has t = 1. A NaN or Inf gives NaN. Zeros, and numbers close to the smallest
    /// subnormal, give 0.
    pub fn tensor_scale_of(&self, amax: u32) -> f32 {
        f32::from_bits(match self.tensor_scale {
            false => ONE,
            true if amax & ABS >= INFINITY => NAN,
            true => {
                let (max, headroom) = (self.tensor_max(), self.headroom.value());
                ieee(|| {
                    bits::product(
                        bits::quotient(amax & ABS, max.to_bits()),
                        headroom.to_bits(),
                    )
                })
            }
        })
    }

    /// The outer scale t of a part with this largest magnitude, given as a float32 pattern whose sign bit is ignored; `None` for a
    /// format without an outer scale. A NaN or Inf gives NaN.
    ///
    /// In the part, [`block_scale_of`](Self::block_scale_of) and [`round_scaled`](Self::round_scaled) take t for the tensor's scale.
    pub fn outer_scale_of(&self, amax: u32) -> Option<f32> {
        let rule = OuterScaleRule::of(self)?;
        Some(f32::from_bits(ieee(|| rule.scale(amax & ABS))))
    }

    /// The scale c of a block of these elements, in a tensor with the scale `tensor_scale`; NaN if either is NaN or Inf.
    pub fn block_scale_of(&self, block: &[f32], tensor_scale: f32) -> f32 {
        let rule = FloatScaleRule::of(self, tensor_scale);
        let elements = block.iter().copied();
        f32::from_bits(ieee(|| {
            let [amax, second] = BlockRule::FloatScale(rule).maxima(elements);
            rule.block_scale_with(amax, second)
        }))
    }

    /// One element of a block with the scale c, one that [`block_scale_of`](Self::block_scale_of) gives, in a tensor with the
    /// scale `tensor_scale`: scaled, rounded, saturated and scaled back. `draw` matters only to [`Rounding::Stochastic`].
    /// With several tables the first one counts.
    pub fn round_scaled(
        &self,
        x: f32,
        block_scale: f32,
        tensor_scale: f32,
        rounding: Rounding,
        draw: u32,
    ) -> f32 {
        let rule = FloatScaleRule::of(self, tensor_scale);
        ieee(|| {
            let grid = rule.grid_of(block_scale.to_bits(), 0);
            with_rule!(rounding, R => rule.round::<R>(grid, x, draw))
        })
    }
}

impl Nvfp4Format {
    /// The tensor scale t. `amax` is the float32 pattern of the tensor's largest magnitude; its sign bit is ignored.
    ///
    /// A format without a tensor scale has t = 1. A NaN or Inf gives NaN. Zeros, and numbers close to the smallest
    /// subnormal, give 0.
    pub fn tensor_scale_of(&self, amax: u32) -> f32 {
        FloatScaleFormat::from(*self).tensor_scale_of(amax)
    }

    /// The E4M3 code of the scale c of a block. The block's largest magnitude has the float32 pattern `amax`, and its
    /// tensor has the scale `tensor_scale`. Codes are 0x08 (2^−6) to 0x7e (448), or 0x7f, NaN, if either argument is
    /// NaN or Inf. A tensor scale of 0 gives 0x08. The sign bit of `amax` is ignored.
    ///
    /// With [`four_over_six`](Self::four_over_six) the result is the first of the two candidates;
    /// [`block_scale_of`](Self::block_scale_of) chooses between them.
    pub fn block_scale(&self, amax: u32, tensor_scale: f32) -> u8 {
        let rule = FloatScaleRule::of(&(*self).into(), tensor_scale);
        ieee(|| rule.block_scale_code([amax & ABS, 0]) as u8)
    }

    /// The E4M3 code of the scale c of a block of these elements, as [`block_scale`](Self::block_scale).
    ///
    /// With [`four_over_six`](Self::four_over_six), c is c₄ if the block's error with c₄ is less, else c₆. The error with
    /// a scale is the sum of d². d is the float32 difference of x and x quantized half to even, in every rounding mode. The
    /// unit of d is 2^(e − 17), where 2^e is the power of two of the block's largest magnitude. d is rounded down to a whole
    /// number, at most 2^16 − 1. Both sums add integers, so no order matters.
    pub fn block_scale_of(&self, block: &[f32], tensor_scale: f32) -> u8 {
        let rule = FloatScaleRule::of(&(*self).into(), tensor_scale);
        let elements = block.iter().copied();
        ieee(|| rule.block_scale_code(BlockRule::FloatScale(rule).maxima(elements)) as u8)
    }

    /// One element of a block whose largest magnitude has the float32 pattern `amax`, in a tensor with the scale
    /// `tensor_scale`: scaled, rounded, saturated and scaled back. `draw` matters only to [`Rounding::Stochastic`].
    /// With [`four_over_six`](Self::four_over_six) the scale follows from all elements, so use
    /// [`round_scaled`](Self::round_scaled) there.
    pub fn round_element(
        &self,
        x: f32,
        amax: u32,
        tensor_scale: f32,
        rounding: Rounding,
        draw: u32,
    ) -> f32 {
        let rule = BlockRule::FloatScale(FloatScaleRule::of(&(*self).into(), tensor_scale));
        rule.round_element(x, [amax, 0], rounding, draw)
    }

    /// One element of a block whose scale c has the E4M3 code `block_scale`, one that
    /// [`block_scale_of`](Self::block_scale_of) gives, in a tensor with the scale `tensor_scale`: scaled, rounded,
    /// saturated and scaled back. `draw` matters only to [`Rounding::Stochastic`].
    pub fn round_scaled(
        &self,
        x: f32,
        block_scale: u8,
        tensor_scale: f32,
        rounding: Rounding,
        draw: u32,
    ) -> f32 {
        let format = FloatScaleFormat::from(*self);
        let rule = FloatScaleRule::of(&format, tensor_scale);
        let scale = rule.scale.decode(u32::from(block_scale & 0x7f));
        format.round_scaled(x, f32::from_bits(scale), tensor_scale, rounding, draw)
    }
}
