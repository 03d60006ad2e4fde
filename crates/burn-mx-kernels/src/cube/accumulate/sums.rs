//! The sums of a product: a unit an element of the result, addition by addition along the summed axis.
//!
//! Terms are integers in units of the last bit that is kept: this is `microscaling`'s rule in 64 bits or less.

mod adders;
mod groups;
mod joint;
mod late;

use cubecl::prelude::*;

use super::terms::{UNIT, exponent, is_special, sign, significand};
use crate::cube::numbers::bits::{ABS, INFINITY, NAN, SIGN};
use crate::cube::numbers::float::{self, Float32};
use crate::cube::numbers::wide::{self, Number, OutputFormat};
pub(super) use adders::LEAVES;
use adders::{add_in_turn, add_integers, add_pairs, number};
pub(super) use groups::GROUPS;
use groups::add_groups;
use joint::add;
use late::add_late;

/// Words that are added in one turn of a loop: a driver limits the turns.
pub(super) const STEP: usize = 4;

/// Bits of sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::cube) enum Width {
    /// 31 bits hold all terms of an addition together.
    Single,
    /// 31 bits hold a term.
    Split,
    /// 62 bits hold all terms together.
    Double,
}

/// How the products of an addition are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::cube) enum Adding {
    Joint(Width),
    /// Joint, of groups that are summed exactly first.
    Groups,
    Late {
        interleave: bool,
    },
    Pairs {
        terms: usize,
        flush: bool,
    },
    InTurn,
    Integers {
        saturate: bool,
    },
}

/// Where the scales of blocks come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::cube) enum ScalesAt {
    /// In the terms, or nowhere.
    Terms,
    Groups,
    Promotion,
}

/// The compile-time parameters of [`sums_kernel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::cube) struct Structure {
    pub(in crate::cube) adding: Adding,
    pub(in crate::cube) promotes: bool,
    pub(in crate::cube) scales_at: ScalesAt,
}

/// The accumulator, and the lengths of the product.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(in crate::cube) struct Chain {
    rows: usize,
    columns: usize,
    /// Words of a line.
    words: usize,
    /// The additions of this launch.
    first: usize,
    additions: usize,
    /// Groups of an addition, and [`STEP`]s of a group.
    groups: usize,
    steps: usize,
    /// Additions of a part.
    part: usize,
    /// Scales of a line.
    scales: usize,
    /// Of integers all bits.
    fraction_bits: i32,
    /// Fraction bits of the product of two significands.
    product_bits: i32,
    floor_exponent: i32,
    /// A product with the largest exponent is shifted by this number of bits, to the left, then to the right.
    up: u32,
    down: i32,
    /// Mantissa bits of the two scales of a promotion.
    scale_bits: i32,
}

/// Where the elements of the result lie, as [`Results`](crate::product::accumulated::layout::Results) has them.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(in crate::cube) struct ResultElements {
    count: usize,
    /// The column that comes first.
    first: usize,
    /// Columns of the inner axis.
    inner: usize,
    matrix: usize,
    row: usize,
    outer_column: usize,
    inner_column: usize,
}

/// Where the words of a row and of a column are, and how far the column's next word is.
#[derive(CubeType, Clone, Copy)]
struct WordPlace {
    row: usize,
    column: usize,
    step: usize,
}

/// `matrices` are the numbers of the operands' matrices, two for each matrix of the result. Between launches the result holds the sums
/// so far.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(in crate::cube) fn sums_kernel(
    lhs: &Array<u32>,
    rhs: &Array<u32>,
    lhs_scales: &ComptimeOption<Array<u32>>,
    rhs_scales: &ComptimeOption<Array<u32>>,
    matrices: &Array<u32>,
    result: &mut Array<u32>,
    chain: &Chain,
    output: &OutputFormat,
    elements: &ResultElements,
    #[comptime] structure: Structure,
) {
    if ABSOLUTE_POS >= elements.count {
        terminate!();
    }
    let column = ABSOLUTE_POS % chain.columns;
    let row = ABSOLUTE_POS / chain.columns;
    let matrix = row / chain.rows;
    let row = row % chain.rows;
    let line = matrices[2 * matrix] as usize * chain.rows + row;
    let of_rhs = matrices[2 * matrix + 1] as usize;
    let columns = chain.columns;
    let words = chain.groups * chain.steps * STEP;
    let mut left = line * chain.words + chain.first * words;
    let mut right = (of_rhs * chain.words + chain.first * words) * columns + column;
    let scale = match comptime!(structure.scales_at) {
        ScalesAt::Terms => 0usize.runtime(),
        ScalesAt::Groups => chain.first * chain.groups,
        ScalesAt::Promotion => chain.first / chain.part,
    };
    let mut left_scale = line * chain.scales + scale;
    let mut right_scale = (of_rhs * chain.scales + scale) * columns + column;
    let column = elements.first + column;
    let at = matrix * elements.matrix
        + row * elements.row
        + column / elements.inner * elements.outer_column
        + column % elements.inner * elements.inner_column;
    let mut c = 0u32.runtime();
    let mut register = 0u32.runtime();
    if chain.first > 0 {
        if comptime!(structure.promotes) {
            register = result[at];
        } else {
            c = result[at];
        }
    }
    let mut of_part = 0usize.runtime();
    for addition in 0..chain.additions {
        let place = WordPlace {
            row: left,
            column: right,
            step: columns,
        };
        match comptime!(structure.adding) {
            Adding::Joint(width) => c = add(lhs, rhs, &place, c, chain, output, width),
            Adding::Groups => {
                let scales = WordPlace {
                    row: left_scale,
                    column: right_scale,
                    step: columns,
                };
                c = add_groups(
                    lhs,
                    rhs,
                    lhs_scales,
                    rhs_scales,
                    &place,
                    &scales,
                    c,
                    chain,
                    output,
                    structure.scales_at,
                );
                if comptime!(structure.scales_at == ScalesAt::Groups) {
                    left_scale += chain.groups;
                    right_scale += chain.groups * columns;
                }
            }
            Adding::Late { interleave } => {
                c = add_late(lhs, rhs, &place, c, chain, output, interleave);
            }
            Adding::Pairs { terms, flush } => {
                c = add_pairs(lhs, rhs, &place, c, chain, output, terms, flush);
            }
            Adding::InTurn => c = add_in_turn(lhs, rhs, &place, c, chain, output),
            Adding::Integers { saturate } => {
                c = add_integers(lhs, rhs, &place, c as i32, chain, saturate) as u32;
            }
        }
        left += words;
        right += words * columns;
        if comptime!(structure.promotes) {
            of_part += 1;
            if of_part == chain.part || addition + 1 == chain.additions {
                if comptime!(structure.scales_at == ScalesAt::Promotion) {
                    let of_row = word_or_unit(lhs_scales, left_scale);
                    let of_column = word_or_unit(rhs_scales, right_scale);
                    let (partial, of_partial) =
                        if comptime!(matches!(structure.adding, Adding::Integers { .. })) {
                            let unit = 0 - chain.product_bits;
                            (integer(c, unit), 0u32.runtime())
                        } else {
                            (number(c), c)
                        };
                    let bits = chain.scale_bits;
                    register = promote(register, &partial, of_partial, of_row, of_column, bits);
                    left_scale += 1;
                    right_scale += columns;
                } else {
                    register = float::add(register, c, Float32::Integers);
                }
                c = 0u32;
                of_part = 0usize;
            }
        }
    }
    if comptime!(structure.promotes) {
        c = register;
    }
    result[at] = c;
}

#[cube]
fn word_or_unit(words: &ComptimeOption<Array<u32>>, at: usize) -> u32 {
    #[comptime]
    match words {
        ComptimeOption::Some(words) => words[at],
        ComptimeOption::None => UNIT.runtime(),
    }
}

/// The number of an integer in two's complement.
#[cube]
fn integer(sum: u32, unit: i32) -> Number {
    Number {
        negative: sum >= SIGN,
        significand: select(sum >= SIGN, 0u32 - sum, sum),
        unit,
    }
}

/// The register plus a partial sum times two scales, rounded once to float32. `of_partial` is the partial sum's pattern, if that is
/// Inf or NaN.
#[cube]
fn promote(
    register: u32,
    partial: &Number,
    of_partial: u32,
    of_row: u32,
    of_column: u32,
    scale_bits: i32,
) -> u32 {
    let abs = of_partial & ABS;
    let of_scales = significand(of_row) * significand(of_column);
    let sign = select(partial.negative, SIGN, 0) ^ sign(of_row ^ of_column);
    let is_special = abs >= INFINITY || is_special(of_row) || is_special(of_column);
    let is_nan = abs > INFINITY || partial.significand == 0 || of_scales == 0;
    let special = select(is_nan, NAN, sign | INFINITY);
    let special = float::add(register, special, Float32::Integers);
    let scaled = Number {
        negative: sign != 0,
        significand: partial.significand * of_scales,
        unit: partial.unit + exponent(of_row) + exponent(of_column) - scale_bits,
    };
    let sum = wide::sum(&number(register), &scaled, &wide::single());
    let finite = select(register & ABS >= INFINITY, register, sum);
    select(is_special, special, finite)
}
