//! Blocks whose scale is a power of two: `microscaling`'s rules.

use super::Grid;
use crate::cube::numbers::words::{KernelValue, written};
use cubecl::prelude::*;
use microscaling::internal::{Int, PowerRules, Steps, Word};
use microscaling::{BlockFormat, Rounding, with_rule};

/// The rules of a format whose scales are powers of two.
fn rules_of(format: &BlockFormat) -> PowerRules {
    PowerRules::of(format).expect("the format has an exponent")
}

/// The exponent of the smallest number with all its mantissa bits, and the pattern of the largest number, or of NaN.
#[cube]
#[allow(unused_variables, reason = "used where the kernel is written")]
pub(super) fn power_grid(amax: u32, refinement: u32, #[comptime] format: BlockFormat) -> Grid {
    intrinsic!(|scope| written(scope, || {
        let [amax, refinement] = [amax, refinement].map(KernelValue::of);
        let Steps { emin, max } = rules_of(&format).grid(amax, refinement);
        (emin.to_word().variable(), max.variable(), 0u32.into())
    }))
}

/// An element, rounded to a grid.
#[cube]
#[allow(unused_variables, reason = "used where the kernel is written")]
pub(super) fn round_to_power_grid(
    x: u32,
    grid: Grid,
    draw: u32,
    #[comptime] format: BlockFormat,
    #[comptime] rounding: Rounding,
) -> u32 {
    intrinsic!(|scope| written(scope, || {
        let (emin, max, _) = grid;
        let steps = Steps {
            emin: KernelValue::of(emin).to_int(),
            max: KernelValue::of(max),
        };
        let [x, draw] = [x, draw].map(KernelValue::of);
        let rules = rules_of(&format);
        with_rule!(rounding, R => rules.round::<R, _>(steps, x, draw)).variable()
    }))
}
