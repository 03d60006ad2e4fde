//! Published recipes of quantization-aware training, as specs.

use microscaling::{BlockFormat, Dialect, ElementFormat, ScaleFormat, ScaleMode};

use crate::specs::MxSpecs;

impl MxSpecs {
    /// The weights of Kimi K2 Thinking and K2.6 (by SkyRL's code, which gives the release's numbers): 4-bit integers
    /// −7 to 7 in blocks of 32 along the summed axis, with a bfloat16 scale of amax / 7. Inputs, results and the master weights'
    /// gradients have no blocks, and the gradient is [straight-through](Self::straight_through). Elementwise ops are in
    /// bfloat16 in the forward pass.
    ///
    /// The release quantizes the routed experts alone. Set these specs for the experts' paths, or for all weights by the
    /// device. The release's code rounds the quotient w / s and the product q · s to bfloat16; here both are float32. Its steps
    /// and learning rate were not found.
    pub fn kimi_qat() -> Self {
        Self::of_weights(BlockFormat::float_scale(
            ElementFormat::INT4,
            ScaleFormat::BFLOAT16,
            32,
        ))
    }

    /// The weights of gpt-oss in the quantization-aware training of NVIDIA's Model Optimizer, in the numbers that its export
    /// writes ([`Dialect::ModelOpt`]): MXFP4 with the scale 2^ceil(log2(amax / 6)), ties toward zero. All else is as in
    /// [`kimi_qat`](Self::kimi_qat): experts' weights alone, straight-through.
    ///
    /// Model Optimizer's example trains at a learning rate of 1e-5 after fine-tuning in bfloat16. OpenAI's own training rule is not
    /// known.
    pub fn gpt_oss_qat() -> Self {
        Self {
            dialect_w: Some(Dialect::ModelOpt),
            ..Self::of_weights(BlockFormat::mx(ElementFormat::FP4_E2M1, 32))
        }
    }

    /// The routed experts' weights of DeepSeek-V4 in quantization-aware training (arXiv 2606.19348, section 5.2.1): MXFP4 in blocks of 32 along the
    /// summed axis. The rest is as in [`kimi_qat`](Self::kimi_qat): the gradient is straight-through, and the forward and the backward pass read the
    /// same quantized weight.
    ///
    /// The source converts MXFP4 to FP8 in tiles of 128 × 128, whose scale is the largest block scale of the tile over 2⁶. This changes no number while the
    /// largest block scale of a tile is at most 2¹⁴ times the smallest. From 2¹⁵ on, small
    /// elements of the smallest blocks become zero in FP8, and not here.
    /// Two choices are this project's own, because the source does not say: the scale is 2^ceil(log2(amax / 6)), and ties go to even. Set
    /// these specs for the experts' paths. The other layers of the source have FP8 blocks of weights and activations, which are not part of this preset.
    pub fn deepseek_v4_qat() -> Self {
        Self::of_weights(BlockFormat {
            scale_mode: ScaleMode::Rceil,
            ..BlockFormat::mx(ElementFormat::FP4_E2M1, 32)
        })
    }

    /// This format for weights alone, with a straight-through gradient.
    fn of_weights(format: BlockFormat) -> Self {
        Self {
            a_elem_format: None,
            ..Self::of(format)
        }
        .straight_through()
    }
}
