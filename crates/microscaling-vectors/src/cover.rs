//! The codes and events that a set of vectors hits.

use std::collections::{BTreeMap, BTreeSet};

/// The codes, scales, roundings and special cases that a set hits.
#[derive(Debug, Default, Clone)]
pub struct Cover {
    /// Values that were seen, and how many there are.
    codes: BTreeMap<&'static str, (BTreeSet<u64>, u64)>,
    events: BTreeMap<&'static str, u64>,
}

impl Cover {
    /// Sets how many values a kind of codes has.
    pub(crate) fn expect(&mut self, kind: &'static str, values: u64) {
        self.codes.entry(kind).or_default().1 = values;
    }

    /// That a value was hit.
    pub(crate) fn code(&mut self, kind: &'static str, value: u64) {
        self.codes.entry(kind).or_default().0.insert(value);
    }

    /// That a case may hit an event.
    pub(crate) fn event(&mut self, event: &'static str, hit: bool) {
        *self.events.entry(event).or_default() += u64::from(hit);
    }

    /// Rows: a kind of codes or an event, the number of hits, and the number of all values if this is known.
    pub fn rows(&self) -> Vec<(&'static str, u64, Option<u64>)> {
        let codes = self
            .codes
            .iter()
            .map(|(kind, (seen, all))| (*kind, seen.len() as u64, Some(*all)));
        let events = self
            .events
            .iter()
            .map(|(event, hits)| (*event, *hits, None));
        codes.chain(events).collect()
    }
}
