//! Tame blocks, whose elements a device rounds by its own float32: `microscaling`'s rules.

use super::known::{Known, tensor_amax};
use super::{Format, tensor_scale};
use crate::cube::numbers::bits::{ABS, ONE, SIGN};
use crate::cube::numbers::float::Float32;
use crate::cube::numbers::words::written_by_rules;
use crate::cube::quantize::Job;
use cubecl::prelude::*;
use microscaling::internal::{FloatScaleRule, PowerRules, ScalePair, TAME_END};
use microscaling::{BlockFormat, FloatFormat, Rounding, with_rule};

/// Whether tame blocks are rounded as such: where the device computes, and elements are rounded to a bfloat format before, if at all.
pub(in crate::cube::quantize) fn has_tame_blocks(job: Job) -> bool {
    let format = job.format.block();
    let has = match PowerRules::of(&format) {
        Some(rules) => rules.has_tame_blocks(),
        None => {
            let rules = FloatScaleRule::for_words(&format);
            rules.is_some_and(|rules| rules.has_tame_blocks())
        }
    };
    let before = job
        .elementwise
        .is_none_or(|(float, rounding)| float.rounds_tame() && rounding != Rounding::Stochastic);
    let is_usual = !job.marks_clipped && !job.format.has_outer_scale();
    has && before && is_usual && job.format.float32 == Float32::Device
}

/// Whether magnitudes up to this one may be in tame blocks.
#[cube]
pub(in crate::cube::quantize) fn may_be_tame(amax: u32) -> bool {
    amax < TAME_END
}

/// A magnitude below 2^100, rounded before it goes into its block. A subnormal one stays unchanged.
#[cube]
fn before(abs: u32, #[comptime] job: Job) -> u32 {
    match comptime!(job.elementwise) {
        Some(elementwise) => rounded_before(abs, elementwise.0, elementwise.1),
        None => abs,
    }
}

/// The scale of the tensor; 1 where there is none.
#[cube]
pub(in crate::cube::quantize) fn scale_above(known: &Known, #[comptime] format: Format) -> u32 {
    if comptime!(format.tensor_scale) {
        tensor_scale(tensor_amax(known), comptime!(format.block()))
    } else {
        ONE.runtime()
    }
}

/// Whether a block with this largest magnitude is tame.
#[cube]
pub(in crate::cube::quantize) fn is_tame(
    amax: u32,
    scale_above: u32,
    #[comptime] format: Format,
) -> bool {
    if comptime!(format.has_exponent()) {
        is_tame_by_power(amax, comptime!(format.block()))
    } else {
        is_tame_by_float(amax, scale_above, comptime!(format.block()))
    }
}

/// The factors of the elements of a sub-block in a tame block, after and before rounding; of powers of two the first one alone.
#[cube]
pub(in crate::cube::quantize) fn factors(
    amax: u32,
    sub_amax: u32,
    scale_above: u32,
    #[comptime] job: Job,
) -> (u32, u32) {
    let format = comptime!(job.format.block());
    if comptime!(format.has_exponent()) {
        (power(amax, sub_amax, format), 0u32.runtime())
    } else {
        pair(amax, sub_amax, scale_above, format, job.in_units)
    }
}

/// An element, rounded.
#[cube]
pub(in crate::cube::quantize) fn round(
    x: u32,
    factors: (u32, u32),
    draw: u32,
    #[comptime] job: Job,
) -> u32 {
    let abs = before(x & ABS, job);
    let format = comptime!(job.format.block());
    let magnitude = if comptime!(format.has_exponent()) {
        round_by_power(abs, factors.0, draw, format, job.rounding)
    } else {
        round_by_pair(abs, factors.0, factors.1, draw, format, job.rounding)
    };
    (x & SIGN) | magnitude
}

fn power_rules(format: &BlockFormat) -> PowerRules {
    PowerRules::of(format).expect("the format has an exponent")
}

fn float_rules(format: &BlockFormat) -> FloatScaleRule {
    FloatScaleRule::for_words(format).expect("the scale is a float")
}

written_by_rules! {
    fn rounded_before(abs: u32; float: FloatFormat, rounding: Rounding) -> u32 {
        with_rule!(rounding, R => float.round_tame::<R, _>(abs))
    }

    fn is_tame_by_power(amax: u32; format: BlockFormat) -> bool {
        power_rules(&format).is_tame(amax)
    }

    fn is_tame_by_float(amax: u32, above: u32; format: BlockFormat) -> bool {
        float_rules(&format).is_tame(amax, format.tensor_scale.then_some(above))
    }

    fn power(amax: u32, sub_amax: u32; format: BlockFormat) -> u32 {
        power_rules(&format).tame_scale(amax, sub_amax)
    }

    fn pair(amax: u32, refinement: u32, above: u32; format: BlockFormat, in_units: bool) -> (u32, u32) {
        let rule = match format.tensor_scale {
            true => float_rules(&format).with_ordinary_tensor_scale(above),
            false => float_rules(&format).without_tensor_scale(),
        };
        let rule = if in_units { rule.in_units_of_the_scale() } else { rule };
        let ScalePair { scale, inverse } = rule.tame_pair(amax, refinement);
        (scale, inverse)
    }

    fn round_by_power(abs: u32, scale: u32, draw: u32; format: BlockFormat, rounding: Rounding) -> u32 {
        with_rule!(rounding, R => power_rules(&format).round_tame::<R, _>(scale, abs, draw))
    }

    fn round_by_pair(
        abs: u32, scale: u32, inverse: u32, draw: u32; format: BlockFormat, rounding: Rounding
    ) -> u32 {
        let element = float_rules(&format).element;
        with_rule!(rounding, R => element.round_tame::<R, _>(ScalePair { scale, inverse }, abs, draw))
    }
}
