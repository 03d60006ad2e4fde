//! The progress display of a run.

use burn::train::{Interrupter, LearningComponentsTypes, SupervisedTraining};

#[cfg(feature = "tui")]
use super::dashboard::dashboard;
use super::{plain::Plain, progress_kind::ProgressKind};

/// How a run is shown, and how it is stopped.
pub(crate) struct Monitor {
    pub(crate) kind: ProgressKind,
    /// The name of the run.
    pub(crate) name: String,
    /// The number of the run, and how many runs there are.
    #[cfg_attr(
        not(feature = "tui"),
        expect(dead_code, reason = "the dashboard's alone")
    )]
    pub(crate) title: String,
    pub(crate) interrupter: Interrupter,
}

impl Monitor {
    /// Shows `training` from now on. Its epochs have `steps` steps, and some epochs are `done` already.
    pub(crate) fn show<LC: LearningComponentsTypes>(
        &self,
        training: SupervisedTraining<LC>,
        (done, epochs): (usize, usize),
        steps: usize,
    ) -> SupervisedTraining<LC> {
        match self.kind {
            #[cfg(feature = "tui")]
            ProgressKind::Tui => {
                let dashboard = dashboard(&self.interrupter, [&self.name, &self.title], done);
                training.renderer(dashboard)
            }
            kind => {
                let steps = (done * steps, epochs * steps);
                training.renderer(Plain::new(kind, &self.name, steps))
            }
        }
    }
}
