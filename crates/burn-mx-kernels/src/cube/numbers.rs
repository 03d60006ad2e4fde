//! Numbers as bit patterns: arithmetic, rounding and random words with the same bits on every device.

pub(super) mod bits;
pub(super) mod double;
pub(super) mod element;
pub(super) mod float;
pub(super) mod random;
pub(super) mod round;
pub(super) mod wide;
pub(super) mod words;
