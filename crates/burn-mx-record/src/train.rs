//! Figures of a recorder as metrics of burn-train, and metrics of burn-train in TensorBoard.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn_train::logger::MetricLogger;
use burn_train::metric::store::{EpochSummary, MetricsUpdate, Split};
use burn_train::metric::{
    Metric, MetricAttributes, MetricDefinition, MetricId, MetricMetadata, MetricName, Numeric,
    NumericAttributes, NumericEntry, SerializedEntry,
};

use crate::error::RecordError;
use crate::file::figures::Figures;
use crate::observer::running::Running;
use crate::recorder::Recording;
use crate::report::operands;
use crate::tensorboard::TensorBoard;

/// A figure of the last recorded step, over all operands.
#[derive(Clone, Debug)]
struct Watch {
    name: MetricName,
    running: Arc<Running>,
    mean: bool,
    figure: fn(&Figures) -> Option<f64>,
    unit: &'static str,
    higher_is_better: bool,
    value: f64,
}

impl Watch {
    fn update(&mut self) -> SerializedEntry {
        let latest = self.running.latest();
        let figure = self.figure;
        let operands = latest.iter().flat_map(|step| operands(step));
        let figures = operands
            .filter_map(|(product, operand)| Some((product, operand, figure(&operand.figures)?)));
        let figures: Vec<_> = figures.collect();
        let Some((product, operand, worst)) =
            figures
                .iter()
                .copied()
                .reduce(|a, b| match (a.2 < b.2) == self.higher_is_better {
                    true => a,
                    false => b,
                })
        else {
            let formatted = format!("{}: nothing recorded yet", self.name);
            return SerializedEntry::new(formatted, f64::NAN.to_string());
        };
        let sum: f64 = figures.iter().map(|(.., figure)| figure).sum();
        let mean = sum / figures.len() as f64;
        self.value = if self.mean { mean } else { worst };
        let (name, unit) = (&self.name, self.unit);
        let formatted = match self.mean {
            true => format!("{name}: {mean:.2} {unit}"),
            false => format!(
                "{name}: {worst:.2} {unit}, {} of {} {}",
                operand.operand, product.product, product.layer
            ),
        };
        SerializedEntry::new(formatted, self.value.to_string())
    }
}

macro_rules! metric {
    ($(#[$doc:meta])* $metric:ident, $name:literal, $figure:expr, $unit:literal, $higher_is_better:literal) => {
        $(#[$doc])*
        ///
        /// A figure of the last recorded step. The metric accepts any output of a training step as its input.
        #[derive(Clone, Debug)]
        pub struct $metric(Watch);

        impl $metric {
            /// The figure of the worst operand. The entry names the operand.
            pub fn worst(recording: &Recording) -> Self {
                Self::new(recording, false)
            }

            /// The mean of all operands.
            pub fn mean(recording: &Recording) -> Self {
                Self::new(recording, true)
            }

            fn new(recording: &Recording, mean: bool) -> Self {
                let which = if mean { "mean" } else { "worst" };
                Self(Watch {
                    name: Arc::new(format!(concat!($name, " ({})"), which)),
                    running: Arc::clone(recording.running()),
                    mean,
                    figure: $figure,
                    unit: $unit,
                    higher_is_better: $higher_is_better,
                    value: f64::NAN,
                })
            }
        }

        impl Metric for $metric {
            type Input = ();

            fn name(&self) -> MetricName {
                Arc::clone(&self.0.name)
            }

            fn attributes(&self) -> MetricAttributes {
                let attributes = NumericAttributes {
                    unit: Some($unit.into()),
                    higher_is_better: $higher_is_better,
                };
                attributes.into()
            }

            fn update(&mut self, _: &(), _: &MetricMetadata) -> SerializedEntry {
                self.0.update()
            }

            fn clear(&mut self) {}
        }

        impl Numeric for $metric {
            fn value(&self) -> NumericEntry {
                NumericEntry::Value(self.0.value)
            }

            fn running_value(&self) -> NumericEntry {
                NumericEntry::Value(self.0.value)
            }
        }
    };
}

metric! {
    /// Signal-to-quantization-noise ratio in dB.
    MxSqnr, "MX SQNR", |figures| figures.sqnr, "dB", true
}
metric! {
    /// Share of nonzero elements that became zero, in percent.
    MxUnderflow, "MX underflow", |figures| figures.underflow, "%", false
}
metric! {
    /// Share of elements beyond the largest number under their block's scale, in percent.
    MxSaturation, "MX saturation", |figures| figures.saturation, "%", false
}

/// Writes the numeric metrics of a learner as curves of TensorBoard: each update of a metric is a step of its curve. Each split
/// is a separate run (`train`, `valid`), in a subfolder.
///
/// A learner reads metrics back for early stopping and for its summary, and this logger only writes. Register burn-train's
/// file logger, too:
///
/// ```no_run
/// # mod burn_mx { pub use burn_mx_record as record; }
/// use burn_mx::record::TensorBoardLogger;
/// use burn_train::logger::FileMetricLogger;
///
/// let (files, curves) = (FileMetricLogger::new("out"), TensorBoardLogger::create("out/tensorboard")?);
/// // SupervisedTraining::new(..).with_metric_logger(files).with_metric_logger(curves)
/// # Ok::<(), burn_mx::record::RecordError>(())
/// ```
#[derive(Debug)]
pub struct TensorBoardLogger {
    folder: PathBuf,
    boards: HashMap<String, TensorBoard>,
    names: HashMap<MetricId, String>,
    /// The number of updates of a metric in a split.
    steps: HashMap<(String, MetricId), u64>,
}

impl TensorBoardLogger {
    /// A logger whose event files stand in this folder.
    ///
    /// # Errors
    ///
    /// If the folder cannot be written to.
    pub fn create(folder: impl AsRef<Path>) -> Result<Self, RecordError> {
        let folder = folder.as_ref().to_owned();
        let train = Split::Train.to_string();
        let board = TensorBoard::create(folder.join(&train))?;
        Ok(Self {
            folder,
            boards: HashMap::from([(train, board)]),
            names: HashMap::new(),
            steps: HashMap::new(),
        })
    }

    fn write(&mut self, update: &MetricsUpdate, split: &str) -> Result<(), RecordError> {
        let board = match self.boards.get_mut(split) {
            Some(board) => board,
            None => {
                let board = TensorBoard::create(self.folder.join(split))?;
                self.boards.entry(split.to_owned()).or_insert(board)
            }
        };
        for metric in &update.entries_numeric {
            let id = &metric.entry.metric_id;
            let step = self
                .steps
                .entry((split.to_owned(), id.clone()))
                .or_default();
            let name = self.names.get(id).map_or("metric", String::as_str);
            board.scalar(name, *step, metric.numeric_entry.current())?;
            *step += 1;
        }
        Ok(())
    }
}

impl MetricLogger for TensorBoardLogger {
    fn log(&mut self, update: MetricsUpdate, _epoch: usize, split: &Split) {
        if let Err(error) = self.write(&update, &split.to_string()) {
            log::error!("burn-mx: a metric was not written for TensorBoard: {error}");
        }
    }

    fn read_numeric(
        &mut self,
        name: &str,
        _epoch: usize,
        _split: &Split,
    ) -> Result<Vec<NumericEntry>, String> {
        Err(format!(
            "burn-mx: TensorBoardLogger only writes, and `{name}` is to be read; register a FileMetricLogger, too"
        ))
    }

    fn log_metric_definition(&mut self, definition: MetricDefinition) {
        self.names.insert(definition.metric_id, definition.name);
    }

    fn log_epoch_summary(&mut self, _summary: EpochSummary) {}
}
