//! A model as burn-train's learner wants it.

use std::{
    fmt::{self, Debug, Formatter},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use burn::{
    module::AutodiffModule,
    optim::{GradientsParams, Optimizer},
    prelude::*,
    tensor::backend::AutodiffBackend,
    train::{ClassificationOutput, InferenceStep, TrainOutput, TrainStep},
};

use super::{
    models::Model,
    stages::{Staged, Stages},
    tasks::Batch,
};

/// A model with a clock for its steps, and specs that change between steps.
#[derive(Module, Debug)]
pub(crate) struct Trainee<B: Backend> {
    pub(crate) model: Model<B>,
    #[module(skip)]
    pub(crate) stopwatch: Stopwatch,
    #[module(skip)]
    pub(crate) stages: Stages,
}

impl<B: Staged> TrainStep for Trainee<B> {
    type Input = Batch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: Self::Input) -> TrainOutput<Self::Output> {
        self.stopwatch.start();
        let batch = match self.stages.current() {
            Some(stage) => batch.to(|device| B::device(device, &stage)),
            None => batch,
        };
        let output = self.model.output(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }

    fn optimize<Backend, O>(self, optimizer: &mut O, lr: f64, grads: GradientsParams) -> Self
    where
        Backend: AutodiffBackend,
        O: Optimizer<Self, Backend>,
        Self: AutodiffModule<Backend>,
    {
        let (stopwatch, stages) = (self.stopwatch.clone(), self.stages.clone());
        let updated = optimizer.step(lr, self, grads);
        stopwatch.stop();
        match stages.step() {
            Some(stage) => Self {
                model: B::model(updated.model, &stage),
                ..updated
            },
            None => updated,
        }
    }
}

impl<B: Backend> InferenceStep for Trainee<B> {
    type Input = Batch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: Self::Input) -> Self::Output {
        self.model.output(batch)
    }
}

/// Times of training steps: forward, backward, update. Clones share them.
#[derive(Clone)]
pub(crate) struct Stopwatch {
    laps: Arc<Mutex<Laps>>,
    /// Waits until the device has finished its work.
    finish: Arc<dyn Fn() + Send + Sync>,
}

#[derive(Debug, Default)]
struct Laps {
    started: Option<Instant>,
    times: Vec<Duration>,
}

impl Debug for Stopwatch {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.laps().fmt(f)
    }
}

impl Stopwatch {
    /// A clock for steps on `device`.
    pub(crate) fn of<B: Backend>(device: &B::Device) -> Self {
        let device = device.clone();
        Self {
            laps: Arc::default(),
            finish: Arc::new(move || B::sync(&device).expect("the device computes")),
        }
    }

    fn start(&self) {
        self.laps().started = Some(Instant::now());
    }

    fn stop(&self) {
        (self.finish)();
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
        self.laps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
