//! The inputs of a conversion that tell rules apart.

use super::format::CodePlan;
use super::input::{ExactInput, InputType};
use super::rule::{ElementRule, Place};
use crate::choice::Dice;

/// Random patterns of a set.
const RANDOM_PATTERNS: usize = 256;

/// Inputs of a type for the codes of a format: special cases first.
pub(super) struct CandidateInputs {
    /// How many of them a limit does not leave out, if it can.
    pub(super) must: usize,
    pub(super) patterns: Vec<u32>,
}

/// The patterns of both signs around significand · 2^exponent: the last one that is not larger, and both of its neighbours.
fn around(input: InputType, (significand, exponent): (u128, i32), patterns: &mut Vec<u32>) {
    let at = input.at_most(significand, exponent);
    for pattern in [at.saturating_sub(1), at, (at + 1).min(input.infinity())] {
        patterns.extend([pattern, pattern | input.sign()]);
    }
}

/// The number of a code, or the midpoint between this number and the next one.
fn target(plan: &CodePlan, magnitude: u64, middle: bool) -> (u128, i32) {
    let (significand, exponent) = plan.number(magnitude);
    if !middle {
        return (significand.into(), exponent);
    }
    let (above, above_exponent) = plan.number(magnitude + 1);
    (
        u128::from(significand) + (u128::from(above) << (above_exponent - exponent)),
        exponent - 1,
    )
}

impl CandidateInputs {
    pub(super) fn new(plan: &CodePlan, input: InputType, seed: u64) -> Self {
        let infinity = input.infinity();
        let mantissa_bits = input.mantissa_bits();
        let smallest_normal = 1 << mantissa_bits;
        let mut must = Vec::new();
        for abs in [
            0,
            infinity,
            // NaN with other payloads: quiet, signalling, all bits.
            infinity | 1 << (mantissa_bits - 1),
            infinity | 1,
            infinity | (1 << (mantissa_bits - 1)) | 1,
            input.sign() - 1,
            // Subnormal numbers, and their neighbours.
            1,
            2,
            smallest_normal / 2,
            smallest_normal - 1,
            smallest_normal,
            smallest_normal + 1,
            infinity - 1,
        ] {
            must.extend([abs, abs | input.sign()]);
        }
        let normal = 1_u64 << plan.mantissa_bits;
        let edges = [
            0,
            1,
            normal - 1,
            normal,
            plan.top,
            plan.largest - 1,
            plan.largest,
            plan.largest + 1,
        ];
        for edge in edges.into_iter().filter(|edge| *edge <= plan.largest + 1) {
            for middle in [false, true] {
                around(input, target(plan, edge, middle), &mut must);
            }
        }
        let mut rest = Vec::new();
        for magnitude in 0..=plan.largest {
            for middle in [false, true] {
                around(input, target(plan, magnitude, middle), &mut rest);
            }
        }
        for power in (smallest_normal..infinity).step_by(smallest_normal as usize) {
            rest.extend([power, power | input.sign()]);
        }
        let mut dice = Dice::new(seed, 0);
        rest.extend((0..RANDOM_PATTERNS).map(|_| dice.word() >> (32 - input.bits())));
        let patterns = without_repeats(must.iter().chain(&rest).copied());
        let must = without_repeats(must.into_iter()).len();
        Self { must, patterns }
    }
}

/// The first of equal ones each.
fn without_repeats(patterns: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut seen = std::collections::HashSet::new();
    patterns.filter(|pattern| seen.insert(*pattern)).collect()
}

/// Random words for an input: both ends, the last one that rounds down, the first one that rounds up, and any.
pub(super) fn random_words(
    plan: &CodePlan,
    rule: &ElementRule,
    x: ExactInput,
    any: u32,
) -> Vec<u32> {
    let end = 1_u32 << rule.random_bits;
    let mut words = vec![0, end - 1, any & (end - 1)];
    if let ExactInput::Finite {
        significand,
        exponent,
        ..
    } = x
        && significand != 0
    {
        let fraction = Place::of(plan, significand, exponent).floor(rule.random_bits) as u32;
        let first_up = end - fraction.min(end);
        words.extend(
            [
                first_up.saturating_sub(2),
                first_up.saturating_sub(1),
                first_up,
            ]
            .map(|word| word.min(end - 1)),
        );
    }
    without_repeats(words.into_iter())
}
