//! MS-EDEN: stochastic rounding of scales in place of elements.

use super::largest::magnitude_max;
use super::layout::{Layout, Runs};
use super::rules::FloatScaleRule;
use crate::format::BlockFormat;
use crate::round::bits::{self, ABS, NAN, SIGN};
use crate::round::mode::Even;
use crate::round::random::RandomStream;
use alloc::vec;
use microscaling_processor::instruction_set::{Kernel, Level, at_level};

/// Elements whose scales are corrected together.
const GROUP: usize = BlockFormat::EDEN_GROUP;

/// Columns that are turned together where blocks are interleaved.
const COLUMNS: usize = 16;

/// Quantizes a tensor as [`BlockFormat::eden`] says. The draw of a block is the word of the stream at the position of the
/// block's first element.
pub(super) fn quantize(
    rule: &FloatScaleRule,
    layout: Layout,
    data: &mut [f32],
    stream: RandomStream,
) {
    if data.is_empty() {
        return;
    }
    let tensor = EdenTensor {
        rule,
        block: layout.block,
        stream,
    };
    let groups = Layout {
        block: GROUP.min(layout.axis),
        ..layout
    };
    let runs = Runs::of(groups);
    runs.share(data, runs.all(data), &|data, at, start| {
        at_level(|level| tensor.quantize(level, groups, data, at, start));
    });
}

struct EdenTensor<'a> {
    rule: &'a FloatScaleRule,
    /// Elements in a block.
    block: usize,
    stream: RandomStream,
}

impl EdenTensor<'_> {
    /// Quantizes consecutive runs of groups, the first at this place on the axis and in the tensor.
    fn quantize(
        &self,
        level: Level,
        layout: Layout,
        mut rest: &mut [f32],
        mut at: usize,
        mut start: u64,
    ) {
        while !rest.is_empty() {
            let rows = layout.block.min(layout.axis - at);
            let (run, tail) = rest.split_at_mut(rows * layout.inner);
            match layout.inner {
                1 => self.group(level, run, start, 1),
                inner => self.columns(level, run, inner, start),
            }
            at = (at + rows) % layout.axis;
            start += run.len() as u64;
            rest = tail;
        }
    }

    /// Quantizes interleaved groups, some neighbouring columns at a time.
    fn columns(&self, level: Level, data: &mut [f32], inner: usize, start: u64) {
        let rows = data.len() / inner;
        let mut turned = vec![0.0; COLUMNS * rows];
        for first in (0..inner).step_by(COLUMNS) {
            let columns = first..inner.min(first + COLUMNS);
            for (i, row) in data.chunks(inner).enumerate() {
                for (column, x) in row[columns.clone()].iter().enumerate() {
                    turned[column * rows + i] = *x;
                }
            }
            for (column, group) in columns.clone().zip(turned.chunks_mut(rows)) {
                self.group(level, group, start + column as u64, inner as u64);
            }
            for (i, row) in data.chunks_mut(inner).enumerate() {
                for (column, x) in row[columns.clone()].iter_mut().enumerate() {
                    *x = turned[column * rows + i];
                }
            }
        }
    }

    /// Quantizes a group whose neighbours lie `step` apart in the tensor.
    fn group(&self, level: Level, group: &mut [f32], start: u64, step: u64) {
        let mut draws = [0; GROUP];
        let blocks = group.len().div_ceil(self.block);
        for (draw, at) in draws[..blocks].iter_mut().zip((0..).step_by(self.block)) {
            *draw = self.stream.draw(start + at as u64 * step);
        }
        level.run(Group {
            rule: self.rule,
            block: self.block,
            draws: &draws[..blocks],
            group,
        });
    }
}

/// A group in contiguous memory.
struct Group<'a> {
    rule: &'a FloatScaleRule,
    block: usize,
    /// One for each block.
    draws: &'a [u32],
    group: &'a mut [f32],
}

impl Kernel for Group<'_> {
    #[inline(always)]
    fn run(self) {
        let Self {
            rule,
            block,
            draws,
            group,
        } = self;
        let mut scales = [0; GROUP];
        let mut units = [0; GROUP];
        let [mut squares, mut products] = [0_u64; 2];
        let pieces = group.chunks(block).zip(units.chunks_mut(block));
        for ((elements, units), scale) in pieces.zip(&mut scales) {
            *scale = rule.block_scale_with(magnitude_max(elements), 0);
            let [square, product] = round_units(rule, *scale, elements, units);
            squares += square;
            products += product;
        }
        let correction = match products {
            0 => 1.0,
            _ => (squares as f64 / products as f64) as f32,
        };
        let pieces = group.chunks_mut(block).zip(units.chunks(block));
        for (((elements, units), scale), draw) in pieces.zip(&scales).zip(draws) {
            let factor = rule.eden_factor(*scale, correction.to_bits(), *draw);
            for (x, unit) in elements.iter_mut().zip(units) {
                let magnitude = bits::product(*unit, factor);
                *x = f32::from_bits(match factor {
                    NAN => NAN,
                    _ => x.to_bits() & SIGN | magnitude,
                });
            }
        }
    }
}

/// Rounds the magnitudes of a block with the scale c, in units of c, half to even. Returns Σu² and Σu·q, both in multiples of the
/// same power of two. u is cut to few enough bits that the sums are exact in any order.
#[inline(always)]
fn round_units(rule: &FloatScaleRule, scale: u32, elements: &[f32], units: &mut [u32]) -> [u64; 2] {
    let pair = rule.pair(scale);
    if pair.is_nan() {
        return [0; 2];
    }
    // The rule's multiples, with constants outside of the loop: inside, the loop had 14 % more instructions.
    let largest = bits::product(rule.element.max, bits::pow2(1));
    let per_unit = f32::from_bits(bits::pow2(22 - bits::exponent(rule.element.max)));
    let mut multiples = [[0_u32; 2]; GROUP];
    let places = units.iter_mut().zip(&mut multiples);
    for (x, (unit_of_x, multiples)) in elements.iter().zip(places) {
        let scaled = pair.scaled(x.to_bits() & ABS).min(largest);
        *unit_of_x = rule.round_unit::<Even>(pair, x.to_bits() & ABS, 0);
        *multiples = [scaled, *unit_of_x].map(|x| (f32::from_bits(x) * per_unit) as i32 as u32);
    }
    let mut sums = [0; 2];
    for [before, after] in &multiples[..elements.len()] {
        sums[0] += u64::from(*before) * u64::from(*before);
        sums[1] += u64::from(*before) * u64::from(*after);
    }
    sums
}

/// The limit of the sums: 2^24 multiples squared, for each element of a group.
const _: () = assert!((GROUP as u64) < 1 << (64 - 2 * 24));
