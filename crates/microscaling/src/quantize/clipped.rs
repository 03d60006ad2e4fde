//! Where quantizing clips: the mask of a straight-through gradient.

use super::blocks::Job;
use super::largest::largest;
use super::layout::{Layout, check_length, checked_layout};
use super::rules::{BlockRule, Clipped};
use crate::format::BlockFormat;
use crate::quantize::QuantizeError;
use crate::round::mode::Rounder;
use alloc::vec::Vec;
use microscaling_processor::threads::{Divide, share_all};

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
        if values.is_empty() {
            return Ok(());
        }
        // Blocks end together with the axis: whole ones are tensors of their own.
        let axis = match layout.axis.is_multiple_of(layout.block) {
            true => layout.block,
            false => layout.axis,
        };
        let layout = Layout { axis, ..layout };
        let job = Job {
            rule: BlockRule::of(self, self.tensor_scale(|| largest(values))),
            element_rule: Clipped,
            stream: Rounder::NearestEven.stream().into(),
        };
        let lines = ClippedLines {
            values,
            gradient,
            line: layout.axis * layout.inner,
        };
        share_all(lines, &|lines| {
            // A copy of a few lines stays in the caches.
            let length = lines.line * (TOGETHER / lines.line).max(1);
            let pieces = lines.values.chunks(length);
            let mut clipped = Vec::new();
            for (values, gradient) in pieces.zip(lines.gradient.chunks_mut(length)) {
                clipped.clear();
                clipped.extend_from_slice(values);
                job.run_all(layout, &mut clipped);
                for (clipped, kept) in clipped.iter().zip(gradient) {
                    *kept = if *clipped == 0.0 { *kept } else { 0.0 };
                }
            }
        });
        Ok(())
    }
}

/// Elements of short lines that are worked on together.
const TOGETHER: usize = 8192;

/// Whole lines of a tensor and of its gradient. A line has whole blocks along an axis, and the elements interleaved with them.
struct ClippedLines<'a> {
    values: &'a [f32],
    gradient: &'a mut [f32],
    line: usize,
}

impl Divide for ClippedLines<'_> {
    fn elements(&self) -> usize {
        self.values.len()
    }

    fn halves(self) -> Result<[Self; 2], Self> {
        let line = self.line;
        let middle = self.values.len() / line / 2 * line;
        if middle == 0 {
            return Err(self);
        }
        let (low, high) = self.values.split_at(middle);
        let (low_gradient, high_gradient) = self.gradient.split_at_mut(middle);
        let halves = [(low, low_gradient), (high, high_gradient)];
        Ok(halves.map(|(values, gradient)| Self {
            values,
            gradient,
            line,
        }))
    }
}
