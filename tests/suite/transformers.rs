//! Transformers on handwritten digits, with causal and padding masks: gradients of every parameter, and what a mask hides.

use std::ops::Range;

use burn::module::{Module, ModuleMapper, Param};
use burn::nn::attention::{
    MhaInput, MultiHeadAttention, MultiHeadAttentionConfig, generate_autoregressive_mask,
};
use burn::nn::transformer::{
    TransformerDecoder, TransformerDecoderConfig, TransformerDecoderInput, TransformerEncoder,
    TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::nn::{Linear, LinearConfig};
use burn::prelude::*;
use burn_mx::ElementFormat;
use burn_mx::MxSpecs;

use super::digit_models::{BATCH, Classify, cosine, digits, loss};
use crate::support::*;

/// A model of the columns of an image, `[batch, 8, 16]`, and its rows.
macro_rules! readers {
    ($($name:ident { $($field:ident: $layer:ident = $config:expr),* $(,)? }($model:ident, $columns:ident, $rows:ident) $states:block)*) => { $(
        #[derive(Module, Debug)]
        struct $name<B: Backend> {
            input: Linear<B>,
            $($field: $layer<B>,)*
            head: Linear<B>,
        }

        impl<B: Backend> $name<B> {
            fn new(device: &B::Device) -> Self {
                let model = Self {
                    input: LinearConfig::new(8, 16).init(device),
                    $($field: $config.init(device),)*
                    head: LinearConfig::new(16, 10).init(device),
                };
                model.map(&mut ModerateWeights::default())
            }

            fn states(&self, $columns: Tensor<B, 3>, $rows: Tensor<B, 3>) -> Tensor<B, 3> {
                let $model = self;
                $states
            }
        }

        impl<B: Backend> Classify<B> for $name<B> {
            fn logits(&self, images: Tensor<B, 3>) -> Tensor<B, 2> {
                let rows = self.input.forward(images.clone());
                let columns = self.input.forward(images.swap_dims(1, 2));
                let states = self.states(columns, rows);
                self.head.forward(states.mean_dim(1).squeeze_dim(1))
            }
        }
    )* };
}

readers! {
    Encoder {
        encoder: TransformerEncoder = TransformerEncoderConfig::new(16, 32, 2, 2).with_dropout(0.0),
    }(model, columns, _rows) {
        let (causal, padding) = masks(&columns);
        let input = TransformerEncoderInput::new(columns).mask_attn(causal).mask_pad(padding);
        model.encoder.forward(input)
    }
    Decoder {
        decoder: TransformerDecoder = TransformerDecoderConfig::new(16, 32, 2, 2).with_dropout(0.0),
    }(model, columns, rows) {
        let (causal, padding) = masks(&columns);
        let input = TransformerDecoderInput::new(columns, rows)
            .target_mask_attn(causal)
            .memory_mask_pad(padding);
        model.decoder.forward(input)
    }
    Attention {
        causal: MultiHeadAttention = MultiHeadAttentionConfig::new(16, 2).with_dropout(0.0),
        cross: MultiHeadAttention = MultiHeadAttentionConfig::new(16, 2).with_dropout(0.0),
    }(model, columns, rows) {
        let (causal, padding) = masks(&columns);
        let x = model.causal.forward(MhaInput::self_attn(columns).mask_attn(causal)).context;
        let input = MhaInput::new(x, rows.clone(), rows).mask_pad(padding);
        model.cross.forward(input).context
    }
}

/// A causal mask, and one that hides the last positions of every other image.
fn masks<B: Backend>(x: &Tensor<B, 3>) -> (Tensor<B, 3, Bool>, Tensor<B, 2, Bool>) {
    let [batch, length, _] = x.dims();
    let hidden = (0..batch * length).map(|i| (i / length) % 2 == 1 && i % length >= 5);
    let padding = TensorData::new(hidden.collect::<Vec<bool>>(), [batch, length]);
    (
        generate_autoregressive_mask(batch, length, &x.device()),
        Tensor::from_data(padding, &x.device()),
    )
}

/// The same weights on every backend, about as Burn initializes them: small biases, scales about one.
#[derive(Default)]
struct ModerateWeights {
    path: Vec<String>,
    seed: u64,
}

impl<B: Backend> ModuleMapper<B> for ModerateWeights {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        self.seed += 1;
        let (scale, offset) = match self.path.last().map(String::as_str) {
            Some("weight") => (0.35, 0.0),
            Some("gamma") => (0.05, 1.0),
            _ => (0.05, 0.0),
        };
        let seed = self.seed;
        param.map(|old| {
            let shape = old.dims();
            let values = noise(shape.iter().product(), seed).into_iter();
            let values: Vec<f32> = values.map(|x| x * scale + offset).collect();
            Tensor::from_data(TensorData::new(values, shape), &old.device()).require_grad()
        })
    }
}

/// The gradients of every parameter by path: emulated, and in float32.
fn gradients_of<P: Classify<Plain>, M: Classify<Mx>>(
    plain: impl Fn(&burn::backend::flex::FlexDevice) -> P,
    emulated: impl Fn(&burn_mx::MxDevice<burn::backend::flex::FlexDevice>) -> M,
    specs: MxSpecs,
) -> Vec<(String, [Vec<f32>; 2])> {
    let device = Default::default();
    let model = plain(&device);
    let expected = named_gradients::<Plain, _>(&model, &loss(&model, &device).backward());
    let device = mx_device(&specs);
    let model = emulated(&device);
    let got = named_gradients::<Mx, _>(&model, &loss(&model, &device).backward());
    let both = got.into_iter().zip(expected);
    both.map(|((path, got), (_, expected))| (path, [got, expected]))
        .collect()
}

fn norm(values: &[f32]) -> f64 {
    let squares = values.iter().map(|x| f64::from(*x).powi(2));
    squares.sum::<f64>().sqrt()
}

/// How near gradients have to be to float32's gradients.
struct Bounds {
    cosine: f64,
    /// Of the norms.
    ratio: Range<f64>,
    /// Norm of the gradient of a key's bias, over the norm of its weight's gradient.
    key_bias: f64,
}

/// Asserts that the gradient of every parameter is near to float32's gradient.
///
/// The bias of a key is the exception: it adds the same number to all scores of a query, and a softmax ignores this
/// number. So its gradient is zero, and the computed gradient is rounding error alone. The error is compared with the
/// gradient of the key's weight.
///
/// Weights matter: the gradients of queries and keys are sums over a softmax's gradient, whose rows sum to zero. The
/// common part of all keys cancels in float32, but not if the rows are quantized. So biases of one half instead of Burn's
/// small ones give cosines of 0.7 in mxfp8.
fn assert_near(gradients: Vec<(String, [Vec<f32>; 2])>, bounds: Bounds) {
    let mut far = Vec::new();
    let mut weight = 0.0;
    for (path, [got, expected]) in &gradients {
        let (size, exact) = (norm(got), norm(expected));
        if path.ends_with("key.bias") {
            assert!(
                exact < 1e-5 * weight,
                "{path}: {exact:e} is no rounding error"
            );
            let ratio = size / weight;
            if ratio > bounds.key_bias {
                far.push(format!("{path}: {ratio:.2e} of the weight's"));
            }
            continue;
        }
        weight = exact;
        let (cosine, ratio) = (cosine(got, expected), size / exact);
        if cosine < bounds.cosine || !bounds.ratio.contains(&ratio) {
            far.push(format!(
                "{path}: cosine {cosine:.5}, norm {ratio:.3} of float32's"
            ));
        }
    }
    let count = gradients.len();
    assert!(
        far.is_empty(),
        "{} of {count}:\n{}",
        far.len(),
        far.join("\n")
    );
}

/// Formats with enough bits that only a fault would show: a mask that reaches a block's scale, say.
fn fine() -> MxSpecs {
    MxSpecs {
        w_elem_format: Some(ElementFormat::FLOAT16.into()),
        a_elem_format: Some(ElementFormat::FLOAT16.into()),
        bfloat: 24,
        ..MxSpecs::mx()
    }
}

macro_rules! gradients {
    ($($test:ident: $model:ident, $cosine:expr;)*) => { $(
        #[test]
        fn $test() {
            let gradients = |specs| gradients_of($model::<Plain>::new, $model::<Mx>::new, specs);
            // Measured: 0.99999, 0.999 to 1.003, 6e-5.
            let near = Bounds { cosine: 0.9999, ratio: 0.99..1.01, key_bias: 2e-4 };
            assert_near(gradients(fine()), near);
            // Measured: 0.68 to 1.06, 0.016.
            let emulated = Bounds { cosine: $cosine, ratio: 0.6..1.2, key_bias: 0.03 };
            assert_near(gradients(MxSpecs::mxfp8_e4m3()), emulated);
        }
    )* };
}

// Measured: 0.988, 0.959, 0.988.
gradients! {
    gradients_of_an_encoder_are_near_those_of_float32: Encoder, 0.97;
    gradients_of_a_decoder_are_near_those_of_float32: Decoder, 0.94;
    gradients_of_causal_and_cross_attention_are_near_those_of_float32: Attention, 0.97;
}

/// The states of the decoder for digits and for digits that change after row 5, up to that row.
fn states_before_a_change(specs: &MxSpecs) -> [Vec<f32>; 2] {
    let device = mx_device(specs);
    let model = Decoder::<Mx>::new(&device);
    let (images, _) = digits::<Mx>(&device);
    let changed = images.clone().slice_fill(s![.., 5.., ..], 0.7);
    [images.clone(), changed].map(|target| {
        let mask = generate_autoregressive_mask(BATCH, 8, &device);
        let (target, memory) = (
            model.input.forward(target),
            model.input.forward(images.clone()),
        );
        let input = TransformerDecoderInput::new(target, memory).target_mask_attn(mask);
        values(model.decoder.forward(input).slice(s![.., ..5, ..]))
    })
}

#[test]
fn a_causal_mask_hides_the_future() {
    let [first, second] = states_before_a_change(&bfloat16_only());
    assert_same_bits(&second, &first, "states before the change");
}

/// The values of attention are quantized along time, the axis that its product sums over: the scale of a block follows
/// from its largest value, masked or not.
#[test]
fn the_future_shows_through_a_causal_mask_in_the_scales_of_blocks_alone() {
    let [first, second] = states_before_a_change(&MxSpecs::mxfp8_e4m3());
    assert_ne!(second, first);
    assert!(cosine(&second, &first) > 0.999);
    // A block of one element has nothing to share.
    let alone = MxSpecs {
        block_size: 1,
        ..MxSpecs::mxfp8_e4m3()
    };
    let [first, second] = states_before_a_change(&alone);
    assert_same_bits(&second, &first, "states before the change");
}
