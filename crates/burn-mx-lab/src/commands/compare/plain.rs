//! Progress without a dashboard: a bar, lines, or nothing.

use burn::train::{
    metric::{MetricDefinition, MetricId, NumericEntry},
    renderer::{
        EvaluationName, EvaluationProgress, MetricState, MetricsRenderer,
        MetricsRendererEvaluation, MetricsRendererTraining, ProgressType, TrainingProgress,
    },
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::progress_kind::ProgressKind;
use crate::training::history::LOSS;

/// burn-train's name for it.
const ACCURACY: &str = "Accuracy";
/// Lines a run, about.
const LINES: usize = 10;

/// A renderer for burn-train's learner: a bar, lines, or nothing.
pub(crate) struct Plain {
    name: String,
    bar: ProgressBar,
    lines: bool,
    loss: Mean,
    accuracy: Mean,
}

/// A metric over an epoch.
#[derive(Default)]
struct Mean {
    id: Option<MetricId>,
    sum: f64,
    count: usize,
}

impl Plain {
    /// For a run of `name`, of whose `steps` some are `done` already.
    pub(crate) fn new(kind: ProgressKind, name: &str, (done, steps): (usize, usize)) -> Self {
        let style = ProgressStyle::with_template(
            "{prefix:<12} {bar:30} {pos:>5}/{len} steps  {msg}  {eta} left",
        )
        .expect("the template is valid");
        let target = match kind {
            ProgressKind::Bar => ProgressDrawTarget::stderr(),
            _ => ProgressDrawTarget::hidden(),
        };
        Self {
            name: name.to_owned(),
            bar: ProgressBar::with_draw_target(Some(steps as u64), target)
                .with_style(style)
                .with_position(done as u64)
                .with_prefix(name.to_owned()),
            lines: kind == ProgressKind::Lines,
            loss: Mean::default(),
            accuracy: Mean::default(),
        }
    }
}

impl Mean {
    fn update(&mut self, state: &MetricState) -> Option<f64> {
        let MetricState::Numeric(entry, value) = state else {
            return None;
        };
        if Some(&entry.metric_id) != self.id.as_ref() {
            return None;
        }
        let (value, count) = match *value {
            NumericEntry::Value(value) => (value, 1),
            NumericEntry::Aggregated {
                aggregated_value,
                count,
            } => (aggregated_value, count),
        };
        self.sum += value * count as f64;
        self.count += count;
        Some(value)
    }

    fn take(&mut self) -> f64 {
        let mean = self.sum / self.count as f64;
        (self.sum, self.count) = (0.0, 0);
        mean
    }
}

impl MetricsRendererTraining for Plain {
    fn update_train(&mut self, state: MetricState) {
        if let Some(loss) = self.loss.update(&state) {
            self.bar.set_message(format!("loss {loss:.4}"));
        }
    }

    fn update_valid(&mut self, state: MetricState) {
        self.accuracy.update(&state);
    }

    fn render_train(&mut self, _: TrainingProgress, _: Vec<ProgressType>) {
        self.bar.inc(1);
    }

    fn render_valid(&mut self, item: TrainingProgress, _: Vec<ProgressType>) {
        let batches = item.progress.expect("a loader tells its progress");
        if batches.items_processed < batches.items_total {
            return;
        }
        let (loss, accuracy) = (self.loss.take(), self.accuracy.take());
        let (epoch, epochs) = (
            item.global_progress.items_processed,
            item.global_progress.items_total,
        );
        let due = epoch % epochs.div_ceil(LINES) == 0 || epoch == epochs;
        if self.lines && due {
            eprintln!(
                "{}: epoch {epoch}/{epochs}, loss {loss:.4}, {accuracy:.1} % of held-out items right",
                self.name
            );
        }
    }

    fn on_train_end(
        &mut self,
        _: Option<burn::train::LearnerSummary>,
    ) -> Result<(), Box<dyn std::error::Error>> {
        self.bar.finish_and_clear();
        Ok(())
    }
}

/// The learner evaluates only the held-out items.
impl MetricsRendererEvaluation for Plain {
    fn update_test(&mut self, _: EvaluationName, _: MetricState) {}
    fn render_test(&mut self, _: EvaluationProgress, _: Vec<ProgressType>) {}
}

impl MetricsRenderer for Plain {
    fn manual_close(&mut self) {}

    fn register_metric(&mut self, definition: MetricDefinition) {
        match definition.name.as_str() {
            LOSS => self.loss.id = Some(definition.metric_id),
            ACCURACY => self.accuracy.id = Some(definition.metric_id),
            _ => {}
        }
    }
}
