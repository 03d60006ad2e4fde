//! Fast fine-tuning: one layer, and a model layer by layer.

mod adaquant;
mod adaround;
mod grid;
mod layers;
mod saved;

use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, FloatDType, TensorMetadata, read_sync};
use burn_core::tensor::{Int, Shape, Tensor};
use rand::rngs::StdRng;
use rand::seq::index;
use rand::{RngExt, SeedableRng};

use crate::calls::Call;
use crate::config::{FastFinetune, OptimAlgorithm};
use crate::error::PtqError;
use burn_mx_core::Slot;
use burn_mx_core::hooks::{LayerOp, SharedSpecs};
use burn_mx_core::{MxKernels, from_f32, to_f32};
use grid::Neighbours;
pub(super) use layers::tune;

/// How many times tuning of a layer checks the error over all samples.
const CHECKS: usize = 20;

/// Tuning of a layer stops after this many checks without an improvement.
const PATIENCE: usize = 5;

/// The result of fast fine-tuning for a layer.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct TunedLayer {
    /// The layer's path.
    pub layer: String,
    /// ‖q − y‖² / ‖y‖² before tuning, over all samples. q is the layer's quantized output on the inputs that the quantized
    /// model produces, y the layer's output in the unquantized model.
    pub error_before: f64,
    /// The same error after tuning, never larger than before, because a layer that got worse keeps its weights.
    pub error_after: f64,
    /// The number of steps.
    pub iterations: usize,
}

/// An algorithm that tunes a layer.
trait Algorithm<B: MxKernels> {
    /// One step with these samples. `done` is the share of finished steps, from 0 to 1.
    fn step(&mut self, tuner: &Tuner<'_, B>, drawn: Samples<B>, done: f64);

    /// The present parameters, as the model would store them.
    fn result(&self, tuner: &Tuner<'_, B>) -> Parameters<B>;
}

/// The loss that gradients are computed of.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// The mean of the squared errors.
    Mean,
    /// The squared errors summed over channels, with the mean over all other axes, as in AdaRound.
    OfSamples,
}

/// Samples of one call of a layer or of one step: quantized inputs and wanted outputs.
struct Samples<B: MxKernels> {
    op: LayerOp,
    x: FloatTensor<B>,
    wanted: FloatTensor<B>,
}

/// A layer during tuning.
struct Tuner<'a, B: MxKernels> {
    layer: &'a str,
    config: &'a FastFinetune,
    specs: &'static SharedSpecs,
    op: LayerOp,
    /// The rank of the inputs.
    x_rank: usize,
    samples: Vec<Samples<B>>,
    /// ‖y‖².
    squared: f64,
}

/// Weight and bias of a layer.
#[derive(Clone, Debug)]
struct Parameters<B: MxKernels> {
    weight: FloatTensor<B>,
    bias: Option<FloatTensor<B>>,
    /// The type in which the model stores them. The values here are `f32`.
    storage: Option<FloatDType>,
}

impl<B: MxKernels> Parameters<B> {
    /// The parameters after rounding to the type in which the model stores them.
    fn stored(self) -> Self {
        let stored = |values| to_f32::<B>(from_f32::<B>(values, self.storage));
        Self {
            weight: stored(self.weight),
            bias: self.bias.map(stored),
            ..self
        }
    }
}

impl<'a, B: MxKernels> Tuner<'a, B> {
    /// A layer with these specs and parameters. The bias belongs to the layer, or is added after it. `inputs` are the layer's
    /// calls in the quantized model, `wanted` its calls in the unquantized model.
    fn new(
        layer: &'a str,
        config: &'a FastFinetune,
        specs: &'static SharedSpecs,
        (start, has_bias): (&Parameters<B>, bool),
        inputs: Vec<Call<B>>,
        wanted: Vec<Call<B>>,
    ) -> Result<Self, PtqError> {
        let changes = || PtqError::Changes {
            layer: layer.to_owned(),
        };
        let not_finite = |what| PtqError::NotFinite {
            layer: layer.to_owned(),
            what,
        };
        let first = inputs.first().ok_or_else(changes)?;
        let (op, x_rank) = (first.op.clone(), first.value.rank());
        let weight_rank = start.weight.rank();
        if inputs.len() != wanted.len() {
            return Err(changes());
        }
        let mut samples: Vec<Samples<B>> = Vec::new();
        let mut squared = 0.0;
        for (call, wanted) in inputs.into_iter().zip(wanted) {
            if !call.is_plain || call.has_bias != has_bias {
                return Err(PtqError::View {
                    layer: layer.to_owned(),
                });
            }
            if call.output != wanted.output || call.samples != wanted.samples {
                return Err(changes());
            }
            if !sum_of_squares::<B>(call.value.clone()).is_finite() {
                return Err(not_finite("input"));
            }
            // As the model quantizes it, which may be by the whole tensor.
            let x = call.op.quantized_input::<B>(specs, call.value, weight_rank);
            let wanted = first_entries::<B>(wanted.value, call.samples);
            squared += sum_of_squares::<B>(wanted.clone());
            samples.push(Samples {
                op: call.op,
                x: first_entries::<B>(x, call.samples),
                wanted,
            });
        }
        if samples.iter().all(|samples| samples.x.shape()[0] == 0) {
            return Err(PtqError::NoCalibration);
        }
        if !squared.is_finite() {
            return Err(not_finite("output"));
        }
        Ok(Self {
            layer,
            config,
            specs,
            op,
            x_rank,
            samples,
            squared,
        })
    }

    /// Tunes from `start`. Returns the parameters with the least error over all samples, and a summary. `seed` belongs to the
    /// layer. `progress` is called with the number of finished steps.
    fn tune(
        &self,
        start: Parameters<B>,
        mut algorithm: Box<dyn Algorithm<B>>,
        seed: u64,
        mut progress: impl FnMut(usize),
    ) -> (Parameters<B>, TunedLayer) {
        let mut random = StdRng::seed_from_u64(seed);
        let before = self.error(&start);
        let mut best = (before, start);
        let mut worse = 0;
        let mut iterations = 0;
        let all = self.config.num_iterations;
        let interval = all.div_ceil(CHECKS);
        while iterations < all {
            let drawn = self.draw(&mut random);
            algorithm.step(self, drawn, iterations as f64 / all as f64);
            iterations += 1;
            if iterations % interval != 0 && iterations != all {
                continue;
            }
            progress(iterations);
            let now = algorithm.result(self);
            let error = self.error(&now);
            worse = match error < best.0 {
                true => {
                    best = (error, now);
                    0
                }
                // Before roundings are pushed to one side or the other they are not expected to be good.
                false if self.is_warming_up(iterations as f64 / all as f64) => 0,
                false => worse + 1,
            };
            if self.config.early_stop && worse == PATIENCE {
                break;
            }
        }
        let (after, parameters) = best;
        let tuned = TunedLayer {
            layer: self.layer.to_owned(),
            error_before: before,
            error_after: after,
            iterations,
        };
        (parameters, tuned)
    }

    /// All tensors that [`tune`](Self::tune) depends on beside the parameters, and the ops that use them.
    fn samples(&self) -> impl Iterator<Item = (&LayerOp, [&FloatTensor<B>; 2])> {
        let samples = self.samples.iter();
        samples.map(|samples| (&samples.op, [&samples.x, &samples.wanted]))
    }

    fn learning_rate(&self) -> f64 {
        self.config.learning_rate()
    }

    /// Whether AdaRound has no regularizer yet, after this share of all steps.
    fn is_warming_up(&self, done: f64) -> bool {
        self.config.optim_algorithm == OptimAlgorithm::AdaRound && done < self.config.warm_start
    }

    /// λ and β of AdaRound's regularizer after this share of all steps. β falls along half a cosine, as in the authors'
    /// implementation (AIMET).
    fn regularizer(&self, done: f64) -> Option<(f64, f64)> {
        if self.is_warming_up(done) {
            return None;
        }
        let [first, last] = self.config.beta_range;
        let way = (done - self.config.warm_start) / (1.0 - self.config.warm_start);
        let beta = last + 0.5 * (first - last) * (1.0 + (way * core::f64::consts::PI).cos());
        Some((self.config.reg_param, beta))
    }

    /// The neighbours of a weight's elements on the grid of its format. `None` if the weight is not finite.
    fn neighbours(&self, weight: &[f32], shape: &Shape) -> Option<Neighbours> {
        let format = self.specs.resolved().block_format(Slot::W);
        let format = format.expect("the configuration was checked");
        let [_, axis] = self.op.summed_axes(self.x_rank, shape.num_dims());
        Neighbours::of(format, weight, shape, axis)
    }

    /// Samples of one step, all of one call.
    fn draw(&self, random: &mut StdRng) -> Samples<B> {
        let samples = self.draw_call(random);
        let all = samples.x.shape()[0];
        let places = index::sample(random, all, self.config.batch_size.min(all)).into_vec();
        Samples {
            op: samples.op.clone(),
            x: select::<B>(samples.x.clone(), places.clone()),
            wanted: select::<B>(samples.wanted.clone(), places),
        }
    }

    /// Draws a call with a probability proportional to its number of samples.
    fn draw_call(&self, random: &mut StdRng) -> &Samples<B> {
        let count = |samples: &Samples<B>| samples.x.shape()[0];
        let all = self.samples.iter().map(count).sum();
        let mut place = random.random_range(0..all);
        let drawn = self.samples.iter().find(|samples| {
            let found = place < count(samples);
            place = place.saturating_sub(count(samples));
            found
        });
        drawn.expect("the place is one of them")
    }

    /// The weight after quantization, as products use it.
    fn quantized(&self, weight: FloatTensor<B>) -> FloatTensor<B> {
        self.op
            .quantized_weight::<B>(self.specs, weight, self.x_rank)
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

    /// The gradients of weight and bias, for a layer that multiplies by `weight` without quantizing it.
    fn gradients(
        &self,
        Samples { op, x, wanted }: Samples<B>,
        weight: FloatTensor<B>,
        bias: Option<FloatTensor<B>>,
        loss: Loss,
    ) -> (FloatTensor<B>, Option<FloatTensor<B>>) {
        let output = op.output::<B>(x.clone(), weight.clone(), bias.clone());
        let shape = wanted.shape();
        let terms = match loss {
            Loss::Mean => shape.num_elements(),
            Loss::OfSamples => {
                shape.num_elements() / shape[op.channel_axis(shape.num_dims())].max(1)
            }
        };
        let scale = 2.0 / terms as f32;
        let error = B::float_mul_scalar(B::float_sub(output, wanted), scale.into());
        op.gradients::<B>(x, weight, bias, error)
    }
}

/// The entries at these places of the first axis.
fn select<B: Backend>(tensor: FloatTensor<B>, places: Vec<usize>) -> FloatTensor<B> {
    let places: Vec<i64> = places.into_iter().map(|place| place as i64).collect();
    let device = B::float_device(&tensor);
    let places = Tensor::<B, 1, Int>::from_data(places.as_slice(), &device);
    B::float_select(tensor, 0, places.into_primitive())
}

/// The first entries of the first axis.
fn first_entries<B: Backend>(tensor: FloatTensor<B>, count: usize) -> FloatTensor<B> {
    match count == tensor.shape()[0] {
        true => tensor,
        false => select::<B>(tensor, (0..count).collect()),
    }
}

/// A sum whose order does not depend on the number of threads: along the last axis on the device, the rest in `f64`.
fn sum_of_squares<B: Backend>(tensor: FloatTensor<B>) -> f64 {
    let last = tensor.rank() - 1;
    let rows = B::float_sum_dim(B::float_mul(tensor.clone(), tensor), last);
    let data = read_sync(B::float_into_data(rows));
    let data = data.unwrap_or_else(|error| panic!("burn-mx: reading an error failed: {error}"));
    data.iter::<f64>().sum()
}
