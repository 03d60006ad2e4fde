//! Fast fine-tuning of one layer.

use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, TensorMetadata, read_sync};
use burn_core::tensor::{Int, Shape, Tensor, TensorPrimitive};
use burn_optim::{Adam, AdamConfig, SimpleOptimizer};
use rand::rngs::StdRng;
use rand::seq::index;
use rand::{RngExt, SeedableRng};

use super::calls::{Call, LayerOp};
use super::{FastFinetune, PtqError};
use crate::kernels::MxKernels;
use crate::registry::Interned;
use crate::semantics::product::{ForwardOperand, Kind, Product};
use crate::tensor::{Meta, MxTensor};

/// How often the error over all samples is looked at, in so many steps of a layer's.
const CHECKS: usize = 20;

/// A layer is left after so many looks that found it no better.
const PATIENCE: usize = 5;

/// PyTorch's: gradients of a mean over many outputs are small.
const EPSILON: f32 = 1e-8;

/// What fast fine-tuning did to a layer.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct TunedLayer {
    /// The layer's path.
    pub layer: String,
    /// ‖q − y‖² / ‖y‖² before, with q the layer's quantized output on the inputs that the quantized model gives it, and y the
    /// output in the model that is not quantized, over all samples.
    pub before: f64,
    /// The same after; never more than before, because a layer that got worse keeps its weights.
    pub after: f64,
    /// Steps that were taken.
    pub iterations: usize,
}

/// Samples of one call of a layer: its input, quantized, and the output that is wanted.
struct Samples<B: MxKernels> {
    op: LayerOp,
    x: FloatTensor<B>,
    wanted: FloatTensor<B>,
}

/// A layer that is tuned.
pub(super) struct Tuner<'a, B: MxKernels> {
    layer: &'a str,
    config: &'a FastFinetune,
    product: Product<B>,
    of_weight: ForwardOperand,
    samples: Vec<Samples<B>>,
    /// ‖y‖².
    squared: f64,
}

/// Weight and bias of a layer.
#[derive(Clone, Debug)]
pub(super) struct Parameters<B: MxKernels> {
    pub(super) weight: FloatTensor<B>,
    pub(super) bias: Option<FloatTensor<B>>,
}

impl<'a, B: MxKernels> Tuner<'a, B> {
    /// Of a layer that these specs quantize; `calls` are those in the quantized model, `wanted` those in the other one.
    pub(super) fn new(
        layer: &'a str,
        config: &'a FastFinetune,
        specs: &'static Interned,
        weight: &FloatTensor<B>,
        calls: Vec<Call<B>>,
        wanted: Vec<Call<B>>,
    ) -> Result<Self, PtqError> {
        let changes = || PtqError::Changes {
            layer: layer.to_owned(),
        };
        let not_finite = |what| PtqError::NotFinite {
            layer: layer.to_owned(),
            what,
        };
        let first = calls.first().ok_or_else(changes)?;
        let product = Product::new(first.op.op(), Kind::Forward, specs, None);
        let [_, of_weight] = first.op.operands(first.x.rank(), weight.rank());
        if calls.len() != wanted.len() {
            return Err(changes());
        }
        let mut missing = config.data_size;
        let mut samples = Vec::new();
        let mut squared = 0.0;
        for (call, wanted) in calls.into_iter().zip(wanted) {
            if call.output.shape() != wanted.output.shape() {
                return Err(changes());
            }
            let [of_x, _] = call.op.operands(call.x.rank(), weight.rank());
            let count = call.samples().min(missing);
            missing -= count;
            if !is_finite::<B>(&call.x) {
                return Err(not_finite("input"));
            }
            if !is_finite::<B>(&wanted.output) {
                return Err(not_finite("output"));
            }
            let all = call.samples();
            let x = MxTensor::new(call.x, Meta::default());
            // As the model quantizes it, which may be by the whole tensor.
            let x = product.tensor_operand(of_x.slot, x, of_x.along);
            let first = |tensor| match count == all {
                true => tensor,
                false => select::<B>(tensor, (0..count).collect()),
            };
            let wanted = first(wanted.output);
            squared += sum_of_squares::<B>(wanted.clone());
            samples.push(Samples {
                op: call.op,
                x: first(x),
                wanted,
            });
        }
        Ok(Self {
            layer,
            config,
            product,
            of_weight,
            samples,
            squared,
        })
    }

    /// The parameters with the least error over all samples that steps from `start` came by, and what was done. `seed` is the
    /// layer's own; `progress` is called with the number of steps taken.
    pub(super) fn tune(
        &self,
        start: Parameters<B>,
        seed: u64,
        mut progress: impl FnMut(usize),
    ) -> (Parameters<B>, TunedLayer) {
        let optimizer = AdamConfig::new().with_epsilon(EPSILON).build();
        let mut weight = Variable::<B>::new(start.weight.clone());
        let mut bias = start.bias.clone().map(Variable::<B>::new);
        let mut random = StdRng::seed_from_u64(seed);
        let before = self.error(&start);
        let mut best = (before, start);
        let mut worse = 0;
        let mut iterations = 0;
        let interval = self.config.num_iterations.div_ceil(CHECKS);
        while iterations < self.config.num_iterations {
            let samples = &self.samples[random.random_range(0..self.samples.len())];
            let all = samples.x.shape()[0];
            let drawn = index::sample(&mut random, all, self.config.batch_size.min(all)).into_vec();
            let now = Parameters {
                weight: weight.value(),
                bias: bias.as_ref().map(Variable::value),
            };
            let (of_weight, of_bias) = self.gradients(samples, drawn, now);
            weight.step(&optimizer, self.config.learning_rate, of_weight);
            if let (Some(bias), Some(gradient)) = (&mut bias, of_bias) {
                bias.step(&optimizer, self.config.learning_rate, gradient);
            }
            iterations += 1;
            if iterations % interval != 0 && iterations != self.config.num_iterations {
                continue;
            }
            progress(iterations);
            let now = Parameters {
                weight: weight.value(),
                bias: bias.as_ref().map(Variable::value),
            };
            let error = self.error(&now);
            worse = match error < best.0 {
                true => {
                    best = (error, now);
                    0
                }
                false => worse + 1,
            };
            if self.config.early_stop && worse == PATIENCE {
                break;
            }
        }
        let (after, parameters) = best;
        let tuned = TunedLayer {
            layer: self.layer.to_owned(),
            before,
            after,
            iterations,
        };
        (parameters, tuned)
    }

    /// The weight as products take it.
    fn quantized(&self, weight: FloatTensor<B>) -> FloatTensor<B> {
        let weight = MxTensor::new(weight, Meta::default());
        self.product
            .tensor_operand(self.of_weight.slot, weight, self.of_weight.along)
    }

    /// ‖q − y‖² / ‖y‖² over all samples.
    fn error(&self, parameters: &Parameters<B>) -> f64 {
        let weight = self.quantized(parameters.weight.clone());
        let errors = self.samples.iter().map(|samples| {
            let bias = parameters.bias.clone();
            let output = samples
                .op
                .output::<B>(samples.x.clone(), weight.clone(), bias);
            sum_of_squares::<B>(B::float_sub(output, samples.wanted.clone()))
        });
        let error: f64 = errors.sum();
        match self.squared > 0.0 {
            true => error / self.squared,
            false => error,
        }
    }

    /// The gradients of the mean squared error of the samples at `drawn`, as if the weight were not quantized.
    fn gradients(
        &self,
        samples: &Samples<B>,
        drawn: Vec<usize>,
        Parameters { weight, bias }: Parameters<B>,
    ) -> (FloatTensor<B>, Option<FloatTensor<B>>) {
        let x = select::<B>(samples.x.clone(), drawn.clone());
        let wanted = select::<B>(samples.wanted.clone(), drawn);
        let weight = self.quantized(weight);
        let output = samples
            .op
            .output::<B>(x.clone(), weight.clone(), bias.clone());
        let scale = 2.0 / wanted.shape().num_elements() as f32;
        let error = B::float_mul_scalar(B::float_sub(output, wanted), scale.into());
        samples.op.gradients::<B>(x, weight, bias, error)
    }
}

/// What an optimizer changes, which wants it without its axes.
struct Variable<B: Backend> {
    shape: Shape,
    value: Tensor<B, 1>,
    state: Option<<Adam as SimpleOptimizer<B>>::State<1>>,
}

impl<B: Backend> Variable<B> {
    fn new(value: FloatTensor<B>) -> Self {
        Self {
            shape: value.shape(),
            value: flat::<B>(value),
            state: None,
        }
    }

    fn value(&self) -> FloatTensor<B> {
        let value = self.value.clone().into_primitive().tensor();
        B::float_reshape(value, self.shape.clone())
    }

    fn step(&mut self, optimizer: &Adam, learning_rate: f64, gradient: FloatTensor<B>) {
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

/// The entries at these places of the first axis.
fn select<B: Backend>(tensor: FloatTensor<B>, places: Vec<usize>) -> FloatTensor<B> {
    let places: Vec<i64> = places.into_iter().map(|place| place as i64).collect();
    let device = B::float_device(&tensor);
    let places = Tensor::<B, 1, Int>::from_data(places.as_slice(), &device);
    B::float_select(tensor, 0, places.into_primitive())
}

fn is_finite<B: Backend>(tensor: &FloatTensor<B>) -> bool {
    // Zero times anything else is no number.
    let zeros = B::float_mul_scalar(tensor.clone(), 0.0.into());
    scalar::<B>(B::float_sum(zeros)).is_finite()
}

fn sum_of_squares<B: Backend>(tensor: FloatTensor<B>) -> f64 {
    scalar::<B>(B::float_sum(B::float_mul(tensor.clone(), tensor)))
}

fn scalar<B: Backend>(tensor: FloatTensor<B>) -> f64 {
    let data = read_sync(B::float_into_data(tensor));
    let data = data.unwrap_or_else(|error| panic!("burn-mx: reading an error failed: {error}"));
    data.iter::<f64>().next().expect("it is one number")
}
