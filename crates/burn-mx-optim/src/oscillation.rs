//! A reset of weights that oscillate between two quantized values.

mod state;
mod walk;

use burn_core::{module::AutodiffModule, tensor::backend::AutodiffBackend};
use burn_mx_core::{HotColumns, MxTensorOps, ResolvedSpecs, Slot};
use burn_optim::{GradientsParams, LearningRate, MultiGradientsParams, Optimizer};
use microscaling::{OperandQuantization, RandomStream, Rounding};
use serde::{Deserialize, Serialize};

pub use state::{OscillationState, Watched};
use walk::{Resetting, visit};

crate::error::field_error! {
    /// A field of [`OscillationReset`], or of a model's specs, that does not allow the reset.
    OscillationError, "The field."
}

/// The reset of oscillating weights of TetraJet-v2 (OsciReset; arXiv 2510.27527, code at commit ca5953f, detector `distance_ratio`).
///
/// A float32 weight w near the edge between two quantized values moves little, but its quantized value q(w) jumps with each change of
/// side. From time to time the optimizer watches a window of steps, and sums |Δw| and |Δq(w)| of each weight. Where
/// Σ|Δq(w)| ≥ [`threshold`](Self::threshold) · Σ|Δw| at the end, the weight becomes q(w), the centre of its bin. A weight that has not
/// moved stays.
///
/// Let a step's number n count from 0. The window begins after each step n ≥ [`start`](Self::start) that is a multiple of
/// [`period`](Self::period). The sums are over the next [`window`](Self::window) steps. The reset follows one step later, as in the code, after
/// step n + `window` + 1, and takes the weights of that time.
///
/// q is the forward product's quantization of the weight, by the weight's own specs: elementwise format, then blocks along the summed axis,
/// or the numbers of `dialect_w`. Hot rows of a linear layer that are in another format ([`HotColumns`]) are left alone, as in
/// the code, and the others are quantized without them. The reset covers weights of Burn's linear layers and convolutions that have a block format. All other
/// parameters are left alone.
///
/// ```
/// # use burn_core::{module::AutodiffModule, tensor::backend::AutodiffBackend};
/// # use burn_mx_core::MxTensorOps; use burn_optim::AdamWConfig;
/// # use burn_mx_optim::{OscillationError, OscillationReset};
/// # fn example<B: AutodiffBackend + MxTensorOps, M: AutodiffModule<B>>(model: &M) -> Result<(), OscillationError> {
/// // The last third of 12,505 steps, as the code's configuration for 70 million parameters has it.
/// let reset = OscillationReset { start: 8_000, ..OscillationReset::default() };
/// let optimizer = AdamWConfig::new().init::<B, M>(); // or one of `OptimizerStates`
/// let optimizer = reset.optimizer(optimizer, model)?;
/// # let _ = optimizer.state();
/// # Ok(()) }
/// let wrong = OscillationReset { window: 0, ..OscillationReset::default() };
/// assert_eq!(wrong.check().unwrap_err().to_string(), "`window` is 0; allowed: 1 to `period` − 2, 198");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OscillationReset {
    /// The first step that may begin a window, counted from 0. Default: 0. The paper resets in the last third of training.
    pub start: u64,
    /// Steps from one window to the next. Default: 200, as the code's configurations for 70 and 150 million parameters have it.
    pub period: u64,
    /// Steps of a window: at least 1, at most `period` − 2. Default: 50, as in the code's configurations.
    pub window: u64,
    /// The ratio of the two distances from which a weight is reset, above 0. Default: 8, as in the code's configurations.
    pub threshold: f32,
}

impl Default for OscillationReset {
    fn default() -> Self {
        Self {
            start: 0,
            period: 200,
            window: 50,
            threshold: 8.0,
        }
    }
}

impl OscillationReset {
    /// Checks all fields, as [`optimizer`](Self::optimizer) does.
    ///
    /// # Errors
    /// The first field that is not allowed.
    pub fn check(&self) -> Result<(), OscillationError> {
        let Self {
            period,
            window,
            threshold,
            ..
        } = *self;
        if period < 3 {
            return Err(OscillationError::new("period", period, "3 or more"));
        }
        if window == 0 || window > period - 2 {
            let allowed = format!("1 to `period` − 2, {}", period - 2);
            return Err(OscillationError::new("window", window, allowed));
        }
        if !(threshold > 0.0 && threshold.is_finite()) {
            let allowed = "a finite number above 0";
            return Err(OscillationError::new("threshold", threshold, allowed));
        }
        Ok(())
    }

    /// `optimizer`, with resets after its steps of this model. Any optimizer of Burn or of this crate serves.
    ///
    /// # Errors
    /// * The errors of [`check`](Self::check).
    /// * No weight of the model has a block format.
    /// * A weight's forward product has no quantized value that a weight could take: `hadamard_forward` transforms the weight, its
    ///   rounding is stochastic, or each product ranks its hot columns anew.
    pub fn optimizer<B, M, O>(
        self,
        optimizer: O,
        model: &M,
    ) -> Result<ResettingOptimizer<O>, OscillationError>
    where
        B: AutodiffBackend + MxTensorOps,
        M: AutodiffModule<B>,
        O: Optimizer<M, B>,
    {
        self.check()?;
        let mut found = Vec::new();
        visit(model, |path, _, specs, _| found.push((path, specs)));
        if found.is_empty() {
            let allowed = "specs with a format for weights, such as `w_elem_format` mxfp4";
            let value = "none in every linear layer and convolution";
            return Err(OscillationError::new("w_elem_format", value, allowed));
        }
        for (path, specs) in found {
            check_specs(&path, specs)?;
        }
        Ok(ResettingOptimizer {
            optimizer,
            reset: self,
            state: OscillationState::default(),
        })
    }

    /// The work after a step with this number.
    fn event(&self, step: u64) -> Event {
        let begin = step - step % self.period;
        match step - begin {
            _ if begin < self.start => Event::Nothing,
            0 => Event::Begin,
            at if at <= self.window => Event::Watch,
            at if at == self.window + 1 => Event::Reset,
            _ => Event::Nothing,
        }
    }
}

/// The work after a step.
enum Event {
    Nothing,
    Begin,
    Watch,
    Reset,
}

/// Refuses specs without one quantized value for a weight.
fn check_specs(path: &str, specs: &ResolvedSpecs) -> Result<(), OscillationError> {
    let error = |field, value: String, allowed: &str| {
        let value = format!("{value} at {path}");
        Err(OscillationError::new(field, value, allowed))
    };
    let Some(quantization) = specs.quantization_of_weight_parts() else {
        return error("hadamard_forward", "a transform".into(), "none");
    };
    if specs.has_weight_parts() && ranking(specs).is_none() {
        let allowed = "chosen=fixed, or none";
        return error("hot_columns", "chosen=product".into(), allowed);
    }
    let roundings = [
        ("round_weight", quantization.elementwise.map(|(_, r)| r)),
        ("round_mx_output", quantization.blocks.map(|(_, r)| r)),
    ];
    for (field, rounding) in roundings {
        if let Some(rounding @ Rounding::Stochastic) = rounding {
            return error(field, rounding.to_string(), "nearest, even, floor");
        }
    }
    Ok(())
}

/// The ranking of hot columns that are in another format, if it is fixed.
fn ranking(specs: &ResolvedSpecs) -> Option<(&[u32], &HotColumns)> {
    let hot = specs.hot_columns().filter(|_| specs.has_weight_parts())?;
    Some((hot.ranking.as_ref()?.order(), hot))
}

/// The places of the elements of a linear layer's weight `[in, out]` that are in no hot row, in the order in which the product has them.
/// `None` if no row is hot.
fn others(specs: &ResolvedSpecs, shape: &[usize]) -> Option<Vec<usize>> {
    let (order, hot) = ranking(specs)?;
    let &[rows, columns] = shape else { return None };
    let count = hot.count(rows);
    let rows = (count > 0).then(|| order.get(count..))??.iter();
    let places =
        rows.flat_map(|row| (0..columns).map(move |column| *row as usize * columns + column));
    Some(places.collect())
}

/// A weight's quantized values, from its numbers in row-major order.
fn quantized(
    specs: &ResolvedSpecs,
    values: &[f32],
    shape: &[usize],
    axis: usize,
    path: &str,
) -> Vec<f32> {
    // A schedule may have changed the specs since they were checked.
    let checked = check_specs(path, specs).and_then(|()| {
        let missing = || OscillationError::new("w_elem_format", "none", "a format");
        specs.quantization_of_weight_parts().ok_or_else(missing)
    });
    let quantization = checked.unwrap_or_else(|error| panic!("burn-mx: a weight's reset: {error}"));
    if let Some(places) = others(specs, shape) {
        // Hot rows count as their own quantized values, so no hot row is reset.
        let mut all = values.to_vec();
        let mut values: Vec<f32> = places.iter().map(|place| values[*place]).collect();
        let shape = [values.len() / shape[1].max(1), shape[1]];
        quantize(specs, &quantization, &mut values, &shape, axis);
        for (place, value) in places.into_iter().zip(values) {
            all[place] = value;
        }
        return all;
    }
    let mut values = values.to_vec();
    quantize(specs, &quantization, &mut values, shape, axis);
    values
}

/// Quantizes a weight, or the rows of a weight that have one format.
fn quantize(
    specs: &ResolvedSpecs,
    quantization: &OperandQuantization,
    values: &mut [f32],
    shape: &[usize],
    axis: usize,
) {
    let stream = RandomStream::new(0, 0);
    if let Some((format, rounding)) = quantization.elementwise {
        format.round_slice(values, rounding.with(stream));
    }
    if let Some((format, rounding)) = quantization.blocks {
        let fits = "resolved specs have a valid format, and a weight has the axis";
        match specs.dialect(Slot::W) {
            Some(dialect) => dialect.quantize(format, values, shape, axis).expect(fits),
            None => (format.quantize(values, shape, axis, rounding.with(stream))).expect(fits),
        }
    }
}

/// An optimizer that resets oscillating weights, see [`OscillationReset`].
///
/// Outside of windows a step costs nothing more. In a window, the host keeps three numbers for each watched weight. The record has
/// them, so that a resumed run equals a run without a stop, bit for bit.
///
/// Not for `ExecutionStrategy::ddp`, where each device has its own optimizer.
///
/// # Panics
/// A step panics
/// * if the state is from a model with other shapes;
/// * if a schedule gives a weight specs that [`OscillationReset::optimizer`] refuses.
#[derive(Debug, Clone)]
pub struct ResettingOptimizer<O> {
    optimizer: O,
    reset: OscillationReset,
    state: OscillationState,
}

impl<O> ResettingOptimizer<O> {
    /// The optimizer without resets.
    pub fn optimizer(&self) -> &O {
        &self.optimizer
    }

    /// Steps, resets, and what the current window has seen.
    pub fn state(&self) -> &OscillationState {
        &self.state
    }

    /// Watches or resets the weights of a model that has made a step.
    fn after_step<B, M>(&mut self, model: M) -> M
    where
        B: AutodiffBackend + MxTensorOps,
        M: AutodiffModule<B>,
    {
        let event = self.reset.event(self.state.steps);
        self.state.steps += 1;
        let watched = &mut self.state.watched;
        match event {
            Event::Nothing => {}
            Event::Begin => {
                watched.clear();
                visit(&model, |path, _, _, weight| {
                    watched.insert(path, Watched::new(weight.values()));
                });
            }
            Event::Watch => visit(&model, |path, axis, specs, weight| {
                if let Some(watched) = watched.get_mut(&path) {
                    let shape = weight.shape();
                    watched.add(&path, weight.values(), |values| {
                        quantized(specs, values, &shape, axis, &path)
                    });
                }
            }),
            Event::Reset => {
                let watched = std::mem::take(watched);
                let mut resetting = Resetting::new(watched, self.reset.threshold);
                let model = model.map(&mut resetting);
                self.state.resets += resetting.count;
                return model;
            }
        }
        model
    }
}

impl<B, M, O> Optimizer<M, B> for ResettingOptimizer<O>
where
    B: AutodiffBackend + MxTensorOps,
    M: AutodiffModule<B>,
    O: Optimizer<M, B>,
{
    /// The optimizer's record, and the state of the resets.
    type Record = (O::Record, OscillationState);

    fn step(&mut self, lr: LearningRate, module: M, grads: GradientsParams) -> M {
        let module = self.optimizer.step(lr, module, grads);
        self.after_step(module)
    }

    fn step_multi(&mut self, lr: LearningRate, module: M, grads: MultiGradientsParams) -> M {
        let module = self.optimizer.step_multi(lr, module, grads);
        self.after_step(module)
    }

    fn to_record(&self) -> Self::Record {
        (self.optimizer.to_record(), self.state.clone())
    }

    fn load_record(self, (record, state): Self::Record) -> Self {
        Self {
            optimizer: self.optimizer.load_record(record),
            state,
            ..self
        }
    }
}
