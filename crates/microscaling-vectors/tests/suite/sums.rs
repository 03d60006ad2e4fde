//! Dot products: a unit written without the crate, and its deviations.

use crate::{cases, report};
use microscaling::ElementFormat;
use microscaling_product::{Accumulator, AccumulatorOperand, Axis};
use microscaling_vectors::{DotOperand, DotSet, VectorSet};

/// A unit that aligns products of E4M3 and c to the largest exponent, in integers of 128 bits, and rounds to float32 toward zero.
struct Unit {
    terms: usize,
    fraction_bits: i32,
    promote: usize,
    /// Elements by which the first promotion is late.
    late: usize,
}

/// Exponent, at least `emin`, and the exact value.
fn exponent(x: f64, emin: i32) -> i32 {
    (((x.to_bits() >> 52 & 0x7ff) as i32) - 1023).max(emin)
}

/// Toward zero to float32.
fn truncated(x: f64) -> f32 {
    let nearest = x as f32;
    if f64::from(nearest).abs() > x.abs() {
        f32::from_bits(nearest.to_bits() - 1)
    } else {
        nearest
    }
}

impl Unit {
    fn addition(&self, c: f32, products: &[(f64, f64)]) -> f32 {
        let mut terms: Vec<(f64, i32)> = Vec::new();
        for (a, b) in products {
            if *a != 0.0 && *b != 0.0 {
                terms.push((a * b, exponent(*a, -6) + exponent(*b, -6)));
            }
        }
        if c != 0.0 {
            terms.push((f64::from(c), exponent(f64::from(c), -126)));
        }
        let largest = terms
            .iter()
            .map(|(_, exponent)| *exponent)
            .max()
            .unwrap_or(-133)
            .max(-133);
        let unit = 2.0_f64.powi(largest - self.fraction_bits);
        let sum: f64 = terms.iter().map(|(term, _)| (term / unit).trunc()).sum();
        truncated(sum * unit) + 0.0
    }

    fn sum(&self, c: f32, products: &[(f64, f64)]) -> f32 {
        let chain = |c: f32, products: &[(f64, f64)]| {
            products
                .chunks(self.terms)
                .fold(c, |c, chunk| self.addition(c, chunk))
        };
        if self.promote == 0 {
            return chain(c, products);
        }
        let (mut register, mut rest, mut late) = (c, products, self.late);
        while !rest.is_empty() {
            let (part, tail) = rest.split_at((self.promote + late).min(rest.len()));
            register += chain(0.0, part);
            (rest, late) = (tail, 0);
        }
        register
    }
}

fn set(accumulator: &str, length: usize) -> DotSet {
    let operand: DotOperand = "fp8_e4m3".parse().unwrap();
    DotSet::new(
        accumulator.parse().unwrap(),
        [operand; 2],
        Some(length),
        0,
        None,
    )
    .unwrap()
}

/// The outputs of a unit. Where a number is not finite, the outputs are the set's.
fn of_unit(unit: &Unit, inputs: &[u64], outputs: &[u64]) -> Vec<u64> {
    let length = (inputs.len() - 1) / 2;
    let value = |code: &u64| f64::from(ElementFormat::FP8_E4M3.decode(*code as u32));
    let products: Vec<(f64, f64)> = inputs[1..][..length]
        .iter()
        .map(value)
        .zip(inputs[1 + length..].iter().map(value))
        .collect();
    let c = f32::from_bits(inputs[0] as u32);
    // Near 2^128 the float64 model of additions would round.
    let ordinary = c.is_finite()
        && c.abs() < 1e30
        && products.iter().all(|(a, b)| a.is_finite() && b.is_finite());
    if ordinary {
        vec![unit.sum(c, &products).to_bits().into()]
    } else {
        outputs.to_vec()
    }
}

const UNIT: Unit = Unit {
    terms: 4,
    fraction_bits: 14,
    promote: 0,
    late: 0,
};
const TEXT: &str = "accumulator(order=joint,terms=4,fraction_bits=14,output=f32_rz)";

#[test]
fn sums_are_those_of_a_plain_unit() {
    let clean = report(&set(TEXT, 32), |inputs, outputs| {
        of_unit(&UNIT, inputs, outputs)
    });
    assert_eq!(clean.differ, 0, "{clean:#?}");
    let promoted = Unit { promote: 8, ..UNIT };
    let text = TEXT.replace(')', ",promote_every=8)");
    let clean = report(&set(&text, 32), |inputs, outputs| {
        of_unit(&promoted, inputs, outputs)
    });
    assert_eq!(clean.differ, 0, "{clean:#?}");
}

#[test]
fn deviations_of_sums_are_named() {
    let narrower = report(&set(TEXT, 32), |inputs, outputs| {
        of_unit(
            &Unit {
                fraction_bits: 13,
                ..UNIT
            },
            inputs,
            outputs,
        )
    });
    assert_eq!(
        narrower.rules,
        ["one fraction bit narrower"],
        "{narrower:#?}"
    );
    assert_eq!(narrower.unexplained, None);
    let set = set(&TEXT.replace(')', ",promote_every=8)"), 32);
    let unit = Unit {
        promote: 8,
        late: 4,
        ..UNIT
    };
    let late = report(&set, |inputs, outputs| of_unit(&unit, inputs, outputs));
    assert!(
        late.rules[0].contains("promotion one block of 4 late (the first one"),
        "{late:#?}"
    );
    assert_eq!((late.rules.len(), late.unexplained), (1, None));
    let slow = report(&set, |inputs, outputs| {
        of_unit(
            &Unit {
                promote: 12,
                ..UNIT
            },
            inputs,
            outputs,
        )
    });
    assert!(
        slow.rules[0].contains("promotion every 12 elements"),
        "{slow:#?}"
    );
    let both = Unit {
        promote: 8,
        late: 4,
        fraction_bits: 13,
        ..UNIT
    };
    let both = report(&set, |inputs, outputs| of_unit(&both, inputs, outputs));
    assert_eq!(both.rules.len(), 2, "{both:#?}");
    assert!(
        both.rules[1].contains("one fraction bit narrower")
            && both.rules[0].contains("one block of 4 late"),
        "{both:#?}"
    );
    assert_eq!(both.unexplained, None);
}

#[test]
fn the_smallest_sum_tells_two_widths_apart() {
    let wide = set(TEXT, 16);
    let apart = wide
        .telling_apart(TEXT.replace("14", "13").parse().unwrap())
        .unwrap();
    let [(inputs, outputs)] = &cases(&apart)[..] else {
        panic!()
    };
    let narrow = of_unit(
        &Unit {
            fraction_bits: 13,
            ..UNIT
        },
        inputs,
        outputs,
    );
    assert_ne!(narrow, *outputs);
    assert_eq!(of_unit(&UNIT, inputs, &[]), *outputs);
    let products = inputs[1..17]
        .iter()
        .zip(&inputs[17..])
        .filter(|(a, b)| **a != 0 && **b != 0)
        .count();
    assert!(products <= 2, "{products}");
    let error = set(TEXT, 16)
        .telling_apart(TEXT.parse().unwrap())
        .unwrap_err()
        .to_string();
    assert!(error.contains("tell-apart"), "{error}");
}

/// The example of the page on accumulators, four products by hand.
#[test]
fn a_trace_shows_each_step() {
    let accumulator: Accumulator =
        "accumulator(order=joint,terms=4,fraction_bits=4,output=e8m4_rz)"
            .parse()
            .unwrap();
    let operand = |elements| AccumulatorOperand {
        kind: ElementFormat::FP8_E4M3.into(),
        elements,
        free: Axis {
            length: 1,
            stride: 4,
        },
        summed: Axis {
            length: 4,
            stride: 1,
        },
        scales: &[],
    };
    let (a, b) = (
        operand(&[1.5, 1.25, -0.3125, 0.0625]),
        operand(&[1.75, 0.25, 1.0, 1.75]),
    );
    let lines = accumulator.trace(&a, 0, &b, 0, 0.0).unwrap();
    let expected = [
        "addition of products 0 to 3; running sum c = 0 = 0e0 (0x00000000)",
        "  product 0: 21*2^-3, exponent 0",
        "  product 1: 5*2^-4, exponent -2",
        "  product 2: -5*2^-4, exponent -2",
        "  product 3: 7*2^-6, exponent -4",
        "  largest exponent 0, last bit kept 2^-4",
        "  term 0: kept 21*2^-3",
        "  term 1: kept 5*2^-4",
        "  term 2: kept -5*2^-4",
        "  term 3: kept 1*2^-4, dropped 3*2^-6",
        "  partial sum: 43*2^-4",
        "  rounded: 21*2^-3 = 2.625e0 (0x40280000)",
        "sum: 21*2^-3 = 2.625e0 (0x40280000)",
    ];
    assert_eq!(lines, expected);
    // Every case of a set has a trace that ends with the vector's sum.
    for text in ["hopper(promote_every=32)", "cdna3", "cdna2", "cdna1"] {
        let operand: DotOperand = "bfloat16".parse().unwrap();
        let operand = if text.starts_with("hopper") {
            "fp8_e4m3".parse().unwrap()
        } else {
            operand
        };
        let set = DotSet::new(text.parse().unwrap(), [operand; 2], Some(70), 0, Some(40)).unwrap();
        for (case, (_, outputs)) in cases(&set).iter().enumerate() {
            let lines = set.trace(case as u64).unwrap();
            assert!(
                lines[lines.len() - 1].ends_with(&format!("({:#010x})", outputs[0])),
                "{text} {case}: {lines:#?}"
            );
        }
        assert!(
            set.trace(set.cases())
                .unwrap_err()
                .to_string()
                .contains("trace")
        );
    }
}
