//! Loss and time of every training step, epoch by epoch; kept in files if the run is to be resumed.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use burn::train::{
    Interrupter,
    logger::MetricLogger,
    metric::{
        MetricDefinition, MetricId, NumericEntry,
        store::{EpochSummary, MetricsUpdate, Split},
    },
};
use serde::{Deserialize, Deserializer, Serialize};

use super::{stages::Stages, trainee::Stopwatch};

/// The steps of an epoch.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct EpochHistory {
    /// Training loss of every step.
    #[serde(deserialize_with = "null_is_nan")]
    pub(crate) loss: Vec<f32>,
    /// Time of every step: forward, backward, update.
    pub(crate) time: Vec<Duration>,
    /// The step at which the stage with a limit began, in this epoch or before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at_limit: Option<usize>,
}

/// The learner's log of a run. Clones share the log.
#[derive(Clone)]
pub(crate) struct History(Arc<Mutex<HistoryState>>);

struct HistoryState {
    epochs: Vec<EpochHistory>,
    current: Vec<f32>,
    loss: Option<MetricId>,
    stopwatch: Stopwatch,
    stages: Stages,
    /// Of an epoch.
    steps: usize,
    folder: Option<PathBuf>,
    interrupter: Interrupter,
}

impl History {
    /// Goes on after `epochs` with epochs of `steps` steps, and writes them to `folder`. A failed write stops the
    /// training.
    pub(crate) fn new(
        epochs: Vec<EpochHistory>,
        steps: usize,
        (stopwatch, stages): (Stopwatch, Stages),
        folder: Option<PathBuf>,
        interrupter: Interrupter,
    ) -> Self {
        Self(Arc::new(Mutex::new(HistoryState {
            epochs,
            current: Vec::new(),
            loss: None,
            stopwatch,
            stages,
            steps,
            folder,
            interrupter,
        })))
    }

    /// All epochs so far that are whole.
    pub(crate) fn take(&self) -> Vec<EpochHistory> {
        std::mem::take(&mut self.state().epochs)
    }

    fn state(&self) -> MutexGuard<'_, HistoryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MetricLogger for History {
    fn log(&mut self, update: MetricsUpdate, _epoch: usize, split: &Split) {
        let mut state = self.state();
        if !matches!(split, Split::Train) {
            return;
        }
        let loss = update
            .entries_numeric
            .iter()
            .find(|update| Some(&update.entry.metric_id) == state.loss.as_ref());
        if let Some(loss) = loss {
            state.current.push(loss.numeric_entry.current() as f32);
        }
    }

    fn read_numeric(&mut self, _: &str, _: usize, _: &Split) -> Result<Vec<NumericEntry>, String> {
        Err("no strategy that these examples use looks back".to_owned())
    }

    fn log_metric_definition(&mut self, definition: MetricDefinition) {
        if definition.name == LOSS {
            self.state().loss = Some(definition.metric_id);
        }
    }

    fn log_epoch_summary(&mut self, summary: EpochSummary) {
        if !matches!(summary.split, Split::Train) {
            return;
        }
        let mut state = self.state();
        let loss = std::mem::take(&mut state.current);
        if loss.len() < state.steps {
            return; // The training was stopped.
        }
        let time = state.stopwatch.take(loss.len());
        let at_limit = state.stages.at_limit();
        let epoch = EpochHistory {
            loss,
            time,
            at_limit,
        };
        if let Some(folder) = &state.folder {
            let written = epoch.write(folder, summary.epoch_number);
            if let Err(error) = written {
                let reason = format!("cannot write to '{}': {error}", folder.display());
                state.interrupter.stop(Some(&reason));
            }
        }
        state.epochs.push(epoch);
    }
}

/// burn-train's name for it.
pub(crate) const LOSS: &str = "Loss";

impl EpochHistory {
    fn path(folder: &Path, epoch: usize) -> PathBuf {
        folder.join(format!("epoch-{epoch}.json"))
    }

    /// Writes the file at once, so that a file with the epoch's name is complete.
    fn write(&self, folder: &Path, epoch: usize) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        burn_mx_files::write(&Self::path(folder, epoch), serde_json::to_vec(self)?)
    }

    /// Epochs 1 to `last`.
    pub(crate) fn read(folder: &Path, last: usize) -> io::Result<Vec<Self>> {
        (1..=last)
            .map(|epoch| {
                let text = fs::read(Self::path(folder, epoch))?;
                Ok(serde_json::from_slice(&text)?)
            })
            .collect()
    }
}

/// serde_json writes NaN and Inf as null; this reads them back as NaN.
fn null_is_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f32>, D::Error> {
    let losses = Vec::<Option<f32>>::deserialize(deserializer)?;
    let losses = losses.into_iter().map(|loss| loss.unwrap_or(f32::NAN));
    Ok(losses.collect())
}
