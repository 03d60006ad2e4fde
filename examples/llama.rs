//! A small Llama (rotary positions, RMS norm, SwiGLU, a tied head) in MX: training, layers in other formats, recording,
//! a resumed run, LoRA, and two ways to quantize the trained model. The book's page "A Llama in MX" explains each part.
//! ```text
//! cargo run --release --example llama
//! ```

use std::{error::Error, fs, path::Path, time::Instant};

use burn::backend::{Autodiff, Flex, flex::FlexDevice};
use burn::module::{AutodiffModule, Initializer, Param};
use burn::nn::{loss::CrossEntropyLossConfig, *};
use burn::optim::{AdamWConfig, GradientsParams, Optimizer};
use burn::record::{BinFileRecorder, FullPrecisionSettings, Recorder as _};
use burn::tensor::{backend::AutodiffBackend, module::attention, ops::AttentionModuleOptions};
use burn::{prelude::*, tensor::activation::silu};
use burn_mx::module::{MxTensorOps, label_parameters, set_specs_at};
use burn_mx::ptq::{QuantConfig, Quantizer};
use burn_mx::record::{Recorder, RecorderConfig, scope};
use burn_mx::{MxAutodiff, MxBackend, MxDevice, MxSpecs};
use rand::{RngExt, SeedableRng, rngs::StdRng};

const TOKENS: usize = 128; // ASCII
const WIDTH: usize = 64;
const HEADS: usize = 4;
const CONTEXT: usize = 64;
const BATCH: usize = 16;

// ANCHOR: model
/// An ordinary Burn model: nothing in the struct or in `forward` says what the numbers are.
#[derive(Module, Debug)]
struct Llama<B: Backend> {
    tokens: Embedding<B>,
    blocks: Vec<Block<B>>,
    norm: RmsNorm<B>,
}

#[derive(Module, Debug)]
struct Block<B: Backend> {
    attention_norm: RmsNorm<B>,
    wq: Linear<B>,
    wk: Linear<B>,
    wv: Linear<B>,
    wo: Linear<B>,
    rotary: RotaryEncoding<B>,
    mlp_norm: RmsNorm<B>,
    gate: Linear<B>,
    up: Linear<B>,
    down: Linear<B>,
    lora: Option<Lora<B>>,
}
// ANCHOR_END: model

// ANCHOR: lora
/// Two raw matrices beside `wq`. They are parameters, so a matmul takes them as weights: slot `w_elem_format`.
#[derive(Module, Debug)]
struct Lora<B: Backend> {
    a: Param<Tensor<B, 2>>,
    b: Param<Tensor<B, 2>>,
}

impl<B: Backend> Lora<B> {
    fn new(rank: usize, device: &B::Device) -> Self {
        let normal = Initializer::Normal { mean: 0.0, std: 0.1 };
        Self {
            a: normal.init([WIDTH, rank], device),
            b: Initializer::Zeros.init([rank, WIDTH], device),
        }
    }

    fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        x.matmul(self.a.val().unsqueeze()).matmul(self.b.val().unsqueeze())
    }
}
// ANCHOR_END: lora

impl<B: Backend> Block<B> {
    fn new(device: &B::Device) -> Self {
        let linear = |from, to| LinearConfig::new(from, to).with_bias(false).init(device);
        let norm = || RmsNormConfig::new(WIDTH).init(device);
        Self {
            attention_norm: norm(),
            wq: linear(WIDTH, WIDTH),
            wk: linear(WIDTH, WIDTH),
            wv: linear(WIDTH, WIDTH),
            wo: linear(WIDTH, WIDTH),
            rotary: RotaryEncodingConfig::new(CONTEXT, WIDTH / HEADS).init(device),
            mlp_norm: norm(),
            gate: linear(WIDTH, 3 * WIDTH),
            up: linear(WIDTH, 3 * WIDTH),
            down: linear(3 * WIDTH, WIDTH),
            lora: None,
        }
    }

    // ANCHOR: forward
    fn forward(&self, x: Tensor<B, 3>, name: &str) -> Tensor<B, 3> {
        let [batch, length, _] = x.dims();
        let heads = |x: Tensor<B, 3>| {
            x.reshape([batch, length, HEADS, WIDTH / HEADS]).swap_dims(1, 2)
        };
        let h = self.attention_norm.forward(x.clone());
        let mut q = self.wq.forward(h.clone());
        if let Some(lora) = &self.lora {
            q = q + lora.forward(h.clone());
        }
        let q = self.rotary.forward(heads(q));
        let k = self.rotary.forward(heads(self.wk.forward(h.clone())));
        let v = heads(self.wv.forward(h));
        let causal = AttentionModuleOptions { is_causal: true, ..Default::default() };
        // Attention's two products have no parameter. The scope names them in records.
        let context = scope(&format!("{name}.attention"), move || {
            attention(q, k, v, None, None, causal)
        });
        let x = x + self.wo.forward(context.swap_dims(1, 2).reshape([batch, length, WIDTH]));
        let h = self.mlp_norm.forward(x.clone());
        let gated = silu(self.gate.forward(h.clone())) * self.up.forward(h);
        x + self.down.forward(gated)
    }
    // ANCHOR_END: forward
}

impl<B: Backend> Llama<B> {
    fn new(device: &B::Device) -> Self {
        let tokens = EmbeddingConfig::new(TOKENS, WIDTH)
            .with_initializer(Initializer::Normal { mean: 0.0, std: 0.1 });
        Self {
            tokens: tokens.init(device),
            blocks: (0..2).map(|_| Block::new(device)).collect(),
            norm: RmsNormConfig::new(WIDTH).init(device),
        }
    }

    // ANCHOR: tied
    /// Logits, `[batch, length, TOKENS]`. The head is the transposed table of embeddings, which stays a weight.
    fn forward(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        let mut x = self.tokens.forward(tokens);
        for (i, block) in self.blocks.iter().enumerate() {
            x = block.forward(x, &format!("blocks.{i}"));
        }
        let head = self.tokens.weight.val().transpose();
        self.norm.forward(x).matmul(head.unsqueeze())
    }
    // ANCHOR_END: tied

    // ANCHOR: loss
    /// `CrossEntropyLoss` starts with `log_softmax`: from there on burn-mx computes in float32.
    fn loss(&self, text: &[u8], seed: u64) -> Tensor<B, 1> {
        let device = self.tokens.weight.val().device();
        let windows = windows::<B>(text, seed, &device);
        let [batch, length] = windows.dims();
        let logits = self.forward(windows.clone().narrow(1, 0, length - 1));
        let targets = windows.narrow(1, 1, length - 1).reshape([batch * (length - 1)]);
        let logits = logits.reshape([batch * (length - 1), TOKENS]);
        CrossEntropyLossConfig::new().init(&device).forward(logits, targets)
    }
    // ANCHOR_END: loss
}

/// Random pieces of the text, `[BATCH, CONTEXT + 1]`; the same ones for the same seed.
fn windows<B: Backend>(text: &[u8], seed: u64, device: &B::Device) -> Tensor<B, 2, Int> {
    let mut rng = StdRng::seed_from_u64(seed);
    let starts = (0..BATCH).map(|_| rng.random_range(0..text.len() - CONTEXT));
    let codes = starts.flat_map(|start| &text[start..=start + CONTEXT]);
    let codes: Vec<i64> = codes.map(|code| i64::from(*code)).collect();
    Tensor::from_data(TensorData::new(codes, [BATCH, CONTEXT + 1]), device)
}

/// The loss on text that training does not see.
fn held_out<B: Backend>(model: &Llama<B>, text: &[u8]) -> f32 {
    let losses = (0..8).map(|i| model.loss(text, 1_000 + i).into_scalar().elem::<f32>());
    losses.sum::<f32>() / 8.0
}

// ANCHOR: train
type Optim<B> = burn::optim::adaptor::OptimizerAdaptor<burn::optim::AdamW, Llama<B>, B>;

/// Burn's usual loop.
fn train<B: AutodiffBackend>(
    mut model: Llama<B>,
    optimizer: &mut Optim<B>,
    text: &[u8],
    steps: std::ops::Range<u64>,
) -> Llama<B> {
    for step in steps {
        let loss = model.loss(text, step);
        if step % 50 == 0 {
            println!("  step {step:3}: loss {:.4}", loss.clone().into_scalar().elem::<f32>());
        }
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(3e-3, model, grads);
    }
    model
}
// ANCHOR_END: train

// ANCHOR: exempt
/// The first block's down projection in MXFP8, the tied head in float32.
fn mixed<B: MxTensorOps>(model: Llama<B>) -> Result<Llama<B>, Box<dyn Error>> {
    let model = label_parameters(model);
    let model = set_specs_at(model, "blocks.0.down.*", &MxSpecs::mxfp8_e4m3().resolve()?)?;
    Ok(set_specs_at(model, "tokens", &MxSpecs::none().resolve()?)?)
}
// ANCHOR_END: exempt

fn main() -> Result<(), Box<dyn Error>> {
    let began = Instant::now();
    let out = Path::new("out/llama");
    fs::create_dir_all(out)?;
    let text: &[u8] = include_bytes!("../LICENSE-APACHE");
    let (text, rest) = text.split_at(text.len() - 1_500);
    let files = BinFileRecorder::<FullPrecisionSettings>::new();
    let start = out.join("start");
    Flex::seed(&FlexDevice, 0);
    Llama::<Flex>::new(&FlexDevice).save_file(&start, &files)?; // every run starts here

    println!("FP32");
    let model = Llama::new(&FlexDevice).load_file(&start, &files, &FlexDevice)?;
    let fp32 = train::<Autodiff<Flex>>(model, &mut AdamWConfig::new().init(), text, 0..201);
    let fp32 = fp32.valid();
    println!("  held out: {:.4}", held_out(&fp32, rest));

    println!("MXFP6, blocks.0.down in MXFP8, head in FP32, recorded");
    // ANCHOR: swap
    type B = MxAutodiff<Flex>; // was: Autodiff<Flex>
    let device = MxDevice::new(FlexDevice, "mxfp6_e3m2")?; // was: FlexDevice
    let model = Llama::<B>::new(&device).load_file(&start, &files, &device)?;
    let model = mixed(model)?;
    // ANCHOR_END: swap
    // ANCHOR: record
    let config = RecorderConfig { every: 50, ..Default::default() };
    let recording = Recorder::new(config.what_if(["mxfp8_e4m3"])).start(out.join("record"))?;
    let mut optimizer = AdamWConfig::new().init();
    let model = train(model, &mut optimizer, text, 0..101);
    let report = recording.finish()?;
    report.save(out.join("record"))?; // report.html, report.json
    // ANCHOR_END: record

    // ANCHOR: resume
    files.record(optimizer.to_record(), out.join("optimizer"))?;
    model.clone().save_file(out.join("model"), &files)?;
    let resumed = mixed(Llama::<B>::new(&device))?.load_file(out.join("model"), &files, &device)?;
    let mut other = AdamWConfig::new().init().load_record(files.load(out.join("optimizer"), &device)?);
    let resumed = train(resumed, &mut other, text, 101..201);
    let model = train(model, &mut optimizer, text, 101..201);
    assert_eq!(resumed.blocks[0].wq.weight.to_data(), model.blocks[0].wq.weight.to_data());
    println!("  held out: {:.4}; the resumed run has the same bits", held_out(&model.valid(), rest));
    // ANCHOR_END: resume

    println!("LoRA on another text, adapters in MXFP8, all else frozen");
    // ANCHOR: tune
    let mut tuned = model.no_grad();
    for block in &mut tuned.blocks {
        block.lora = Some(Lora::new(4, &device));
    }
    let mxfp8 = MxSpecs::mxfp8_e4m3().resolve()?;
    let tuned = set_specs_at(label_parameters(tuned), "blocks.*.lora.*", &mxfp8)?;
    let other = include_bytes!("../LICENSE-MIT");
    train(tuned, &mut AdamWConfig::new().init(), other, 0..51);
    // ANCHOR_END: tune

    println!("the FP32 model on text that it has not seen: {:.4}", held_out(&fp32, rest));
    // ANCHOR: cast
    let trained = out.join("fp32");
    fp32.save_file(&trained, &files)?;
    // A cast: every product and every elementwise op in MX.
    let device = MxDevice::new(FlexDevice, "mxfp4")?;
    let cast = Llama::<MxBackend<Flex>>::new(&device).load_file(&trained, &files, &device)?;
    println!("  cast to mxfp4: {:.4}", held_out(&cast, rest));
    // Post-training quantization: linear layers alone, and all else in float32.
    let device = MxDevice::default();
    let model = Llama::<MxBackend<Flex>>::new(&device).load_file(&trained, &files, &device)?;
    let calibration = [windows::<MxBackend<Flex>>(text, 0, &device).narrow(1, 0, CONTEXT)];
    let quantizer = Quantizer::new(QuantConfig::named("MXFP4E2M1")?)?;
    let quantized = quantizer.quantize(model, &calibration, |model, x| model.forward(x.clone()))?;
    println!("  quantized, MXFP4E2M1: {:.4}", held_out(&quantized.model, rest));
    // ANCHOR_END: cast
    println!("report: out/llama/record/report.html; {:.0} s", began.elapsed().as_secs_f32());
    Ok(())
}
