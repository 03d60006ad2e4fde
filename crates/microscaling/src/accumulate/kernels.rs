//! Products of some rows and a strip of columns: which arithmetic gives the rule's bits there, and the chain of additions.

use super::additions::{
    Addition, GROUPS, Grouped, Integer, Joint, JointDouble, JointQuick, JointSingle, Late, Pairs,
    Rounded, Scales, Single, Terms,
};
use super::lanes::{Output, sum_to_odd};
use super::pack::{LANES, Lanes, Packed, Range};
use super::rule::Dot;
use super::{Accumulator, AccumulatorOperand, Order, Overflow, ScaleAt, SumFormat};
use crate::quantize::instruction_set::Kernel;
use crate::quantize::threads::Divide;
use core::ops;

/// Rows that are worked on together, while a few rows of a strip are in the cache nearest to the core.
const ROWS: usize = 8;

/// Products that count as much as one element elsewhere when work is divided among threads.
const PER_ELEMENT: usize = 8;

/// A product as a whole.
pub(super) struct Product<'a> {
    accumulator: Accumulator,
    operands: [&'a AccumulatorOperand<'a>; 2],
    lhs: Packed,
    rhs: Packed,
    result: *mut f32,
    /// Significant bits of the product of two packed values, and of two scales that are not in them.
    value_bits: i32,
    scale_bits: i32,
    /// Binades that a product's significand may have beyond the usual two.
    extra: i32,
}

// SAFETY: the result is written by parts that have no element in common; all else is only read.
unsafe impl Sync for Product<'_> {}

impl<'a> Product<'a> {
    /// Of checked operands with a summed axis, and the sums that they start from.
    pub(super) fn new(
        accumulator: Accumulator,
        operands: [&'a AccumulatorOperand<'a>; 2],
        result: &'a mut [f32],
    ) -> Self {
        let [lhs, rhs] = operands;
        let lhs = Packed::new(&accumulator, lhs, 1);
        let rhs = Packed::new(&accumulator, rhs, LANES);
        let (mut value_bits, mut scale_bits, mut extra) = (0, 0, 0);
        for (operand, packed) in operands.iter().zip([&lhs, &rhs]) {
            value_bits += operand.kind.element.mantissa_bits() as i32 + 1;
            let Some(scale) = operand.kind.scale else {
                continue;
            };
            let bits = scale.facts().mantissa_bits + 1;
            match packed.blocks {
                // In the values.
                0 => {
                    value_bits += bits - 1 + i32::from(bits > 1);
                    extra += i32::from(bits > 1);
                }
                _ => scale_bits += bits,
            }
        }
        Self {
            accumulator,
            operands,
            lhs,
            rhs,
            result: result.as_mut_ptr(),
            value_bits,
            scale_bits,
            extra,
        }
    }

    fn rows(&self) -> usize {
        self.operands[0].free.length
    }

    fn columns(&self) -> usize {
        self.operands[1].free.length
    }

    fn length(&self) -> usize {
        self.lhs.length
    }

    /// Elements after which a partial sum is promoted; 0 for never.
    fn promote_every(&self) -> usize {
        match (self.accumulator.promote_every, self.accumulator.order) {
            // An integer becomes a float at the end.
            (0, Order::Integer { .. }) => self.length(),
            (every, _) => every,
        }
    }
}

/// Some rows and strips of a product.
pub(super) struct Part<'a> {
    product: &'a Product<'a>,
    rows: ops::Range<usize>,
    strips: ops::Range<usize>,
}

impl<'a> Part<'a> {
    pub(super) fn all(product: &'a Product<'a>) -> Self {
        Self {
            product,
            rows: 0..product.rows(),
            strips: 0..product.columns().div_ceil(LANES),
        }
    }
}

impl Divide for Part<'_> {
    fn elements(&self) -> usize {
        let elements = self.rows.len() * self.strips.len() * LANES;
        elements.saturating_mul(self.product.length()) / PER_ELEMENT + 1
    }

    fn halves(self) -> Result<[Self; 2], Self> {
        let halves = |range: &ops::Range<usize>, unit: usize| {
            let middle = range.start + range.len() / unit / 2 * unit;
            [range.start..middle, middle..range.end]
        };
        let Self {
            product,
            ref rows,
            ref strips,
        } = self;
        if strips.len() > 1 {
            return Ok(halves(strips, 1).map(|strips| Self {
                product,
                rows: rows.clone(),
                strips,
            }));
        }
        if rows.len() >= 2 * ROWS {
            return Ok(halves(rows, ROWS).map(|rows| Self {
                product,
                rows,
                strips: strips.clone(),
            }));
        }
        Err(self)
    }
}

impl Kernel for Part<'_> {
    #[inline(always)]
    fn run(self) {
        for strip in self.strips.clone() {
            for first in self.rows.clone().step_by(ROWS) {
                let block = Block {
                    product: self.product,
                    rows: first..self.rows.end.min(first + ROWS),
                    strip,
                };
                block.run();
            }
        }
    }
}

/// Some rows and one strip.
struct Block<'a> {
    product: &'a Product<'a>,
    rows: ops::Range<usize>,
    strip: usize,
}

impl Block<'_> {
    #[inline(always)]
    fn run(&self) {
        let columns = self.columns();
        let mut sums = [[0.0_f32; LANES]; ROWS];
        for (row, sums) in self.rows.clone().zip(&mut sums) {
            // SAFETY: these rows and columns of the result are this block's alone.
            let result = unsafe { self.result(row) };
            sums[..columns.len()].copy_from_slice(result);
        }
        if !self.add(&mut sums) {
            return self.by_the_rule(|_, _| true);
        }
        let [lhs, rhs] = [&self.product.lhs.left_out, &self.product.rhs.left_out];
        let left_out = |row: usize, column: usize| lhs[row] || rhs[column];
        if self.rows.clone().any(|row| lhs[row]) || columns.clone().any(|column| rhs[column]) {
            self.by_the_rule(left_out);
        }
        for (row, sums) in self.rows.clone().zip(&sums) {
            // SAFETY: as above.
            let result = unsafe { self.result(row) };
            for ((result, sum), column) in result.iter_mut().zip(sums).zip(columns.clone()) {
                if !left_out(row, column) {
                    *result = if sum.is_nan() { f32::NAN } else { *sum };
                }
            }
        }
    }

    fn columns(&self) -> ops::Range<usize> {
        let first = self.strip * LANES;
        first..self.product.columns().min(first + LANES)
    }

    /// The strip's columns of a row of the result.
    ///
    /// # Safety
    /// Nobody else may look at them meanwhile.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "the result is not the block's own")]
    unsafe fn result(&self, row: usize) -> &mut [f32] {
        let columns = self.columns();
        let first = row * self.product.columns() + columns.start;
        // SAFETY: the result has as many rows and columns as the operands, and the caller says that it is nobody else's.
        unsafe { core::slice::from_raw_parts_mut(self.product.result.add(first), columns.len()) }
    }

    /// Adds what no kernel adds.
    #[inline(never)]
    fn by_the_rule(&self, which: impl Fn(usize, usize) -> bool) {
        let Product {
            accumulator,
            operands,
            ..
        } = *self.product;
        for row in self.rows.clone() {
            // SAFETY: these rows and columns of the result are this block's alone.
            let result = unsafe { self.result(row) };
            for (result, column) in result.iter_mut().zip(self.columns()) {
                if which(row, column) {
                    *result = Dot::new(accumulator, operands, [row, column]).sum(*result);
                }
            }
        }
    }

    /// Adds all products to the sums, or none, if no kernel gives the rule's bits.
    #[inline(always)]
    fn add(&self, sums: &mut [Lanes<f32>; ROWS]) -> bool {
        let product = self.product;
        let of_rows = product.lhs.ranges[self.rows.clone()].iter();
        let of_rows = of_rows.fold(Range::NOTHING, |range, row| range.and(*row));
        let of_strip = product.rhs.ranges[self.strip];
        let range = Range {
            least: of_rows.least + of_strip.least,
            most: of_rows.most + of_strip.most,
        };
        let promoted_bits = match product.accumulator.order {
            Order::Integer { bits, .. } => bits as i32,
            _ => 24,
        };
        let at_promotion = product.accumulator.scale_at == ScaleAt::Promotion;
        if at_promotion && promoted_bits + product.scale_bits > 53 {
            return false;
        }
        let length = product.length();
        match product.accumulator.order {
            Order::Joint {
                terms,
                fraction_bits,
                floor_exponent,
                group,
                output,
            } => {
                let bits = fraction_bits as i32;
                let terms = terms.min(length) as i32;
                // A cut product is below 2^magnitude.
                let magnitude = bits + 2 + product.extra;
                let joint = |chunk| Joint {
                    fraction_bits: bits,
                    floor_exponent,
                    output: Output::new(output),
                    chunk,
                };
                if group > 1 {
                    let exact = range.most - range.least + log2_up(group) <= 24
                        && range.least >= -126
                        && range.most + log2_up(group) <= 127
                        && product.value_bits <= 24;
                    let groups = (terms as usize).div_ceil(group);
                    let magnitude = bits + 2 + range.most.max(0) + log2_up(group);
                    let held = magnitude + log2_up(groups + 1) <= 51
                        && product.scale_bits <= 28
                        && groups <= GROUPS;
                    let nothing = range.least > range.most;
                    return (held && (exact || nothing))
                        && self.chain(
                            Grouped {
                                joint: joint(1),
                                group,
                            },
                            sums,
                        );
                }
                let of_sums = range_of(sums);
                let least = range.least.min(of_sums.least);
                let single = product.value_bits <= 24
                    && magnitude <= 30
                    && least >= bits - 120
                    && range.most <= 127;
                if single {
                    let most = (range.most + log2_up(length + 1)).max(of_sums.most) + 1;
                    let quick = magnitude + log2_up(terms as usize + 1) <= 24
                        && most <= 126
                        && output.exponent_bits() == 8;
                    return match quick {
                        true => self.chain(JointQuick(joint(usize::MAX)), sums),
                        false => self.chain(JointSingle(joint(1 << (31 - magnitude))), sums),
                    };
                }
                let double =
                    product.value_bits <= 53 && magnitude + log2_up(terms as usize + 1) <= 51;
                double && self.chain(JointDouble(joint(1)), sums)
            }
            Order::Late {
                terms,
                fraction_bits,
                interleave,
                output,
            } => {
                let bits = fraction_bits as i32;
                let magnitude = bits + 2 + product.extra + log2_up(terms.min(length));
                let single = product.value_bits <= 24
                    && magnitude <= 31
                    && range.least >= bits - 120
                    && range.most <= 127;
                let late = Late {
                    fraction_bits: bits,
                    interleave,
                    output: Output::new(output),
                };
                single && self.chain(late, sums)
            }
            // The exact sum of a few numbers takes more than float64 has.
            Order::Exact { .. } => false,
            Order::Pairs {
                terms,
                flush,
                output,
            } => self.pairs(terms, flush, output, range, sums),
            Order::Fma { output } => self.pairs(1, false, output, range, sums),
            Order::Integer { bits, overflow } => {
                let operands = product.operands.map(|operand| operand.kind.element);
                let fraction_bits = operands.map(|element| element.fraction_bits().unwrap_or(0));
                let held = match overflow {
                    Overflow::Wrap => 32,
                    Overflow::Saturate => 30,
                };
                let single = bits <= held && operands.iter().all(|e| e.mantissa_bits() <= 14);
                let integer = Integer {
                    bits,
                    overflow,
                    unit: -fraction_bits[0] - fraction_bits[1],
                };
                single && self.chain(integer, sums)
            }
        }
    }

    #[inline(always)]
    fn pairs(
        &self,
        terms: usize,
        flush: bool,
        output: SumFormat,
        range: Range,
        sums: &mut [Lanes<f32>; ROWS],
    ) -> bool {
        let smallest = if flush {
            f32::from_bits(crate::round::bits::pow2(output.emin()))
        } else {
            0.0
        };
        let single = output == SumFormat::F32_RNE
            && self.product.value_bits <= 24
            && range.least >= -126
            && range.most <= 127;
        match single {
            true => self.chain(
                Pairs {
                    adder: Single,
                    terms,
                    smallest,
                },
                sums,
            ),
            false => self.chain(
                Pairs {
                    adder: Rounded {
                        output: Output::new(output),
                        flush,
                    },
                    terms,
                    smallest,
                },
                sums,
            ),
        }
    }

    /// The chain of additions, and promotions.
    #[inline(always)]
    fn chain<A: Addition>(&self, addition: A, sums: &mut [Lanes<f32>; ROWS]) -> bool {
        let product = self.product;
        let length = product.length();
        let terms = product.accumulator.order.terms();
        let every = product.promote_every();
        if every == 0 {
            for start in (0..length).step_by(terms) {
                self.additions(addition, start..length.min(start + terms), sums);
            }
            return true;
        }
        for start in (0..length).step_by(every) {
            let mut partial = [[0.0; LANES]; ROWS];
            let end = length.min(start + every);
            for start in (start..end).step_by(terms) {
                self.additions(addition, start..end.min(start + terms), &mut partial);
            }
            for (row, (sums, partial)) in self.rows.clone().zip(sums.iter_mut().zip(&partial)) {
                let scales = match product.accumulator.scale_at {
                    ScaleAt::Product => [1.0; LANES],
                    ScaleAt::Promotion => self.scales(row).products(start),
                };
                for lane in 0..LANES {
                    let scaled = addition.value(partial[lane]) * scales[lane];
                    sums[lane] = sum_to_odd(sums[lane].into(), scaled) as f32;
                }
            }
        }
        true
    }

    /// One addition of each row.
    #[inline(always)]
    fn additions<A: Addition>(
        &self,
        addition: A,
        range: ops::Range<usize>,
        sums: &mut [Lanes<f32>; ROWS],
    ) {
        let Product { lhs, rhs, .. } = self.product;
        let length = self.product.length();
        let (strips, _) = rhs.values.as_chunks::<LANES>();
        let (strip_exponents, _) = rhs.exponents.as_chunks::<LANES>();
        let of_strip = self.strip * length + range.start..self.strip * length + range.end;
        for (row, sums) in self.rows.clone().zip(sums) {
            let of_row = row * length + range.start..row * length + range.end;
            let terms = Terms {
                row: &lhs.values[of_row.clone()],
                row_exponents: &lhs.exponents[of_row],
                strip: &strips[of_strip.clone()],
                strip_exponents: &strip_exponents[of_strip.clone()],
                scales: self.scales(row),
                at: range.start,
            };
            addition.add(terms, sums);
        }
    }

    /// The scales of a row and of the strip that are not in the values.
    #[inline(always)]
    fn scales(&self, row: usize) -> Scales<'_> {
        let Product {
            lhs, rhs, operands, ..
        } = self.product;
        let of_row = row * lhs.blocks..(row + 1) * lhs.blocks;
        let of_strip = self.strip * rhs.blocks..(self.strip + 1) * rhs.blocks;
        let (strips, _) = rhs.scales.as_chunks::<LANES>();
        let (strip_exponents, _) = rhs.scale_exponents.as_chunks::<LANES>();
        Scales {
            row: &lhs.scales[of_row.clone()],
            row_exponents: &lhs.scale_exponents[of_row],
            strip: &strips[of_strip.clone()],
            strip_exponents: &strip_exponents[of_strip],
            blocks: operands.map(|operand| match operand.kind.block {
                0 => usize::MAX,
                block => block,
            }),
        }
    }
}

/// The least exponent e with n ≤ 2^e.
fn log2_up(n: usize) -> i32 {
    n.max(1).next_power_of_two().trailing_zeros() as i32
}

/// Of the sums that a product starts from.
#[inline(always)]
fn range_of(sums: &[Lanes<f32>; ROWS]) -> Range {
    let mut range = Range::NOTHING;
    for sum in sums.as_flattened() {
        let exponent = (sum.to_bits() >> 23 & 0xff) as i32 - 127;
        if *sum != 0.0 {
            range = range.and(Range {
                least: exponent.max(-126) - 23,
                most: exponent + 1,
            });
        }
    }
    range
}
