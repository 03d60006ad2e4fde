//! Quantization of a part of a tensor for its statistics; the values are not kept.

use crate::format::FloatFormat;
use crate::quantize::OperandQuantization;
use crate::quantize::blocks::Job;
use crate::quantize::layout::Layout;
use crate::quantize::rules::BlockRule;
use crate::round::mode::Rounding;
use crate::round::random::RandomStream;
use crate::round::with_rule;
use microscaling_processor::instruction_set::at_level;

/// The roundings of a tensor, without stochastic ones.
pub(super) struct Quantizer {
    elementwise: Option<(FloatFormat, Rounding)>,
    blocks: Option<(BlockRule, Rounding)>,
}

impl Quantizer {
    /// The quantizer of a tensor with this scale, if the format has tensor scales.
    pub(super) fn of(quantization: &OperandQuantization, tensor_scale: Option<f32>) -> Self {
        let blocks = quantization.blocks;
        let blocks =
            blocks.map(|(format, rounding)| (BlockRule::of(&format, tensor_scale), rounding));
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
        let Some((rule, rounding)) = self.blocks else {
            return;
        };
        let stream = RandomStream::default().into();
        with_rule!(rounding, R => {
            let job = Job { rule, element_rule: R, stream };
            at_level(|level| job.run(level, layout, data, at, 0));
        });
    }
}

/// Rounds to an elementwise format, if there is one.
pub(super) fn round(elementwise: Option<(FloatFormat, Rounding)>, data: &mut [f32]) {
    if let Some((format, rounding)) = elementwise {
        format.round_slice(data, rounding.with(RandomStream::default()));
    }
}
