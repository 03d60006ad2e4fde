//! The two neighbours of each element on a weight's grid.
//!
//! The grid belongs to the element's block in the present weight: the block's scale stays, and so do the shifts of
//! microexponents. Codes count magnitudes, so the neighbour away from zero has the next code.

use core::ops::Range;

use burn_backend::Shape;
use microscaling::{BlockFormat, Packed, Rounder};

/// The neighbours of a weight's elements, in row-major order.
#[derive(Clone, Debug)]
pub(super) struct Neighbours {
    /// The neighbour toward zero.
    pub(super) inner: Vec<f32>,
    /// The neighbour away from zero. Equal to `inner` if the element is on the grid or beyond its end.
    pub(super) outer: Vec<f32>,
    shape: Vec<usize>,
    axis: usize,
    block_size: usize,
}

impl Neighbours {
    /// The neighbours of a weight whose blocks lie along this axis, are not square, and have no tensor scale. `None` if a
    /// value is not finite.
    pub(super) fn of(
        format: BlockFormat,
        weight: &[f32],
        shape: &Shape,
        axis: usize,
    ) -> Option<Self> {
        if !weight.iter().all(|value| value.is_finite()) {
            return None;
        }
        let packed = Packed::encode(format, weight, shape, axis, Rounder::TowardZero).ok()?;
        let inner = packed.decode();
        let is_complement = format.element.is_integer();
        let sign = format.element.sign_bit();
        let next = packed.map_codes(|at, code| {
            let is_negative = weight[at].is_sign_negative();
            let magnitude = match is_complement && code & sign != 0 {
                true => code.wrapping_neg() & (2 * sign - 1),
                false => code & (sign - 1),
            };
            // Codes end where the grid does, but for codes without a number, which are left out below.
            let magnitude = (magnitude + 1).min(sign - 1);
            match (is_negative, is_complement) {
                (false, _) => magnitude,
                (true, _) if format.element.is_unsigned() => 0,
                (true, true) => magnitude.wrapping_neg(),
                (true, false) => magnitude | sign,
            }
        });
        let mut outer = next.decode();
        for ((outer, inner), value) in outer.iter_mut().zip(&inner).zip(weight) {
            let is_between =
                outer.is_finite() && inner.abs() < value.abs() && value.abs() < outer.abs();
            if !is_between {
                *outer = *inner;
            }
        }
        Some(Self {
            inner,
            outer,
            shape: shape.to_vec(),
            axis,
            block_size: format.group_size(),
        })
    }

    /// The position of an element between `inner` and `outer`, from 0 to 1. `None` if both are equal.
    pub(super) fn way(&self, at: usize, value: f32) -> Option<f32> {
        let (inner, outer) = (self.inner[at], self.outer[at]);
        (inner != outer).then(|| ((value - inner) / (outer - inner)).clamp(0.0, 1.0))
    }

    /// The places of all elements in the block of an element.
    pub(super) fn block(&self, at: usize) -> impl Iterator<Item = usize> + use<> {
        let stride: usize = self.shape[self.axis + 1..].iter().product();
        let length = self.shape[self.axis];
        let size = match self.block_size {
            0 => length,
            size => size,
        };
        let along = at / stride % length;
        let first = along / size * size;
        let range: Range<usize> = first..(first + size).min(length);
        let start = at - along * stride;
        range.map(move |along| start + along * stride)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMATS: [&str; 10] = [
        "mx4",
        "mx6",
        "mx9",
        "mxfp8_e5m2",
        "mxfp8_e4m3",
        "mxfp6_e3m2",
        "mxfp6_e2m3",
        "mxfp4",
        "mxint8",
        "bfp16",
    ];

    fn noise(count: usize) -> Vec<f32> {
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32 - 0.5
        };
        (0..count).map(|_| next() * 8.0 * next().abs()).collect()
    }

    /// The nearest number is one of the two neighbours. The quantizer leaves the other neighbour unchanged in the same block.
    #[test]
    fn neighbours_are_the_numbers_around_a_value() {
        for name in FORMATS {
            let format: BlockFormat = name.parse().unwrap();
            for (shape, axis) in [([6, 70], 1), ([70, 6], 0)] {
                let weight = noise(420);
                let found = Neighbours::of(format, &weight, &Shape::new(shape), axis).unwrap();
                let quantized = |values: &[f32]| {
                    let mut values = values.to_vec();
                    let stream = Rounder::NearestEven;
                    format.quantize(&mut values, &shape, axis, stream).unwrap();
                    values
                };
                let nearest = quantized(&weight);
                let mut between = 0;
                for at in 0..weight.len() {
                    let [inner, outer] = [found.inner[at], found.outer[at]];
                    let value = weight[at];
                    assert!(
                        [inner, outer].contains(&nearest[at]),
                        "{name} {value}: {inner} {outer}"
                    );
                    if inner == outer {
                        continue;
                    }
                    between += 1;
                    assert!(
                        inner.abs() < value.abs() && value.abs() < outer.abs(),
                        "{name} {value}"
                    );
                    assert!(value * outer > 0.0, "{name} {value}: {outer}");
                    // Nothing lies between the two: the middle goes to one of them.
                    let mut middle = weight.clone();
                    middle[at] = inner + (outer - inner) * 0.25;
                    let largest = found
                        .block(at)
                        .map(|at| weight[at].abs())
                        .fold(0.0, f32::max);
                    if value.abs() < largest {
                        assert_eq!(quantized(&middle)[at].abs(), inner.abs(), "{name} {value}");
                    }
                }
                assert!(between > 200, "{name}: {between}");
            }
        }
    }

    #[test]
    fn blocks_are_those_of_the_format() {
        let format: BlockFormat = "mxfp4".parse().unwrap();
        let found = Neighbours::of(format, &[1.0; 240], &Shape::new([2, 40, 3]), 1).unwrap();
        let block: Vec<usize> = found.block(120 + 33 * 3 + 1).collect();
        let wanted: Vec<usize> = (32..40).map(|along| 120 + along * 3 + 1).collect();
        assert_eq!(block, wanted);
    }
}
