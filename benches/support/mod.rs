//! What the benches share: the model, its training step, what is emulated of it, figures on disk.

use std::fmt::Display;
use std::fs::File;
use std::path::PathBuf;

use burn::backend::{Autodiff, Flex, NdArray};
use burn::module::{AutodiffModule, Module};
use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{Gelu, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Tensor, TensorData};
use burn_mx::{MxAutodiff, MxDevice, MxKernels, MxSpecs, ResolvedSpecs, SpecsError};
use clap::{Args, ValueEnum};
use serde::Serialize;

/// (hidden, batch)
const SIZES: [(usize, usize); 3] = [(128, 16), (256, 128), (512, 512)];

/// What is measured, and where the figures go.
#[derive(Args)]
pub(crate) struct Common {
    /// Preset to measure; may be repeated
    #[arg(long = "preset", value_name = "NAME", default_values_t = [String::from("mxfp8_e4m3")])]
    presets: Vec<String>,
    /// What is emulated of the preset; may be repeated
    #[arg(long = "variant", value_enum, default_values_t = [Variant::Full])]
    variants: Vec<Variant>,
    /// Backend underneath; may be repeated
    #[arg(long = "backend", value_enum, default_values_t = [Underneath::Flex])]
    backends: Vec<Underneath>,
    /// Also writes the figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Handed over by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

impl Common {
    /// Every preset in every variant.
    ///
    /// # Errors
    ///
    /// If a preset is unknown.
    fn cases(&self) -> Result<Vec<Case>, SpecsError> {
        let mut cases = Vec::new();
        for preset in &self.presets {
            let specs = MxSpecs::preset(preset)?;
            for &variant in &self.variants {
                cases.push(Case {
                    preset: preset.clone(),
                    variant,
                    specs: variant.of(&specs).resolve()?,
                });
            }
        }
        Ok(cases)
    }

    /// Takes every measurement of `bench`, each case on each backend, and prints its figures.
    ///
    /// # Errors
    ///
    /// If a preset is unknown or the JSON cannot be written.
    pub(crate) fn run<M: Bench>(&self, bench: &M) -> Result<(), Box<dyn std::error::Error>> {
        let cases = self.cases()?;
        let json = self.json.as_ref().map(File::create).transpose()?;
        let mut figures = Vec::new();
        for case in cases {
            for &backend in &self.backends {
                match backend {
                    Underneath::Flex => case.measure_on::<Flex, M>(backend, bench, &mut figures),
                    Underneath::NdArray => {
                        case.measure_on::<NdArray, M>(backend, bench, &mut figures);
                    }
                }
            }
        }
        if let Some(file) = json {
            serde_json::to_writer_pretty(file, &figures)?;
        }
        Ok(())
    }
}

/// What is measured of a size, emulated and in plain FP32.
pub(crate) trait Bench {
    type Value: Display + Serialize;

    /// A training step's, and inference's.
    fn measure<Mx: AutodiffBackend, Fp32: AutodiffBackend>(
        &self,
        size: (usize, usize),
        mx_device: &Mx::Device,
        fp32_device: &Fp32::Device,
    ) -> [Self::Value; 2];
}

/// One thing to measure.
struct Case {
    preset: String,
    variant: Variant,
    specs: ResolvedSpecs,
}

/// One line of the result.
#[derive(Serialize)]
struct Figure<V> {
    backend: Underneath,
    preset: String,
    variant: Variant,
    hidden: usize,
    batch: usize,
    pass: &'static str,
    #[serde(flatten)]
    value: V,
}

impl Case {
    fn measure_on<B: MxKernels, M: Bench>(
        &self,
        backend: Underneath,
        bench: &M,
        figures: &mut Vec<Figure<M::Value>>,
    ) {
        let mx_device = MxDevice::new(B::Device::default(), &self.specs);
        let fp32_device = B::Device::default();
        for (hidden, batch) in SIZES {
            let size = (hidden, batch);
            let values =
                bench.measure::<MxAutodiff<B>, Autodiff<B>>(size, &mx_device, &fp32_device);
            for (pass, value) in ["train", "inference"].into_iter().zip(values) {
                println!(
                    "{:8} {:12} {:12} ({hidden:3}, {batch:3}) {pass:9} {value}",
                    backend.name(),
                    self.preset,
                    self.variant.name(),
                );
                figures.push(Figure {
                    backend,
                    preset: self.preset.clone(),
                    variant: self.variant,
                    hidden,
                    batch,
                    pass,
                    value,
                });
            }
        }
    }
}

/// What is emulated of a preset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Variant {
    /// Products in the block format, elementwise ops in the elementwise format
    Full,
    /// Products alone
    Mx,
    /// Elementwise ops alone
    Elementwise,
}

impl Variant {
    fn of(self, preset: &MxSpecs) -> MxSpecs {
        match self {
            Self::Full => preset.clone(),
            Self::Mx => MxSpecs {
                bfloat: 0,
                fp: 0,
                ..preset.clone()
            },
            Self::Elementwise => MxSpecs {
                bfloat: preset.bfloat,
                fp: preset.fp,
                round: preset.round,
                ..MxSpecs::none()
            },
        }
    }

    /// The name on the command line and in the figures.
    fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Mx => "mx",
            Self::Elementwise => "elementwise",
        }
    }
}

/// A backend to wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Underneath {
    Flex,
    #[value(name = "ndarray")]
    NdArray,
}

impl Underneath {
    /// The name on the command line and in the figures.
    fn name(self) -> &'static str {
        match self {
            Self::Flex => "flex",
            Self::NdArray => "ndarray",
        }
    }
}

/// The reference library's FFN: layer norm, linear h → 4h, gelu, linear 4h → h, residual.
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

/// A model in training, one step at a time: mean squared error, SGD.
pub(crate) struct Trainer<B: AutodiffBackend> {
    model: Option<Ffn<B>>,
    optimizer: Box<dyn FnMut(Ffn<B>, GradientsParams) -> Ffn<B>>,
    x: Tensor<B, 2>,
    target: Tensor<B, 2>,
}

impl<B: AutodiffBackend> Trainer<B> {
    pub(crate) fn new(hidden: usize, batch: usize, device: &B::Device) -> Self {
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

    pub(crate) fn step(&mut self) {
        let model = self
            .model
            .take()
            .expect("a model is put back after each step");
        let output = model.forward(self.x.clone());
        let loss = MseLoss::new().forward(output, self.target.clone(), Reduction::Mean);
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        self.model = Some((self.optimizer)(model, grads));
    }

    /// Inference by the model as it is now.
    pub(crate) fn inference(&self) -> impl FnMut() + use<B> {
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
