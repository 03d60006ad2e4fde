//! The integers of a weight apart from the layouts, and their tensors in each layout.

use super::super::FileTensor;
use super::super::scaled::{floats, scale_bytes};
use super::{Codes, IntegerLayout, IntegerWeight, integers};
use alloc::{format, string::String, vec, vec::Vec};
use microscaling_processor::float_state::ieee;

/// A weight \[out, in\] of integers from 0 on: (integer − zero point) · scale. A row's inputs are in groups, which have a zero point and
/// a scale each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntegerMatrix {
    pub(in super::super) bits: u32,
    pub(in super::super) shape: [usize; 2],
    /// How many inputs a group has.
    pub(in super::super) group: usize,
    /// The group of each input, if the groups do not follow one another.
    pub(in super::super) order: Option<Vec<usize>>,
    /// \[out, in\].
    pub(in super::super) integers: Vec<u8>,
    /// \[out, groups\].
    pub(in super::super) zeros: Vec<i32>,
    /// The type of the scales, by safetensors' name, and their bytes, \[out, groups\].
    pub(in super::super) scales: (String, Vec<u8>),
}

impl IntegerWeight {
    /// The weight's integers. `tensor` looks up the [parts](Self::parts); `None` if one is missing.
    pub fn matrix<'a>(
        &self,
        tensor: impl Fn(&str) -> Option<FileTensor<'a>>,
    ) -> Option<IntegerMatrix> {
        let mut matrix = self.without_integers(&tensor)?;
        let codes = self.codes(&tensor)?;
        let [outputs, inputs] = self.shape;
        let middle = self.middle();
        // The other length of an empty weight may be any number.
        if !self.shape.contains(&0) {
            matrix.integers.reserve_exact(outputs * inputs);
            for output in 0..outputs {
                let of_row = (0..inputs).map(|input| codes.integer(output, input) + middle);
                matrix.integers.extend(of_row.map(|integer| integer as u8));
            }
        }
        Some(matrix)
    }

    /// The number of integers below 0, which layouts with signs have.
    fn middle(&self) -> i32 {
        match self.layout {
            IntegerLayout::Bytes | IntegerLayout::PackQuantized => 1 << (self.bits - 1),
            _ => 0,
        }
    }

    fn codes<'a>(&self, tensor: impl Fn(&str) -> Option<FileTensor<'a>>) -> Option<Codes<'a>> {
        Some(Codes {
            layout: self.layout,
            bits: self.bits as usize,
            bytes: tensor(&self.codes)?.bytes,
            shape: self.shape,
        })
    }

    /// All but the integers, which are many.
    fn without_integers<'a>(
        &self,
        tensor: impl Fn(&str) -> Option<FileTensor<'a>>,
    ) -> Option<IntegerMatrix> {
        let ([outputs, inputs], group) = (self.shape, self.block[1]);
        let counts = [outputs.div_ceil(self.block[0]), inputs.div_ceil(group)];
        let stored = tensor(&self.scales)?;
        let mut matrix = IntegerMatrix {
            bits: self.bits,
            shape: self.shape,
            group,
            order: None,
            integers: Vec::new(),
            zeros: Vec::new(),
            scales: (stored.dtype.clone(), Vec::new()),
        };
        if self.shape.contains(&0) {
            return Some(matrix);
        }
        if let Some(groups) = &self.groups {
            let groups = integers(&tensor(groups)?)?;
            let in_order = groups.iter().enumerate().all(|(i, of)| *of == i / group);
            matrix.order = (!in_order).then_some(groups);
        }
        let codes = self.codes(&tensor)?;
        let zeros = match &self.zero_points {
            Some(zeros) => Some(tensor(zeros)?),
            None => None,
        };
        let middle = self.middle();
        let width = scale_bytes(&stored.dtype)?;
        for i in 0..outputs * counts[1] {
            let (output, group) = (i / counts[1], i % counts[1]);
            let row = output / self.block[0];
            let zero = zeros.as_ref().map_or(0, |zeros| {
                codes.zero_point(zeros.bytes, [row, group], counts)
            });
            matrix.zeros.push(zero + middle);
            let place = match self.layout.is_of_layer() {
                true => group * outputs + output,
                false => row * counts[1] + group,
            };
            let scale = &stored.bytes[place * width..][..width];
            matrix.scales.1.extend(scale);
        }
        Some(matrix)
    }

    /// That a layout can hold the weight. The result is whether all zero points are the middle of the integers, and whether the groups of inputs
    /// are permuted.
    ///
    /// # Errors
    /// The reason why the layout cannot hold the weight: its field, the value and the allowed values. `tensor` looks up the
    /// [parts](Self::parts).
    pub fn fits<'a>(
        &self,
        layout: IntegerLayout,
        name: &str,
        tensor: impl Fn(&str) -> Option<FileTensor<'a>>,
    ) -> Result<(bool, bool), String> {
        let matrix = self.without_integers(tensor).ok_or("a part is missing")?;
        // The same bytes stay.
        if layout != self.layout {
            matrix.check(layout, name)?;
        }
        Ok((matrix.is_symmetric(), matrix.order.is_some()))
    }
}

impl IntegerMatrix {
    /// Whether every zero point is the middle of the integers, 2^(bits − 1).
    pub fn is_symmetric(&self) -> bool {
        self.zeros.iter().all(|zero| *zero == 1 << (self.bits - 1))
    }

    /// The values in row-major order, \[out, in\]: (integer − zero point) · scale, rounded to float32.
    pub fn values(&self) -> Vec<f32> {
        let [outputs, inputs] = self.shape;
        if outputs == 0 || inputs == 0 {
            return Vec::new();
        }
        let count = self.zeros.len() / outputs;
        let scales = floats(&FileTensor {
            dtype: self.scales.0.clone(),
            shape: vec![outputs, count],
            bytes: &self.scales.1,
        });
        let mut values = vec![0.0; outputs * inputs];
        let rows = self.integers.chunks_exact(inputs);
        for (output, (row, values)) in rows.zip(values.chunks_exact_mut(inputs)).enumerate() {
            ieee(|| {
                for (input, (integer, value)) in row.iter().zip(values).enumerate() {
                    let group = match &self.order {
                        Some(order) => order[input],
                        None => input / self.group,
                    };
                    let place = output * count + group;
                    *value = (i32::from(*integer) - self.zeros[place]) as f32 * scales[place];
                }
            });
        }
        values
    }

    /// That a layout can hold the weight.
    ///
    /// # Errors
    /// The reason why not: the field, its value and the allowed values.
    pub fn check(&self, layout: IntegerLayout, name: &str) -> Result<(), String> {
        layout.check(name, self.bits, self.shape, self.group)?;
        let is_gptq = matches!(layout, IntegerLayout::Gptq | IntegerLayout::GptqV2);
        if self.order.is_some() && !is_gptq {
            let allowed = "groups that follow one another";
            return refuse("its groups of inputs are permuted".into(), allowed.into());
        }
        let least = layout.least_zero();
        let most = (1 << self.bits) - 1;
        let other = self
            .zeros
            .iter()
            .find(|zero| !(least..=most).contains(*zero));
        other.map_or(Ok(()), |zero| {
            refuse(
                format!("a zero point is {zero}"),
                format!("{least} to {most}"),
            )
        })
    }
}

impl IntegerLayout {
    /// That the layout can hold such a weight; AutoGPTQ and GPTQModel pack 32 outputs and 32 inputs at a time, and AutoAWQ 8 outputs.
    pub(in super::super) fn check(
        self,
        name: &str,
        bits: u32,
        [outputs, inputs]: [usize; 2],
        group: usize,
    ) -> Result<(), String> {
        let (allowed, words): (&[u32], [usize; 2]) = match self {
            Self::Bytes | Self::PackQuantized => (&[1, 2, 3, 4, 5, 6, 7, 8], [1, 1]),
            Self::Awq => (&[4], [8, 1]),
            Self::Gptq | Self::GptqV2 => (&[2, 3, 4, 8], [32, 32]),
        };
        if self.is_of_layer() && name.strip_suffix(".weight").is_none_or(str::is_empty) {
            return refuse(format!("the name is `{name}`"), "`LAYER.weight`".into());
        }
        if outputs == 0 || inputs == 0 {
            let shape = format!("the shape is {:?}", [outputs, inputs]);
            return refuse(shape, "lengths from 1 on".into());
        }
        if !allowed.contains(&bits) {
            let allowed: Vec<String> = allowed.iter().map(|bits| format!("{bits}")).collect();
            return refuse(format!("its integers have {bits} bits"), allowed.join(", "));
        }
        for (what, length, word) in [("outputs", outputs, words[0]), ("inputs", inputs, words[1])] {
            if !length.is_multiple_of(word) {
                return refuse(
                    format!("it has {length} {what}"),
                    format!("a multiple of {word}"),
                );
            }
        }
        // The number of words tells the number of bits.
        if self == Self::PackQuantized && inputs < 32 {
            return refuse(format!("it has {inputs} inputs"), "32 or more".into());
        }
        match inputs.is_multiple_of(group) {
            true => Ok(()),
            false => refuse(
                format!("its groups have {group} inputs"),
                format!("a divisor of its {inputs} inputs"),
            ),
        }
    }
}

fn refuse(what: String, allowed: String) -> Result<(), String> {
    Err(format!("{what}; allowed: {allowed}"))
}
