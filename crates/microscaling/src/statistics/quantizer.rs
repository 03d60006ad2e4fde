//! Quantization of a part of a tensor, to be looked at and forgotten.

use crate::quantize::block_rule::BlockRule;
use crate::quantize::blocks::{Blocks, Job};
use crate::quantize::instruction_set::dispatch;
use crate::quantize::layout::Layout;
use crate::quantize::rules::with_block_rule;
use crate::round::with_rule;
use crate::{FloatFormat, OperandQuantization, RandomStream, Rounding};
use alloc::boxed::Box;

/// Quantizes the blocks of a part, given its layout and its position on the axis.
type Quantize = Box<dyn Fn(&mut [f32], Layout, usize) + Sync>;

/// The roundings of a tensor, none of them stochastic.
pub(super) struct Quantizer {
    elementwise: Option<(FloatFormat, Rounding)>,
    blocks: Option<Quantize>,
}

impl Quantizer {
    /// Of a tensor with this scale, if the format has tensor scales.
    pub(super) fn of(quantization: &OperandQuantization, tensor_scale: Option<f32>) -> Self {
        let blocks = quantization.blocks.map(|(format, rounding)| {
            let tensor_scale = tensor_scale.unwrap_or(1.0);
            with_block_rule!(&format, tensor_scale, block_rule => by_rule(block_rule, rounding))
        });
        Self {
            elementwise: quantization.elementwise,
            blocks,
        }
    }

    /// Rounds to the elementwise format, if there is one.
    pub(super) fn round(&self, data: &mut [f32]) {
        round(self.elementwise, data);
    }

    /// Quantizes in blocks, if there are any.
    pub(super) fn quantize(&self, data: &mut [f32], layout: Layout, at: usize) {
        if let Some(quantize) = &self.blocks {
            quantize(data, layout, at);
        }
    }
}

/// Rounds to an elementwise format, if there is one.
pub(super) fn round(elementwise: Option<(FloatFormat, Rounding)>, data: &mut [f32]) {
    if let Some((format, rounding)) = elementwise {
        format.round_slice(data, rounding.with(RandomStream::new(0, 0)));
    }
}

fn by_rule<G: BlockRule + 'static>(block_rule: G, rounding: Rounding) -> Quantize {
    let stream = RandomStream::new(0, 0);
    with_rule!(rounding, rule => Box::new(move |data, layout, at| {
        let job = Job { block_rule, rule, stream };
        let start = 0;
        dispatch(Blocks { job, layout, data, at, start });
    }))
}
