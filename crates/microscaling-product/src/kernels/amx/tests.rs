use alloc::vec::Vec;

use super::emulator;
use crate::ProductPath;
use crate::kernels::tests::*;
use crate::panels::{BLOCK, SUMMED};

const PATH: ProductPath = ProductPath::AmxBf16;

/// The rule. `lhs` [m, k], `rhs` [n, k].
fn rule(lhs: &[f32], rhs: &[f32], [m, n, k]: [usize; 3]) -> Vec<f32> {
    let tile = |(row, column): (&[f32], &[f32])| {
        let mut sums = [0.0_f32; 2];
        // The missing elements of the last tile are zero.
        for i in 0..SUMMED {
            let [a, b] = [row, column].map(|values| values.get(i).copied().unwrap_or(0.0));
            sums[i % 2] = a.mul_add(b, sums[i % 2]);
        }
        sums[0] + sums[1]
    };
    let block = |(row, column): (&[f32], &[f32])| {
        let tiles = row.chunks(SUMMED).zip(column.chunks(SUMMED)).map(tile);
        tiles.fold(0.0_f32, |sum, tile| sum + tile)
    };
    let element = |at: usize| {
        let [row, column] = [&lhs[at / n * k..][..k], &rhs[at % n * k..][..k]];
        let blocks = row.chunks(BLOCK).zip(column.chunks(BLOCK)).map(block);
        let sum = blocks.reduce(|sum, block| sum + block);
        sum.expect("there is a block")
    };
    (0..m * n).map(element).collect()
}

/// Calls `test` if there is AVX-512, without which there are neither tiles nor an emulator of them.
fn where_there_are_tiles(test: impl FnOnce()) {
    if !PATH.is_available() {
        assert!(!std::arch::is_x86_feature_detected!("avx512bw"));
        return;
    }
    test();
    assert!(!emulator::is_configured(), "the tiles are released");
}

#[test]
fn the_rule_for_every_remainder() {
    where_there_are_tiles(|| every_remainder(PATH, rule));
}

#[test]
fn the_rule_for_several_blocks() {
    where_there_are_tiles(|| several_blocks_along_the_summed_axis(PATH, rule));
}

#[test]
fn the_rule_for_several_jobs_and_threads() {
    where_there_are_tiles(|| columns_of_several_jobs_and_rows_of_several_threads(PATH, rule));
}

#[test]
fn the_rule_for_special_numbers() {
    where_there_are_tiles(|| special_numbers(PATH, rule));
}

#[test]
fn subnormals_are_kept() {
    where_there_are_tiles(|| nothing_is_flushed(PATH));
}

#[test]
fn the_error_is_that_of_float32() {
    where_there_are_tiles(|| the_error(PATH, f64::from(f32::EPSILON) / 2.0));
}
