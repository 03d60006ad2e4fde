//! Rounding: modes, the bits of a float32, random numbers.

pub mod bits;
pub(crate) mod draws;
pub(crate) mod magnitude;
pub(crate) mod mode;
pub(crate) mod random;
pub(crate) mod words;

pub(crate) use magnitude::{NORMAL, normal, round_drawn, round_magnitude, round_normal};
pub(crate) use mode::{RoundingRule, with_rule};
