//! The neighbours of a rule.

use super::format::{CodePlan, SignKind};
use super::modes::{ElementOverflow, ElementRounding, InWords, OVERFLOWS};
use super::rule::{ElementRule, SmallResults};
use crate::set::NeighbouringRule;
use microscaling::p3109::{CodeValue, StochasticVariant};

/// Which rules differ from another one in one field, with the field and what a device does. Tables have no plan, and fewer such rules.
pub(crate) fn neighbouring_rules(
    rule: &ElementRule,
    plan: Option<&CodePlan>,
) -> Vec<(NeighbouringRule, ElementRule)> {
    let mut found: Vec<(&'static str, String, ElementRule)> = Vec::new();
    let variants = [
        StochasticVariant::A,
        StochasticVariant::B,
        StochasticVariant::C,
    ]
    .map(ElementRounding::Stochastic);
    let variants = variants
        .into_iter()
        .filter(|_| rule.rounding.is_stochastic());
    for rounding in ElementRounding::FIXED.into_iter().chain(variants) {
        found.push((
            "rounding",
            rounding.words().to_owned(),
            ElementRule { rounding, ..*rule },
        ));
    }
    let inputs = if rule.flush_inputs {
        "subnormal inputs kept"
    } else {
        "subnormal inputs flushed to zero"
    };
    found.push((
        "inputs",
        inputs.to_owned(),
        ElementRule {
            flush_inputs: !rule.flush_inputs,
            ..*rule
        },
    ));
    for (small, words) in [
        (SmallResults::Kept, "subnormal outputs kept"),
        (
            SmallResults::FlushedAfterRounding,
            "subnormal outputs flushed to zero (after rounding)",
        ),
        (
            SmallResults::FlushedBeforeRounding,
            "subnormal outputs flushed to zero (before rounding)",
        ),
    ] {
        found.push(("outputs", words.to_owned(), ElementRule { small, ..*rule }));
    }
    if let Some(plan) = plan {
        of_codes(rule, plan, &mut found);
    }
    let others = found.into_iter().filter(|(.., other)| other != rule);
    others
        .map(|(field, name, other)| (NeighbouringRule { field, name }, other))
        .collect()
}

/// The neighbours that follow from the codes of a format.
fn of_codes(
    rule: &ElementRule,
    plan: &CodePlan,
    found: &mut Vec<(&'static str, String, ElementRule)>,
) {
    let overflows = OVERFLOWS
        .into_iter()
        .filter(|_| rule.overflow != ElementOverflow::Renormalize);
    for overflow in overflows {
        // Without Inf there is NaN, which has its own rule. An unsigned format of P3109 has NaN for negative numbers alone.
        let without_infinity = overflow == ElementOverflow::Infinity && plan.infinity.is_none();
        let is_own = plan.is_p3109 && plan.sign == SignKind::Unsigned;
        if !(without_infinity && plan.nan.is_some()) || is_own {
            found.push((
                "overflow",
                overflow_words(overflow, plan),
                ElementRule { overflow, ..*rule },
            ));
        }
    }
    if plan.negative_zero {
        let words = if rule.lose_negative_zero {
            "-0 kept"
        } else {
            "-0 lost"
        };
        found.push((
            "negative zero",
            words.to_owned(),
            ElementRule {
                lose_negative_zero: !rule.lose_negative_zero,
                ..*rule
            },
        ));
    }
    found.push((
        "top binade",
        top_binade(plan),
        ElementRule {
            top_binade_saturates: true,
            ..*rule
        },
    ));
}

/// A kind of overflow in words, with P3109's name for the formats of P3109.
fn overflow_words(overflow: ElementOverflow, plan: &CodePlan) -> String {
    let words = match overflow {
        ElementOverflow::Infinity if plan.is_p3109 && plan.infinity.is_none() => {
            "numbers below 0 become NaN"
        }
        overflow => overflow.words(),
    };
    match overflow.report_name() {
        Some(name) if plan.is_p3109 => format!("{words} ({name})"),
        _ => words.to_owned(),
    }
}

/// The fault of the top binade, in words.
fn top_binade(plan: &CodePlan) -> String {
    let [from, to] = [plan.top, plan.largest].map(|magnitude| {
        let (significand, exponent) = plan.number(magnitude);
        CodeValue::Finite {
            negative: false,
            significand: significand as u32,
            exponent,
        }
        .to_string()
    });
    format!("{from} to {to} all become {to}")
}

/// A rule with some fields of others, which are given by their numbers.
pub(crate) fn combined(
    rule: &ElementRule,
    others: &[ElementRule],
    numbers: impl Iterator<Item = usize>,
) -> ElementRule {
    let mut all = *rule;
    for number in numbers {
        let other = &others[number];
        if other.rounding != rule.rounding {
            all.rounding = other.rounding;
        }
        if other.overflow != rule.overflow {
            all.overflow = other.overflow;
        }
        if other.small != rule.small {
            all.small = other.small;
        }
        all.flush_inputs ^= other.flush_inputs != rule.flush_inputs;
        all.lose_negative_zero ^= other.lose_negative_zero != rule.lose_negative_zero;
        all.top_binade_saturates |= other.top_binade_saturates;
    }
    all
}
