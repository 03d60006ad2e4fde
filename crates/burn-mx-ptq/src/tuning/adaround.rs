//! AdaRound ([Nagel et al. 2020](https://arxiv.org/abs/2004.10568)): learns for each element of a weight which of its two
//! neighbours on the grid the element is rounded to.
//!
//! An element w between its neighbours a and b is a + h · (b − a), with h = clamp(1.2 · sigmoid(v) − 0.1, 0, 1). Two terms
//! train v: the error of the layer's output, and λ · Σ (1 − |2h − 1|^β). The second term pushes h to 0 or 1, the harder the
//! smaller β becomes. In the end each element becomes the neighbour that its h is closer to.

use burn_backend::tensor::{Device, FloatTensor};
use burn_backend::{Shape, TensorData, TensorMetadata};
use burn_optim::Adam;

use super::adaquant::{Variable, adam};
use super::grid::Neighbours;
use super::{Algorithm, Loss, Parameters, Samples, Tuner};
use crate::parameters::values;
use burn_mx_core::MxKernels;

/// ζ and γ of the paper: the sigmoid is stretched to this range and cut off, so that h can be 0 and 1.
const STRETCHED: [f64; 2] = [-0.1, 1.1];

/// The trained rounding of a weight's elements.
pub(super) struct AdaRound<B: MxKernels> {
    optimizer: Adam,
    v: Variable<B>,
    /// The neighbours toward zero, and the differences from there to the other neighbours.
    inner: FloatTensor<B>,
    steps: FloatTensor<B>,
    grid: Neighbours,
    start: Parameters<B>,
    start_values: Vec<f32>,
    device: Device<B>,
}

impl<B: MxKernels> AdaRound<B> {
    /// `None` if the weight is not finite.
    pub(super) fn new(tuner: &Tuner<'_, B>, start: &Parameters<B>) -> Option<Self> {
        let shape = start.weight.shape();
        let device = B::float_device(&start.weight);
        let start_values = values::<B>(start.weight.clone());
        let grid = tuner.neighbours(&start_values, &shape)?;
        let [low, high] = STRETCHED;
        let v = start_values.iter().enumerate().map(|(at, value)| {
            // Where there is but one neighbour nothing is learned.
            let h = f64::from(grid.way(at, *value).unwrap_or(0.5));
            let sigmoid = (h - low) / (high - low);
            (sigmoid / (1.0 - sigmoid)).ln() as f32
        });
        let tensor = |values: Vec<f32>| tensor::<B>(values, &shape, &device);
        let v = Variable::new(tensor(v.collect()));
        let inner = tensor(grid.inner.clone());
        let outer = tensor(grid.outer.clone());
        Some(Self {
            optimizer: adam(),
            v,
            steps: B::float_sub(outer, inner.clone()),
            inner,
            grid,
            start: start.clone(),
            start_values,
            device,
        })
    }

    /// σ(v), and h.
    fn soft(&self) -> [FloatTensor<B>; 2] {
        let [low, high] = STRETCHED;
        let sigmoid = B::sigmoid(self.v.value());
        let stretched = B::float_mul_scalar(sigmoid.clone(), (high - low).into());
        let h = B::float_add_scalar(stretched, low.into());
        [sigmoid, B::float_clamp(h, 0.0.into(), 1.0.into())]
    }

    /// The gradient of λ · Σ (1 − |2h − 1|^β) with respect to h.
    fn of_regularizer(&self, h: FloatTensor<B>, weight: f64, beta: f64) -> FloatTensor<B> {
        let centred = B::float_add_scalar(B::float_mul_scalar(h, 2.0.into()), (-1.0).into());
        let sign = B::float_sign(centred.clone());
        let power = B::float_powf_scalar(B::float_abs(centred), (beta - 1.0).into());
        B::float_mul_scalar(B::float_mul(power, sign), (-2.0 * weight * beta).into())
    }

    /// The weight with each element at its closer neighbour. A block that the quantizer would change is rounded to nearest
    /// instead: it keeps its old values, which the quantizer rounds to nearest.
    fn rounded(&self, tuner: &Tuner<'_, B>) -> Parameters<B> {
        let [_, h] = self.soft();
        let h = values::<B>(h);
        let choose = |at: usize| match h[at] > 0.5 {
            true => self.grid.outer[at],
            false => self.grid.inner[at],
        };
        let mut chosen: Vec<f32> = (0..h.len())
            .map(|at| match self.grid.way(at, self.start_values[at]) {
                Some(_) => choose(at),
                // Beyond the end of the grid, or on it.
                None => self.grid.inner[at],
            })
            .collect();
        let shape = self.start.weight.shape();
        let stored = |chosen: &[f32]| {
            let weight = tensor::<B>(chosen.to_vec(), &shape, &self.device);
            let parameters = Parameters {
                weight,
                ..self.start.clone()
            };
            parameters.stored()
        };
        let parameters = stored(&chosen);
        let quantized = values::<B>(tuner.quantized(parameters.weight.clone()));
        let moved: Vec<usize> = (0..chosen.len())
            .filter(|at| quantized[*at] != chosen[*at])
            .collect();
        if moved.is_empty() {
            return parameters;
        }
        for at in moved {
            for at in self.grid.block(at) {
                chosen[at] = self.start_values[at];
            }
        }
        stored(&chosen)
    }
}

impl<B: MxKernels> Algorithm<B> for AdaRound<B> {
    fn step(&mut self, tuner: &Tuner<'_, B>, drawn: Samples<B>, done: f64) {
        let [sigmoid, h] = self.soft();
        let steps = B::float_mul(h.clone(), self.steps.clone());
        let weight = B::float_add(self.inner.clone(), steps);
        let bias = self.start.bias.clone();
        let (of_weight, _) = tuner.gradients(drawn, weight, bias, Loss::OfSamples);
        let mut of_h = B::float_mul(of_weight, self.steps.clone());
        if let Some((weight, beta)) = tuner.regularizer(done) {
            of_h = B::float_add(of_h, self.of_regularizer(h.clone(), weight, beta));
        }
        // Where h is cut off it does not move: the derivative is zero there. The derivative of h · (1 − h) inside is not.
        let [low, high] = STRETCHED;
        let slope = B::float_mul(
            sigmoid.clone(),
            B::float_add_scalar(B::float_neg(sigmoid), 1.0.into()),
        );
        let slope = B::float_mul_scalar(slope, (high - low).into());
        let inside = B::float_mul(h.clone(), B::float_add_scalar(B::float_neg(h), 1.0.into()));
        let slope = B::float_mul(slope, B::float_sign(inside));
        self.v.step(
            &self.optimizer,
            tuner.learning_rate(),
            B::float_mul(of_h, slope),
        );
    }

    fn result(&self, tuner: &Tuner<'_, B>) -> Parameters<B> {
        self.rounded(tuner)
    }
}

fn tensor<B: MxKernels>(values: Vec<f32>, shape: &Shape, device: &Device<B>) -> FloatTensor<B> {
    B::float_from_data(TensorData::new(values, shape.clone()), device)
}
