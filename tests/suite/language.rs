//! A small Llama that is trained in float32 and inferred with in MXFP8.

use burn::backend::Flex;
use burn::backend::flex::FlexDevice;
use burn::module::{AutodiffModule, Module, ModuleMapper, Param};
use burn::nn::attention::generate_autoregressive_mask;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{
    Embedding, EmbeddingConfig, Linear, LinearConfig, RmsNorm, RmsNormConfig, RotaryEncoding,
    RotaryEncodingConfig, SwiGlu, SwiGluConfig,
};
use burn::optim::{AdamWConfig, GradientsParams, Optimizer};
use burn::prelude::*;
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn::tensor::activation::softmax;
use burn_mx::{MxBackend, MxSpecs};

use crate::support::*;

type Inference = MxBackend<Flex>;

const CONTEXT: usize = 512;
const BYTES: usize = 128;
const WIDTH: usize = 64;
const HEADS: usize = 4;

#[derive(Module, Debug)]
struct Block<B: Backend> {
    attention_norm: RmsNorm<B>,
    qkv: Linear<B>,
    output: Linear<B>,
    norm: RmsNorm<B>,
    up: SwiGlu<B>,
    down: Linear<B>,
}

#[derive(Module, Debug)]
struct Llama<B: Backend> {
    embedding: Embedding<B>,
    rotary: RotaryEncoding<B>,
    blocks: Vec<Block<B>>,
    norm: RmsNorm<B>,
    head: Linear<B>,
}

impl<B: Backend> Llama<B> {
    fn new(device: &B::Device) -> Self {
        let linear = |from, to| LinearConfig::new(from, to).with_bias(false).init(device);
        let norm = || RmsNormConfig::new(WIDTH).init(device);
        let block = || Block {
            attention_norm: norm(),
            qkv: linear(WIDTH, 3 * WIDTH),
            output: linear(WIDTH, WIDTH),
            norm: norm(),
            up: SwiGluConfig::new(WIDTH, 2 * WIDTH).init(device),
            down: linear(2 * WIDTH, WIDTH),
        };
        Self {
            embedding: EmbeddingConfig::new(BYTES, WIDTH).init(device),
            rotary: RotaryEncodingConfig::new(CONTEXT, WIDTH / HEADS).init(device),
            blocks: vec![block(), block()],
            norm: norm(),
            head: linear(WIDTH, BYTES),
        }
    }

    /// The mean cross-entropy of the bytes `[N, CONTEXT + 1]`, each but the first by those before it.
    fn loss(&self, bytes: Tensor<B, 2, Int>) -> Tensor<B, 1> {
        let [batch, length] = bytes.dims();
        let length = length - 1;
        let device = bytes.device();
        let mask = generate_autoregressive_mask::<B>(batch, length, &device).unsqueeze_dim::<4>(1);
        let mut x = self
            .embedding
            .forward(bytes.clone().slice([0..batch, 0..length]));
        for block in &self.blocks {
            let qkv = block.qkv.forward(block.attention_norm.forward(x.clone()));
            let [q, k, v] = [0, 1, 2].map(|part| {
                let part = part * WIDTH..(part + 1) * WIDTH;
                let heads = qkv.clone().slice([0..batch, 0..length, part]);
                let heads = heads.reshape([batch, length, HEADS, WIDTH / HEADS]);
                heads.swap_dims(1, 2)
            });
            let (q, k) = (self.rotary.forward(q), self.rotary.forward(k));
            let scores = q.matmul(k.transpose()) / (WIDTH as f64 / HEADS as f64).sqrt();
            let scores = scores.mask_fill(mask.clone(), f32::NEG_INFINITY);
            let heads = softmax(scores, 3).matmul(v).swap_dims(1, 2);
            x = x + block.output.forward(heads.reshape([batch, length, WIDTH]));
            let hidden = block.up.forward(block.norm.forward(x.clone()));
            x = x + block.down.forward(hidden);
        }
        let logits = self.head.forward(self.norm.forward(x));
        let targets = bytes.slice([0..batch, 1..length + 1]);
        CrossEntropyLossConfig::new().init(&device).forward(
            logits.reshape([batch * length, BYTES]),
            targets.reshape([batch * length]),
        )
    }
}

/// Matrices of numbers that depend on nothing else: other tests draw of Burn's generator meanwhile.
struct Initialize(u64);

impl<B: Backend> ModuleMapper<B> for Initialize {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        self.0 += 1;
        let seed = self.0;
        param.map(|tensor| {
            if D == 1 {
                return tensor;
            }
            let scale = (WIDTH as f64).sqrt().recip();
            let noise = noise_tensor::<B, D>(tensor.dims(), seed, &tensor.device()) * scale;
            noise.set_require_grad(tensor.is_require_grad())
        })
    }
}

/// Windows of a text, `[N, CONTEXT + 1]`.
fn windows<B: Backend>(
    starts: impl Iterator<Item = usize>,
    device: &B::Device,
) -> Tensor<B, 2, Int> {
    let text = include_bytes!("../../LICENSE-APACHE");
    let windows: Vec<i64> = starts
        .flat_map(|start| &text[start..start + CONTEXT + 1])
        .map(|byte| i64::from(byte & 127))
        .collect();
    let shape = [windows.len() / (CONTEXT + 1), CONTEXT + 1];
    Tensor::from_data(TensorData::new(windows, shape), device)
}

#[test]
fn a_llama_has_float32s_perplexity_in_mxfp8() {
    let device = FlexDevice;
    let mut model = Llama::<Plain>::new(&device).map(&mut Initialize(900));
    let mut optimizer = AdamWConfig::new().init();
    for step in 0..40 {
        let starts = (0..2).map(|i| (step * 2357 + i * 1201) % 9000);
        let loss = model.loss(windows(starts, &device));
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(6e-3, model, grads);
    }
    let model = model.valid();
    let starts = || (0..8).map(|i| 300 + i * 1100);
    let perplexity = |loss: f32| f64::from(loss).exp();
    let expected = perplexity(model.loss(windows(starts(), &device)).into_scalar());
    assert!(expected < 20.0, "{expected}: it has learned something");

    let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
    let bytes = Recorder::<Flex>::record(&recorder, model.clone().into_record(), ());
    let bytes = bytes.expect("it saves");
    let mx = mx_device(&MxSpecs::mxfp8_e4m3());
    let record = Recorder::<Inference>::load(&recorder, bytes, &mx).expect("it loads");
    let emulated = Llama::<Inference>::new(&mx).load_record(record);
    let table = values(model.rotary.freq_complex);
    assert_same_bits(
        &values(emulated.rotary.freq_complex.clone()),
        &table,
        "table",
    );
    let got = perplexity(emulated.loss(windows(starts(), &mx)).into_scalar());
    let ratio = got / expected;
    // 21 initial models gave up to 0.8 %; MXFP4 gives 1.6 to 5.5 %. A processor's order of additions is as good
    // as another initial model.
    assert!((ratio - 1.0).abs() < 1.5e-2, "{got}, in float32 {expected}");
    println!("perplexity {got}, in float32 {expected}");
}
