//! Random panels and products against an independent model: formats, shapes, roundings, numbers of threads, the float state of
//! threads, and values of all kinds. How long it runs, and how one case runs alone, is as in microscaling's fuzzer, whose parts it
//! uses.

#[path = "../../../microscaling/tests/fuzz/cases.rs"]
mod cases;
#[path = "../../../microscaling/tests/suite/float_state.rs"]
mod float_state;
#[path = "../../../microscaling/tests/fuzz/model.rs"]
#[allow(dead_code, reason = "microscaling's fuzzer has more uses for it")]
mod model;
#[path = "../../../microscaling/tests/fuzz/random.rs"]
#[allow(dead_code, reason = "microscaling's fuzzer has more uses for it")]
mod random;

use cases::{Place, assert_same, run};
use float_state::ieee;
use microscaling::{BlockFormat, OperandQuantization, Rounding};
use microscaling_product::{Axis, Matrices, Panels, PanelsError, ProductPath, Side};
use random::Random;

/// A rounding of a format that the model has: no MS-EDEN.
fn rounding(random: &mut Random, format: BlockFormat) -> Rounding {
    match format.eden {
        true => random.deterministic_rounding(),
        false => random.rounding(),
    }
}

/// Panels and their products, by every path that has the documented sum.
fn products(seed: u64) {
    let random = &mut Random::new(seed);
    let most = if random.one_in(4) { 1100 } else { 70 };
    let [m, n] = [0; 2].map(|_| 1 + random.below(40));
    let k = 1 + random.below(most);
    let format = random.format();
    let fits = format.significant_bits() <= 8 && random.one_in(2);
    let blocks = fits.then(|| (format, rounding(random, format)));
    let stream = random.stream();
    let quantization = OperandQuantization {
        blocks,
        stream,
        ..OperandQuantization::default()
    };
    let place = Place::of(random);
    let mut operand = |side, free: usize| {
        // The formats that fit in bfloat16.
        let short = |x: f32| f32::from_bits(x.to_bits() & 0xffff_0000);
        let values: Vec<f32> = random.values(free * k).into_iter().map(short).collect();
        let axis = |length, stride| Axis { length, stride };
        let matrices = Matrices {
            data: &values,
            starts: &[0],
            free: axis(free, k),
            summed: axis(k, 1),
            group: k,
        };
        let panels = place.call(|| Panels::quantize(side, matrices, quantization));
        let expected = match blocks {
            None => values.clone(),
            Some((format, rounding)) => {
                let draw = |at| stream.draw(at as u64);
                let model = || model::quantize(format, &values, &[free, k], 1, rounding, draw);
                ieee(model).into_iter().map(|(x, _)| x).collect()
            }
        };
        (panels, expected)
    };
    let (lhs, left) = operand(Side::Lhs, m);
    let (rhs, right) = operand(Side::Rhs, n);
    for (panels, expected) in [(&lhs, &left), (&rhs, &right)] {
        let is_short = |x: &f32| x.to_bits() & 0xffff == 0;
        match panels {
            Err(PanelsError::TensorScale { .. }) => {
                assert!(blocks.is_some_and(|(format, _)| format.tensor_scale));
            }
            Err(PanelsError::Inexact) => {
                assert!(
                    !expected.iter().all(is_short),
                    "{blocks:?}: these are bfloat16"
                );
            }
            Err(error) => panic!("{blocks:?}: {error}"),
            Ok(_) => {}
        }
    }
    let (Ok(lhs), Ok(rhs)) = (lhs, rhs) else {
        return;
    };
    if format.tensor_scale && blocks.is_some() {
        return;
    }
    let one_nan = |x: &f32| if x.is_nan() { f32::NAN } else { *x };
    let values: Vec<f32> = left.iter().map(one_nan).collect();
    let mut read = vec![0.0; m * k];
    place.call(|| lhs.read(0, &mut read));
    assert_same(&read, &values, &|at| {
        format!("{blocks:?} panel, element {at}")
    });
    let expected = ieee(|| product(&left, &right, [m, n, k]));
    for path in ProductPath::ALL {
        if !path.is_available() || !path.is_bit_exact() {
            continue;
        }
        let mut got = vec![0.0; m * n];
        place
            .call(|| Panels::multiply_by(path, &lhs, &rhs, &[(0, 0)], &mut got))
            .expect("all fits");
        assert_same(&got, &expected, &|at| {
            format!("{path} {blocks:?} {m} x {k} x {n}, element {at}")
        });
    }
}

/// The product of two matrices, [m, k] and [n, k], as the documentation of `Panels::multiply` has it: blocks of 512, in them
/// pairs, of each the odd one first, fused.
fn product(lhs: &[f32], rhs: &[f32], [m, n, k]: [usize; 3]) -> Vec<f32> {
    let element = |i: usize, j: usize| {
        let (row, column) = (&lhs[i * k..][..k], &rhs[j * k..][..k]);
        let mut total = None;
        for (row, column) in row.chunks(512).zip(column.chunks(512)) {
            let mut sum = 0.0_f32;
            // The operands go on with zeros to the end of a tile of 32.
            let at = |values: &[f32], i: usize| values.get(i).copied().unwrap_or(0.0);
            for even in (0..row.len().next_multiple_of(32)).step_by(2) {
                for i in [even + 1, even] {
                    sum = at(row, i).mul_add(at(column, i), sum);
                }
            }
            total = Some(total.map_or(sum, |total: f32| total + sum));
        }
        let total = total.unwrap_or(0.0);
        if total.is_nan() { f32::NAN } else { total }
    };
    (0..m * n).map(|at| element(at / n, at % n)).collect()
}

#[test]
fn random_products() {
    run("microscaling-product", products);
}

/// A few cases that never change.
#[test]
fn fixed_seeds() {
    (0..100).for_each(products);
}
