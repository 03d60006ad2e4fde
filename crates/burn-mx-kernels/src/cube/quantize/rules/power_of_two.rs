//! Blocks whose scale is a power of two: `microscaling`'s rules.

use super::Grid;
use crate::cube::numbers::words::written_by_rules;
use cubecl::prelude::*;
use microscaling::internal::{Int, PowerRules, Steps, Word};
use microscaling::{BlockFormat, Rounding, with_rule};

/// The rules of a format whose scales are powers of two.
fn rules_of(format: &BlockFormat) -> PowerRules {
    PowerRules::of(format).expect("the format has an exponent")
}

written_by_rules! {
    /// The exponent of the smallest number with all its mantissa bits, and the pattern of the largest number, or of NaN.
    pub(super) fn power_grid(amax: u32, refinement: u32; format: BlockFormat) -> Grid {
        let Steps { emin, max } = rules_of(&format).grid(amax, refinement);
        (emin.to_word(), max, 0.into())
    }

    /// The choice of a block from the mean of its squares.
    pub(in crate::cube::quantize) fn choice_of_mean(amax: u32, mean: u32; format: BlockFormat) -> u32 {
        rules_of(&format).choice_of_mean(amax, mean)
    }

    /// An element, rounded to a grid.
    pub(super) fn round_to_power_grid(
        x: u32, grid: Grid, draw: u32; format: BlockFormat, rounding: Rounding
    ) -> u32 {
        let (emin, max, _) = grid;
        let (rules, emin) = (rules_of(&format), emin.to_int());
        let steps = Steps { emin, max };
        with_rule!(rounding, R => rules.round::<R, _>(steps, x, draw))
    }
}
