//! Packs one strip: values, exponents and their bounds.

use super::{LANES, Lanes, Range, ZERO};
use crate::accumulate::AccumulatorOperand;
use crate::accumulate::operand::kind::Facts;
use microscaling::internal::bits;

/// How values become packed ones.
#[derive(Clone, Copy)]
pub(super) struct Conversion {
    pub(super) elements: Facts,
    pub(super) scales: Facts,
    /// Subnormal elements become 0.
    pub(super) flush: bool,
    /// Elements are multiples of 2^−this, and packed as integers.
    pub(super) fraction_bits: Option<i32>,
}

impl Facts {
    /// The exponent of a number of the type that is not 0, before normalization.
    #[inline(always)]
    pub(super) fn exponent(self, pattern: u32) -> i16 {
        // Subnormals of float32 have a field that says −127: no type has a smaller exponent.
        let field = (pattern >> 23 & 0xff) as i16;
        (field - 127).max(self.emin as i16)
    }
}

/// One strip.
pub(super) struct Strip<'a> {
    pub(super) operand: &'a AccumulatorOperand<'a>,
    pub(super) conversion: Conversion,
    /// Its first line.
    pub(super) first: usize,
    pub(super) scaled: bool,
}

/// The bounds of the values of each lane.
struct LaneBounds {
    least: Lanes<i16>,
    most: Lanes<i16>,
    left_out: Lanes<bool>,
}

impl LaneBounds {
    const NOTHING: Self = Self {
        least: [i16::MAX; LANES],
        most: [i16::MIN; LANES],
        left_out: [false; LANES],
    };
}

impl Strip<'_> {
    /// A row of a left operand, [`LANES`] elements at a time.
    #[inline(always)]
    pub(super) fn row(
        self,
        values: &mut [f32],
        exponents: &mut [i16],
        range: &mut Range,
        left_out: &mut [bool],
    ) {
        let mut seen = LaneBounds::NOTHING;
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
    pub(super) fn columns(
        self,
        lines: usize,
        values: &mut [f32],
        exponents: &mut [i16],
        range: &mut Range,
        left_out: &mut [bool],
    ) {
        let operand = self.operand;
        let mut seen = LaneBounds::NOTHING;
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
        seen: &mut LaneBounds,
    ) -> (Lanes<f32>, Lanes<i16>) {
        let (mut values, mut exponents) = ([0.0; LANES], [ZERO; LANES]);
        let smallest = bits::pow2(self.elements.emin);
        let unit = self
            .fraction_bits
            .map_or(1.0, |bits| f32::from_bits(bits::pow2(bits)));
        for lane in 0..LANES {
            let (x, scale) = (elements[lane], scales[lane]);
            // −0 is not subnormal, and keeps its sign.
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
            for value in &mut values {
                *value = f32::from_bits((*value as i32).cast_unsigned());
            }
        }
        (values, exponents)
    }

    /// From the exponents of the values that are not left out, with a margin: the exponent of the last bit of all
    /// values, and an exponent above them.
    #[inline(always)]
    fn range(&self, seen: &LaneBounds, scaled: bool) -> Range {
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
