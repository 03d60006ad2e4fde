//! AdaQuant ([Hubara et al. 2020](https://arxiv.org/abs/2006.10518)): Adam changes weight and bias.

use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, TensorMetadata};
use burn_core::tensor::{Shape, Tensor, TensorPrimitive};
use burn_optim::{Adam, AdamConfig, SimpleOptimizer};

use super::{Algorithm, Loss, Parameters, Samples, Tuner};
use burn_mx_core::MxKernels;

/// PyTorch's value: gradients of a mean over many outputs are small.
const EPSILON: f32 = 1e-8;

/// Adam with the settings of tuning.
pub(super) fn adam() -> Adam {
    AdamConfig::new().with_epsilon(EPSILON).build()
}

/// Weight and bias. Gradients pass the quantizer of the weight unchanged (straight-through).
pub(super) struct AdaQuant<B: MxKernels> {
    optimizer: Adam,
    weight: Variable<B>,
    bias: Option<Variable<B>>,
    start: Parameters<B>,
}

impl<B: MxKernels> AdaQuant<B> {
    pub(super) fn new(start: &Parameters<B>) -> Self {
        Self {
            optimizer: adam(),
            weight: Variable::new(start.weight.clone()),
            bias: start.bias.clone().map(Variable::new),
            start: start.clone(),
        }
    }

    fn values(&self) -> Parameters<B> {
        Parameters {
            weight: self.weight.value(),
            bias: self.bias.as_ref().map(Variable::value),
            ..self.start.clone()
        }
    }
}

impl<B: MxKernels> Algorithm<B> for AdaQuant<B> {
    fn step(&mut self, tuner: &Tuner<'_, B>, drawn: Samples<B>, _done: f64) {
        let Parameters { weight, bias, .. } = self.values();
        let weight = tuner.quantized(weight);
        let (of_weight, of_bias) = tuner.gradients(drawn, weight, bias, Loss::Mean);
        let learning_rate = tuner.learning_rate();
        self.weight.step(&self.optimizer, learning_rate, of_weight);
        if let (Some(bias), Some(gradient)) = (&mut self.bias, of_bias) {
            bias.step(&self.optimizer, learning_rate, gradient);
        }
    }

    fn result(&self, _tuner: &Tuner<'_, B>) -> Parameters<B> {
        self.values().stored()
    }
}

/// A variable of an optimizer, which needs no axes.
pub(super) struct Variable<B: Backend> {
    shape: Shape,
    value: Tensor<B, 1>,
    state: Option<<Adam as SimpleOptimizer<B>>::State<1>>,
}

impl<B: Backend> Variable<B> {
    pub(super) fn new(value: FloatTensor<B>) -> Self {
        Self {
            shape: value.shape(),
            value: flat::<B>(value),
            state: None,
        }
    }

    pub(super) fn value(&self) -> FloatTensor<B> {
        let value = self.value.clone().into_primitive().tensor();
        B::float_reshape(value, self.shape.clone())
    }

    pub(super) fn step(&mut self, optimizer: &Adam, learning_rate: f64, gradient: FloatTensor<B>) {
        let (value, state) = optimizer.step(
            learning_rate,
            self.value.clone(),
            flat::<B>(gradient),
            self.state.take(),
        );
        (self.value, self.state) = (value, state);
    }
}

fn flat<B: Backend>(tensor: FloatTensor<B>) -> Tensor<B, 1> {
    let shape = Shape::new([tensor.shape().num_elements()]);
    Tensor::from_primitive(TensorPrimitive::Float(B::float_reshape(tensor, shape)))
}
