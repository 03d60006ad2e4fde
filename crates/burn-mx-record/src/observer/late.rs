//! Figures of a step that may be computed later than the recorder sees them. The recorder reads them at the end of the step.

use microscaling::Statistics;

use burn_mx_core::hooks::ObservedStatistics;

/// The statistics of one or several tensors, by their places in the step's list.
pub(super) struct Deferred(Vec<usize>);

impl Deferred {
    /// Adds the elements of another tensor.
    pub(super) fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

/// All statistics of a step.
#[derive(Default)]
pub(super) struct Late(Vec<ObservedStatistics>);

impl Late {
    /// Whether other threads still compute statistics, and no device does.
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
