//! What a training example is made of: a task, and an architecture that is trained on it.
//!
//! Nothing in here knows of MX: what the numbers are is decided by the backend `B` and by the device that
//! the tensors are made on.

use std::{
    error::Error,
    fmt::Debug,
    marker::PhantomData,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use burn::{
    data::dataset::Dataset,
    module::{AutodiffModule, ModuleDisplay},
    nn::loss::CrossEntropyLossConfig,
    optim::{GradientsParams, Optimizer},
    prelude::*,
    tensor::backend::AutodiffBackend,
    train::{ClassificationOutput, InferenceStep, TrainOutput, TrainStep},
};
use clap::Args;
use serde::Serialize;

/// Data, and how a batch of it becomes tensors.
pub(crate) trait Task: Clone + Debug + Send + Sync + 'static {
    /// One example.
    type Item: Clone + Debug + Send + Sync + 'static;
    /// A batch of examples on a device.
    type Batch<B: Backend>: Clone + Debug + Send + 'static;

    /// Plural of what an item is, for messages.
    const ITEMS: &'static str;
    /// What the share of test items that are solved is called.
    const SCORE: &'static str;

    /// The items, split once and for all: accuracies of different seeds are over the same test items.
    fn load() -> Result<Split<Self::Item>, Box<dyn Error>>;

    fn batch<B: Backend>(items: &[Self::Item], device: &B::Device) -> Self::Batch<B>;
}

/// Items to learn from, and others to be tested on.
pub(crate) struct Split<I> {
    pub(crate) train: Arc<dyn Dataset<I>>,
    pub(crate) test: Arc<dyn Dataset<I>>,
}

/// A model for a task.
pub(crate) trait Solver<B: Backend, T: Task> {
    /// Logits, targets and the loss between them.
    fn output(&self, batch: T::Batch<B>) -> ClassificationOutput<B>;

    /// Number of items in the batch that are solved.
    fn solved(&self, batch: T::Batch<B>) -> usize;
}

/// Logits `[N, classes]` and targets `[N]` with the cross-entropy between them.
pub(crate) fn classification<B: Backend>(
    logits: Tensor<B, 2>,
    targets: Tensor<B, 1, Int>,
) -> ClassificationOutput<B> {
    let loss = CrossEntropyLossConfig::new()
        .init(&logits.device())
        .forward(logits.clone(), targets.clone());
    ClassificationOutput::new(loss, logits, targets)
}

/// Number of elements that are true.
pub(crate) fn count<B: Backend, const D: usize>(right: Tensor<B, D, Bool>) -> usize {
    right.int().sum().into_scalar().elem::<i64>() as usize
}

/// A model that can be trained.
pub(crate) trait Trainable<B: AutodiffBackend, T: Task>:
    Solver<B, T>
    + ModuleDisplay
    + AutodiffModule<B, InnerModule: Solver<B::InnerBackend, T> + ModuleDisplay>
    + 'static
{
}

impl<B: AutodiffBackend, T: Task, M> Trainable<B, T> for M where
    M: Solver<B, T>
        + ModuleDisplay
        + AutodiffModule<B, InnerModule: Solver<B::InnerBackend, T> + ModuleDisplay>
        + 'static
{
}

/// A model before its backend is chosen: the same code becomes an FP32 model and an MX model. Its fields are
/// options of the command line.
pub(crate) trait Architecture: Args + Serialize {
    type Task: Task;
    type Model<B: AutodiffBackend>: Trainable<B, Self::Task>;

    /// The example's name.
    const NAME: &'static str;
    /// What the example does, for `--help`.
    const ABOUT: &'static str;
    /// Heads the plot.
    const TITLE: &'static str;
    /// Passes over the training items, unless the command line says otherwise.
    const EPOCHS: &'static str;
    /// Learning rate, unless the command line says otherwise.
    const LR: &'static str;
    /// Path patterns of the first and of the last layer that has matrix products.
    const FIRST_AND_LAST: [&'static str; 2];

    fn init<B: AutodiffBackend>(&self, device: &B::Device) -> Self::Model<B>;
}

/// A model as burn-train's learner wants it, with a clock for its steps.
#[derive(Module, Debug)]
pub(crate) struct Trainee<B: Backend, M: Module<B>, T> {
    pub(crate) model: M,
    #[module(skip)]
    task: PhantomData<T>,
    #[module(skip)]
    stopwatch: Stopwatch,
    backend: PhantomData<B>,
}

impl<B: Backend, M: Module<B>, T> Trainee<B, M, T> {
    pub(crate) fn new(model: M, stopwatch: Stopwatch) -> Self {
        Self {
            model,
            task: PhantomData,
            stopwatch,
            backend: PhantomData,
        }
    }
}

impl<B: AutodiffBackend, M: Trainable<B, T>, T: Task> TrainStep for Trainee<B, M, T> {
    type Input = T::Batch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: Self::Input) -> TrainOutput<Self::Output> {
        self.stopwatch.start();
        let output = self.model.output(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }

    fn optimize<Backend, O>(self, optimizer: &mut O, lr: f64, grads: GradientsParams) -> Self
    where
        Backend: AutodiffBackend,
        O: Optimizer<Self, Backend>,
        Self: AutodiffModule<Backend>,
    {
        let stopwatch = self.stopwatch.clone();
        let updated = optimizer.step(lr, self, grads);
        stopwatch.stop();
        updated
    }
}

impl<B: Backend, M: Module<B> + Solver<B, T>, T: Task> InferenceStep for Trainee<B, M, T> {
    type Input = T::Batch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: Self::Input) -> Self::Output {
        self.model.output(batch)
    }
}

/// Times of training steps: forward, backward, update. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stopwatch(Arc<Mutex<Laps>>);

#[derive(Debug, Default)]
struct Laps {
    started: Option<Instant>,
    times: Vec<Duration>,
}

impl Stopwatch {
    fn start(&self) {
        self.laps().started = Some(Instant::now());
    }

    fn stop(&self) {
        let mut laps = self.laps();
        let started = laps.started.take().expect("a step starts before it ends");
        laps.times.push(started.elapsed());
    }

    /// The first `steps` times that were not taken yet.
    pub(crate) fn take(&self, steps: usize) -> Vec<Duration> {
        let mut laps = self.laps();
        let steps = steps.min(laps.times.len());
        laps.times.drain(..steps).collect()
    }

    fn laps(&self) -> MutexGuard<'_, Laps> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
