//! Where quantizing clips: the mask of a straight-through gradient.

use super::block_rule::{BlockRule, Sight, Words};
use super::blocks::Job;
use super::largest::largest;
use super::layout::{Layout, check_length, checked_layout};
use super::rules::{BfpRule, MicroexponentRule, MxRule, Nvfp4Rule};
use super::tensor::quantize_all;
use super::threads::{Divide, share_all};
use crate::round::RoundingRule;
use crate::round::bits::{ABS, INFINITY};
use crate::round::mode::Even;
use crate::{BlockFormat, QuantizeError, Rounder, ScaleMode};
use core::ops::Range;

impl BlockFormat {
    /// Sets a gradient to zero where quantizing clips: the mask of a straight-through gradient as Quartet has it
    /// (arXiv 2505.14669, M of algorithm 1; its code keeps a gradient where |x| / scale < 6).
    ///
    /// `values` are the elements before they are quantized, `gradient` those of the gradient with respect to what they
    /// become; both have this shape, and blocks lie along `axis`, as in [`quantize`](Self::quantize). An element is
    /// clipped if its magnitude is at least the largest number that an element of its block can become, under the
    /// block's scale: the largest number itself counts, as it does in Quartet's code. NaN and Inf do not, nor does any
    /// element of a block that becomes NaN or zero as a whole.
    ///
    /// # Errors
    /// Those of [`quantize`](Self::quantize), of either slice. The gradient is untouched then.
    pub fn mask_clipped(
        &self,
        values: &[f32],
        shape: &[usize],
        axis: usize,
        gradient: &mut [f32],
    ) -> Result<(), QuantizeError> {
        self.validate()?;
        let layout = checked_layout(values, shape, axis, self.block_shape())?;
        check_length(gradient, shape)?;
        let tensor_scale = self.tensor_scale(|| largest(values)).unwrap_or(1.0);
        let mut clipped = values.to_vec();
        let data = &mut clipped;
        match self {
            Self::Mx(format) if format.scale_mode == ScaleMode::Rms => {
                mark(MxRule::<true>::of(format), layout, data);
            }
            Self::Mx(format) => mark(MxRule::<false>::of(format), layout, data),
            Self::Microexponent(format) => mark(MicroexponentRule::of(format), layout, data),
            Self::Bfp(format) => mark(BfpRule::of(format), layout, data),
            // Fit for any tensor scale; an element takes no longer for it.
            Self::Nvfp4(format) if format.four_over_six => {
                mark(
                    Nvfp4Rule::<true, true>::of(format, tensor_scale),
                    layout,
                    data,
                );
            }
            Self::Nvfp4(format) => {
                mark(
                    Nvfp4Rule::<true, false>::of(format, tensor_scale),
                    layout,
                    data,
                );
            }
        }
        let (clipped, kept) = (&clipped[..], gradient);
        share_all(Masked { clipped, kept }, &|Masked { clipped, kept }| {
            for (clipped, kept) in clipped.iter().zip(kept) {
                *kept = if *clipped == 0.0 { *kept } else { 0.0 };
            }
        });
        Ok(())
    }
}

/// Elements become 1 where the rule clips them, else 0.
fn mark(block_rule: impl BlockRule, layout: Layout, data: &mut [f32]) {
    let block_rule = Clipped(block_rule);
    // No rounding rule makes a difference.
    let (rule, stream) = (Even, Rounder::NearestEven.stream());
    quantize_all(
        Job {
            block_rule,
            rule,
            stream,
        },
        layout,
        data,
    );
}

/// A rule whose elements become 1 where those of a rule are clipped, else 0.
#[derive(Clone, Copy)]
struct Clipped<G>(G);

/// The least pattern that is clipped.
#[derive(Clone, Copy)]
struct Limit(u32);

impl Words for Limit {
    #[inline(always)]
    fn words(self) -> [u32; 2] {
        [self.0, 0]
    }

    #[inline(always)]
    fn of([limit, _]: [u32; 2]) -> Self {
        Self(limit)
    }
}

impl<G: BlockRule> BlockRule for Clipped<G> {
    type Grid = Limit;

    const HAS_SUB_BLOCKS: bool = G::HAS_SUB_BLOCKS;
    const COUNTS_ALL: bool = G::COUNTS_ALL;
    const LOOKS_TWICE: bool = G::LOOKS_TWICE;

    #[inline(always)]
    fn sub_block(&self) -> usize {
        self.0.sub_block()
    }

    #[inline(always)]
    fn counted(abs: u32) -> u32 {
        G::counted(abs)
    }

    #[inline(always)]
    fn sight(&self, amax: u32) -> Sight {
        self.0.sight(amax)
    }

    #[inline(always)]
    fn weight(&self, sight: Sight, x: f32) -> i64 {
        self.0.weight(sight, x)
    }

    #[inline(always)]
    fn verdict(&self, amax: u32, sum: i64, length: usize) -> u32 {
        self.0.verdict(amax, sum, length)
    }

    #[inline(always)]
    fn grid(&self, amax: u32, sub_amax: u32) -> Limit {
        match self.0.largest(self.0.grid(amax, sub_amax)) {
            0 => Limit(INFINITY),
            largest => Limit(largest),
        }
    }

    #[inline(always)]
    fn largest(&self, _: Limit) -> u32 {
        1.0_f32.to_bits()
    }

    #[inline(always)]
    fn round<R: RoundingRule>(&self, Limit(limit): Limit, _: R, x: f32, _: u32) -> f32 {
        let abs = x.to_bits() & ABS;
        f32::from(u8::from((abs >= limit) & (abs < INFINITY)))
    }

    #[inline(always)]
    fn tame(&self) -> Range<u32> {
        0..0
    }

    #[inline(always)]
    fn tame_grid(&self, amax: u32, sub_amax: u32) -> [u32; 2] {
        self.grid(amax, sub_amax).words()
    }

    #[inline(always)]
    fn round_tame<R: RoundingRule>(&self, grid: [u32; 2], rule: R, x: f32) -> f32 {
        self.round(Limit::of(grid), rule, x, 0)
    }
}

/// What is clipped, and what of the gradient is kept.
struct Masked<'a> {
    clipped: &'a [f32],
    kept: &'a mut [f32],
}

impl Divide for Masked<'_> {
    fn elements(&self) -> usize {
        self.clipped.len()
    }

    fn halves(self) -> Result<[Self; 2], Self> {
        let middle = self.clipped.len() / 2;
        let (low, high) = self.clipped.split_at(middle);
        let (low_kept, high_kept) = self.kept.split_at_mut(middle);
        let halves = [(low, low_kept), (high, high_kept)];
        Ok(halves.map(|(clipped, kept)| Self { clipped, kept }))
    }
}
