//! The processor: its instruction sets, its threads and the state of its float unit.

pub(super) mod float_state;
pub(crate) mod instruction_set;
pub(crate) mod memory;
pub(crate) mod prefetch;
pub(crate) mod threads;
