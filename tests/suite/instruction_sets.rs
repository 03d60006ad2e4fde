//! Every instruction set gives the same bits: the loops are compiled for each, the best is taken.

use burn_mx::{FloatFormat, Rounding};
use burn_mx_kernels::Function;
use burn_mx_kernels::internal::{FunctionRounding, LogSoftmax, Norm, Normalization, Softmax};
use microscaling_processor::instruction_set::{Level, with_level};

use crate::support::assert_same_bits;

/// All bfloat16 patterns, in an order that mixes them; others in between from the second round on.
fn numbers(count: usize, seed: u32) -> Vec<f32> {
    (0..count as u32)
        .map(|i| {
            let i = i.wrapping_add(seed);
            f32::from_bits(i.wrapping_mul(40_503) << 16 | i >> 16)
        })
        .collect()
}

/// Numbers of ordinary size.
fn ordinary(count: usize, seed: u32) -> Vec<f32> {
    let number = |x: f32| f32::from_bits(x.to_bits() & 0x807f_ffff | 0x3f00_0000);
    numbers(count, seed).into_iter().map(number).collect()
}

fn roundings() -> Vec<FunctionRounding> {
    let mut all = Vec::new();
    for format in [FloatFormat::bfloat(16), FloatFormat::fp(16)] {
        for rounding in [
            Rounding::NearestAway,
            Rounding::NearestEven,
            Rounding::TowardZero,
        ] {
            for variant in 0..4 {
                all.push(FunctionRounding {
                    format: format.expect("16 bits are enough for either format"),
                    rounding,
                    quantize_backward: variant != 1,
                    exp2: variant == 2,
                    reciprocal: variant == 3,
                });
            }
        }
    }
    all
}

/// Checks that `compute` gives the same bits with every instruction set, all NaNs being one.
fn check(name: &str, rounding: FunctionRounding, compute: impl Fn() -> Vec<f32>) {
    let mut expected: Option<Vec<u32>> = None;
    for level in Level::available() {
        let bits = |x: &f32| match x.is_nan() {
            true => f32::NAN.to_bits(),
            false => x.to_bits(),
        };
        let computed = with_level(level, &compute);
        let got: Vec<u32> = computed.iter().map(bits).collect();
        match &expected {
            Some(expected) => assert!(*expected == got, "{name}, {level:?}, {rounding:?}"),
            None => expected = Some(got),
        }
    }
}

#[test]
fn functions_of_elements() {
    let (x, g) = (numbers(1 << 16, 0), numbers(1 << 16, 77));
    for rounding in roundings() {
        for &function in Function::ALL {
            check(&format!("{function:?}"), rounding, || {
                let mut x = x.clone();
                function.compute(&mut x, rounding);
                x
            });
        }
        for &function in Function::ALL {
            check(&format!("gradient of {function:?}"), rounding, || {
                let mut g = g.clone();
                function.compute_gradient(&mut g, &x, rounding);
                g
            });
        }
    }
}

/// Numbers are looked up in tables, if there are many: all bfloat16 numbers, as many others, and NaNs whose upper half is
/// Inf's.
#[test]
fn tables_have_the_results_of_formulas() {
    let mut x = numbers(1 << 17, 0);
    x.extend([0x7f80_0001, 0xff80_0001, 0x7f80_ffff].map(f32::from_bits));
    let g = numbers(x.len(), 77);
    for rounding in roundings() {
        for &function in Function::ALL {
            let [mut by_table, mut by_formula] = [x.clone(), x.clone()];
            function.apply(&mut by_table, rounding);
            function.compute(&mut by_formula, rounding);
            assert_same_bits(
                &by_table,
                &by_formula,
                &format!("{function:?}, {rounding:?}"),
            );
        }
        for &function in Function::ALL {
            let [mut by_table, mut by_formula] = [g.clone(), g.clone()];
            function.apply_gradient(&mut by_table, &x, rounding);
            function.compute_gradient(&mut by_formula, &x, rounding);
            assert_same_bits(
                &by_table,
                &by_formula,
                &format!("{function:?}, {rounding:?}"),
            );
        }
    }
}

#[test]
fn functions_of_rows() {
    for length in [1, 7, 16, 61, 256] {
        let count = 40 * length;
        let (x, g) = (ordinary(count, 0), ordinary(count, 5));
        let (gamma, beta) = (ordinary(length, 9), ordinary(length, 21));
        for rounding in roundings() {
            for base2 in [false, true] {
                let softmax = Softmax { rounding, base2 };
                check("softmax", rounding, || {
                    let mut x = x.clone();
                    softmax.forward(&mut x, length);
                    let mut g = g.clone();
                    softmax.backward(&mut g, &x, length);
                    [x, g].concat()
                });
            }
            let log_softmax = LogSoftmax { rounding };
            check("log_softmax", rounding, || {
                let (mut y, mut g) = (x.clone(), g.clone());
                log_softmax.forward(&mut y, length);
                log_softmax.backward(&mut g, &x, length);
                [y, g].concat()
            });
            for norm in [Norm::Layer, Norm::Rms] {
                let normalization = Normalization::new(norm, 1e-5, rounding);
                check(&format!("{norm:?}"), rounding, || {
                    let (mut y, mut x, mut g) = (x.clone(), x.clone(), g.clone());
                    normalization.forward(&mut y, &gamma, Some(&beta));
                    normalization.backward(&mut g, &mut x, &gamma);
                    [y, x, g].concat()
                });
            }
        }
    }
}
