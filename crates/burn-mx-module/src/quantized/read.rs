//! The data of Burn's quantized tensors as packed bytes.

use burn_backend::DType;
use burn_backend::quantization::{QuantLevel, QuantParam, QuantScheme, QuantStore, QuantValue};
use burn_core::tensor::TensorData;
use microscaling::{BlockFormat, ElementFormat, Packed, ScaleFormat};

use super::{ELEMENTS, QuantizedError, check, is_float, step};

/// The packed tensor with the values of Burn's quantized data: `Tensor::into_data` of a quantized tensor, or a tensor of a record or of
/// burn-store. [`Packed::decode`] gives Burn's float32 values, bit for bit but for the sign of zero.
///
/// The table of [`quantized_data`](super::quantized_data) holds in this direction, too. Integers get scales in float32, 2^(bits − 2) times Burn's, because the
/// integers here count steps of 2^(2 − bits). One scale for the tensor becomes one for each row: `block_size=0`. The format is the
/// result's [`Packed::format`], and `to_string` gives the text for specs.
///
/// # Errors
///
/// * [`QuantizedError::Data`]: the data are not quantized, or have blocks of several axes, codes in a way that Burn does not make,
///   or another number of bytes.
/// * [`QuantizedError::Blocks`]: the last axis is not a whole number of blocks.
/// * [`QuantizedError::Value`]: a scale of integers is too large: 2^(bits − 2) times the scale is beyond float32.
pub fn packed_of_data(data: &TensorData) -> Result<Packed, QuantizedError> {
    let DType::QFloat(scheme) = data.dtype else {
        return Err(wrong("dtype", data.dtype, "QFloat, of a quantized tensor"));
    };
    let shape: Vec<usize> = data.shape.iter().copied().collect();
    let length = match shape.last() {
        Some(length) if !shape.contains(&0) => *length,
        _ => return Err(QuantizedError::Empty),
    };
    let count: usize = shape.iter().product();
    let block = block(&scheme, shape.len(), length)?;
    let in_block = block.unwrap_or(count);
    let (codes, rest) = codes(&scheme, &data.bytes, count, length)?;
    let scales = scales(scheme.param, rest, count / in_block)?;

    let element = ELEMENTS.iter().find(|(value, _)| *value == scheme.value);
    let element = element.map_or(ElementFormat::INT8, |(_, element)| *element);
    let format = format(&scheme, rest.len() == scales.len(), element, block);
    // A scale for the tensor is there once for each row.
    let rows = block.map_or(count / length, |_| 1);
    let stored = match format.scale == ScaleFormat::FLOAT32 {
        false => rest.repeat(rows),
        true => {
            let scales = scales.iter().map(|scale| scale / step(scheme.value));
            let bytes: Vec<u8> = scales.flat_map(f32::to_le_bytes).collect();
            bytes.repeat(rows)
        }
    };
    let elements = pack(&codes, scheme.value.size_bits());
    let packed = Packed::from_parts(format, &shape, shape.len() - 1, None, stored, elements)
        .map_err(|error| wrong("the data", error, "the bytes of Burn's scheme"))?;
    let numbers = codes.iter().enumerate().map(|(at, code)| {
        let number = element.decode(u32::from(*code)) / step(scheme.value);
        scales[at / in_block] * number
    });
    check(&packed, numbers)?;
    Ok(packed)
}

fn wrong(
    field: &'static str,
    got: impl std::fmt::Debug,
    allowed: impl Into<String>,
) -> QuantizedError {
    QuantizedError::Data {
        field,
        got: format!("{got:?}"),
        allowed: allowed.into(),
    }
}

/// Elements of a block along the last axis; `None` for the tensor.
fn block(
    scheme: &QuantScheme,
    axes: usize,
    length: usize,
) -> Result<Option<usize>, QuantizedError> {
    let QuantLevel::Block(sizes) = scheme.level else {
        return Ok(None);
    };
    let (last, others) = match sizes.as_slice() {
        [others @ .., last] if others.len() < axes => (usize::from(*last), others),
        _ => (0, [].as_slice()),
    };
    if last == 0 || others.iter().any(|size| *size != 1) {
        let allowed =
            "a block along the last axis. Burn's backends read other blocks in different ways";
        return Err(wrong("level", scheme.level, allowed));
    }
    match length.is_multiple_of(last) {
        true => Ok(Some(last)),
        false => Err(QuantizedError::Blocks {
            block: last,
            length,
        }),
    }
}

/// The codes of the elements, and the bytes of the scales.
fn codes<'a>(
    scheme: &QuantScheme,
    bytes: &'a [u8],
    count: usize,
    length: usize,
) -> Result<(Vec<u8>, &'a [u8]), QuantizedError> {
    let value = scheme.value;
    let bits = value.size_bits();
    let mask = u8::MAX >> (8 - bits);
    let (used, is_native) = match scheme.store {
        QuantStore::Native if value != QuantValue::E2M1 => (count, true),
        QuantStore::PackedNative(0) if value == QuantValue::E2M1 && length.is_multiple_of(2) => {
            (count / 2, false)
        }
        QuantStore::PackedU32(0) if !is_float(value) => (count.div_ceil(32 / bits) * 4, false),
        store => {
            let allowed =
                "Native, PackedU32(0) of integers, PackedNative(0) of an even number of E2M1";
            return Err(wrong("store", store, allowed));
        }
    };
    let Some((stored, rest)) = bytes.split_at_checked(used) else {
        let allowed = format!("at least {used} bytes, of {count} elements");
        return Err(wrong("the data's length", bytes.len(), allowed));
    };
    if is_native {
        let shift = 8 - bits;
        let is_in = |byte: &&u8| (((**byte << shift) as i8) >> shift) as u8 == **byte;
        if let Some(byte) = stored.iter().find(|byte| !is_in(byte)) {
            let allowed = format!("integers of {bits} bits");
            return Err(wrong("an element", *byte as i8, allowed));
        }
        return Ok((stored.iter().map(|byte| byte & mask).collect(), rest));
    }
    let codes = stored
        .iter()
        .flat_map(|byte| (0..8).step_by(bits).map(move |at| (byte >> at) & mask));
    Ok((codes.take(count).collect(), rest))
}

/// The scales in float32. Processor backends write float32 scales under every `QuantParam`, which the number of bytes tells.
fn scales(param: QuantParam, bytes: &[u8], count: usize) -> Result<Vec<f32>, QuantizedError> {
    if bytes.len() == 4 * count {
        let words = bytes.as_chunks().0.iter();
        return Ok(words.map(|word| f32::from_le_bytes(*word)).collect());
    }
    let size = match param {
        QuantParam::F32 => 4,
        QuantParam::F16 | QuantParam::BF16 => 2,
        QuantParam::UE8M0 | QuantParam::UE4M3 => 1,
    };
    if bytes.len() != size * count {
        let allowed = format!("{count} scales of {size} or 4 bytes");
        return Err(wrong("the scales' length", bytes.len(), allowed));
    }
    let number = |code: u32| match param {
        QuantParam::F16 => ElementFormat::FLOAT16.decode(code),
        QuantParam::BF16 | QuantParam::F32 => ElementFormat::BFLOAT16.decode(code),
        QuantParam::UE8M0 if code == 255 => f32::NAN,
        QuantParam::UE8M0 => 2_f64.powi(code as i32 - 127) as f32,
        QuantParam::UE4M3 => ElementFormat::FP8_E4M3.decode(code),
    };
    let codes = bytes.chunks_exact(size);
    let codes = codes.map(|code| {
        code.iter()
            .rev()
            .fold(0, |all, byte| all << 8 | u32::from(*byte))
    });
    Ok(codes.map(number).collect())
}

/// The format of the packed tensor. `is_byte`: Burn's scales take a byte.
fn format(
    scheme: &QuantScheme,
    is_byte: bool,
    element: ElementFormat,
    block: Option<usize>,
) -> BlockFormat {
    let size = block.unwrap_or(0);
    match scheme.param {
        QuantParam::UE8M0 if is_byte && is_float(scheme.value) => BlockFormat::mx(element, size),
        QuantParam::UE4M3 if is_byte && is_float(scheme.value) => {
            BlockFormat::float_scale(element, ScaleFormat::UE4M3, size)
        }
        _ => BlockFormat::float_scale(element, ScaleFormat::FLOAT32, size),
    }
}

/// Codes without gaps, low bits first.
fn pack(codes: &[u8], bits: usize) -> Vec<u8> {
    let bytes = codes.chunks(8 / bits).map(|codes| {
        let codes = codes.iter().rev();
        codes.fold(0, |byte, code| (u32::from(byte) << bits) as u8 | code)
    });
    bytes.collect()
}
