//! burn-train's dashboard in the terminal.

use std::sync::Arc;

use burn::train::{
    Interrupter,
    metric::{MetricAttributes, MetricDefinition, MetricEntry, MetricId, SerializedEntry},
    renderer::{
        MetricState, MetricsRenderer, MetricsRendererTraining, tui::TuiMetricsRendererWrapper,
    },
};

/// Takes the terminal until it is dropped; its `q` stops the training. `done` epochs come from a checkpoint.
///
/// The dashboard has no place for the run's title, only for metrics. So the first metric is the title.
pub(crate) fn dashboard(
    interrupter: &Interrupter,
    [name, title]: [&String; 2],
    done: usize,
) -> TuiMetricsRendererWrapper {
    let checkpoint = (done > 0).then_some(done);
    let mut tui = TuiMetricsRendererWrapper::new(interrupter.clone(), checkpoint);
    let metric_id = MetricId::new(Arc::new(title.clone()));
    tui.register_metric(MetricDefinition {
        metric_id: metric_id.clone(),
        name: title.clone(),
        description: None,
        attributes: MetricAttributes::None,
    });
    let text = SerializedEntry::new(name.clone(), name.clone());
    tui.update_train(MetricState::Generic(MetricEntry::new(metric_id, text)));
    tui
}
