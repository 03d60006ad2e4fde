//! Operands in the order in which the kernels read them: float32 values and their exponents, rows of a left operand, strips of
//! columns of a right one.

use super::kind::Facts;
use super::{Accumulator, AccumulatorOperand, Order, ScaleAt};
use crate::float_state::ieee;
use crate::quantize::instruction_set::{Kernel, dispatch};
use crate::quantize::threads::{Divide, share_all};
use crate::round::bits;
use alloc::{vec, vec::Vec};

/// Columns of a strip.
pub(super) const LANES: usize = 32;
/// The exponent of zeros: less than any other, and so is the sum of two.
pub(super) const ZERO: i16 = -16384;

/// A value of each lane.
pub(super) type Lanes<T> = [T; LANES];

/// An operand, packed.
pub(super) struct Packed {
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

/// How values become packed ones.
#[derive(Clone, Copy)]
struct Conversion {
    elements: Facts,
    scales: Facts,
    /// Subnormal elements become 0.
    flush: bool,
    /// Elements are multiples of 2^−this, and packed as integers.
    fraction_bits: Option<i32>,
}

impl Packed {
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
            None => super::ScaleType::PowerOfTwo.facts(),
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

impl Facts {
    /// The exponent of a number of the type that is not 0, before normalization.
    #[inline(always)]
    fn exponent(self, pattern: u32) -> i16 {
        // Subnormals of float32 have a field that says −127: no type has a smaller exponent.
        let field = (pattern >> 23 & 0xff) as i16;
        (field - 127).max(self.emin as i16)
    }
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

/// One strip.
struct Strip<'a> {
    operand: &'a AccumulatorOperand<'a>,
    conversion: Conversion,
    /// Its first line.
    first: usize,
    scaled: bool,
}

/// The bounds of the values of each lane.
struct Seen {
    least: Lanes<i16>,
    most: Lanes<i16>,
    left_out: Lanes<bool>,
}

impl Seen {
    const NOTHING: Self = Self {
        least: [i16::MAX; LANES],
        most: [i16::MIN; LANES],
        left_out: [false; LANES],
    };
}

impl Strip<'_> {
    /// A row of a left operand, [`LANES`] elements at a time.
    #[inline(always)]
    fn row(
        self,
        values: &mut [f32],
        exponents: &mut [i16],
        range: &mut Range,
        left_out: &mut [bool],
    ) {
        let mut seen = Seen::NOTHING;
        let chunks = values.chunks_mut(LANES).zip(exponents.chunks_mut(LANES));
        for (i, (values, exponents)) in chunks.enumerate() {
            let (mut elements, mut scales) = ([0.0; LANES], [1.0; LANES]);
            for lane in 0..values.len() {
                elements[lane] = self.operand.element(self.first, i * LANES + lane);
                if self.scaled {
                    scales[lane] = self.operand.scale(self.first, i * LANES + lane);
                }
            }
            let (converted, of) = self.conversion.convert(&elements, &scales, &mut seen);
            values.copy_from_slice(&converted[..values.len()]);
            exponents.copy_from_slice(&of[..exponents.len()]);
        }
        left_out[0] = seen.left_out.contains(&true);
        if left_out[0] {
            values.fill(0.0);
            exponents.fill(ZERO);
        } else {
            *range = self.conversion.range(&seen, self.scaled);
        }
    }

    /// Columns of a right operand.
    #[inline(always)]
    fn columns(
        self,
        lines: usize,
        values: &mut [f32],
        exponents: &mut [i16],
        range: &mut Range,
        left_out: &mut [bool],
    ) {
        let operand = self.operand;
        let mut seen = Seen::NOTHING;
        let mut scales = [1.0; LANES];
        let rows = values
            .chunks_exact_mut(LANES)
            .zip(exponents.chunks_exact_mut(LANES));
        for (at, (values, exponents)) in rows.enumerate() {
            let mut elements = [0.0; LANES];
            let start = self.first * operand.free.stride + at * operand.summed.stride;
            match operand.free.stride {
                1 => elements[..lines].copy_from_slice(&operand.elements[start..start + lines]),
                stride => {
                    for (lane, element) in elements[..lines].iter_mut().enumerate() {
                        *element = operand.elements[start + lane * stride];
                    }
                }
            }
            if self.scaled && (at == 0 || operand.block_of(at) != operand.block_of(at - 1)) {
                for (lane, scale) in scales[..lines].iter_mut().enumerate() {
                    *scale = operand.scale(self.first + lane, at);
                }
            }
            let (converted, of) = self.conversion.convert(&elements, &scales, &mut seen);
            values.copy_from_slice(&converted);
            exponents.copy_from_slice(&of);
        }
        left_out.copy_from_slice(&seen.left_out);
        if seen.left_out.contains(&true) {
            let rows = values
                .chunks_exact_mut(LANES)
                .zip(exponents.chunks_exact_mut(LANES));
            for (values, exponents) in rows {
                for lane in 0..LANES {
                    if seen.left_out[lane] {
                        (values[lane], exponents[lane]) = (0.0, ZERO);
                    }
                }
            }
        }
        *range = self.conversion.range(&seen, self.scaled);
    }
}

impl Conversion {
    /// The packed values, and their exponents.
    #[inline(always)]
    fn convert(
        &self,
        elements: &Lanes<f32>,
        scales: &Lanes<f32>,
        seen: &mut Seen,
    ) -> (Lanes<f32>, Lanes<i16>) {
        let (mut values, mut exponents) = ([0.0; LANES], [ZERO; LANES]);
        let smallest = bits::pow2(self.elements.emin);
        let unit = self
            .fraction_bits
            .map_or(1.0, |bits| f32::from_bits(bits::pow2(bits)));
        for lane in 0..LANES {
            let (x, scale) = (elements[lane], scales[lane]);
            // −0 is no subnormal, and keeps its sign.
            let flushed = self.flush && (x.to_bits() & bits::ABS).wrapping_sub(1) < smallest - 1;
            let x = if flushed { 0.0 } else { x };
            let value = x * scale * unit;
            // The product of a float64 has all bits.
            let exact = f64::from(x) * f64::from(scale) * f64::from(unit) == f64::from(value);
            let exponent =
                self.elements.exponent(x.to_bits()) + self.scales.exponent(scale.to_bits());
            let zero = value == 0.0;
            seen.left_out[lane] |= !(exact && value.is_finite());
            exponents[lane] = if zero { ZERO } else { exponent };
            seen.least[lane] = seen.least[lane].min(if zero { i16::MAX } else { exponent });
            seen.most[lane] = seen.most[lane].max(exponents[lane]);
            values[lane] = value;
        }
        if self.fraction_bits.is_some() {
            // As the integers' bits.
            values = values.map(|value| f32::from_bits((value as i32).cast_unsigned()));
        }
        (values, exponents)
    }

    /// From the exponents of the values that are not left out, with a margin: the exponent of the last bit of all
    /// values, and an exponent above them.
    #[inline(always)]
    fn range(&self, seen: &Seen, scaled: bool) -> Range {
        let mut range = Range::NOTHING;
        for lane in 0..LANES {
            if seen.least[lane] < i16::MAX {
                range = range.and(Range {
                    least: seen.least[lane].into(),
                    most: seen.most[lane].into(),
                });
            }
        }
        if range.least > range.most {
            return range;
        }
        let scale_bits = if scaled { self.scales.mantissa_bits } else { 0 };
        Range {
            least: range.least - self.elements.mantissa_bits - scale_bits,
            most: range.most + 1 + i32::from(scale_bits > 0),
        }
    }
}
