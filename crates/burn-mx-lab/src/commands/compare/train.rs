//! One training run on one backend, by burn-train's learner. Nothing in here knows of MX, but for the recorder: what the
//! numbers are is decided by the backend `B` and by the device that the tensors are made on.

use std::{error::Error, path::PathBuf, sync::Arc, time::Duration};

use burn::{
    data::dataloader::DataLoader,
    module::AutodiffModule,
    optim::{AdamWConfig, Optimizer},
    prelude::*,
    record::{BinBytesRecorder, FullPrecisionSettings, Recorder, RecorderError},
    tensor::backend::AutodiffBackend,
    train::{
        Learner, LearningResult, SupervisedTraining,
        checkpoint::KeepLastNCheckpoints,
        metric::{AccuracyMetric, LossMetric},
    },
};
use burn_mx::record::{MxSaturation, MxSqnr, MxUnderflow, Recorder as MxRecorder, Recording};

use super::progress::Monitor;
use crate::training::{
    epochs::{Epochs, Reseed, in_order},
    history::{EpochHistory, History},
    models::{Architecture, Model},
    saved::{self, FileRecorder, SavedRun},
    stages::{SpecsStage, Staged, Stages},
    tasks::{Batch, Split, Task},
    trainee::{Stopwatch, Trainee},
};

/// Items in an evaluation batch.
const TEST_BATCH: usize = 256;
/// Steps that are not timed: caches and thread pools are still cold.
const WARM_UP_STEPS: usize = 10;

/// Initial weights, bit for bit, for any backend.
pub(crate) struct Weights(Vec<u8>);

type WeightsRecorder = BinBytesRecorder<FullPrecisionSettings>;

impl Weights {
    /// Draws the weights of `architecture` on `device`.
    pub(crate) fn init<B: AutodiffBackend>(
        architecture: Architecture,
        device: &B::Device,
        seed: u64,
    ) -> Result<Self, RecorderError> {
        B::seed(device, seed);
        let record = architecture.init::<B>(device).into_record();
        Recorder::<B>::record(&WeightsRecorder::new(), record, ()).map(Self)
    }

    /// A model with these weights.
    pub(crate) fn load<B: AutodiffBackend>(
        &self,
        architecture: Architecture,
        device: &B::Device,
    ) -> Result<Model<B>, RecorderError> {
        let record = Recorder::<B>::load(&WeightsRecorder::new(), self.0.clone(), device)?;
        Ok(architecture.init::<B>(device).load_record(record))
    }
}

/// How to train.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hyperparameters {
    pub(crate) epochs: usize,
    pub(crate) batch_size: usize,
    /// Learning rate of AdamW.
    pub(crate) lr: f64,
}

/// The state from which a run starts.
pub(crate) struct Start<B: AutodiffBackend> {
    pub(crate) model: Model<B>,
    pub(crate) device: B::Device,
    /// Seed of the order of batches, and of all else that is random.
    pub(crate) seed: u64,
    pub(crate) reseed: Reseed,
    pub(crate) saved: Option<SavedRun>,
    /// Specs of later steps, if they change.
    pub(crate) stages: Vec<SpecsStage>,
    /// The recorder, with the folder of its records.
    pub(crate) recorder: Option<(MxRecorder, PathBuf)>,
}

/// How a run ended.
pub(crate) enum Outcome {
    Trained(Trained),
    /// Before its time, after this number of whole epochs.
    Stopped {
        epochs: usize,
    },
}

/// The results of a run.
pub(crate) struct Trained {
    /// Number of steps, those before a resume included.
    pub(crate) steps: usize,
    /// Training loss of every step.
    pub(crate) loss: Vec<f32>,
    /// Share of the test items that are solved, 0 to 1.
    pub(crate) score: f64,
    /// Median time of a step: forward, backward, update.
    pub(crate) step: Duration,
    /// The step at which the stage with a limit began.
    pub(crate) at_limit: Option<usize>,
}

/// Trains a model, or goes on training it, and evaluates it on the test items.
pub(crate) fn train<B: Staged>(
    monitor: &Monitor,
    task: Task,
    split: &Split,
    hyperparameters: Hyperparameters,
    start: Start<B>,
) -> Result<Outcome, Box<dyn Error>> {
    let Start {
        model,
        device,
        seed,
        reseed,
        saved,
        recorder,
        stages,
    } = start;
    let stopwatch = Stopwatch::of::<B>(&device);
    let mut trainee = Trainee {
        model,
        stopwatch: stopwatch.clone(),
        stages: Stages::new(stages),
    };
    let optimizer = AdamWConfig::new().init();

    let progress = match &saved {
        Some(saved) => progress(saved, &trainee, &optimizer, &device)?,
        None => None,
    };
    let (done, history) = progress.map_or((0, Vec::new()), |progress| {
        (progress.epoch, progress.history)
    });
    if done > hyperparameters.epochs {
        return Err(format!(
            "{}: {done} epochs are done; --epochs '{}' must be at least this number",
            monitor.name, hyperparameters.epochs
        )
        .into());
    }
    let steps = split.train.len().div_ceil(hyperparameters.batch_size);
    let stages = trainee.stages.clone();
    let at_limit = history.last().and_then(|epoch| epoch.at_limit);
    stages.skip(done * steps, at_limit);
    if let Some(stage) = stages.current() {
        trainee.model = B::model(trainee.model, &stage);
    }
    let folder = saved.as_ref().map(SavedRun::history);
    let interrupter = &monitor.interrupter;
    let clocks = (stopwatch, stages.clone());
    let history = History::new(history, steps, clocks, folder, interrupter.clone());

    let epochs = Epochs::<B>::new(
        task,
        split.train.clone(),
        hyperparameters.batch_size,
        (seed, done),
        device.clone(),
        reseed.clone(),
    );
    let test = |stages: &Stages| {
        let device = match stages.current() {
            Some(stage) => B::device(&device, &stage),
            None => device.clone(),
        };
        in_order::<B::InnerBackend>(task, &split.test, TEST_BATCH, &device)
    };
    let folder = saved.as_ref().map_or("".as_ref(), SavedRun::folder);
    let mut training = SupervisedTraining::new(folder, Arc::new(epochs), test(&stages))
        .metrics((AccuracyMetric::new(), LossMetric::new()))
        .with_metric_logger(history.clone())
        .with_application_logger(None)
        .with_interrupter(interrupter.clone())
        .num_epochs(hyperparameters.epochs);
    if saved.is_some() {
        training = training
            .with_file_checkpointer(FileRecorder::new())
            .with_checkpointing_strategy(KeepLastNCheckpoints::new(saved::KEEP));
    }
    if done > 0 {
        training = training.checkpoint(done);
    }
    let recorder = recorder.map(|(recorder, folder)| {
        let first_step = (done * steps) as u64;
        // There may be other runs in the folder.
        recorder.first_step(first_step).append(folder)
    });
    let recording = recorder.transpose()?;
    if let Some(recording) = &recording {
        stages.watch(recording.watch());
        training = training
            .metric_train_numeric(MxSqnr::worst(recording))
            .metric_train_numeric(MxUnderflow::worst(recording))
            .metric_train_numeric(MxSaturation::worst(recording));
    }
    let training = monitor.show(training, (done, hyperparameters.epochs), steps);
    let LearningResult { model, renderer } =
        training.launch(Learner::new(trainee, optimizer, hyperparameters.lr));
    drop(renderer); // which gives the terminal back
    if let Some(Err(error)) = recording.map(Recording::stop) {
        // The run itself is as good as without records.
        eprintln!("{}: some steps were not recorded: {error}", monitor.name);
    }

    let history = history.take();
    if history.len() < hyperparameters.epochs {
        let epochs = history.len();
        return Ok(Outcome::Stopped { epochs });
    }
    let model = model.model;
    reseed(seed); // the same numbers whether or not there was an epoch to train before
    let score = score(&model, test(&stages).as_ref());
    if let Some(saved) = saved {
        saved.save_model(model)?;
    }
    let step = median_after_warm_up(&history);
    let loss: Vec<f32> = history.into_iter().flat_map(|epoch| epoch.loss).collect();
    Ok(Outcome::Trained(Trained {
        steps: loss.len(),
        loss,
        score,
        step,
        at_limit: stages.at_limit(),
    }))
}

/// The saved state of a run of `model` and `optimizer`, which are there only for their record types.
fn progress<B: AutodiffBackend, M: AutodiffModule<B>, O: Optimizer<M, B>>(
    saved: &SavedRun,
    _model: &M,
    _optimizer: &O,
    device: &B::Device,
) -> std::io::Result<Option<saved::Progress>> {
    saved.progress::<B, M::Record, O::Record>(device)
}

fn score<B: Backend>(model: &Model<B>, batches: &dyn DataLoader<B, Batch<B>>) -> f64 {
    let solved: usize = batches.iter().map(|batch| model.solved(batch)).sum();
    solved as f64 / batches.num_items() as f64
}

/// The median does not mind the odd step that something else on the machine held up.
fn median_after_warm_up(history: &[EpochHistory]) -> Duration {
    let mut times: Vec<_> = history
        .iter()
        .flat_map(|epoch| epoch.time.clone())
        .collect();
    let warm_up = WARM_UP_STEPS.min(times.len() / 2);
    let timed = &mut times[warm_up..];
    let middle = timed.len() / 2;
    *timed.select_nth_unstable(middle).1
}
