//! Small unmodified Burn models, generic over the backend, and their results on one backend.

use burn::module::{AutodiffModule, Module, Param};
use burn::nn::attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig};
use burn::nn::conv::{
    Conv1d, Conv1dConfig, Conv2d, Conv2dConfig, ConvTranspose2d, ConvTranspose2dConfig,
};
use burn::nn::pool::{AdaptiveAvgPool2dConfig, MaxPool2dConfig};
use burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::nn::{
    Embedding, EmbeddingConfig, GroupNorm, GroupNormConfig, Gru, GruConfig, LayerNorm,
    LayerNormConfig, Linear, LinearConfig, Lstm, LstmConfig, PaddingConfig1d, PaddingConfig2d,
    RmsNorm, RmsNormConfig, SwiGlu, SwiGluConfig,
};
use burn::prelude::*;
use burn::tensor::activation;
use burn::tensor::backend::AutodiffBackend;

use crate::support::*;

/// A model with its own input.
pub(crate) trait Forward<B: Backend>: Module<B> {
    /// The outputs for a fixed input, as a matrix.
    fn outputs(&self, device: &B::Device) -> Tensor<B, 2>;
}

/// A model before its backend is chosen.
pub(crate) trait Architecture {
    type Model<B: AutodiffBackend>: Forward<B>
        + AutodiffModule<B, InnerModule: Forward<B::InnerBackend>>;

    fn init<B: AutodiffBackend>(device: &B::Device) -> Self::Model<B>;
}

/// The model with the same weights on every backend.
pub(crate) fn model<A: Architecture, B: AutodiffBackend>(device: &B::Device) -> A::Model<B> {
    with_noise_weights(A::init::<B>(device), 40)
}

/// Outputs and gradients of one training pass; the gradient of the outputs is the same for every backend.
pub(crate) fn training_pass<A: Architecture, B: Exact>(
    device: &B::Device,
) -> (Vec<f32>, Vec<Vec<f32>>) {
    let model = model::<A, B>(device);
    let outputs = model.outputs(device);
    let grad = noise_tensor::<B, 2>(outputs.dims(), 30, device);
    let grads = B::loss_with_gradient(outputs.clone(), grad).backward();
    (values(outputs), gradients::<B, _>(&model, &grads))
}

macro_rules! architectures {
    ($($name:ident: $model:ident($init:expr);)*) => { $(
        pub(crate) struct $name;
        impl Architecture for $name {
            type Model<B: AutodiffBackend> = $model<B>;
            fn init<B: AutodiffBackend>(device: &B::Device) -> $model<B> {
                let init: fn(&B::Device) -> $model<B> = $init;
                init(device)
            }
        }
    )* };
}

architectures! {
    Mlp: MlpModel(|device| MlpModel {
        up: LinearConfig::new(40, 24).init(device),
        norm: LayerNormConfig::new(24).init(device),
        middle: LinearConfig::new(24, 16).with_bias(false).init(device),
        down: LinearConfig::new(16, 10).init(device),
        head: LinearConfig::new(10, 5).init(device),
    });
    Wide: WideModel(|device| WideModel {
        up: LinearConfig::new(256, 384).init(device),
        down: LinearConfig::new(384, 128).init(device),
    });
    Embedder: EmbedderModel(|device| EmbedderModel {
        embedding: EmbeddingConfig::new(11, 36).init(device),
        norm: LayerNormConfig::new(36).init(device),
        head: LinearConfig::new(36, 8).init(device),
    });
    Transformer: TransformerModel(|device| TransformerModel {
        attention: MultiHeadAttentionConfig::new(16, 4).with_dropout(0.0).init(device),
        encoder: TransformerEncoderConfig::new(16, 40, 2, 2).with_dropout(0.0).init(device),
    });
    Convolutions: ConvModel(|device| ConvModel {
        first: Conv2dConfig::new([3, 8], [3, 3]).with_padding(PaddingConfig2d::Same).init(device),
        grouped: Conv2dConfig::new([8, 6], [3, 3]).with_groups(2).with_stride([2, 2]).init(device),
        norm: GroupNormConfig::new(3, 6).init(device),
        up: ConvTranspose2dConfig::new([6, 4], [2, 2]).init(device),
        line: Conv1dConfig::new(4, 5, 3).with_padding(PaddingConfig1d::Valid).init(device),
        head: LinearConfig::new(10, 4).init(device),
    });
    Recurrent: RecurrentModel(|device| RecurrentModel {
        lstm: LstmConfig::new(7, 9, true).init(device),
        gru: GruConfig::new(9, 6, true).init(device),
        norm: RmsNormConfig::new(6).init(device),
        gate: SwiGluConfig::new(6, 5).with_bias(true).init(device),
    });
    Functions: FunctionsModel(|device| FunctionsModel {
        x: Param::from_tensor(Tensor::zeros([4, 6], device)),
        y: Param::from_tensor(Tensor::zeros([1, 6], device)),
    });
}

/// Linear layers with and without bias, LayerNorm, Gelu, Relu, Sigmoid, softmax.
#[derive(Module, Debug)]
pub(crate) struct MlpModel<B: Backend> {
    pub(crate) up: Linear<B>,
    norm: LayerNorm<B>,
    middle: Linear<B>,
    down: Linear<B>,
    pub(crate) head: Linear<B>,
}

impl<B: Backend> Forward<B> for MlpModel<B> {
    fn outputs(&self, device: &B::Device) -> Tensor<B, 2> {
        let x = noise_tensor([6, 40], 20, device);
        let x = activation::gelu(self.norm.forward(self.up.forward(x)));
        let x = activation::relu(self.middle.forward(x));
        let x = activation::sigmoid(self.down.forward(x));
        activation::softmax(self.head.forward(x), 1)
    }
}

/// Tensors large enough for their work to be shared among threads.
#[derive(Module, Debug)]
pub(crate) struct WideModel<B: Backend> {
    up: Linear<B>,
    down: Linear<B>,
}

impl<B: Backend> Forward<B> for WideModel<B> {
    fn outputs(&self, device: &B::Device) -> Tensor<B, 2> {
        let x = noise_tensor([256, 256], 20, device);
        let x = activation::gelu(self.up.forward(x / 16.0));
        activation::softmax(self.down.forward(x), 1)
    }
}

/// A model whose input is of integers.
#[derive(Module, Debug)]
pub(crate) struct EmbedderModel<B: Backend> {
    embedding: Embedding<B>,
    norm: LayerNorm<B>,
    head: Linear<B>,
}

impl<B: Backend> Forward<B> for EmbedderModel<B> {
    fn outputs(&self, device: &B::Device) -> Tensor<B, 2> {
        let ids = Tensor::from_data([[1, 7, 3, 10, 7], [0, 2, 2, 9, 5]], device);
        let x = self.norm.forward(self.embedding.forward(ids));
        activation::gelu(self.head.forward(x)).flatten(0, 1)
    }
}

/// Attention alone, then two encoder layers.
#[derive(Module, Debug)]
pub(crate) struct TransformerModel<B: Backend> {
    attention: MultiHeadAttention<B>,
    encoder: TransformerEncoder<B>,
}

impl<B: Backend> Forward<B> for TransformerModel<B> {
    fn outputs(&self, device: &B::Device) -> Tensor<B, 2> {
        let x = noise_tensor([2, 6, 16], 21, device);
        let x = self.attention.forward(MhaInput::self_attn(x)).context;
        let x = self.encoder.forward(TransformerEncoderInput::new(x));
        x.flatten(0, 1)
    }
}

/// Convolutions in one and two dimensions, grouped, strided and transposed, with pools.
#[derive(Module, Debug)]
pub(crate) struct ConvModel<B: Backend> {
    first: Conv2d<B>,
    grouped: Conv2d<B>,
    norm: GroupNorm<B>,
    up: ConvTranspose2d<B>,
    line: Conv1d<B>,
    head: Linear<B>,
}

impl<B: Backend> Forward<B> for ConvModel<B> {
    fn outputs(&self, device: &B::Device) -> Tensor<B, 2> {
        let x = noise_tensor([3, 3, 9, 9], 22, device);
        let x = activation::relu(self.first.forward(x));
        let x = self.norm.forward(self.grouped.forward(x));
        let x = MaxPool2dConfig::new([2, 2])
            .init()
            .forward(self.up.forward(x));
        let x = AdaptiveAvgPool2dConfig::new([2, 2]).init().forward(x);
        let x = activation::gelu(self.line.forward(x.flatten::<3>(2, 3)));
        self.head.forward(x.flatten(1, 2))
    }
}

/// LSTM, GRU, RmsNorm, SwiGlu.
#[derive(Module, Debug)]
pub(crate) struct RecurrentModel<B: Backend> {
    lstm: Lstm<B>,
    gru: Gru<B>,
    norm: RmsNorm<B>,
    gate: SwiGlu<B>,
}

impl<B: Backend> Forward<B> for RecurrentModel<B> {
    fn outputs(&self, device: &B::Device) -> Tensor<B, 2> {
        let x = noise_tensor([2, 4, 7], 23, device);
        let (x, _) = self.lstm.forward(x, None);
        let x = self.norm.forward(self.gru.forward(x, None));
        self.gate.forward(x).flatten(0, 1)
    }
}

/// Functions of two parameters, the second of which broadcasts.
#[derive(Module, Debug)]
pub(crate) struct FunctionsModel<B: Backend> {
    pub(crate) x: Param<Tensor<B, 2>>,
    pub(crate) y: Param<Tensor<B, 2>>,
}

impl<B: Backend> FunctionsModel<B> {
    /// Every function by name, each `[rows, 6]`.
    pub(crate) fn functions(&self) -> Vec<(&'static str, Tensor<B, 2>)> {
        // An activation: parameters pass a product or a sum before functions see them.
        let (x, y) = (self.x.val() * 1.0, self.y.val() * 1.0);
        let positive = x.clone().abs() + 0.37;
        let small = x.clone() * 0.4;
        let small = small.clamp(-0.9, 0.9);
        let row = |column: Tensor<B, 2>| column.repeat_dim(1, 6);
        macro_rules! table {
            ($($name:literal: $value:expr;)*) => { vec![$(($name, $value)),*] };
        }
        table! {
            "add": x.clone() + y.clone();
            "sub": x.clone() - y.clone();
            "mul": x.clone() * y.clone();
            "div": x.clone() / y.clone();
            "sub from": y.clone() - x.clone();
            "div of": y.clone() / x.clone();
            "remainder": x.clone().remainder(positive.clone());
            "matmul": x.clone().matmul(y.clone().transpose()).repeat_dim(1, 6);
            "scalars": (x.clone() * 1.7 + 0.3) / 0.9 - 0.11;
            "neg recip": -x.clone().recip();
            "exp": x.clone().exp();
            "log": positive.clone().log();
            "log1p": positive.clone().log1p();
            "sqrt": positive.clone().sqrt();
            "powf_scalar": positive.clone().powf_scalar(1.7);
            "powf": positive.clone().powf(small.clone());
            "square": x.clone().square();
            "powi_scalar": x.clone().powi_scalar(3);
            "abs": x.clone().abs();
            "cos": x.clone().cos();
            "sin": x.clone().sin();
            "tan": small.clone().tan();
            "cosh": x.clone().cosh();
            "sinh": x.clone().sinh();
            "tanh": x.clone().tanh();
            "asin": small.clone().asin();
            "acos": small.clone().acos();
            "atan": x.clone().atan();
            "asinh": x.clone().asinh();
            "acosh": (positive.clone() + 1.0).acosh();
            "atanh": small.clone().atanh();
            "erf": x.clone().erf();
            "sum": x.clone().sum().reshape([1, 1]).repeat_dim(1, 6);
            "mean": x.clone().mean().reshape([1, 1]).repeat_dim(1, 6);
            "prod": positive.clone().prod().reshape([1, 1]).repeat_dim(1, 6);
            "sum_dim": row(x.clone().sum_dim(1));
            "mean_dim": row(x.clone().mean_dim(1));
            "prod_dim": row(positive.clone().prod_dim(1));
            "max_dim": row(x.clone().max_dim(1));
            "min_dim": row(x.clone().min_dim(1));
            "max_abs_dim": row(x.clone().max_abs_dim(1));
            "var": row(x.clone().var(1));
            "cumsum": x.clone().cumsum(1);
            "cumprod": x.clone().cumprod(1);
            "sort": x.clone().sort(1);
            "clamp": x.clone().clamp(-0.5, 0.6);
            "mask": x.clone().mask_fill(x.clone().lower_elem(0.0), 0.123);
            "cat and slice": Tensor::cat(vec![x.clone(), y.clone()], 0).slice([1..4, 0..6]);
            "flip": x.clone().flip([1]) * x.clone();
            "relu": activation::relu(x.clone());
            "leaky_relu": activation::leaky_relu(x.clone(), 0.013);
            "prelu": activation::prelu(x.clone(), y.clone().reshape([6]));
            "gelu": activation::gelu(x.clone());
            "gelu_approximate": activation::gelu_approximate(x.clone());
            "sigmoid": activation::sigmoid(x.clone());
            "log_sigmoid": activation::log_sigmoid(x.clone());
            "hard_sigmoid": activation::hard_sigmoid(x.clone(), 0.21, 0.47);
            "silu": activation::silu(x.clone());
            "mish": activation::mish(x.clone());
            "hard_swish": activation::hard_swish(x.clone());
            "softplus": activation::softplus(x.clone(), 1.3);
            "softsign": activation::softsign(x.clone());
            "elu": activation::elu(x.clone(), 0.9);
            "celu": activation::celu(x.clone(), 0.9);
            "selu": activation::selu(x.clone());
            "soft_shrink": activation::soft_shrink(x.clone(), 0.2);
            "softmax": activation::softmax(x.clone(), 1);
            "softmax of columns": activation::softmax(x.clone(), 0);
            "log_softmax": activation::log_softmax(x.clone(), 1);
            "softmin": activation::softmin(x.clone(), 1);
            "quiet_softmax": activation::quiet_softmax(x.clone(), 1);
        }
    }
}

impl<B: Backend> Forward<B> for FunctionsModel<B> {
    fn outputs(&self, _: &B::Device) -> Tensor<B, 2> {
        let functions = self.functions().into_iter().map(|(_, value)| value);
        Tensor::cat(functions.collect(), 0)
    }
}
