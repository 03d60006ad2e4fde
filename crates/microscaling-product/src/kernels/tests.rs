//! The rule of each path with its own order of sums, written independently of the kernel.

use alloc::{vec, vec::Vec};

use crate::{Axis, Matrices, Panels, ProductPath, Side};
use microscaling::OperandQuantization;
use microscaling::RandomStream;

/// The product of two matrices, [m, k] and [n, k], of lengths [m, n, k].
pub(super) type Rule = fn(&[f32], &[f32], [usize; 3]) -> Vec<f32>;

/// A matrix of bfloat16 numbers, [free, summed], each of them `value(i)` of a random word.
fn matrix(free: usize, summed: usize, seed: u64, value: impl Fn(u32) -> f32) -> Vec<f32> {
    let stream = RandomStream::new(seed, 7);
    (0..(free * summed) as u64)
        .map(|i| value(stream.draw(i)))
        .collect()
}

/// Numbers of 8 significant bits around 1.
fn ordinary(word: u32) -> f32 {
    f32::from_bits((word & 0x807f_0000) | ((120 + (word & 15)) << 23))
}

fn panels(side: Side, values: &[f32], free: usize, summed: usize) -> Panels {
    let axis = |length, stride| Axis { length, stride };
    let matrices = Matrices {
        data: values,
        starts: &[0],
        free: axis(free, summed),
        summed: axis(summed, 1),
        group: summed,
    };
    Panels::quantize(side, matrices, OperandQuantization::default()).expect("bfloat16 numbers")
}

fn product(path: ProductPath, lhs: &[f32], rhs: &[f32], [m, n, k]: [usize; 3]) -> Vec<f32> {
    let (lhs, rhs) = (panels(Side::Lhs, lhs, m, k), panels(Side::Rhs, rhs, n, k));
    let mut result = vec![f32::NAN; m * n];
    Panels::multiply_by(path, &lhs, &rhs, &[(0, 0)], &mut result).expect("the path is there");
    result
}

/// The bits, of NaN any.
fn bits(values: &[f32]) -> Vec<u32> {
    let bits = |x: &f32| match x.is_nan() {
        true => f32::NAN.to_bits(),
        false => x.to_bits(),
    };
    values.iter().map(bits).collect()
}

/// Checks the product of two matrices of random numbers, [m, k] and [n, k].
fn check(
    path: ProductPath,
    rule: Rule,
    lengths @ [m, n, k]: [usize; 3],
    seed: u64,
    value: impl Fn(u32) -> f32,
) {
    let (lhs, rhs) = (matrix(m, k, seed, &value), matrix(n, k, seed + 1, &value));
    let got = product(path, &lhs, &rhs, lengths);
    assert!(
        bits(&got) == bits(&rule(&lhs, &rhs, lengths)),
        "{path} {lengths:?}"
    );
}

pub(super) fn every_remainder(path: ProductPath, rule: Rule) {
    for length in 1..=70 {
        for lengths in [
            [length, 21, 33],
            [13, length, 40],
            [40, length, 5],
            [35, 50, length],
        ] {
            check(path, rule, lengths, 1, ordinary);
        }
    }
}

pub(super) fn several_blocks_along_the_summed_axis(path: ProductPath, rule: Rule) {
    for k in [511, 512, 513, 1024, 1600] {
        for [m, n] in [[19, 57], [32, 32], [50, 100]] {
            check(path, rule, [m, n, k], 3, ordinary);
        }
    }
}

pub(super) fn columns_of_several_jobs_and_rows_of_several_threads(path: ProductPath, rule: Rule) {
    check(path, rule, [150, 210, 300], 5, ordinary);
}

pub(super) fn special_numbers(path: ProductPath, rule: Rule) {
    let special = |word: u32| match word >> 26 {
        0 => f32::NAN,
        1 => f32::INFINITY,
        2 => f32::NEG_INFINITY,
        3..8 => 0.0,
        8..12 => -0.0,
        12 => f32::from_bits(0x7f7f_0000),
        13 => f32::from_bits(0xff7f_0000),
        _ => ordinary(word),
    };
    for lengths in [[3, 5, 2], [16, 33, 37], [40, 70, 600]] {
        check(path, rule, lengths, 8, special);
    }
}

/// Where the instructions would flush a subnormal to zero, the bits equal the other paths' bits.
pub(super) fn nothing_is_flushed(path: ProductPath) {
    for (left, right) in [(1, 127), (64, 64), (70, 71), (0, 200), (8, 133)] {
        let of = |exponent: u32| {
            move |word: u32| f32::from_bits((word & 0x807f_0000) | ((exponent + (word & 3)) << 23))
        };
        let lengths @ [m, n, k] = [16, 48, 64];
        let (lhs, rhs) = (matrix(m, k, 10, of(left)), matrix(n, k, 11, of(right)));
        let [got, expected] =
            [path, ProductPath::Portable].map(|path| bits(&product(path, &lhs, &rhs, lengths)));
        assert_eq!(got, expected, "{left} {right}");
    }
}

/// As near to the exact sum as float32 accumulation is, each step of which is off by this at most, of the sum.
pub(super) fn the_error(path: ProductPath, unit: f64) {
    for lengths @ [m, n, k] in [[20, 40, 70], [33, 17, 1500]] {
        let (lhs, rhs) = (matrix(m, k, 12, ordinary), matrix(n, k, 13, ordinary));
        let result = product(path, &lhs, &rhs, lengths);
        for (at, got) in result.into_iter().enumerate() {
            let [row, column] = [&lhs[at / n * k..][..k], &rhs[at % n * k..][..k]];
            let products = row
                .iter()
                .zip(column)
                .map(|(a, b)| f64::from(*a) * f64::from(*b));
            let sums = |(sum, all), x: f64| (sum + x, all + x.abs());
            let (exact, magnitude) = products.fold((0.0, 0.0), sums);
            let bound = k as f64 * unit * magnitude;
            assert!((f64::from(got) - exact).abs() <= bound, "{got} {exact}");
        }
    }
}
