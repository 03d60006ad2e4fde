//! Integers from floats, as GPTQ and AWQ have them.

use super::{IntegerLayout, IntegerMatrix};
use crate::format::ParseFormatError;
use crate::format::text::parameters::Parameters;
use crate::names::NameError;
use alloc::{format, string::String, vec::Vec};
use core::fmt;
use core::str::FromStr;
use half::f16;
use microscaling_processor::float_state::ieee;

/// Integers with a float16 scale for each group of a row's inputs: `int4(group_size=128,zero_points=false)`.
///
/// # Rounding
/// By `Quantizer.find_params` and `quantize` of AutoGPTQ 0.7.1 (quantization/quantizer.py), with the scale as float16. Two numbers enclose the
/// group and 0; without zero points they are the largest magnitude with either sign, and in a group of zeros −1 and 1. The scale is
/// (largest − least) / (2^bits − 1), rounded to float16, and at least 2^−24. The zero point is 2^(bits − 1), or −least / scale before
/// that rounding, rounded half to even. An integer is x / scale, rounded half to even, plus the zero point, and between 0 and 2^bits − 1. For
/// GPTQ's first version, which has no zero point 0, such a group gets 1 and the scale largest / (2^bits − 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IntegerFormat {
    /// Bits of an integer: 2, 3, 4 or 8.
    pub bits: u32,
    /// How many inputs a group has; 0: all inputs of a row.
    pub group_size: usize,
    /// Whether groups have zero points of their own.
    pub zero_points: bool,
}

/// The names, by the number of bits.
const NAMES: [(u32, &str); 4] = [(2, "int2"), (3, "int3"), (4, "int4"), (8, "int8")];
const FIELDS: [&str; 2] = ["group_size", "zero_points"];

impl FromStr for IntegerFormat {
    type Err = ParseFormatError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        for (bits, name) in NAMES {
            let Some(parameters) = Parameters::of(text, name, &FIELDS) else {
                continue;
            };
            let mut parameters = parameters?;
            let format = Self {
                bits,
                group_size: parameters.take(FIELDS[0], 128, || "0 or more".into())?,
                zero_points: parameters.take(FIELDS[1], false, || "true or false".into())?,
            };
            parameters.finish()?;
            return Ok(format);
        }
        Err(NameError::new("integer format", text, NAMES.map(|(_, name)| name).to_vec()).into())
    }
}

impl fmt::Display for IntegerFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            bits,
            group_size,
            zero_points,
        } = self;
        f.pad(&format!(
            "int{bits}(group_size={group_size},zero_points={zero_points})"
        ))
    }
}

impl IntegerFormat {
    /// How many inputs a group has, in a weight of this shape that gets this layout.
    ///
    /// # Errors
    /// The reason why the weight cannot be rounded to such integers: the field, its value and the allowed values.
    pub fn group(
        self,
        layout: IntegerLayout,
        name: &str,
        shape: &[usize],
    ) -> Result<usize, String> {
        let Ok([outputs, inputs]) = <[usize; 2]>::try_from(shape) else {
            return Err(format!("the shape is {shape:?}; allowed: [out, in]"));
        };
        let group = match self.group_size {
            0 => inputs,
            size => size,
        };
        layout.check(name, self.bits, [outputs, inputs], group)?;
        Ok(group)
    }
}

impl IntegerMatrix {
    /// Rounds the numbers of a weight of this name and shape to integers for the layout.
    ///
    /// # Errors
    /// The reason: see [`IntegerFormat::group`]; a number is NaN or Inf, or too large for a float16 scale.
    ///
    /// # Panics
    /// If the number of elements is not the shape's.
    pub fn round(
        data: &[f32],
        name: &str,
        shape: &[usize],
        format: IntegerFormat,
        layout: IntegerLayout,
    ) -> Result<Self, String> {
        let group = format.group(layout, name, shape)?;
        assert_eq!(data.len(), shape[0] * shape[1]);
        if let Some(x) = data.iter().find(|x| !x.is_finite()) {
            return Err(format!("a number is {x}; allowed: finite numbers"));
        }
        let mut matrix = Self {
            bits: format.bits,
            shape: [shape[0], shape[1]],
            group,
            order: None,
            integers: Vec::with_capacity(data.len()),
            zeros: Vec::new(),
            scales: ("F16".into(), Vec::new()),
        };
        let least_zero = layout.least_zero() as f32;
        for numbers in data.chunks_exact(group) {
            ieee(|| matrix.push(numbers, format.zero_points, least_zero))?;
        }
        Ok(matrix)
    }

    /// Adds a group.
    fn push(&mut self, numbers: &[f32], has_zero: bool, least_zero: f32) -> Result<(), String> {
        let most = ((1 << self.bits) - 1) as f32;
        let largest = numbers.iter().copied().fold(0.0, f32::max);
        let least = numbers.iter().copied().fold(0.0, f32::min);
        let magnitude = largest.max(-least);
        let (least, largest) = match has_zero {
            _ if magnitude == 0.0 => (-1.0, 1.0),
            true => (least, largest),
            false => (-magnitude, magnitude),
        };
        let scale_of = |least: f32| match (largest - least).is_finite() {
            true => ((largest - least) / most).max(f32::MIN_POSITIVE),
            false => f32::INFINITY,
        };
        let zero_of = |least: f32| (-least / scale_of(least)).round_ties_even();
        let least = match zero_of(least) < least_zero {
            true => -largest / (most - 1.0),
            false => least,
        };
        let scale = f16::from_f32(scale_of(least)).max(f16::from_bits(1));
        if !scale.is_finite() {
            return Err(format!(
                "a number is {magnitude:e}; allowed: numbers whose scale is a float16"
            ));
        }
        let stored = scale.to_f32();
        let zero = match has_zero {
            true => zero_of(least).clamp(least_zero, most),
            false => f32::midpoint(most, 1.0),
        };
        let integer = |x: &f32| ((x / stored).round_ties_even() + zero).clamp(0.0, most) as u8;
        self.integers.extend(numbers.iter().map(integer));
        self.zeros.push(zero as i32);
        self.scales.1.extend(scale.to_le_bytes());
        Ok(())
    }
}
