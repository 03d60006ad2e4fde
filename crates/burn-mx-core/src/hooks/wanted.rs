//! The events that observers want: what an op reads first.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::Events;

/// How many observers want which events. Without observers, an op reads nothing else.
static WANTED: [AtomicUsize; EVENTS] = [const { AtomicUsize::new(0) }; EVENTS];
const EVENTS: usize = Events::all().bits().count_ones() as usize;

/// The counters of these events.
pub(super) fn counters(events: Events) -> impl Iterator<Item = &'static AtomicUsize> {
    let bits = WANTED.iter().enumerate();
    let wanted = bits.filter(move |(bit, _)| events.bits() >> bit & 1 == 1);
    wanted.map(|(_, counter)| counter)
}

/// Whether any observer wants one of these events.
pub(super) fn is_any(events: Events) -> bool {
    counters(events).any(|counter| counter.load(Ordering::Relaxed) > 0)
}
