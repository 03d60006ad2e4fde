//! Adders of two numbers, each of which rounds: a chain, a tree, and integers.

use cubecl::prelude::*;

use super::joint::signed;
use super::{Chain, STEP, WordPlace};
use crate::cube::accumulate::terms::{FINITE, exponent, sign, significand};
use crate::cube::numbers::bits::{self, ABS, INFINITY, NAN, ONE, SIGN};
use crate::cube::numbers::float::{self, Float32};
use crate::cube::numbers::wide::{self, Number, OutputFormat};

/// The most terms of a tree.
pub(in crate::cube::accumulate) const LEAVES: usize = 32;

/// The number of a finite pattern.
#[cube]
pub(super) fn number(pattern: u32) -> Number {
    let (significand, base) = bits::split(pattern & ABS);
    Number {
        negative: pattern >= SIGN,
        significand,
        unit: (base >> 23) as i32 - 149,
    }
}

/// A product that is finite.
#[cube]
fn product(a: u32, b: u32, bits: i32) -> Number {
    Number {
        negative: sign(a ^ b) != 0,
        significand: significand(a) * significand(b),
        unit: exponent(a) + exponent(b) - bits,
    }
}

/// A product that is Inf or NaN, as a pattern; 0 of a finite one.
#[cube]
fn special_product(a: u32, b: u32) -> u32 {
    let is_nan = significand(a) * significand(b) == 0;
    let special = select(is_nan, NAN, sign(a ^ b) | INFINITY);
    select(exponent(a) + exponent(b) > FINITE, special, 0)
}

/// The sum of two numbers, each of which may stand for an Inf or a NaN.
#[cube]
fn sum(a: &Number, b: &Number, of_a: u32, of_b: u32, output: &OutputFormat) -> u32 {
    let finite = wide::sum(a, b, output);
    let is_special = of_a & ABS >= INFINITY || of_b & ABS >= INFINITY;
    let special = float::add(of_a, of_b, Float32::Integers);
    select(is_special, special, finite)
}

/// c and products, one after the other.
#[cube]
pub(super) fn add_in_turn(
    lhs: &Array<u32>,
    rhs: &Array<u32>,
    place: &WordPlace,
    c: u32,
    chain: &Chain,
    output: &OutputFormat,
) -> u32 {
    let mut c = c;
    for i in 0..chain.steps * STEP {
        let a = lhs[place.row + i];
        let b = rhs[place.column + i * place.step];
        let of_product = product(a, b, chain.product_bits);
        c = sum(&of_product, &number(c), special_product(a, b), c, output);
    }
    c
}

/// c and a tree of products. With `flush` subnormal numbers are 0.
#[cube]
pub(super) fn add_pairs(
    lhs: &Array<u32>,
    rhs: &Array<u32>,
    place: &WordPlace,
    c: u32,
    chain: &Chain,
    output: &OutputFormat,
    #[comptime] terms: usize,
    #[comptime] flush: bool,
) -> u32 {
    let mut sums = Array::<u32>::new(terms);
    let smallest = select(flush.runtime(), bits::scale(ONE.runtime(), output.emin), 0);
    let step = place.step;
    let mut count = comptime!(terms / 2).runtime();
    if comptime!(flush) {
        count = terms.runtime();
        for i in 0..count {
            let a = lhs[place.row + i];
            let b = rhs[place.column + i * step];
            let of_product = product(a, b, chain.product_bits);
            let zero = SIGN.runtime();
            let special = special_product(a, b);
            let rounded = sum(&of_product, &number(zero), special, zero, output);
            sums[i] = flushed(rounded, smallest);
        }
    } else {
        for i in 0..count {
            let left = place.row + 2 * i;
            let right = place.column + 2 * i * step;
            let first = product(lhs[left], rhs[right], chain.product_bits);
            let second = product(lhs[left + 1], rhs[right + step], chain.product_bits);
            let of_first = special_product(lhs[left], rhs[right]);
            let of_second = special_product(lhs[left + 1], rhs[right + step]);
            sums[i] = sum(&first, &second, of_first, of_second, output);
        }
    }
    while count > 1 {
        count /= 2;
        for i in 0..count {
            let (a, b) = (sums[2 * i], sums[2 * i + 1]);
            let rounded = sum(&number(a), &number(b), a, b, output);
            sums[i] = flushed(rounded, smallest);
        }
    }
    let c = select(c & ABS < smallest, 0, c);
    let products = sums[0];
    let rounded = sum(&number(c), &number(products), c, products, output);
    flushed(rounded, smallest)
}

/// 0 with the number's sign if it is too small.
#[cube]
fn flushed(x: u32, smallest: u32) -> u32 {
    select(x & ABS < smallest, x & SIGN, x)
}

/// An integer and products of fixed-point elements, in two's complement of `bits` bits.
#[cube]
pub(super) fn add_integers(
    lhs: &Array<u32>,
    rhs: &Array<u32>,
    place: &WordPlace,
    c: i32,
    chain: &Chain,
    #[comptime] saturate: bool,
) -> i32 {
    let unused = 32 - chain.fraction_bits;
    let mut sum = c;
    let mut left = place.row;
    let mut right = place.column;
    for _ in 0..chain.steps {
        #[unroll]
        for i in 0..STEP {
            let a = lhs[left + i];
            let b = rhs[right + i * place.step];
            sum += signed(significand(a) * significand(b), sign(a ^ b));
            if comptime!(saturate) {
                let most = (ABS >> unused as u32) as i32;
                sum = min(max(sum, -1 - most), most);
            }
        }
        left += STEP;
        right += STEP * place.step;
    }
    (sum << unused) >> unused
}
