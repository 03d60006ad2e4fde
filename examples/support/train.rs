//! One training run on one backend. Nothing in here knows of MX: what the numbers are is decided by
//! the backend `B` and by the device the tensors are made on.

use std::time::{Duration, Instant};

use burn::{
    data::dataloader::DataLoader,
    module::AutodiffModule,
    nn::loss::CrossEntropyLossConfig,
    optim::{AdamWConfig, GradientsParams, Optimizer},
    prelude::*,
    record::{BinBytesRecorder, FullPrecisionSettings, Recorder, RecorderError},
    tensor::backend::AutodiffBackend,
};
use indicatif::ProgressBar;

use super::{
    cli::Recipe,
    digits::{DigitBatch, Digits, batches},
};

/// Digits in an evaluation batch.
const TEST_BATCH: usize = 256;
/// Steps that are not timed: caches and thread pools are still cold.
const WARM_UP_STEPS: usize = 10;

/// A model that tells digits apart.
pub(crate) trait Classifier<B: Backend> {
    /// Pixels `[N, PIXELS]` to logits `[N, CLASSES]`.
    fn logits(&self, pixels: Tensor<B, 2>) -> Tensor<B, 2>;
}

/// A model before its backend is chosen: the same code becomes an FP32 model and an MX model.
pub(crate) trait Architecture {
    type Model<B: AutodiffBackend>: Classifier<B>
        + AutodiffModule<B, InnerModule: Classifier<B::InnerBackend>>;

    fn init<B: AutodiffBackend>(&self, device: &B::Device) -> Self::Model<B>;
}

/// Initial weights, bit for bit, for any backend.
pub(crate) struct Weights(Vec<u8>);

/// What a run leaves behind.
pub(crate) struct Trained {
    /// Training loss of every step.
    pub(crate) loss: Vec<f32>,
    /// Share of the test digits that are classified correctly, 0 to 1.
    pub(crate) accuracy: f64,
    /// Median time of a step: forward, backward, update, loss read back.
    pub(crate) step: Duration,
}

type WeightsRecorder = BinBytesRecorder<FullPrecisionSettings>;

impl Weights {
    /// Draws the weights of `architecture` on `device`.
    pub(crate) fn init<B: AutodiffBackend>(
        architecture: &impl Architecture,
        device: &B::Device,
        seed: u64,
    ) -> Result<Self, RecorderError> {
        B::seed(device, seed);
        let record = architecture.init::<B>(device).into_record();
        Recorder::<B>::record(&WeightsRecorder::new(), record, ()).map(Self)
    }

    fn load<B: AutodiffBackend, A: Architecture>(
        &self,
        architecture: &A,
        device: &B::Device,
    ) -> Result<A::Model<B>, RecorderError> {
        let record = Recorder::<B>::load(&WeightsRecorder::new(), self.0.clone(), device)?;
        Ok(architecture.init::<B>(device).load_record(record))
    }
}

/// What all runs have in common.
pub(crate) struct Job<'a, A> {
    pub(crate) architecture: &'a A,
    pub(crate) weights: Weights,
    pub(crate) digits: Digits,
    pub(crate) recipe: &'a Recipe,
}

impl<A: Architecture> Job<'_, A> {
    /// Number of steps that [`train`](Self::train) makes.
    pub(crate) fn steps(&self) -> usize {
        self.recipe.epochs * self.digits.train.len().div_ceil(self.recipe.batch_size)
    }

    /// Trains a model on `device` and evaluates it on the test digits.
    pub(crate) fn train<B: AutodiffBackend>(
        &self,
        device: &B::Device,
        progress: &ProgressBar,
    ) -> Result<Trained, RecorderError> {
        let Recipe {
            epochs,
            batch_size,
            lr,
            seed,
        } = *self.recipe;
        let mut model = self.weights.load::<B, _>(self.architecture, device)?;
        let mut optimizer = AdamWConfig::new().init();
        let cross_entropy = CrossEntropyLossConfig::new().init(device);
        let loader = batches::<B>(&self.digits.train, device, batch_size, Some(seed));

        let mut losses = Vec::with_capacity(self.steps());
        let mut times = Vec::with_capacity(self.steps());
        for _ in 0..epochs {
            for batch in loader.iter() {
                let start = Instant::now();
                let logits = model.logits(batch.pixels);
                let loss = cross_entropy.forward(logits, batch.labels);
                let grads = GradientsParams::from_grads(loss.backward(), &model);
                model = optimizer.step(lr, model, grads);
                let loss: f32 = loss.into_scalar().elem();
                times.push(start.elapsed());
                losses.push(loss);
                progress.set_message(format!("loss {loss:.4}"));
                progress.inc(1);
            }
        }

        let test = batches::<B::InnerBackend>(&self.digits.test, device, TEST_BATCH, None);
        Ok(Trained {
            loss: losses,
            accuracy: accuracy(&model.valid(), test.as_ref()),
            step: median_after_warm_up(times),
        })
    }
}

/// Share of the digits whose largest logit is the label's.
fn accuracy<B: Backend>(
    model: &impl Classifier<B>,
    batches: &dyn DataLoader<B, DigitBatch<B>>,
) -> f64 {
    let right: i64 = batches
        .iter()
        .map(|batch| {
            let guess = model.logits(batch.pixels).argmax(1).squeeze_dim::<1>(1);
            guess
                .equal(batch.labels)
                .int()
                .sum()
                .into_scalar()
                .elem::<i64>()
        })
        .sum();
    right as f64 / batches.num_items() as f64
}

/// The median does not mind the odd step that something else on the machine held up.
fn median_after_warm_up(mut times: Vec<Duration>) -> Duration {
    let warm_up = WARM_UP_STEPS.min(times.len() / 2);
    let timed = &mut times[warm_up..];
    let middle = timed.len() / 2;
    *timed.select_nth_unstable(middle).1
}
