//! Operands in the order in which the kernels read them: float32 values and their exponents, rows of a left operand, strips of
//! columns of a right one.

mod strip;

use crate::accumulate::operand::kind::Facts;
use crate::accumulate::{Accumulator, AccumulatorOperand, Order, ScaleAt};
use alloc::{vec, vec::Vec};
use microscaling_processor::float_state::ieee;
use microscaling_processor::instruction_set::{Kernel, dispatch};
use microscaling_processor::threads::{Divide, share_all};
use strip::{Conversion, Strip};

/// Columns of a strip.
pub(super) const LANES: usize = 32;
/// The exponent of zeros: less than any other, and so is the sum of two.
pub(super) const ZERO: i16 = -16384;

/// A value of each lane.
pub(super) type Lanes<T> = [T; LANES];

/// An operand, packed.
pub(super) struct PackedOperand {
    /// Lines of a strip: 1 for a left operand, [`LANES`] for a right one.
    pub(super) width: usize,
    pub(super) length: usize,
    pub(super) blocks: usize,
    /// `[strips, length, width]`; 0 where a line is [left out](Self::left_out).
    pub(super) values: Vec<f32>,
    /// Of the values, before normalization.
    pub(super) exponents: Vec<i16>,
    /// `[strips, blocks, width]`; empty where scales are in the values, or there are none.
    pub(super) scales: Vec<f32>,
    pub(super) scale_exponents: Vec<i16>,
    /// Of each strip.
    pub(super) ranges: Vec<Range>,
    /// Lines with a NaN or an Inf, or with a value that float32 does not have.
    pub(super) left_out: Vec<bool>,
}

/// Bounds of the values that are not 0: multiples of 2^least, and less than 2^most.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    pub(super) least: i32,
    pub(super) most: i32,
}

impl Range {
    /// Of zeros.
    pub(super) const NOTHING: Self = Self {
        least: 1 << 12,
        most: -(1 << 12),
    };

    pub(super) fn and(self, other: Self) -> Self {
        Self {
            least: self.least.min(other.least),
            most: self.most.max(other.most),
        }
    }
}

impl PackedOperand {
    /// Packs an operand for an accumulator, in strips of this number of lines.
    pub(super) fn new(
        accumulator: &Accumulator,
        operand: &AccumulatorOperand<'_>,
        width: usize,
    ) -> Self {
        let (lines, length) = (operand.free.length, operand.summed.length);
        let strips = lines.div_ceil(width);
        let apart = operand.kind.scale.is_some() && !scales_in_values(accumulator);
        let blocks = if apart { operand.blocks() } else { 0 };
        let mut packed = Self {
            width,
            length,
            blocks,
            values: vec![0.0; strips * length * width],
            exponents: vec![ZERO; strips * length * width],
            scales: vec![0.0; strips * blocks * width],
            scale_exponents: vec![ZERO; strips * blocks * width],
            ranges: vec![Range::NOTHING; strips],
            left_out: vec![false; strips * width],
        };
        let scale_facts = match operand.kind.scale {
            Some(scale) => scale.facts(),
            None => crate::accumulate::ScaleType::PowerOfTwo.facts(),
        };
        let integers = matches!(accumulator.order, Order::Integer { .. });
        let conversion = Conversion {
            elements: operand.kind.element.facts(),
            scales: scale_facts,
            flush: matches!(accumulator.order, Order::Pairs { flush: true, .. }),
            fraction_bits: operand.kind.element.fraction_bits().filter(|_| integers),
        };
        let work = Strips {
            operand,
            conversion,
            first: 0,
            width,
            values: &mut packed.values,
            exponents: &mut packed.exponents,
            ranges: &mut packed.ranges,
            left_out: &mut packed.left_out,
            scaled: operand.kind.scale.is_some() && !apart,
        };
        if length > 0 {
            share_all(work, &|work| dispatch(work));
        }
        if apart {
            ieee(|| packed.pack_scales(operand, scale_facts));
        }
        packed
    }

    /// Scales are few.
    fn pack_scales(&mut self, operand: &AccumulatorOperand<'_>, facts: Facts) {
        for line in 0..operand.free.length {
            let (strip, lane) = (line / self.width, line % self.width);
            let scales = &operand.scales[line * self.blocks..][..self.blocks];
            if !scales.iter().all(|scale| scale.is_finite()) {
                self.left_out[line] = true;
            }
            for (block, scale) in scales.iter().enumerate() {
                let at = (strip * self.blocks + block) * self.width + lane;
                let (values, exponents) = (&mut self.scales, &mut self.scale_exponents);
                if !self.left_out[line] && *scale != 0.0 {
                    values[at] = *scale;
                    exponents[at] = facts.exponent(scale.to_bits());
                }
            }
        }
    }
}

/// Whether scales are factors of the packed values.
fn scales_in_values(accumulator: &Accumulator) -> bool {
    accumulator.scale_at == ScaleAt::Product && accumulator.order.group() == 1
}

/// Strips to be packed.
struct Strips<'a> {
    operand: &'a AccumulatorOperand<'a>,
    conversion: Conversion,
    /// Number of the first one.
    first: usize,
    width: usize,
    values: &'a mut [f32],
    exponents: &'a mut [i16],
    ranges: &'a mut [Range],
    left_out: &'a mut [bool],
    /// Whether scales are factors of the values.
    scaled: bool,
}

impl Divide for Strips<'_> {
    fn elements(&self) -> usize {
        self.values.len()
    }

    fn halves(self) -> Result<[Self; 2], Self> {
        let middle = self.ranges.len() / 2;
        if middle == 0 {
            return Err(self);
        }
        let elements = middle * self.width * self.operand.summed.length;
        let (low_values, values) = self.values.split_at_mut(elements);
        let (low_exponents, exponents) = self.exponents.split_at_mut(elements);
        let (low_ranges, ranges) = self.ranges.split_at_mut(middle);
        let (low_out, left_out) = self.left_out.split_at_mut(middle * self.width);
        let low = Self {
            values: low_values,
            exponents: low_exponents,
            ranges: low_ranges,
            left_out: low_out,
            ..self
        };
        let high = Self {
            first: self.first + middle,
            values,
            exponents,
            ranges,
            left_out,
            ..low
        };
        Ok([low, high])
    }
}

impl Kernel for Strips<'_> {
    #[inline(always)]
    fn run(self) {
        let length = self.operand.summed.length;
        let size = length * self.width;
        let strips = self.values.chunks_exact_mut(size);
        let strips = strips.zip(self.exponents.chunks_exact_mut(size));
        let lines = self.left_out.chunks_exact_mut(self.width);
        let facts = self.ranges.iter_mut().zip(lines);
        for (i, ((values, exponents), (range, left_out))) in strips.zip(facts).enumerate() {
            let first = (self.first + i) * self.width;
            let lines = (self.operand.free.length - first).min(self.width);
            let part = Strip {
                operand: self.operand,
                conversion: self.conversion,
                first,
                scaled: self.scaled,
            };
            match self.width {
                1 => part.row(values, exponents, range, left_out),
                _ => part.columns(lines, values, exponents, range, left_out),
            }
        }
    }
}
