//! Both kernels, on a processor or in an emulator of one (`.ci/run` has its command).

use alloc::vec::Vec;

use crate::ProductPath;
use crate::kernels::tests::*;
use crate::panels::{BLOCK, SUMMED};

/// The rule of most paths. `lhs` [m, k], `rhs` [n, k].
fn fused_rule(lhs: &[f32], rhs: &[f32], lengths: [usize; 3]) -> Vec<f32> {
    sums_of_blocks(lhs, rhs, lengths, |sum, [a, b]| {
        a[0].mul_add(b[0], a[1].mul_add(b[1], sum))
    })
}

/// The rule of `bfmmla`.
fn odd_rule(lhs: &[f32], rhs: &[f32], lengths: [usize; 3]) -> Vec<f32> {
    sums_of_blocks(lhs, rhs, lengths, |sum, [a, b]| {
        add(sum, add(a[0] * b[0], a[1] * b[1]))
    })
}

/// Each element's sum, to which `add` adds the products of a pair of elements at a time.
fn sums_of_blocks(
    lhs: &[f32],
    rhs: &[f32],
    [m, n, k]: [usize; 3],
    add: impl Fn(f32, [[f32; 2]; 2]) -> f32,
) -> Vec<f32> {
    let block = |(row, column): (&[f32], &[f32])| {
        // The missing elements of the last tile are zero.
        let at = |values: &[f32], i: usize| values.get(i).copied().unwrap_or(0.0);
        let pairs = (0..row.len().next_multiple_of(SUMMED)).step_by(2);
        pairs.fold(0.0_f32, |sum, i| {
            add(sum, [row, column].map(|x| [at(x, i), at(x, i + 1)]))
        })
    };
    let element = |at: usize| {
        let [row, column] = [&lhs[at / n * k..][..k], &rhs[at % n * k..][..k]];
        let blocks = row.chunks(BLOCK).zip(column.chunks(BLOCK)).map(block);
        let sum = blocks.reduce(|sum, block| sum + block);
        sum.expect("there is a block")
    };
    (0..m * n).map(element).collect()
}

/// `a + b`, rounded to odd.
fn add(a: f32, b: f32) -> f32 {
    let [a, b] = [a, b].map(f64::from);
    let sum = a + b;
    if !sum.is_finite() || sum == 0.0 {
        return sum as f32;
    }
    // The part of the sum that float64 does not hold, exactly (Knuth's two-sum).
    let rest = (a - (sum - (sum - a))) + (b - (sum - a));
    let beyond = rest != 0.0 && (rest < 0.0) != (sum < 0.0);
    let magnitude = sum.abs().to_bits() - u64::from(beyond);
    const LOST: u64 = (1 << 29) - 1;
    let truncated = f64::from_bits(magnitude & !LOST);
    if truncated >= 2.0_f64.powi(128) {
        return f32::INFINITY.copysign(sum as f32);
    }
    let is_odd = magnitude & LOST != 0 || rest != 0.0;
    f32::from_bits((truncated as f32).to_bits() | u32::from(is_odd)).copysign(sum as f32)
}

/// Calls `test` with each kernel that the processor has, its rule and the error of its roundings.
fn each_kernel(test: impl Fn(ProductPath, Rule, f64)) {
    let unit = f64::from(f32::EPSILON);
    test(ProductPath::Neon, fused_rule, unit / 2.0);
    if ProductPath::NeonBf16.is_available() {
        // Rounding to odd is off by a whole unit in the last place, not by half a unit.
        test(ProductPath::NeonBf16, odd_rule, unit);
    }
}

#[test]
fn the_rule_for_every_remainder() {
    each_kernel(|path, rule, _| every_remainder(path, rule));
}

#[test]
fn the_rule_for_several_blocks() {
    each_kernel(|path, rule, _| several_blocks_along_the_summed_axis(path, rule));
}

#[test]
fn the_rule_for_several_jobs_and_threads() {
    each_kernel(|path, rule, _| columns_of_several_jobs_and_rows_of_several_threads(path, rule));
}

#[test]
fn the_rule_for_special_numbers() {
    each_kernel(|path, rule, _| special_numbers(path, rule));
}

#[test]
fn subnormals_are_kept() {
    each_kernel(|path, _, _| nothing_is_flushed(path));
}

#[test]
fn the_error_is_that_of_the_roundings() {
    each_kernel(|path, _, unit| the_error(path, unit));
}
