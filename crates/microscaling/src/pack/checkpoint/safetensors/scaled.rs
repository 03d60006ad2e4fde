//! FP8 weights with scales of higher precision, as engines and tools for FP8 write them.

use super::FileTensor;
use crate::format::ElementFormat;
use crate::round::bits::pow2;
use alloc::{format, string::String, vec, vec::Vec};
use microscaling_processor::float_state::ieee;

/// A weight of FP8 codes, times scales: one for the tensor, one for each row, or one for each block of rows and columns. The
/// codes have the weight's name and shape. `quant_method: fp8`, `float-quantized` of compressed-tensors and `FP8` of NVIDIA Model
/// Optimizer are such weights.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScaledWeight {
    /// The format of the codes.
    pub element: ElementFormat,
    /// The name of the tensor of scales: `NAME_scale` or `NAME_scale_inv`. The scales are factors in either case.
    pub scales: String,
    /// The lengths of a block along the weight's axes. The last block of an axis may be shorter.
    pub block: Vec<usize>,
    /// Whether the shapes tell the lengths: one length alone gives as many blocks, or 128, the usual one, does. Otherwise the
    /// checkpoint's config has to tell them, see [`set_block`](super::PackedFiles::set_block).
    pub is_block_known: bool,
}

/// The ends of the names of scales.
const SCALES: [&str; 2] = ["_scale", "_scale_inv"];

impl ScaledWeight {
    /// The weight whose codes are this tensor; `None` of a tensor without scales that fit it.
    pub(super) fn find<'a>(
        name: &str,
        codes: &FileTensor<'_>,
        tensor: impl Fn(&str) -> Option<FileTensor<'a>>,
    ) -> Option<Self> {
        let element = match codes.dtype.as_str() {
            "F8_E4M3" => "fp8_e4m3",
            "F8_E5M2" => "fp8_e5m2",
            "F8_E4M3FNUZ" => "fp8_e4m3fnuz",
            "F8_E5M2FNUZ" => "fp8_e5m2fnuz",
            _ => return None,
        };
        let element = element.parse().ok()?;
        let found = SCALES.into_iter().find_map(|end| {
            let scales = format!("{name}{end}");
            let stored = tensor(&scales)?;
            scale_bytes(&stored.dtype)?;
            let (block, is_known) = block(&codes.shape, &stored.shape)?;
            // MXFP8, which is packed.
            let is_mx = stored.dtype == "F8_E8M0" && block == [1, 32] && end == SCALES[0];
            (!is_mx).then_some((scales, block, is_known))
        });
        let (scales, block, is_block_known) = found?;
        Some(Self {
            element,
            scales,
            block,
            is_block_known,
        })
    }

    /// Each code times its scale, rounded to float32, in row-major order, where these are the weight's tensors.
    pub fn values(&self, codes: &FileTensor<'_>, scales: &FileTensor<'_>) -> Vec<f32> {
        let shape = &codes.shape;
        let scales = floats(scales);
        let numbers: Vec<f32> = (0..256).map(|code| self.element.decode(code)).collect();
        let counts = shape.iter().zip(&self.block);
        let counts: Vec<usize> = counts
            .map(|(length, block)| length.div_ceil(*block))
            .collect();
        let width = shape.last().copied().unwrap_or(1).max(1);
        let in_row = counts.last().copied().unwrap_or(1);
        let wide = self.block.last().copied().unwrap_or(1);
        let mut values = vec![0.0; codes.bytes.len()];
        let rows = codes
            .bytes
            .chunks_exact(width)
            .zip(values.chunks_exact_mut(width));
        for (row, (codes, values)) in rows.enumerate() {
            // The number of the row of blocks, from the last axis but one on.
            let (mut rest, mut stride, mut first) = (row, in_row, 0);
            for axis in (0..shape.len().saturating_sub(1)).rev() {
                first += rest % shape[axis] / self.block[axis] * stride;
                rest /= shape[axis];
                stride *= counts[axis];
            }
            ieee(|| {
                for (column, (code, value)) in codes.iter().zip(values).enumerate() {
                    *value = numbers[usize::from(*code)] * scales[first + column / wide];
                }
            });
        }
        values
    }
}

/// The lengths of a block, and whether the shapes tell them. Each axis of the weight is cut into as many blocks as the scales' axis
/// is long. Several lengths may give this number; the one that is a power of two is taken, or else the shortest. Scales without an axis, or
/// of one, belong to the whole weight, and a list of them to the weight's rows.
pub(super) fn block(shape: &[usize], scales: &[usize]) -> Option<(Vec<usize>, bool)> {
    let counts = match (scales, shape) {
        ([] | [1], _) => vec![1; shape.len()],
        ([rows], [outputs, _]) if rows == outputs => vec![*rows, 1],
        // Model Optimizer's blocks of 128, with axes of one scale between. A shorter axis has one block.
        ([rows, 1, columns, 1], [outputs, inputs]) => {
            let fits = [(rows, outputs), (columns, inputs)]
                .iter()
                .all(|(count, length)| length.div_ceil(128) == **count);
            return fits.then(|| (vec![128, 128], true));
        }
        _ if scales.len() == shape.len() => scales.to_vec(),
        _ => return None,
    };
    let mut is_known = true;
    let lengths = counts.into_iter().zip(shape).map(|(count, length)| {
        if count == 1 || *length == 0 {
            return Some((*length).max(1));
        }
        let shortest = length.div_ceil((count > 0).then_some(count)?);
        let longest = (length - 1) / (count - 1);
        let power = shortest.next_power_of_two();
        let found = if power <= longest { power } else { shortest };
        is_known &= shortest == longest || found == 128;
        (shortest <= longest).then_some(found)
    });
    let lengths = lengths.collect::<Option<Vec<_>>>()?;
    Some((lengths, is_known))
}

/// Bytes of a scale.
pub(super) fn scale_bytes(dtype: &str) -> Option<usize> {
    match dtype {
        "F32" => Some(4),
        "BF16" | "F16" => Some(2),
        "F8_E8M0" => Some(1),
        _ => None,
    }
}

/// The numbers of a tensor of scales.
pub(super) fn floats(tensor: &FileTensor<'_>) -> Vec<f32> {
    let halves = || {
        tensor
            .bytes
            .as_chunks()
            .0
            .iter()
            .map(|x| u16::from_le_bytes(*x))
    };
    match tensor.dtype.as_str() {
        "F32" => {
            let words = tensor.bytes.as_chunks().0.iter();
            words.map(|word| f32::from_le_bytes(*word)).collect()
        }
        "BF16" => halves()
            .map(|x| f32::from_bits(u32::from(x) << 16))
            .collect(),
        "F16" => {
            let half = ElementFormat::FLOAT16;
            halves().map(|x| half.decode(x.into())).collect()
        }
        _ => {
            let exponents = tensor.bytes.iter().map(|x| i32::from(*x));
            let number = |x: i32| {
                if x == 255 {
                    f32::NAN
                } else {
                    f32::from_bits(pow2(x - 127))
                }
            };
            exponents.map(number).collect()
        }
    }
}
