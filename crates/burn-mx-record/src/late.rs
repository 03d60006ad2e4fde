//! Figures of a step that may not be there yet when they are seen. They are read when the step is over.

use microscaling::Statistics;

use burn_mx_core::hooks::ObservedStatistics;

/// The statistics of a tensor, or of several taken together, by their places in the step's list.
pub(super) struct Deferred(Vec<usize>);

impl Deferred {
    /// Takes the elements of another tensor in.
    pub(super) fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

/// All statistics of a step.
#[derive(Default)]
pub(super) struct Late(Vec<ObservedStatistics>);

impl Late {
    /// Whether there is nothing to do but to wait for other threads.
    pub(super) fn is_pending(&self) -> bool {
        let is_there = |one: &ObservedStatistics| one.is_known() || one.is_pending();
        self.0.iter().any(ObservedStatistics::is_pending) && self.0.iter().all(is_there)
    }

    pub(super) fn add(&mut self, statistics: ObservedStatistics) -> Deferred {
        self.0.push(statistics);
        Deferred(vec![self.0.len() - 1])
    }

    /// Waits for devices and other threads.
    pub(super) fn read(self) -> Read {
        Read(ObservedStatistics::read_all(self.0))
    }
}

/// The statistics of a step.
pub(super) struct Read(Vec<Statistics>);

impl Read {
    pub(super) fn statistics(&mut self, deferred: Deferred) -> Statistics {
        let mut parts = deferred.0.into_iter();
        let mut all = parts.next().map(|at| std::mem::take(&mut self.0[at]));
        for at in parts {
            all.get_or_insert_default()
                .merge(std::mem::take(&mut self.0[at]));
        }
        all.unwrap_or_default()
    }
}
