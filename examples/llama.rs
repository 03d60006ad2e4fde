//! A small Llama (rotary positions, RMS norm, SwiGLU, a tied head) in MX: training, layers in other formats, records, a resumed
//! run, LoRA, and two ways to quantize the trained model. The book's chapter "A Llama in MX" explains each part.
//!
//! `cargo run --release --example llama`, or with a number of steps for each printed loss, 50 by default.

use std::{env, error::Error, fs, iter, num::NonZeroU64, ops::Range, path::Path, time::Instant};

use burn::backend::{Autodiff, Flex, flex::FlexDevice};
use burn::module::{AutodiffModule, Initializer, Param};
use burn::nn::{loss::CrossEntropyLossConfig, *};
use burn::optim::{AdamWConfig, GradientsParams, Optimizer};
use burn::record::{BinFileRecorder, FullPrecisionSettings, Recorder as _, RecorderError};
use burn::tensor::{backend::AutodiffBackend, module::attention, ops::AttentionModuleOptions};
use burn::{prelude::*, tensor::Distribution};
use burn_mx::module::{MxTensorOps, label_parameters, set_specs_at};
use burn_mx::ptq::{QuantConfig, Quantizer};
use burn_mx::record::{Recorder, RecorderConfig, scope};
use burn_mx::{MxAutodiff, MxBackend, MxDevice, MxSpecs};
use rand::{RngExt, SeedableRng, rngs::StdRng};

const TOKENS: usize = 128; // ASCII
const WIDTH: usize = 64;
const HEADS: usize = 4;
const CONTEXT: usize = 64;

// ANCHOR: model
/// An ordinary Burn model: neither its fields nor `forward` say what the numbers are.
#[derive(Module, Debug)]
struct Llama<B: Backend> {
    tokens: Embedding<B>,
    blocks: Vec<Block<B>>,
    norm: RmsNorm<B>,
}

#[derive(Module, Debug)]
struct Block<B: Backend> {
    norms: [RmsNorm<B>; 2],
    wq: Linear<B>,
    wk: Linear<B>,
    wv: Linear<B>,
    wo: Linear<B>,
    rotary: RotaryEncoding<B>,
    gate: SwiGlu<B>,
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
    fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let [a, b] = [&self.a, &self.b].map(|matrix| matrix.val().unsqueeze());
        x.matmul(a).matmul(b)
    }
}
// ANCHOR_END: lora

impl<B: Backend> Block<B> {
    fn new(device: &B::Device) -> Self {
        let linear = |from, to| LinearConfig::new(from, to).with_bias(false).init(device);
        let norm = || RmsNormConfig::new(WIDTH).init(device);
        Self {
            norms: [norm(), norm()],
            wq: linear(WIDTH, WIDTH),
            wk: linear(WIDTH, WIDTH),
            wv: linear(WIDTH, WIDTH),
            wo: linear(WIDTH, WIDTH),
            rotary: RotaryEncodingConfig::new(CONTEXT, WIDTH / HEADS).init(device),
            gate: SwiGluConfig::new(WIDTH, 3 * WIDTH).init(device),
            down: linear(3 * WIDTH, WIDTH),
            lora: None,
        }
    }

    // ANCHOR: forward
    fn forward(&self, x: Tensor<B, 3>, name: &str) -> Tensor<B, 3> {
        let [batch, length, _] = x.dims();
        let split = [batch, length, HEADS, WIDTH / HEADS];
        let heads = |x: Tensor<B, 3>| x.reshape(split).swap_dims(1, 2);
        let h = self.norms[0].forward(x.clone());
        let mut q = self.wq.forward(h.clone());
        if let Some(lora) = &self.lora {
            q = q + lora.forward(h.clone());
        }
        let q = self.rotary.forward(heads(q));
        let k = self.rotary.forward(heads(self.wk.forward(h.clone())));
        let v = heads(self.wv.forward(h));
        let causal = AttentionModuleOptions {
            is_causal: true,
            ..Default::default()
        };
        // Attention's two products have no parameter. The scope names them in records.
        let y = scope(name, move || attention(q, k, v, None, None, causal));
        let y = y.swap_dims(1, 2).reshape([batch, length, WIDTH]);
        let x = x + self.wo.forward(y);
        let h = self.gate.forward(self.norms[1].forward(x.clone()));
        x + self.down.forward(h)
    }
    // ANCHOR_END: forward
}

impl<B: Backend> Llama<B> {
    fn new(device: &B::Device) -> Self {
        let (mean, std) = (0.0, 0.1);
        let tokens = EmbeddingConfig::new(TOKENS, WIDTH);
        let tokens = tokens.with_initializer(Initializer::Normal { mean, std });
        Self {
            tokens: tokens.init(device),
            blocks: (0..2).map(|_| Block::new(device)).collect(),
            norm: RmsNormConfig::new(WIDTH).init(device),
        }
    }

    // ANCHOR: head
    /// Logits, `[batch, length, TOKENS]`. The head is the transposed table of embeddings, which stays a weight.
    fn forward(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        let mut x = self.tokens.forward(tokens);
        for (i, block) in self.blocks.iter().enumerate() {
            x = block.forward(x, &format!("blocks.{i}.attention"));
        }
        let head = self.tokens.weight.val().transpose();
        self.norm.forward(x).matmul(head.unsqueeze())
    }

    /// `CrossEntropyLoss` starts with `log_softmax`: from there on burn-mx computes in float32.
    fn loss(&self, text: &[u8], seed: u64) -> Tensor<B, 1> {
        let device = self.tokens.weight.val().device();
        let windows = windows::<B>(text, seed, &device);
        let logits = self.forward(windows.clone().narrow(1, 0, CONTEXT));
        let targets: Tensor<B, 1, Int> = windows.narrow(1, 1, CONTEXT).flatten(0, 1);
        let loss = CrossEntropyLossConfig::new().init(&device);
        loss.forward(logits.flatten(0, 1), targets)
    }
    // ANCHOR_END: head
}

/// Sixteen random pieces of the text, `[16, CONTEXT + 1]`; the same ones for the same seed.
fn windows<B: Backend>(text: &[u8], seed: u64, device: &B::Device) -> Tensor<B, 2, Int> {
    let mut rng = StdRng::seed_from_u64(seed);
    let starts = (0..16).map(|_| rng.random_range(0..text.len() - CONTEXT));
    let codes = starts.flat_map(|start| &text[start..=start + CONTEXT]);
    let codes: Vec<i64> = codes.map(|code| i64::from(*code)).collect();
    Tensor::from_data(TensorData::new(codes, [16, CONTEXT + 1]), device)
}

/// The mean loss on text that training does not see.
fn held_out<B: Backend>(model: &Llama<B>, text: &[u8]) -> f32 {
    let loss = |seed| model.loss(text, seed).into_scalar().elem::<f32>();
    (1_000..1_008).map(loss).sum::<f32>() / 8.0
}

/// The steps for each printed loss.
fn interval() -> u64 {
    let Some(given) = env::args().nth(1) else {
        return 50;
    };
    given.parse::<NonZeroU64>().map_or_else(
        |_| panic!("steps for each printed loss: `{given}`, expected a whole number of at least 1"),
        NonZeroU64::get,
    )
}

/// Burn's usual loop.
fn train<B: AutodiffBackend>(
    mut model: Llama<B>,
    optimizer: &mut impl Optimizer<Llama<B>, B>,
    text: &[u8],
    steps: Range<u64>,
) -> Llama<B> {
    for step in steps {
        let loss = model.loss(text, step);
        if step % interval() == 0 {
            println!("  step {step:3}: loss {:.4}", loss.clone().into_scalar());
        }
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(3e-3, model, grads);
    }
    model
}

/// Records in float32: `CompactRecorder` would round masters to float16.
type Files = BinFileRecorder<FullPrecisionSettings>;

fn load<B: Backend>(name: &str, device: &B::Device) -> Result<Llama<B>, RecorderError> {
    Llama::new(device).load_file(name, &Files::new(), device)
}

// ANCHOR: exempt
/// The first block's down projection in MXFP8, the tied head in float32.
fn mixed<B: MxTensorOps>(model: Llama<B>) -> Result<Llama<B>, Box<dyn Error>> {
    let [mxfp8, fp32] = [MxSpecs::mxfp8_e4m3().resolve()?, MxSpecs::none().resolve()?];
    let model = set_specs_at(label_parameters(model), "blocks.0.down", &mxfp8)?;
    Ok(set_specs_at(model, "tokens", &fp32)?)
}
// ANCHOR_END: exempt

fn main() -> Result<(), Box<dyn Error>> {
    let began = Instant::now();
    let [middle, end] = [2, 3].map(|losses| losses * interval() + 1);
    // A new folder: what another run left stays.
    let names = iter::once("out/llama".to_owned()).chain((2..).map(|n| format!("out/llama-{n}")));
    let mut new = names.filter(|name| !Path::new(name).exists());
    let folder = new.next().expect("there is no end of names");
    fs::create_dir_all(&folder)?;
    env::set_current_dir(&folder)?;
    let text: &[u8] = include_bytes!("../LICENSE-APACHE");
    let (text, rest) = text.split_at(text.len() - 1_500);
    Flex::seed(&FlexDevice, 0);
    Llama::<Flex>::new(&FlexDevice).save_file("start", &Files::new())?; // every run starts here

    println!("FP32");
    let model: Llama<Autodiff<Flex>> = load("start", &FlexDevice)?;
    let fp32 = train(model, &mut AdamWConfig::new().init(), text, 0..end).valid();
    println!("  held out: {:.4}", held_out(&fp32, rest));

    println!("MXFP6, blocks.0.down in MXFP8, the head in FP32, recorded");
    // ANCHOR: swap
    type B = MxAutodiff<Flex>; // was: Autodiff<Flex>
    let device = MxDevice::new(FlexDevice, "mxfp6_e3m2")?; // was: FlexDevice
    let model = mixed(load::<B>("start", &device)?)?;
    let mut config = RecorderConfig::default().what_if(["mxfp8_e4m3"]);
    config.every = 25;
    let recording = Recorder::new(config).start("record")?;
    let mut optimizer = AdamWConfig::new().init();
    let model = train(model, &mut optimizer, text, 0..middle);
    recording.finish()?.save("record")?; // report.html, report.json
    // ANCHOR_END: swap
    // ANCHOR: resume
    model.clone().save_file("model", &Files::new())?;
    Files::new().record(optimizer.to_record(), "optimizer".into())?;
    let model = train(model, &mut optimizer, text, middle..end);
    let resumed = mixed(load::<B>("model", &device)?)?;
    let state = Files::new().load("optimizer".into(), &device)?;
    let mut optimizer = AdamWConfig::new().init().load_record(state);
    let resumed = train(resumed, &mut optimizer, text, middle..end);
    let [one, other] = [&model, &resumed].map(|model| held_out(&model.valid(), rest));
    let step = middle - 1;
    println!("  held out: {one:.4}; resumed after step {step}: {other:.4}");
    // ANCHOR_END: resume

    println!("LoRA on another text, adapters in MXFP8, the rest frozen");
    // ANCHOR: tune
    let mut model = model.no_grad();
    for block in &mut model.blocks {
        let a = Tensor::random([WIDTH, 8], Distribution::Normal(0.0, 0.3), &device);
        let [a, b] = [a, Tensor::zeros([8, WIDTH], &device)].map(Param::from_tensor);
        block.lora = Some(Lora { a, b });
    }
    let mxfp8 = MxSpecs::mxfp8_e4m3().resolve()?;
    let model = set_specs_at(label_parameters(model), "blocks.*.lora.*", &mxfp8)?;
    let text_of_mit = include_bytes!("../LICENSE-MIT");
    train(
        model,
        &mut AdamWConfig::new().init(),
        text_of_mit,
        0..middle,
    );
    // ANCHOR_END: tune

    println!("the FP32 model: {:.4}", held_out(&fp32, rest));
    // ANCHOR: cast
    fp32.save_file("fp32", &Files::new())?;
    // A cast: every product and every elementwise op in MX.
    let cast = load::<MxBackend<Flex>>("fp32", &MxDevice::new(FlexDevice, "mxfp4")?)?;
    println!("  cast to mxfp4: {:.4}", held_out(&cast, rest));
    // Post-training quantization: linear layers, and the rest in float32.
    let device = MxDevice::new(FlexDevice, "none")?;
    let model = load::<MxBackend<Flex>>("fp32", &device)?;
    let calibration = [windows(text, 0, &device).narrow(1, 0, CONTEXT)];
    let quantizer = Quantizer::new(QuantConfig::named("MXFP4E2M1")?)?;
    let quantized = quantizer.quantize(model, &calibration, |model, x| model.forward(x.clone()))?;
    println!("  quantized: {:.4}", held_out(&quantized.model, rest));
    // ANCHOR_END: cast
    println!(
        "{folder}/record/report.html: the record; {:.0?}",
        began.elapsed()
    );
    Ok(())
}
