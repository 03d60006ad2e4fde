//! Time of a training step and of inference, emulated over plain FP32.
//!
//! `cargo bench --bench train_step -- [--preset NAME]… [--json FILE]`
//!
//! The model is the reference library's FFN: layer norm, linear h → 4h, gelu, linear 4h → h, residual; mean
//! squared error and SGD. Peer and self alternate in one process, so that what slows the machine down slows
//! both down; the figure is the median of the pairs' ratios.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use burn::backend::{Autodiff, Flex, NdArray};
use burn::module::{AutodiffModule, Module};
use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{Gelu, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Tensor, TensorData};
use burn_mx::{MxAutodiff, MxDevice, MxSpecs, ResolvedSpecs};
use clap::{Parser, ValueEnum};
use serde::Serialize;

/// (hidden, batch)
const SIZES: [(usize, usize); 3] = [(128, 16), (256, 128), (512, 512)];

#[derive(Parser)]
struct Args {
    /// Preset to measure; may be repeated
    #[arg(long = "preset", value_name = "NAME", default_values_t = [String::from("mxfp8_e4m3")])]
    presets: Vec<String>,
    /// Backend underneath; may be repeated
    #[arg(long = "backend", value_enum, default_values_t = [Name::Flex])]
    backends: Vec<Name>,
    /// Seconds to measure each figure for
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Also writes the figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Handed over by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Name {
    Flex,
    #[value(name = "ndarray")]
    NdArray,
}

/// One line of the result.
#[derive(Serialize)]
struct Figure {
    backend: &'static str,
    preset: String,
    hidden: usize,
    batch: usize,
    pass: &'static str,
    ms: f64,
    peer_ms: f64,
    ratio: f64,
}

#[derive(Module, Debug)]
struct Ffn<B: Backend> {
    norm: LayerNorm<B>,
    up: Linear<B>,
    gelu: Gelu,
    down: Linear<B>,
}

impl<B: Backend> Ffn<B> {
    fn new(hidden: usize, device: &B::Device) -> Self {
        Self {
            norm: LayerNormConfig::new(hidden).init(device),
            up: LinearConfig::new(hidden, 4 * hidden).init(device),
            gelu: Gelu::new(),
            down: LinearConfig::new(4 * hidden, hidden).init(device),
        }
    }

    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let inner = self
            .gelu
            .forward(self.up.forward(self.norm.forward(x.clone())));
        x + self.down.forward(inner)
    }
}

/// A model in training, one step at a time.
struct Trainer<B: AutodiffBackend> {
    model: Option<Ffn<B>>,
    optimizer: Box<dyn FnMut(Ffn<B>, GradientsParams) -> Ffn<B>>,
    x: Tensor<B, 2>,
    target: Tensor<B, 2>,
}

impl<B: AutodiffBackend> Trainer<B> {
    fn new(hidden: usize, batch: usize, device: &B::Device) -> Self {
        let wave = |phase: f32| {
            let values = (0..batch * hidden).map(|i| (i as f32 * 0.618 + phase).sin());
            Tensor::from_data(TensorData::new(values.collect(), [batch, hidden]), device)
        };
        let mut sgd = SgdConfig::new().init::<B, Ffn<B>>();
        Self {
            model: Some(Ffn::new(hidden, device)),
            optimizer: Box::new(move |model, grads| sgd.step(1e-3, model, grads)),
            x: wave(0.0),
            target: wave(1.0),
        }
    }

    fn step(&mut self) {
        let model = self
            .model
            .take()
            .expect("a model is put back after each step");
        let output = model.forward(self.x.clone());
        let loss = MseLoss::new().forward(output, self.target.clone(), Reduction::Mean);
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        self.model = Some((self.optimizer)(model, grads));
    }

    fn inference(&self) -> impl FnMut() + use<B> {
        let model = self
            .model
            .as_ref()
            .expect("a model is put back after each step")
            .valid();
        let x = self.x.clone().inner();
        move || {
            std::hint::black_box(model.forward(x.clone()).into_data());
        }
    }
}

/// Alternates `own` and `peer` for about `seconds`; medians in ms, and the median of the pairs' ratios.
fn pairs(seconds: f64, mut own: impl FnMut(), mut peer: impl FnMut()) -> (f64, f64, f64) {
    let time = |f: &mut dyn FnMut()| {
        let start = Instant::now();
        f();
        start.elapsed().as_secs_f64() * 1e3
    };
    for _ in 0..3 {
        own();
        peer();
    }
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let mut samples = Vec::new();
    while Instant::now() < end || samples.len() < 5 {
        samples.push((time(&mut own), time(&mut peer)));
    }
    let median = |value: fn(&(f64, f64)) -> f64| {
        let mut values: Vec<f64> = samples.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    (
        median(|pair| pair.0),
        median(|pair| pair.1),
        median(|pair| pair.0 / pair.1),
    )
}

fn measure<Mx: AutodiffBackend, Fp32: AutodiffBackend>(
    args: &Args,
    backend: &'static str,
    preset: &str,
    mx_device: &Mx::Device,
    fp32_device: &Fp32::Device,
    figures: &mut Vec<Figure>,
) {
    for (hidden, batch) in SIZES {
        let mut own = Trainer::<Mx>::new(hidden, batch, mx_device);
        let mut peer = Trainer::<Fp32>::new(hidden, batch, fp32_device);
        let train = pairs(args.seconds, || own.step(), || peer.step());
        let inference = pairs(args.seconds, own.inference(), peer.inference());
        for (pass, (ms, peer_ms, ratio)) in [("train", train), ("inference", inference)] {
            println!(
                "{backend:8} {preset:12} ({hidden:3}, {batch:3}) {pass:9} {ms:9.3} ms, FP32 {peer_ms:9.3} ms, ratio {ratio:.2}"
            );
            figures.push(Figure {
                backend,
                preset: preset.to_owned(),
                hidden,
                batch,
                pass,
                ms,
                peer_ms,
                ratio,
            });
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    let presets: Vec<(&String, ResolvedSpecs)> = args
        .presets
        .iter()
        .map(|name| Ok((name, MxSpecs::preset(name)?.resolve()?)))
        .collect::<Result<_, burn_mx::SpecsError>>()?;
    let mut figures = Vec::new();
    for (name, specs) in &presets {
        for backend in &args.backends {
            match backend {
                Name::Flex => measure::<MxAutodiff<Flex>, Autodiff<Flex>>(
                    &args,
                    "flex",
                    name,
                    &MxDevice::new(Default::default(), specs),
                    &Default::default(),
                    &mut figures,
                ),
                Name::NdArray => measure::<MxAutodiff<NdArray>, Autodiff<NdArray>>(
                    &args,
                    "ndarray",
                    name,
                    &MxDevice::new(Default::default(), specs),
                    &Default::default(),
                    &mut figures,
                ),
            }
        }
    }
    if let Some(path) = &args.json {
        serde_json::to_writer_pretty(File::create(path)?, &figures)?;
    }
    Ok(())
}
