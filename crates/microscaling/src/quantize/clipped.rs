//! Where quantizing clips: the mask of a straight-through gradient.

use super::blocks::Job;
use super::largest::largest;
use super::layout::{check_length, checked_layout};
use super::rules::{BlockRule, Clipped};
use crate::format::BlockFormat;
use crate::processor::threads::{Divide, share_all};
use crate::quantize::QuantizeError;
use crate::round::mode::Rounder;

impl BlockFormat {
    /// Sets a gradient to zero where quantizing clips: Quartet's mask of a straight-through gradient (arXiv 2505.14669,
    /// M of algorithm 1; its code keeps a gradient where |x| / scale < 6).
    ///
    /// `values` are the elements before quantization, and `gradient` is the gradient with respect to the quantized
    /// elements. Both have this shape, and blocks lie along `axis`, as in [`quantize`](Self::quantize). An element is
    /// clipped if its magnitude is at least the largest number of its block's grid. The largest number itself counts as
    /// clipped, as in Quartet's code. NaN and Inf do not count, nor does any element of a block that becomes NaN or
    /// zero as a whole.
    ///
    /// # Errors
    /// The errors of [`quantize`](Self::quantize), for either slice. After an error the gradient is unchanged.
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
        let mut clipped = values.to_vec();
        let job = Job {
            rule: BlockRule::of(self, self.tensor_scale(|| largest(values))),
            element_rule: Clipped,
            stream: Rounder::NearestEven.stream(),
        };
        job.run_all(layout, &mut clipped);
        let (clipped, kept) = (&clipped[..], gradient);
        share_all(Masked { clipped, kept }, &|Masked { clipped, kept }| {
            for (clipped, kept) in clipped.iter().zip(kept) {
                *kept = if *clipped == 0.0 { *kept } else { 0.0 };
            }
        });
        Ok(())
    }
}

/// The rule for clipped elements and for the gradient that is kept.
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
