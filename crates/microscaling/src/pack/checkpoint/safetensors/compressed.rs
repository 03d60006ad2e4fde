//! Weights from floats by the rules of compressed-tensors 0.20: FP8 and integers.

use super::FileTensor;
use super::integers::{IntegerLayout, IntegerMatrix, RepackedTensor};
use super::scaled::ScaledWeight;
use crate::format::{BlockFormat, ElementFormat};
use crate::pack::Packed;
use crate::pack::codes::ElementCodes;
use crate::quantize::rules::{ScalePair, UnitElement};
use crate::round::bits::ONE;
use crate::round::mode::Even;
use alloc::{borrow::ToOwned, format, string::String, vec, vec::Vec};
use half::{bf16, f16};
use microscaling_processor::float_state::ieee;

/// The numbers of a weight \[out, in\] that shares scales, as a scheme of compressed-tensors has them.
///
/// # Rounding
/// By `calculate_qparams` and `quantize` of compressed-tensors 0.20.0, with the smallest and the largest number of each part. Each operation
/// is rounded to the type of the weight, which the scales have, too. A scale is the largest magnitude over half of the codes' range: 448 for
/// FP8, (2^bits − 1) / 2 for integers. A scale of 0 becomes the type's ε. With zero points, a scale is (largest − least) / (2^bits − 1), where 0
/// is one of the numbers, and the zero point −2^(bits − 1) − least / scale, rounded half to even. A code is x / scale, plus the
/// zero point, within the range and rounded half to even.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompressedNumbers {
    /// The numbers.
    pub element: CompressedElement,
    /// The rows and columns that share a scale; 0 for all of them.
    pub block: [usize; 2],
}

/// A number of [`CompressedNumbers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompressedElement {
    /// FP8 E4M3.
    Fp8,
    /// Integers of 2 to 8 bits.
    Integers {
        /// How many bits.
        bits: u32,
        /// Whether groups have zero points of their own.
        zero_points: bool,
        /// `int-quantized` or `pack-quantized`.
        layout: IntegerLayout,
    },
}

/// The type that operations are rounded to.
#[derive(Clone, Copy)]
enum Precision {
    F32,
    Bf16,
    F16,
}

impl Precision {
    fn of(dtype: &str) -> Option<Self> {
        match dtype {
            "F32" => Some(Self::F32),
            "BF16" => Some(Self::Bf16),
            "F16" => Some(Self::F16),
            _ => None,
        }
    }

    fn round(self, x: f32) -> f32 {
        match self {
            Self::F32 => x,
            Self::Bf16 => bf16::from_f32(x).to_f32(),
            Self::F16 => f16::from_f32(x).to_f32(),
        }
    }

    const fn epsilon(self) -> f32 {
        match self {
            Self::F32 => f32::EPSILON,
            Self::Bf16 => 0.007_812_5,
            Self::F16 => 0.000_976_562_5,
        }
    }

    fn bytes(self, x: f32) -> Vec<u8> {
        match self {
            Self::F32 => x.to_le_bytes().to_vec(),
            Self::Bf16 => bf16::from_f32(x).to_le_bytes().to_vec(),
            Self::F16 => f16::from_f32(x).to_le_bytes().to_vec(),
        }
    }
}

/// A scale and its zero point.
#[derive(Clone, Copy)]
struct ScaleAndZero {
    scale: f32,
    zero: f32,
}

impl CompressedElement {
    /// The least and the largest number of codes.
    fn range(self) -> [f32; 2] {
        match self {
            Self::Fp8 => [-448.0, 448.0],
            Self::Integers { bits, .. } => {
                let half = (1 << (bits - 1)) as f32;
                [-half, half - 1.0]
            }
        }
    }

    /// The scale and the zero point of numbers between these; `None` if the scale is not finite.
    fn parameters(self, least: f32, largest: f32, precision: Precision) -> Option<ScaleAndZero> {
        let round = |x| precision.round(x);
        let [low, high] = self.range();
        let has_zero = matches!(
            self,
            Self::Integers {
                zero_points: true,
                ..
            }
        );
        let scale = match has_zero {
            true => round(round(largest - least) / (high - low)),
            false => round(largest.max(-least) / ((high - low) / 2.0)),
        };
        // Zero over zero is NaN, and the integer of NaN 0.
        let zero = match has_zero && scale > 0.0 {
            true => round(low - round(least / scale)).clamp(low, high),
            false => 0.0,
        };
        let scale = if scale == 0.0 {
            precision.epsilon()
        } else {
            scale
        };
        let zero = zero.round_ties_even();
        scale.is_finite().then_some(ScaleAndZero { scale, zero })
    }

    /// The number of a code.
    fn number(self, x: f32, of: ScaleAndZero, precision: Precision) -> f32 {
        let [low, high] = self.range();
        let scaled = precision.round(x / of.scale);
        match self {
            Self::Fp8 => nearest(ElementFormat::FP8_E4M3, scaled),
            Self::Integers { .. } => precision
                .round(scaled + of.zero)
                .clamp(low, high)
                .round_ties_even(),
        }
    }
}

/// The nearest number of a format, the even one of two; the largest one of those beyond.
fn nearest(format: ElementFormat, x: f32) -> f32 {
    UnitElement::of(format).round::<Even>(ScalePair::of_power(ONE), x, 0)
}

/// A weight \[out, in\] in NVFP4 from numbers in bfloat16 or float16, in which compressed-tensors rounds 1 / A, then the divisor, and the largest magnitudes of
/// blocks over 6. `largest` is A, the largest magnitude of the tensor, or of the fused layers that the weight belongs to. The second result is the divisor of the scales.
///
/// # Errors
/// The reason: the shape, or a number that is NaN or Inf.
pub fn nvfp4_of_halves(
    data: &[f32],
    shape: &[usize],
    dtype: &str,
    largest: Option<f32>,
) -> Result<(Packed, f32), String> {
    let format = BlockFormat::nvfp4(true);
    let precision = Precision::of(dtype).ok_or_else(|| format!("the type is {dtype}"))?;
    if shape.last().is_none_or(|length| !length.is_multiple_of(16)) {
        return Err(format!(
            "the shape is {shape:?}; allowed: rows of a multiple of 16"
        ));
    }
    if let Some(x) = data.iter().find(|x| !x.is_finite()) {
        return Err(format!("a number is {x}; allowed: finite numbers"));
    }
    let of = |numbers: &[f32]| numbers.iter().fold(0.0, |a: f32, x| a.max(x.abs()));
    let codes = ElementCodes::of_element(ElementFormat::FP4_E2M1);
    let e4m3 = ElementCodes::of_element(ElementFormat::FP8_E4M3);
    let (mut scales, mut elements, mut divisor) = (Vec::new(), Vec::new(), 1.0);
    ieee(|| {
        let smallest = match precision {
            Precision::F16 => f16::MIN_POSITIVE.to_f32(),
            _ => f32::MIN_POSITIVE,
        };
        let largest = largest.unwrap_or_else(|| of(data)).max(smallest);
        divisor = precision.round(2688.0 * precision.round(1.0 / largest));
        if !divisor.is_finite() {
            divisor = 1.0;
        }
        for block in data.as_chunks::<16>().0 {
            let scale = nearest(
                ElementFormat::FP8_E4M3,
                divisor * precision.round(of(block) / 6.0),
            );
            let scale = if scale == 0.0 { 0.125 } else { scale };
            let unit = scale / divisor;
            scales.push(e4m3.code(scale.to_bits(), 0) as u8);
            let code = |x: &f32| {
                let number = nearest(ElementFormat::FP4_E2M1, x / unit);
                // −0 loses its sign.
                let number = if *x == 0.0 { 0.0 } else { number };
                codes.code(number.to_bits(), 0) as u8
            };
            let pairs = block.as_chunks::<2>().0.iter();
            elements.extend(pairs.map(|[low, high]| code(low) | code(high) << 4));
        }
    });
    let axis = shape.len() - 1;
    let packed = Packed::from_parts(format, shape, axis, Some(1.0 / divisor), scales, elements);
    Ok((packed.map_err(|error| format!("{error}"))?, divisor))
}

impl CompressedNumbers {
    /// The rows and columns of a block, in a weight of this name and shape.
    ///
    /// # Errors
    /// The reason why the weight cannot become such numbers: the field, its value and the allowed values.
    pub fn block(self, name: &str, shape: &[usize]) -> Result<[usize; 2], String> {
        let Ok([outputs, inputs]) = <[usize; 2]>::try_from(shape) else {
            return Err(format!("the shape is {shape:?}; allowed: [out, in]"));
        };
        let of = |length: usize, all: usize| if length == 0 { all } else { length };
        let block = [of(self.block[0], outputs), of(self.block[1], inputs)];
        if outputs == 0 || inputs == 0 {
            return Err(format!(
                "the shape is {shape:?}; allowed: lengths from 1 on"
            ));
        }
        if let CompressedElement::Integers { bits, layout, .. } = self.element {
            layout.check(name, bits, [outputs, inputs], block[1])?;
        }
        Ok(block)
    }

    /// The tensors that a weight of this name, shape and type becomes, and their values.
    ///
    /// # Errors
    /// The reason: see [`block`](Self::block); a number is NaN or Inf, or a scale is too large for the type.
    ///
    /// # Panics
    /// If the number of elements is not the shape's, or the type is not F32, BF16 or F16.
    pub fn encode(
        self,
        data: &[f32],
        name: &str,
        shape: &[usize],
        dtype: &str,
    ) -> Result<(Vec<RepackedTensor>, Vec<f32>), String> {
        let block = self.block(name, shape)?;
        let precision = Precision::of(dtype).expect("it is a type of floats");
        let [outputs, inputs] = [shape[0], shape[1]];
        assert_eq!(data.len(), outputs * inputs);
        if let Some(x) = data.iter().find(|x| !x.is_finite()) {
            return Err(format!("a number is {x}; allowed: finite numbers"));
        }
        let rounded = ieee(|| self.round(data, [outputs, inputs], block, precision));
        let (parameters, numbers) = rounded?;
        let scales = parameters.iter();
        let scales: Vec<u8> = scales.flat_map(|x| precision.bytes(x.scale)).collect();
        Ok(match self.element {
            CompressedElement::Fp8 => {
                let codes = ElementCodes::of_element(ElementFormat::FP8_E4M3);
                let codes = numbers.iter().map(|x| codes.code(x.to_bits(), 0) as u8);
                let counts = match self.block {
                    [0, 0] => vec![1],
                    _ => vec![outputs.div_ceil(block[0]), inputs.div_ceil(block[1])],
                };
                fp8(name, shape, block, codes.collect(), (dtype, counts, scales))
            }
            CompressedElement::Integers {
                bits,
                zero_points,
                layout,
            } => {
                let middle = 1 << (bits - 1);
                let matrix = IntegerMatrix {
                    bits,
                    shape: [outputs, inputs],
                    group: block[1],
                    order: None,
                    integers: numbers.iter().map(|x| (*x as i32 + middle) as u8).collect(),
                    zeros: parameters.iter().map(|x| x.zero as i32 + middle).collect(),
                    scales: (dtype.to_owned(), scales),
                };
                let values = matrix.values();
                let tensors = match layout {
                    IntegerLayout::Bytes => matrix.bytes(name, zero_points),
                    _ => matrix.pack_quantized(name, zero_points),
                };
                (tensors, values)
            }
        })
    }

    /// The scales of blocks, and the numbers of the codes.
    fn round(
        self,
        data: &[f32],
        [outputs, inputs]: [usize; 2],
        block: [usize; 2],
        precision: Precision,
    ) -> Result<(Vec<ScaleAndZero>, Vec<f32>), String> {
        let counts = [outputs.div_ceil(block[0]), inputs.div_ceil(block[1])];
        let mut parameters = Vec::with_capacity(counts[0] * counts[1]);
        let mut numbers = vec![0.0; data.len()];
        for place in 0..counts[0] * counts[1] {
            let first = [place / counts[1] * block[0], place % counts[1] * block[1]];
            let end = [0, 1].map(|i| (first[i] + block[i]).min([outputs, inputs][i]));
            let rows = || (first[0]..end[0]).map(|i| i * inputs + first[1]..i * inputs + end[1]);
            let of_block = || rows().flat_map(|row| data[row].iter().copied());
            // Zero is one of the numbers that the codes have.
            let (least, largest) = (
                of_block().fold(0.0, f32::min),
                of_block().fold(0.0, f32::max),
            );
            let found = self.element.parameters(least, largest, precision);
            let found = found.ok_or_else(|| {
                format!("numbers are from {least:e} to {largest:e}; allowed: a range of the weight's type")
            })?;
            for row in rows() {
                for (number, x) in numbers[row.clone()].iter_mut().zip(&data[row]) {
                    *number = self.element.number(*x, found, precision);
                }
            }
            parameters.push(found);
        }
        Ok((parameters, numbers))
    }
}

/// The tensors of a weight of FP8 codes with scales for blocks, and their values. The scales have a type, a shape and bytes.
fn fp8(
    name: &str,
    shape: &[usize],
    block: [usize; 2],
    codes: Vec<u8>,
    (dtype, counts, bytes): (&str, Vec<usize>, Vec<u8>),
) -> (Vec<RepackedTensor>, Vec<f32>) {
    let codes = RepackedTensor {
        name: name.to_owned(),
        dtype: "F8_E4M3".into(),
        shape: shape.into(),
        bytes: codes,
    };
    let scales = RepackedTensor {
        name: format!("{name}_scale"),
        dtype: dtype.to_owned(),
        shape: counts,
        bytes,
    };
    let weight = ScaledWeight {
        element: ElementFormat::FP8_E4M3,
        scales: scales.name.clone(),
        block: block.into(),
        is_block_known: true,
    };
    let values = weight.values(&view(&codes), &view(&scales));
    (vec![codes, scales], values)
}

fn view(tensor: &RepackedTensor) -> FileTensor<'_> {
    FileTensor {
        dtype: tensor.dtype.clone(),
        shape: tensor.shape.clone(),
        bytes: &tensor.bytes,
    }
}
