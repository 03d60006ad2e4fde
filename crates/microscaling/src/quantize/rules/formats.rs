//! The formats' functions for one block and one element: the definition of every number.

use super::rms::RmsScale;
use super::scale::PowerScale;
use super::{AnyNumbers, BlockRule, FloatScaleRule, OuterScaleRule, ScaleAbove};
use crate::format::BlockFormat;
use crate::round::bits::{self, ABS, pow2};
use crate::round::mode::Rounding;
use crate::round::with_rule;
use microscaling_processor::float_state::ieee;

impl BlockFormat {
    /// The exponent s of the scale 2^s of a block whose largest magnitude has the float32 pattern
    /// `amax`; `None` is the scale NaN, or a format whose scale is a float. The sign bit of `amax` is ignored.
    ///
    /// Patterns of NaN and Inf give `None`, and so does a scale that would be larger than the format's largest, 2^E. A scale below
    /// 2^−E becomes 2^−E. 2^−127, a subnormal float32, is an ordinary scale. The largest pattern of a block, compared as an
    /// integer, is the pattern of its largest magnitude, or of a NaN or Inf in the block.
    ///
    /// With [`headroom`](Self::headroom) h, a block has the exponent of a block whose largest magnitude is h · amax,
    /// computed without rounding. With [`ScaleMode::Rceil`](crate::ScaleMode::Rceil) the exponent is ceil(log2(h · p)), with p the
    /// float32 product. A block of zeros has the scale that it has without headroom.
    ///
    /// With [`ScaleMode::Rms`](crate::ScaleMode::Rms) the scale follows from all elements, see
    /// [`scale_exponent_of`](Self::scale_exponent_of); this is the scale of a block whose magnitudes are all alike.
    ///
    /// Microexponents and block floating point have s = E − 127, with E the biased exponent of the block.
    ///
    /// The format must be [valid](Self::validate).
    pub fn scale_exponent(&self, amax: u32) -> Option<i32> {
        self.scale_exponent_of(&[f32::from_bits(amax)])
    }

    /// The exponent s of the scale 2^s of a block of these elements; `None` is the scale NaN, or a format whose scale is a float. Zero
    /// elements are a block of zeros.
    ///
    /// For every scale mode but one, the result is the [`scale_exponent`](Self::scale_exponent) of the largest magnitude.
    /// With [`ScaleMode::Rms`](crate::ScaleMode::Rms), let 2^e be the power of two of the largest magnitude. Let m be the magnitudes in
    /// units of 2^(e − 15), rounded down to whole numbers, which have 16 bits at most. With M the mean of m², rounded down, s =
    /// floor(log2(h · c · √M)) + e − 15, where c = 2.92247856 / 6 and h is the [`headroom`](Self::headroom). Every step is
    /// exact in real numbers. (In a block of more than 2^30 elements M may be 0, and counts as 1.)
    ///
    /// With [`sign_scales`](Self::sign_scales), the result is the exponent of the scale for the sign of the largest magnitude. The elements
    /// of one sign alone give the scale for this sign.
    ///
    /// The format must be [valid](Self::validate).
    pub fn scale_exponent_of(&self, block: &[f32]) -> Option<i32> {
        let rule = BlockRule::of(self, None);
        let maxima = || rule.maxima(block.iter().copied());
        match &rule {
            BlockRule::Mx(rule) => {
                let (exponent, nan) = ieee(|| rule.scale(maxima()));
                (!nan).then_some(exponent)
            }
            BlockRule::FixedPoint(rule) => rule.exponent(ieee(maxima)),
            BlockRule::FloatScale(_) | BlockRule::OuterScale(_) => None,
        }
    }

    /// The tensor scale t. `amax` is the float32 pattern of the tensor's largest magnitude; its sign bit is ignored.
    ///
    /// A format without a tensor scale has t = 1. A NaN or Inf gives NaN. Zeros, and numbers close to the smallest
    /// subnormal, give 0.
    pub fn tensor_scale_of(&self, amax: u32) -> f32 {
        match ScaleAbove::of(self).filter(|_| self.tensor_scale) {
            Some(above) => f32::from_bits(ieee(|| above.scale(amax & ABS))),
            None => 1.0,
        }
    }

    /// The outer scale t of a part with this largest magnitude, given as a float32 pattern whose sign bit is ignored; `None` for a
    /// format without an outer scale. A NaN or Inf gives NaN.
    ///
    /// In the part, [`block_scale_of`](Self::block_scale_of) and [`round_scaled`](Self::round_scaled) take t for the tensor's scale.
    pub fn outer_scale_of(&self, amax: u32) -> Option<f32> {
        let rule = OuterScaleRule::of(self)?;
        Some(f32::from_bits(ieee(|| rule.above.scale(amax & ABS))))
    }

    /// The scale of a block of these elements, in a tensor with the scale `tensor_scale`, which is 1 for a format without one; NaN if either is
    /// NaN or Inf.
    ///
    /// With [`four_over_six`](Self::four_over_six), the scale is c₄ if the block's error with c₄ is less, else c₆. The error with
    /// a scale is the sum of d². d is the float32 difference of x and x quantized half to even, in every rounding mode. The
    /// unit of d is 2^(e − 17), where 2^e is the power of two of the block's largest magnitude. d is rounded down to a whole
    /// number, at most 2^16 − 1. Both sums add integers, so no order matters.
    ///
    /// With [`sign_scales`](Self::sign_scales), the result is the scale for the sign of the largest magnitude. The elements of one sign
    /// alone give the scale for this sign.
    ///
    /// The format must be [valid](Self::validate).
    pub fn block_scale_of(&self, block: &[f32], tensor_scale: f32) -> f32 {
        if self.has_exponent() {
            let exponent = self.scale_exponent_of(block);
            return exponent.map_or(f32::NAN, |exponent| f32::from_bits(pow2(exponent)));
        }
        let rule = FloatScaleRule::of(self, tensor_scale);
        let elements = block.iter().copied();
        f32::from_bits(ieee(|| {
            let [amax, refinement] = BlockRule::FloatScale(rule).maxima(elements);
            rule.block_scale_with(amax, refinement)
        }))
    }

    /// One element: scaled, rounded, saturated and scaled back. `maxima` are the float32 patterns of the largest magnitudes of its block
    /// and of its sub-block; a block without sub-blocks is its own. Sign bits are ignored. A format without a tensor scale has a
    /// `tensor_scale` of 1. `draw` matters only to [`Rounding::Stochastic`].
    ///
    /// NaN for any `x` if the scale is NaN; zero if the block is flushed. Subnormals of the element format are kept; below the
    /// smallest one the rounding decides between it and zero. With scale modes `ceil`, `even` and `rceil`, or with headroom, an MX block
    /// near the top of float32 has numbers of 2^128 and more, which no float32 is. An element that would become one of them
    /// becomes the largest number of its block that is less than 2^128.
    ///
    /// The magnitude of `x` must be at most the sub-block's, and this at most the block's. Block floating point leaves an `x` that is not
    /// finite unchanged. Not of formats whose scale follows from all elements (`rms`, four over six, several tables), nor with outer
    /// scales, sub-scales or scales by sign: [`round_scaled`](Self::round_scaled) is of these.
    ///
    /// The format must be [valid](Self::validate).
    pub fn round_element(
        &self,
        x: f32,
        maxima: [u32; 2],
        tensor_scale: f32,
        rounding: Rounding,
        draw: u32,
    ) -> f32 {
        let maxima = maxima.map(|max| max & ABS);
        BlockRule::of(self, Some(tensor_scale)).round_element(x, maxima, rounding, draw)
    }

    /// Element number `at` of a block, whose scale may follow from all its elements. Not of formats with shifts or outer scales.
    #[doc(hidden)]
    pub fn round_in_block(
        &self,
        block: &[f32],
        at: usize,
        tensor_scale: f32,
        rounding: Rounding,
        draw: u32,
    ) -> f32 {
        let rule = BlockRule::of(self, Some(tensor_scale));
        let elements = block.iter().copied();
        let [amax, mut refinement] = rule.maxima(elements.clone());
        if self.sub_scales.is_some() {
            refinement = rule.refinement_of_sub_block(at / rule.sub_block(), elements);
        }
        rule.round_element(block[at], [amax, refinement], rounding, draw)
    }

    /// One finite element of a block with this scale: scaled, rounded, saturated and scaled back.
    /// [`block_scale_of`](Self::block_scale_of) gives the scale; a sub-block's shift divides the scale by a power of two. `draw` matters only to
    /// [`Rounding::Stochastic`]. With several tables the first one counts. The function does not flush blocks.
    ///
    /// The format must be [valid](Self::validate).
    pub fn round_scaled(
        &self,
        x: f32,
        block_scale: f32,
        tensor_scale: f32,
        rounding: Rounding,
        draw: u32,
    ) -> f32 {
        if block_scale.is_nan() {
            return f32::NAN;
        }
        let exponent = || {
            let (significand, unit) = bits::parts(block_scale.to_bits());
            unit + bits::log2(significand)
        };
        // The caller gives the scale for the element's sign.
        let of_sign = Self {
            sign_scales: false,
            ..*self
        };
        let rule = BlockRule::of(&of_sign, Some(tensor_scale));
        ieee(|| {
            let grid = match &rule {
                BlockRule::Mx(rule) => rule.grid_of(exponent()).words(),
                BlockRule::FixedPoint(rule) => rule.grid_of(exponent()).words(),
                BlockRule::FloatScale(_) | BlockRule::OuterScale(_) => {
                    let rule = FloatScaleRule::of(self, tensor_scale);
                    let grid = rule.grid_of(block_scale.to_bits(), 0);
                    return with_rule!(rounding, R => rule.round::<R>(grid, x, draw));
                }
            };
            with_rule!(rounding, R => rule.round::<R>(grid, x, draw))
        })
    }

    /// How the largest magnitude of a block gives a power of two as its scale; `None` in a scale mode that looks at all elements. For
    /// other implementations of the rule.
    #[doc(hidden)]
    pub const fn power_scale(&self) -> Option<PowerScale> {
        let mantissa_bits = self.element.mantissa_bits() as i32;
        PowerScale::of(self.headroom, self.scale_mode, mantissa_bits)
    }

    /// Two thresholds for the mean of squares in [`ScaleMode::Rms`](crate::ScaleMode::Rms): 4^14 / (c · h)² and 4^15 / (c · h)², rounded
    /// up. From each of them on, the exponent of the scale is one more. For other implementations of the rule.
    #[doc(hidden)]
    pub const fn rms_steps(&self) -> [u32; 2] {
        RmsScale::of(self.headroom).steps
    }

    /// The tensor scale where there is one, of a tensor whose largest magnitude has the float32 pattern that `amax`
    /// gives.
    #[doc(hidden)]
    pub fn tensor_scale(&self, amax: impl FnOnce() -> u32) -> Option<f32> {
        self.tensor_scale.then(|| self.tensor_scale_of(amax()))
    }
}
