//! The neighbours of a sum's rule.

use super::operand::DotOperand;
use super::rule::{DotChange, DotRule};
use crate::set::NeighbouringRule;
use microscaling::Rounding;
use microscaling_product::{Order, SumFormat};

/// Field, rule in words, change.
type Neighbour = (&'static str, String, DotChange);

/// The neighbours of a rule, for these operands.
pub(super) fn neighbours(
    rule: &DotRule,
    operands: [DotOperand; 2],
) -> Vec<(NeighbouringRule, DotChange)> {
    let order = rule.accumulator.order;
    let terms = order.terms();
    let mut all = promotions(rule, operands);
    for (field, name, change) in [
        (
            "width",
            "one fraction bit narrower",
            DotChange::FractionBits(-1),
        ),
        (
            "width",
            "one fraction bit wider",
            DotChange::FractionBits(1),
        ),
        (
            "width",
            "two fraction bits narrower",
            DotChange::FractionBits(-2),
        ),
        (
            "terms",
            "twice as many products at once",
            DotChange::Terms(2 * terms),
        ),
        (
            "terms",
            "half as many products at once",
            DotChange::Terms(terms / 2),
        ),
        (
            "group",
            "products aligned one by one, without groups",
            DotChange::Group,
        ),
        (
            "interleave",
            "even and odd products summed apart, or not",
            DotChange::Interleave,
        ),
        (
            "products",
            "products flushed and rounded, or not",
            DotChange::FlushProducts,
        ),
        (
            "width",
            "one integer bit narrower",
            DotChange::IntegerBits(-1),
        ),
        ("width", "one integer bit wider", DotChange::IntegerBits(1)),
        (
            "overflow",
            "integers wrap where they should saturate, or the other way",
            DotChange::Overflow,
        ),
        (
            "inputs",
            "subnormal factors flushed to zero",
            DotChange::FlushFactors,
        ),
        (
            "outputs",
            "subnormal sums flushed to zero",
            DotChange::FlushSum,
        ),
    ] {
        all.push((field, name.to_owned(), change));
    }
    all.extend(sums(order));
    let possible = all.into_iter().filter(|(.., change)| {
        let other = rule.with(*change);
        other != *rule && other.is_possible(operands)
    });
    possible
        .map(|(field, name, change)| (NeighbouringRule { field, name }, change))
        .collect()
}

/// Promotions that are tried where a rule has none.
const ADDED: [usize; 6] = [16, 32, 64, 128, 256, 512];

/// Promotions at other places.
fn promotions(rule: &DotRule, operands: [DotOperand; 2]) -> Vec<Neighbour> {
    let mut found = Vec::new();
    let every = rule.accumulator.promote_every;
    if every == 0 {
        for every in ADDED {
            let name = format!("promotion every {every} elements, where there is none");
            found.push(("promotion", name, DotChange::PromoteEvery(every)));
        }
        return found;
    }
    let mut add = |name: String, change| found.push(("promotion", name, change));
    let blocks = operands
        .map(|operand| operand.kind().block)
        .into_iter()
        .filter(|block| *block > 0);
    let mut units: Vec<usize> = blocks.chain([rule.accumulator.order.terms()]).collect();
    units.sort_unstable();
    units.dedup();
    for unit in units {
        let name = format!("promotion one block of {unit} late (the first one, and so each)");
        add(name, DotChange::Late(unit));
        let later = every + unit;
        let name = format!("promotion every {later} elements, one block of {unit} late each time");
        add(name, DotChange::PromoteEvery(later));
    }
    add(
        "promotion half as often".to_owned(),
        DotChange::PromoteEvery(2 * every),
    );
    if every > 1 {
        add(
            "promotion twice as often".to_owned(),
            DotChange::PromoteEvery(every / 2),
        );
    }
    add("no promotion".to_owned(), DotChange::PromoteEvery(0));
    found
}

/// Other formats of the sum, and other orders.
fn sums(order: Order) -> Vec<Neighbour> {
    let mut found = Vec::new();
    let Some(output) = output_of(order) else {
        return found;
    };
    let (e, m) = (output.exponent_bits(), output.mantissa_bits());
    let other = match output.rounding() {
        Rounding::TowardZero => Rounding::NearestEven,
        _ => Rounding::TowardZero,
    };
    for (name, m, rounding) in [
        (
            "sums rounded the other way (to nearest, or toward zero)",
            m,
            other,
        ),
        (
            "sums one mantissa bit narrower",
            m.saturating_sub(1),
            output.rounding(),
        ),
        ("sums one mantissa bit wider", m + 1, output.rounding()),
    ] {
        if let Ok(to) = SumFormat::new(e, m, rounding) {
            found.push(("sums", name.to_owned(), DotChange::Output(to)));
        }
    }
    for (name, to) in [
        ("sums in float32, rounded half to even", SumFormat::F32_RNE),
        ("sums in float32, rounded toward zero", SumFormat::F32_RZ),
    ] {
        // One of the other neighbours may be the same rule.
        let is_new = !found
            .iter()
            .any(|(.., change)| *change == DotChange::Output(to));
        if is_new {
            found.push(("sums", name.to_owned(), DotChange::Output(to)));
        }
    }
    let fma = Order::Fma {
        output: SumFormat::F32_RNE,
    };
    found.push((
        "order",
        "one product after the other in float32 (fma)".to_owned(),
        DotChange::OtherOrder(fma),
    ));
    let exact = Order::Exact {
        terms: order.terms(),
        output: SumFormat::F32_RNE,
    };
    found.push((
        "order",
        "exact additions, rounded once to float32".to_owned(),
        DotChange::OtherOrder(exact),
    ));
    found
}

fn output_of(order: Order) -> Option<SumFormat> {
    match order {
        Order::Joint { output, .. }
        | Order::Late { output, .. }
        | Order::Exact { output, .. }
        | Order::Pairs { output, .. }
        | Order::Fma { output } => Some(output),
        _ => None,
    }
}
