//! The models that are measured, and a training step of them.

mod resnet;

use std::fmt;

use burn::module::{AutodiffModule, Module, ModuleMapper, Param};
use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::nn::{Gelu, LayerNorm, LayerNormConfig, Linear, LinearConfig, Lstm, LstmConfig};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{AdamWConfig, GradientsParams, Optimizer, SgdConfig};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{FloatDType, Tensor, TensorData};
use burn_mx::optim::AdamW;
use clap::ValueEnum;
use serde::Serialize;

use super::Trained;
use resnet::{CLASSES, INPUT, ResNet18};

/// A kind of model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// The reference's FFN: layer norm, linear h → 4h, gelu, linear 4h → h, residual
    Ffn,
    /// The same with 2048 and 4096 features, for GPUs
    #[value(name = "ffn2048")]
    Ffn2048,
    /// Burn's transformer encoder, without a mask
    Transformer,
    /// The encoder with 2048 features and 1024 tokens, for GPUs
    #[value(name = "transformer2048")]
    Transformer2048,
    /// Burn's LSTM, over sequences
    Lstm,
    /// ResNet-18 on images of 64 × 64
    #[value(name = "resnet18")]
    ResNet18,
}

impl Kind {
    /// The measurements of a model.
    pub(crate) fn workloads(self) -> Vec<Workload> {
        let ffn = |hidden, batch| Workload::Ffn { hidden, batch };
        match self {
            Self::Ffn => vec![ffn(128, 16), ffn(256, 128), ffn(512, 512), ffn(1024, 1024)],
            Self::Ffn2048 => vec![ffn(2048, 2048), ffn(4096, 4096)],
            Self::Transformer => vec![
                // About as the example `compare` has it.
                Workload::Transformer {
                    hidden: 64,
                    heads: 4,
                    layers: 2,
                    length: 12,
                    batch: 64,
                },
                Workload::Transformer {
                    hidden: 512,
                    heads: 8,
                    layers: 1,
                    length: 256,
                    batch: 4,
                },
            ],
            Self::Transformer2048 => vec![Workload::Transformer {
                hidden: 2048,
                heads: 16,
                layers: 1,
                length: 1024,
                batch: 2,
            }],
            Self::Lstm => vec![
                // About as the example `compare` has it.
                Workload::Lstm {
                    hidden: 64,
                    length: 8,
                    batch: 64,
                },
                Workload::Lstm {
                    hidden: 512,
                    length: 32,
                    batch: 64,
                },
            ],
            Self::ResNet18 => vec![Workload::ResNet18 { batch: 8 }],
        }
    }
}

/// A model of some size, and a batch for it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Workload {
    Ffn {
        hidden: usize,
        batch: usize,
    },
    Transformer {
        hidden: usize,
        heads: usize,
        layers: usize,
        length: usize,
        batch: usize,
    },
    Lstm {
        hidden: usize,
        length: usize,
        batch: usize,
    },
    ResNet18 {
        batch: usize,
    },
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ffn { hidden, batch } => write!(f, "ffn ({hidden}, {batch})"),
            Self::Transformer {
                hidden,
                length,
                batch,
                ..
            } => write!(f, "transformer ({hidden}, {batch} of {length})"),
            Self::Lstm {
                hidden,
                length,
                batch,
            } => write!(f, "lstm ({hidden}, {batch} of {length})"),
            Self::ResNet18 { batch } => write!(f, "resnet18 ({batch})"),
        }
    }
}

impl Workload {
    /// Examples in a batch, and numbers in the input and the output of each.
    fn shape(self) -> [usize; 3] {
        match self {
            Self::Ffn { hidden, batch } => [batch, hidden, hidden],
            Self::Transformer {
                hidden,
                length,
                batch,
                ..
            }
            | Self::Lstm {
                hidden,
                length,
                batch,
            } => [batch, length * hidden, length * hidden],
            Self::ResNet18 { batch } => [batch, INPUT, CLASSES],
        }
    }

    fn model<B: Backend>(self, device: &B::Device) -> Model<B> {
        match self {
            Self::Ffn { hidden, .. } => Model::Ffn(Ffn::new(hidden, device)),
            Self::Transformer {
                hidden,
                heads,
                layers,
                ..
            } => {
                let config = TransformerEncoderConfig::new(hidden, 4 * hidden, heads, layers)
                    .with_dropout(0.0);
                Model::Transformer(config.init(device))
            }
            Self::Lstm { hidden, .. } => {
                Model::Lstm(LstmConfig::new(hidden, hidden, true).init(device))
            }
            Self::ResNet18 { .. } => Model::ResNet18(ResNet18::new(device)),
        }
    }
}

/// A model on a backend. One enum stands for all, so that a step is compiled once for each backend.
#[derive(Module, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
enum Model<B: Backend> {
    Ffn(Ffn<B>),
    Transformer(TransformerEncoder<B>),
    Lstm(Lstm<B>),
    ResNet18(ResNet18<B>),
}

impl<B: Backend> Model<B> {
    /// Of an input [batch, numbers].
    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let [batch, numbers] = x.dims();
        match self {
            Self::Ffn(ffn) => ffn.forward(x),
            Self::Transformer(encoder) => {
                let hidden = encoder.d_model;
                let x = x.reshape([batch, numbers / hidden, hidden]);
                let y = encoder.forward(TransformerEncoderInput::new(x));
                y.reshape([batch, numbers])
            }
            Self::Lstm(lstm) => {
                let x = x.reshape([batch, numbers / lstm.d_hidden, lstm.d_hidden]);
                let (y, _) = lstm.forward(x, None);
                y.reshape([batch, numbers])
            }
            Self::ResNet18(network) => network.forward(x),
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

/// Parameters in bfloat16.
struct ToBfloat16;

impl<B: AutodiffBackend> ModuleMapper<B> for ToBfloat16 {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        param.map(|tensor| Tensor::from_inner(tensor.inner().cast(FloatDType::BF16)).require_grad())
    }
}

/// An optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Optimized {
    /// Burn's SGD
    Sgd,
    /// Burn's AdamW
    #[serde(rename = "burn-adamw")]
    #[value(name = "burn-adamw")]
    BurnAdamW,
    /// AdamW in one pass over a parameter; the peer has Burn's
    #[value(name = "adamw")]
    AdamW,
}

impl Optimized {
    /// The peer's.
    #[allow(dead_code, reason = "some benches have SGD alone")]
    pub(crate) fn of_peer(self) -> Self {
        match self {
            Self::AdamW => Self::BurnAdamW,
            other => other,
        }
    }

    /// A function that makes a step.
    fn step<B: Trained>(self) -> Box<dyn FnMut(Model<B>, GradientsParams) -> Model<B>> {
        fn of<B: Trained>(
            mut optimizer: impl Optimizer<Model<B>, B> + 'static,
        ) -> Box<dyn FnMut(Model<B>, GradientsParams) -> Model<B>> {
            Box::new(move |model, grads| optimizer.step(1e-3, model, grads))
        }
        match self {
            Self::Sgd => of(SgdConfig::new().init()),
            Self::BurnAdamW => of(AdamWConfig::new().init()),
            Self::AdamW => of(OptimizerAdaptor::from(AdamW::new(&AdamWConfig::new()))),
        }
    }
}

/// A model in training, one step at a time, by mean squared error.
pub(crate) struct Trainer<B: AutodiffBackend> {
    model: Option<Model<B>>,
    optimizer: Box<dyn FnMut(Model<B>, GradientsParams) -> Model<B>>,
    x: Tensor<B, 2>,
    target: Tensor<B, 2>,
}

impl<B: Trained> Trainer<B> {
    /// With SGD.
    #[allow(dead_code, reason = "one bench chooses the optimizer")]
    pub(crate) fn new(workload: Workload, device: &B::Device) -> Self {
        Self::optimized(workload, Optimized::Sgd, device)
    }

    pub(crate) fn optimized(workload: Workload, optimizer: Optimized, device: &B::Device) -> Self {
        let [batch, input, output] = workload.shape();
        let wave = |numbers: usize, phase: f32| {
            let values = (0..batch * numbers).map(|i| (i as f32 * 0.618 + phase).sin());
            Tensor::from_data(TensorData::new(values.collect(), [batch, numbers]), device)
        };
        Self {
            model: Some(workload.model(device)),
            optimizer: optimizer.step(),
            x: wave(input, 0.0),
            target: wave(output, 1.0),
        }
    }

    /// The same in bfloat16, computed as the backend does.
    #[allow(dead_code, reason = "a peer of some benches")]
    pub(crate) fn in_bfloat16(self) -> Self {
        Self {
            model: self.model.map(|model| model.map(&mut ToBfloat16)),
            x: self.x.cast(FloatDType::BF16),
            target: self.target.cast(FloatDType::BF16),
            ..self
        }
    }

    /// A step, waited for.
    pub(crate) fn step(&mut self) {
        let model = self
            .model
            .take()
            .expect("a model is put back after each step");
        let output = model.forward(self.x.clone());
        let loss = MseLoss::new().forward(output, self.target.clone(), Reduction::Mean);
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        self.model = Some((self.optimizer)(model, grads));
        B::sync(&self.x.device()).expect("the device computes");
    }

    /// Inference by the current model.
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
