//! MS-EDEN: stochastic rounding of scales in place of elements.

use super::largest::magnitude_max;
use super::layout::{Layout, Runs};
use super::rules::{FloatScaleRule, UnitElement, are_within};
use crate::format::BlockFormat;
use crate::round::bits::{self, ABS, BIAS, IMPLICIT, MANTISSA_BITS, NAN, SIGN};
use crate::round::draws::PartStream;
use crate::round::mode::Even;
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
    stream: PartStream,
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
    stream: PartStream,
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
        let mut maxima = [0; GROUP];
        let maxima = &mut maxima[..draws.len()];
        for (elements, amax) in group.chunks(block).zip(&mut *maxima) {
            *amax = magnitude_max(elements);
        }
        let (mut scales, mut inverses) = ([0; GROUP], [0; GROUP]);
        // Magnitudes in units of the scale of their block, and the same rounded. A block of NaN has zeros.
        let (mut units, mut rounded) = ([0; GROUP], [0; GROUP]);
        let pieces = group.chunks(block).zip(units.chunks_mut(block));
        let pieces = pieces.zip(rounded.chunks_mut(block));
        let ordinary = rule.ordinary();
        if are_within(ordinary.clone(), maxima) {
            let rule = rule.in_units_of_the_scale();
            let pairs = scales.iter_mut().zip(&mut inverses);
            for ((scale, inverse), amax) in pairs.zip(maxima) {
                [*scale, *inverse] = rule.ordinary_pair((*amax).max(ordinary.start), 0).words();
            }
            for (((elements, units), rounded), inverse) in pieces.zip(inverses) {
                for ((x, unit), rounded) in elements.iter().zip(units).zip(rounded) {
                    let abs = x.to_bits() & ABS;
                    [*unit, *rounded] = rule.element.unit_and_rounded(inverse, abs);
                }
            }
        } else {
            for ((((elements, units), rounded), scale), amax) in pieces.zip(&mut scales).zip(maxima)
            {
                *scale = rule.block_scale_with(*amax, 0);
                let pair = rule.pair(*scale);
                if pair.is_nan() {
                    continue;
                }
                for ((x, unit), rounded) in elements.iter().zip(units).zip(rounded) {
                    let abs = x.to_bits() & ABS;
                    *unit = pair.scaled(abs);
                    *rounded = rule.round_unit::<Even>(pair, abs, 0);
                }
            }
        }
        let length = group.len();
        let [squares, products] = sums(rule.element, &units[..length], &rounded[..length]);
        let correction = match products {
            0 => 1.0,
            _ => (squares as f64 / products as f64) as f32,
        };
        let pieces = group.chunks_mut(block).zip(rounded.chunks(block));
        for (((elements, rounded), scale), draw) in pieces.zip(&scales).zip(draws) {
            let factor = rule.eden_factor(*scale, correction.to_bits(), *draw);
            match factor {
                NAN => elements.fill(f32::from_bits(NAN)),
                _ => {
                    for (x, rounded) in elements.iter_mut().zip(rounded) {
                        *x = f32::from_bits(x.to_bits() & SIGN | bits::product(*rounded, factor));
                    }
                }
            }
        }
    }
}

/// Σu² and Σu·q of magnitudes u in units of their scale and the rounded magnitudes q. Both sums count multiples of one power of two. Each u
/// loses its lowest bits, so that the sums are exact in any order.
#[inline(always)]
fn sums(element: UnitElement, units: &[u32], rounded: &[u32]) -> [u64; 2] {
    // The rule's multiples, less than 2^24, by shifts: conversions of floats do not become vectors.
    let largest = bits::product(element.max, bits::pow2(1));
    let exponent_of_step = bits::exponent(element.max) - 22;
    let whole = (exponent_of_step + BIAS + MANTISSA_BITS) as u32;
    let multiple = |x: u32| {
        let significand = x & (IMPLICIT - 1) | IMPLICIT;
        let shift = whole.wrapping_sub(x >> MANTISSA_BITS).min(31);
        u64::from(significand >> shift)
    };
    let mut sums = [0; 2];
    for (unit, rounded) in units.iter().zip(rounded) {
        let [before, after] = [(*unit).min(largest), *rounded].map(multiple);
        sums[0] += before * before;
        sums[1] += before * after;
    }
    sums
}

/// The limit of the sums: 2^24 multiples squared, for each element of a group.
const _: () = assert!((GROUP as u64) < 1 << (64 - 2 * 24));
