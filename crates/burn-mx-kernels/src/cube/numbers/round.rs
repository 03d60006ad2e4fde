//! Rounding on a device: `microscaling`'s, on patterns.

use cubecl::prelude::*;
use microscaling::{FloatFormat, Rounding, with_rule};

use super::words::written_by_rules;

written_by_rules! {
    /// Rounds a number to a bfloat or fp format.
    pub(in crate::cube) fn round_float(x: u32, draw: u32; format: FloatFormat, rounding: Rounding) -> u32 {
        with_rule!(rounding, R => format.round_word::<R, _>(x, draw))
    }
}
