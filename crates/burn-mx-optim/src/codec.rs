//! Numbers to bytes and back.

mod coat;
mod elementwise;
pub(crate) mod integer;
mod logarithmic;
pub(crate) mod maps;
mod rank_one;
mod symmetric;

use microscaling::{PackError, Packed, PackedView, RandomStream, Rounder};
use serde::{Deserialize, Serialize};

use crate::StateFormat;
use integer::{IntegerScale, Integers};
use symmetric::Symmetric;

/// A tensor as scales and codes, in any [`StateFormat`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RecordedState", into = "RecordedState")]
pub struct PackedState {
    format: StateFormat,
    shape: Vec<usize>,
    tensor_scale: Option<f32>,
    scales: Vec<u8>,
    elements: Vec<u8>,
}

/// The bytes of a tensor in a format.
#[derive(Default)]
struct CodedTensor {
    tensor_scale: Option<f32>,
    scales: Vec<u8>,
    elements: Vec<u8>,
}

impl PackedState {
    /// Rounds numbers in row-major order, and packs them. The rounding applies to elements; scales, powers and bases are the same in
    /// every rounding mode. [`Rounder::TowardZero`] and [`Rounder::NearestAway`] are for elementwise and block formats.
    ///
    /// A NaN or Inf makes its block NaN, or its rows and columns in `linear4`. In elementwise formats and block floating point NaN and Inf are
    /// numbers of their own.
    ///
    /// # Errors
    /// The errors of [`Packed::encode`]: a NaN or Inf in block floating point, MS-EDEN with stochastic rounding.
    ///
    /// # Panics
    /// If the data are not as many numbers as the shape has.
    pub fn encode(
        format: StateFormat,
        data: &[f32],
        shape: &[usize],
        rounder: Rounder,
    ) -> Result<Self, PackError> {
        let count: usize = shape.iter().product();
        assert_eq!(data.len(), count, "a tensor of shape {shape:?}");
        let bytes = match format {
            StateFormat::Elementwise(float) => elementwise::encode(float, data, rounder),
            StateFormat::Block(_) | StateFormat::Map { .. } => {
                let block = format.as_block().expect("a block format");
                let (shape, axis) = layout(format, shape);
                let parts = Packed::encode(block, data, &shape, axis, rounder)?.into_parts();
                CodedTensor {
                    tensor_scale: parts.tensor_scale,
                    scales: parts.scales,
                    elements: parts.elements,
                }
            }
            StateFormat::RankOne { block_size } => {
                rank_one::encode(data, &matrix(shape), block_size, rounder)
            }
            StateFormat::Coat { block_size } => coat::encode(format, data, block_size, rounder)?,
            StateFormat::Logarithmic { block_size } => {
                logarithmic::encode(data, block_size, rounder)
            }
            StateFormat::Integer {
                bits,
                scale,
                block_size,
            } => integers(bits, scale, block_size).encode(data, rounder),
            StateFormat::Symmetric {
                bits,
                is_companded,
                block_size,
            } => symmetric(bits, is_companded, block_size).encode(data, rounder),
        };
        Ok(Self {
            format,
            shape: shape.to_vec(),
            tensor_scale: bytes.tensor_scale,
            scales: bytes.scales,
            elements: bytes.elements,
        })
    }

    /// The numbers, in row-major order.
    pub fn decode(&self) -> Vec<f32> {
        let count = self.shape.iter().product();
        match self.format {
            StateFormat::Elementwise(float) => elementwise::decode(float, &self.elements),
            StateFormat::Block(_) | StateFormat::Map { .. } => {
                let (shape, axis) = layout(self.format, &self.shape);
                self.view(&shape, axis)
                    .expect("the bytes were checked")
                    .decode()
            }
            StateFormat::RankOne { block_size } => rank_one::decode(
                &self.scales,
                &self.elements,
                &matrix(&self.shape),
                block_size,
            ),
            StateFormat::Coat { block_size } => {
                coat::decode(self.format, &self.scales, &self.elements, count, block_size)
            }
            StateFormat::Logarithmic { block_size } => {
                logarithmic::decode(&self.scales, &self.elements, count, block_size)
            }
            StateFormat::Integer {
                bits,
                scale,
                block_size,
            } => integers(bits, scale, block_size).decode(&self.scales, &self.elements, count),
            StateFormat::Symmetric {
                bits,
                is_companded,
                block_size,
            } => symmetric(bits, is_companded, block_size).decode(
                &self.scales,
                &self.elements,
                count,
            ),
        }
    }

    fn view<'a>(&'a self, shape: &'a [usize], axis: usize) -> Result<PackedView<'a>, PackError> {
        let block = self.format.as_block().expect("a block format");
        let (scales, elements) = (&self.scales, &self.elements);
        PackedView::new(block, shape, axis, self.tensor_scale, scales, elements)
    }

    /// The format.
    pub fn format(&self) -> StateFormat {
        self.format
    }

    /// The lengths of the tensor's axes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// CodedTensor of the scales and codes.
    pub fn bytes(&self) -> usize {
        let of_tensor = self.tensor_scale.map_or(0, |_| size_of::<f32>());
        self.scales.len() + self.elements.len() + of_tensor
    }
}

fn integers(bits: u32, scale: IntegerScale, block_size: usize) -> Integers {
    Integers {
        bits,
        scale,
        block_size,
    }
}

fn symmetric(bits: u32, is_companded: bool, block_size: usize) -> Symmetric {
    Symmetric {
        bits,
        is_companded,
        block_size,
    }
}

/// As a matrix: rows and columns.
fn matrix(shape: &[usize]) -> [usize; 2] {
    match shape {
        [] => [1, 1],
        [rows @ .., columns] => [rows.iter().product(), *columns],
    }
}

/// The shape in which a block format packs a tensor, and the axis of blocks.
fn layout(format: StateFormat, shape: &[usize]) -> ([usize; 2], usize) {
    let is_square = matches!(format, StateFormat::Block(block) if block.square);
    match is_square {
        true => (matrix(shape), 1),
        false => ([1, shape.iter().product()], 1),
    }
}

/// Whether the rounding is stochastic, and its random numbers as fractions.
fn fractions(rounder: Rounder) -> Option<impl Fn(usize) -> f64> {
    match rounder {
        Rounder::Stochastic(stream) => Some(move |index| fraction(stream, index)),
        _ => None,
    }
}

/// Rounds the number at a position to an integer, to even or stochastically.
fn to_integer(rounder: Rounder) -> impl Fn(usize, f64) -> f64 {
    let draws = fractions(rounder);
    move |index, x| match &draws {
        Some(draw) => (x + draw(index)).floor(),
        None => x.round_ties_even(),
    }
}

fn fraction(stream: RandomStream, index: usize) -> f64 {
    f64::from(stream.draw(index as u64)) / 2f64.powi(32)
}

fn put(bytes: &mut Vec<u8>, number: f32) {
    bytes.extend(number.to_le_bytes());
}

/// The float32 number at a position among float32 numbers.
fn get(bytes: &[u8], index: usize) -> f32 {
    let start = 4 * index;
    f32::from_le_bytes(bytes[start..start + 4].try_into().expect("four bytes"))
}

/// The largest magnitude; NaN if one of the numbers is not finite.
fn largest(numbers: impl Iterator<Item = f32>) -> f32 {
    numbers.fold(0.0, |largest: f32, x| match x.is_finite() {
        true if largest.is_nan() => largest,
        true => largest.max(x.abs()),
        false => f32::NAN,
    })
}

/// As a record has the tensor.
#[derive(Clone, Serialize, Deserialize)]
struct RecordedState {
    format: String,
    shape: Vec<usize>,
    tensor_scale: Option<f32>,
    scales: Vec<u8>,
    elements: Vec<u8>,
}

impl From<PackedState> for RecordedState {
    fn from(state: PackedState) -> Self {
        Self {
            format: state.format.to_string(),
            shape: state.shape,
            tensor_scale: state.tensor_scale,
            scales: state.scales,
            elements: state.elements,
        }
    }
}

impl TryFrom<RecordedState> for PackedState {
    type Error = String;

    fn try_from(parts: RecordedState) -> Result<Self, String> {
        let wrong = |allowed| format!("`format` is {}; allowed: {allowed}", parts.format);
        let state = Self {
            format: parts.format.parse().map_err(wrong)?,
            shape: parts.shape,
            tensor_scale: parts.tensor_scale,
            scales: parts.scales,
            elements: parts.elements,
        };
        let product = |count: usize, length: &usize| count.checked_mul(*length);
        let count = state.shape.iter().try_fold(1, product);
        let count = count.ok_or_else(|| format!("a shape of {:?} overflows", state.shape))?;
        let expected = match state.format {
            StateFormat::Block(_) | StateFormat::Map { .. } => {
                let (shape, axis) = layout(state.format, &state.shape);
                let view = state.view(&shape, axis);
                return match view.map(|_| ()) {
                    Ok(()) => Ok(state),
                    Err(error) => Err(error.to_string()),
                };
            }
            StateFormat::Elementwise(float) => [0, count.saturating_mul(elementwise::width(float))],
            StateFormat::RankOne { block_size } => {
                let scales = rank_one::scales(&matrix(&state.shape), block_size);
                [scales.saturating_mul(4), count.div_ceil(2)]
            }
            StateFormat::Coat { block_size } => {
                [count.div_ceil(block_size).saturating_mul(12), count]
            }
            StateFormat::Logarithmic { block_size } => {
                let scales = count.div_ceil(block_size).saturating_mul(8);
                [scales, count.div_ceil(4)]
            }
            StateFormat::Integer {
                bits,
                scale,
                block_size,
            } => integers(bits, scale, block_size).bytes(count),
            StateFormat::Symmetric {
                bits,
                is_companded,
                block_size,
            } => symmetric(bits, is_companded, block_size).bytes(count),
        };
        let got = [state.scales.len(), state.elements.len()];
        if got != expected || state.tensor_scale.is_some() {
            return Err(format!(
                "scales and elements of a {} of shape {:?} are {expected:?} bytes and no tensor scale, got {got:?} bytes",
                state.format, state.shape
            ));
        }
        Ok(state)
    }
}
