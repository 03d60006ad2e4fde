//! Products of some rows and a strip of columns: the chain of additions.

mod additions;
mod choice;
mod lanes;
mod pack;

use super::rule::Dot;
use super::{Accumulator, AccumulatorOperand, Order, ScaleAt};
use additions::{Addition, Scales, Terms};
use core::ops;
use lanes::sum_to_odd;
use microscaling_processor::instruction_set::Kernel;
use microscaling_processor::threads::Divide;
use pack::{LANES, Lanes, PackedOperand};

/// Rows that are worked on together, while a few rows of a strip are in the cache nearest to the core.
const ROWS: usize = 8;

/// Products that are added one by one for a row before the next row's.
const CHAIN: usize = 64;

/// Products that count as much as one element elsewhere when work is divided among threads.
const PER_ELEMENT: usize = 8;

/// A product as a whole.
pub(super) struct WholeProduct<'a> {
    accumulator: Accumulator,
    operands: [&'a AccumulatorOperand<'a>; 2],
    lhs: PackedOperand,
    rhs: PackedOperand,
    result: *mut f32,
    /// Significant bits of the product of two packed values, and of two scales that are not in them.
    value_bits: i32,
    scale_bits: i32,
    /// Binades that a product's significand may have beyond the usual two.
    extra: i32,
}

// SAFETY: the result is written by parts that have no element in common; all else is only read.
unsafe impl Sync for WholeProduct<'_> {}

impl<'a> WholeProduct<'a> {
    /// From checked operands with a summed axis, and the sums that they start from.
    pub(super) fn new(
        accumulator: Accumulator,
        operands: [&'a AccumulatorOperand<'a>; 2],
        result: &'a mut [f32],
    ) -> Self {
        let [lhs, rhs] = operands;
        let lhs = PackedOperand::new(&accumulator, lhs, 1);
        let rhs = PackedOperand::new(&accumulator, rhs, LANES);
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
pub(super) struct ProductPart<'a> {
    product: &'a WholeProduct<'a>,
    rows: ops::Range<usize>,
    strips: ops::Range<usize>,
}

impl<'a> ProductPart<'a> {
    pub(super) fn all(product: &'a WholeProduct<'a>) -> Self {
        Self {
            product,
            rows: 0..product.rows(),
            strips: 0..product.columns().div_ceil(LANES),
        }
    }
}

impl Divide for ProductPart<'_> {
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

impl Kernel for ProductPart<'_> {
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
    product: &'a WholeProduct<'a>,
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
        let WholeProduct {
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

    /// The chain of additions, and promotions.
    #[inline(always)]
    fn chain<A: Addition>(&self, addition: A, sums: &mut [Lanes<f32>; ROWS]) -> bool {
        let product = self.product;
        let length = product.length();
        // Whole additions.
        let terms = product.accumulator.order.terms();
        let span = terms * (CHAIN / terms).max(1);
        let every = product.promote_every();
        if every == 0 {
            for start in (0..length).step_by(span) {
                self.additions(addition, start..length.min(start + span), sums);
            }
            return true;
        }
        for start in (0..length).step_by(every) {
            let mut partial = [[0.0; LANES]; ROWS];
            let end = length.min(start + every);
            for start in (start..end).step_by(span) {
                self.additions(addition, start..end.min(start + span), &mut partial);
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

    /// Some additions of each row.
    #[inline(always)]
    fn additions<A: Addition>(
        &self,
        addition: A,
        range: ops::Range<usize>,
        sums: &mut [Lanes<f32>; ROWS],
    ) {
        let WholeProduct {
            accumulator,
            lhs,
            rhs,
            ..
        } = self.product;
        let length = self.product.length();
        let terms = match accumulator.order {
            // One by one.
            Order::Fma { .. } | Order::Integer { .. } => CHAIN,
            order => order.terms(),
        };
        let (strips, _) = rhs.values.as_chunks::<LANES>();
        let (strip_exponents, _) = rhs.exponents.as_chunks::<LANES>();
        let of_strip = self.strip * length + range.start..self.strip * length + range.end;
        let strip = strips[of_strip.clone()].chunks(terms);
        let strip = strip.zip(strip_exponents[of_strip].chunks(terms));
        for (row, sums) in self.rows.clone().zip(sums) {
            let of_row = row * length + range.start..row * length + range.end;
            let scales = match accumulator.scale_at {
                ScaleAt::Product => self.scales(row),
                ScaleAt::Promotion => Scales::NONE,
            };
            let row = lhs.values[of_row.clone()].chunks(terms);
            let row = row.zip(lhs.exponents[of_row].chunks(terms));
            let mut c = *sums;
            for (i, (row, strip)) in row.zip(strip.clone()).enumerate() {
                let terms = Terms {
                    row: row.0,
                    row_exponents: row.1,
                    strip: strip.0,
                    strip_exponents: strip.1,
                    scales,
                    at: range.start + i * terms,
                };
                addition.add(terms, &mut c);
            }
            *sums = c;
        }
    }

    /// The scales of a row and of the strip that are not in the values.
    #[inline(always)]
    fn scales(&self, row: usize) -> Scales<'_> {
        let WholeProduct {
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
