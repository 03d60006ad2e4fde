//! Packed bytes as the data of Burn's quantized tensors.

use std::collections::HashMap;

use burn_backend::quantization::{QuantLevel, QuantParam, QuantScheme, QuantStore, QuantValue};
use burn_backend::{Bytes, DType};
use burn_core::tensor::TensorData;
use microscaling::{BlockFormat, Packed, ScaleFormat};

use super::{ELEMENTS, QuantizedError, check, is_float, step};

/// The data of Burn's quantized tensor with the values of a packed tensor, for `Tensor::from_data`, a record or burn-store. The shape stays, such
/// as `[out, in]` of a [`PackedLinear`](crate::PackedLinear)'s weight. Burn dequantizes to the values of [`Packed::decode`], bit for bit but for the sign of zero: integers have
/// no −0.
///
/// | packed | Burn's scheme |
/// | --- | --- |
/// | `int8`, `int4`, `int2` | `Q8S`, `Q4S`, `Q2S`; with an element at the lower end (−128, −8, −2) `Q8F`, `Q4F`, `Q2F`. Scales are `F32`, packed in words where a row is whole words |
/// | `fp8_e4m3`, `fp8_e5m2` | `E4M3`, `E5M2`, native |
/// | `fp4_e2m1` | `E2M1`, pairs |
/// | floats with scales E8M0 or UE4M3 | `UE8M0`, `UE4M3`, the same bytes |
/// | floats with other scales, or with a tensor scale | `F32`: the block's scale times the tensor scale, rounded once, as decoding rounds |
/// | the whole axis is a block, and all scales are equal | `QuantLevel::Tensor` |
/// | blocks of up to 255 elements | `QuantLevel::Block` along the last axis |
/// | longer blocks, square blocks | `QuantLevel::Block` along the last axis, of a divisor of 16 to 255; scales are repeated |
///
/// # Errors
///
/// Before a tensor is made:
/// * [`QuantizedError::Element`], [`QuantizedError::Scales`]: Burn's scheme does not have the format.
/// * [`QuantizedError::Axis`], [`QuantizedError::Blocks`], [`QuantizedError::Pairs`], [`QuantizedError::Empty`]: nor the shape.
/// * [`QuantizedError::Value`]: Burn's product of an element and its scale is another number, as where a scale times a step is below float32's
///   range, or in a NaN block of `bfp16ebs8`.
pub fn quantized_data(packed: &Packed) -> Result<TensorData, QuantizedError> {
    let format = packed.format();
    let other_scales = || QuantizedError::Scales {
        format: format.to_string(),
    };
    if !format.is_element_times_scale() {
        return Err(other_scales());
    }
    let known = ELEMENTS.iter().find(|(_, own)| *own == format.element);
    let Some((mut value, _)) = known.copied() else {
        return Err(QuantizedError::Element {
            element: format.element.to_string(),
        });
    };
    let (shape, axis) = (packed.shape(), packed.axis());
    let axes = shape.len();
    let length = shape[axes - 1];
    if shape.contains(&0) {
        return Err(QuantizedError::Empty);
    }
    let is_along_last = axis + 1 == axes || format.square && axis + 2 == axes;
    if !is_along_last {
        return Err(QuantizedError::Axis { axis, axes });
    }
    if value == QuantValue::E2M1 && length % 2 == 1 {
        return Err(QuantizedError::Pairs { length });
    }
    let [_, own] = packed
        .elements_and_scales(axes - 1)
        .ok_or_else(other_scales)?;
    let block = match format.block_size {
        0 => length,
        size => size.min(length),
    };
    let (scales, level) = level(own, block, length)?;

    let codes = packed.view().codes();
    let lowest = 1_u32 << (value.size_bits() - 1);
    if !is_float(value) && codes.contains(&lowest) {
        value = match value {
            QuantValue::Q8S => QuantValue::Q8F,
            QuantValue::Q4S => QuantValue::Q4F,
            _ => QuantValue::Q2F,
        };
    }
    let param = param(&format, value);
    let store = match value {
        QuantValue::E2M1 => QuantStore::PackedNative(0),
        _ if !is_float(value) && length.is_multiple_of(32 / value.size_bits()) => {
            QuantStore::PackedU32(0)
        }
        _ => QuantStore::Native,
    };
    let scheme = QuantScheme::default()
        .with_value(value)
        .with_param(param)
        .with_store(store)
        .with_level(level);

    let factor = Factor::of(packed, step(value));
    let in_block = codes.len() / scales.len();
    let numbers = codes.iter().enumerate().map(|(at, code)| {
        let number = format.element.decode(*code) / step(value);
        factor.of_burn(scales[at / in_block]) * number
    });
    check(packed, numbers)?;

    let mut bytes = element_bytes(packed, &codes, value, store);
    match param {
        QuantParam::F32 => {
            let scales = scales.iter().map(|scale| factor.of_burn(*scale));
            bytes.extend(scales.flat_map(f32::to_le_bytes));
        }
        _ => {
            let numbers = format.scale_values().ok_or_else(other_scales)?;
            bytes.extend(scale_codes(&numbers, &scales));
        }
    }
    Ok(TensorData::from_bytes(
        Bytes::from_bytes_vec(bytes),
        shape.to_vec(),
        DType::QFloat(scheme),
    ))
}

/// The codes of elements as Burn stores them.
fn element_bytes(packed: &Packed, codes: &[u32], value: QuantValue, store: QuantStore) -> Vec<u8> {
    if store != QuantStore::Native {
        // The same codes without gaps, low bits first.
        return packed.elements().to_vec();
    }
    let shift = 8 - value.size_bits();
    let bytes = codes.iter().map(|code| {
        // An integer extends its sign.
        ((((*code as u8) << shift) as i8) >> shift) as u8
    });
    bytes.collect()
}

/// The codes of scales, of which `numbers` has all.
fn scale_codes(numbers: &[f32], scales: &[f32]) -> Vec<u8> {
    let codes = numbers.iter().zip(0..=u8::MAX).rev();
    let codes: HashMap<u32, u8> = codes.map(|(x, code)| (x.to_bits(), code)).collect();
    scales.iter().map(|scale| codes[&scale.to_bits()]).collect()
}

/// The scales of Burn's level, and the level, from the scales of blocks along the last axis.
fn level(
    scales: Vec<f32>,
    block: usize,
    length: usize,
) -> Result<(Vec<f32>, QuantLevel), QuantizedError> {
    let is_one = scales
        .iter()
        .all(|scale| scale.to_bits() == scales[0].to_bits());
    if block == length && is_one {
        return Ok((vec![scales[0]], QuantLevel::Tensor));
    }
    let parts = match block {
        ..=255 => Some(block),
        _ => (16..=255).rev().find(|part| block.is_multiple_of(*part)),
    };
    let part = parts.filter(|_| length.is_multiple_of(block));
    let part = part.and_then(|part| Some((part, u8::try_from(part).ok()?)));
    let Some((part, size)) = part else {
        return Err(QuantizedError::Blocks { block, length });
    };
    let times = block / part;
    let scales = scales
        .into_iter()
        .flat_map(|scale| std::iter::repeat_n(scale, times));
    Ok((scales.collect(), QuantLevel::block([size])))
}

fn param(format: &BlockFormat, value: QuantValue) -> QuantParam {
    match format.scale {
        _ if !is_float(value) || format.tensor_scale => QuantParam::F32,
        ScaleFormat::E8M0 => QuantParam::UE8M0,
        ScaleFormat::UE4M3 => QuantParam::UE4M3,
        _ => QuantParam::F32,
    }
}

/// The factors between a block's scale and Burn's scale.
struct Factor {
    tensor_scale: Option<f32>,
    divisor: Option<f32>,
    step: f32,
}

impl Factor {
    fn of(packed: &Packed, step: f32) -> Self {
        Self {
            tensor_scale: packed.tensor_scale(),
            divisor: packed.divisor(),
            step,
        }
    }

    fn of_burn(&self, scale: f32) -> f32 {
        let scale = match (self.divisor, self.tensor_scale) {
            (Some(divisor), _) => scale / divisor,
            (None, Some(tensor_scale)) => tensor_scale * scale,
            (None, None) => scale,
        };
        scale * self.step
    }
}
