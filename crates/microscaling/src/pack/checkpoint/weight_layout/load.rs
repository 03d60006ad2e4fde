//! From the tensors of a file to a packed weight.

use super::{
    MX_BLOCK, MX_BYTES, StoredType, StoredView, WeightLayout, WeightLayoutError, reciprocal,
};
use crate::pack::Packed;
use alloc::{borrow::ToOwned, format, string::String, vec::Vec};

impl WeightLayout {
    /// The packed weight `name` of a file, whose tensors `find` looks up by their names. Scales of MX may be
    /// [`U8`](StoredType::U8) or [`F8E8M0`](StoredType::F8E8M0). The reciprocal of a divisor becomes the tensor scale:
    /// [`Packed::with_divisor`] divides, as the tool does.
    ///
    /// # Errors
    /// [`WeightLayoutError`]: a part is missing, or is not what the layout says.
    pub fn load<'a>(
        self,
        name: &str,
        find: impl Fn(&str) -> Option<StoredView<'a>>,
    ) -> Result<Packed, WeightLayoutError> {
        let typed = |(suffix, dtype): (&str, StoredType), also: StoredType| {
            let part = format!("{name}{suffix}");
            let view = find(&part);
            checked(part, view, [dtype, also])
        };
        let part = |(suffix, dtype)| typed((suffix, dtype), dtype);
        let number = |suffix| {
            let (part, view) = part((suffix, StoredType::F32))?;
            // One number, with an axis or without.
            match *view.bytes {
                [a, b, c, d] => Ok(f32::from_le_bytes([a, b, c, d])),
                _ => Err(odd(part, &view)),
            }
        };
        let parts = self.parts();
        let scales = parts.scales.map(|(suffix, dtype)| match dtype {
            StoredType::U8 => typed((suffix, dtype), StoredType::F8E8M0),
            _ => part((suffix, dtype)),
        });
        let scales = scales.transpose()?;
        let (of_elements, view) = part(parts.elements)?;
        let Some(shape) = self.shape(view.shape) else {
            return Err(odd(of_elements, &view));
        };
        let axis = shape.len() - 1;
        let (scales, elements) = match scales {
            Some((part, scales)) => {
                let block = self.format().block_size;
                let expected = [&shape[..axis], &[shape[axis].div_ceil(block)]].concat();
                if scales.shape != expected {
                    return Err(WeightLayoutError::Scales {
                        part,
                        expected,
                        got: scales.shape.to_vec(),
                    });
                }
                (scales.bytes.to_vec(), view.bytes.to_vec())
            }
            None => scales_and_elements(view.bytes),
        };
        let number = parts.tensor_scale.map(number).transpose()?;
        let tensor_scale = match self {
            Self::Nvfp4PackQuantized => number.map(reciprocal),
            _ => number,
        };
        let packed =
            Packed::from_parts(self.format(), &shape, axis, tensor_scale, scales, elements)
                .map_err(|source| WeightLayoutError::Pack {
                    name: name.to_owned(),
                    source,
                })?;
        self.check(name, &packed.view())?;
        Ok(packed)
    }

    /// The shape of a weight whose elements are stored with this shape; `None` if the layout has no such elements.
    fn shape(self, stored: &[usize]) -> Option<Vec<usize>> {
        let (last, rows) = stored.split_last()?;
        let (rows, width) = match self {
            Self::GptOss => {
                let (blocks, rows) = rows.split_last()?;
                let blocks = (*last == MX_BYTES).then_some(blocks)?;
                (rows, blocks.checked_mul(MX_BLOCK))
            }
            Self::GgufMxfp4 => {
                let whole = last.is_multiple_of(1 + MX_BYTES);
                let blocks = whole.then_some(last / (1 + MX_BYTES))?;
                (rows, blocks.checked_mul(MX_BLOCK))
            }
            _ => {
                let (bits, width) = (self.format().element_bits() as usize, last.checked_mul(8)?);
                (rows, width.is_multiple_of(bits).then_some(width / bits))
            }
        };
        Some([rows, &[width?]].concat())
    }
}

/// A part of a weight, if it has the first type or the second, and as many bytes as its shape says.
fn checked<'a>(
    part: String,
    view: Option<StoredView<'a>>,
    [dtype, also]: [StoredType; 2],
) -> Result<(String, StoredView<'a>), WeightLayoutError> {
    let Some(view) = view else {
        return Err(WeightLayoutError::Missing { part });
    };
    if view.dtype != dtype && view.dtype != also {
        return Err(WeightLayoutError::Type {
            part,
            expected: dtype,
            got: view.dtype,
        });
    }
    let of = |count: usize, length: &usize| count.checked_mul(*length);
    let bytes = view.shape.iter().try_fold(dtype.bytes(), of);
    match bytes == Some(view.bytes.len()) {
        true => Ok((part, view)),
        false => Err(odd(part, &view)),
    }
}

/// The error of a part with another shape or number of bytes than the layout has.
fn odd(part: String, view: &StoredView<'_>) -> WeightLayoutError {
    WeightLayoutError::Part {
        part,
        shape: view.shape.to_vec(),
        bytes: view.bytes.len(),
    }
}

/// The scales and the elements of blocks that are each a scale and its elements.
fn scales_and_elements(bytes: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let blocks = bytes.as_chunks::<{ 1 + MX_BYTES }>().0;
    let elements = blocks
        .iter()
        .flat_map(|[_, halves @ ..]| pairs_of_halves(*halves));
    (
        blocks.iter().map(|block| block[0]).collect(),
        elements.collect(),
    )
}

/// From elements j and j + 16 in byte j to elements 2j and 2j + 1.
fn pairs_of_halves(halves: [u8; MX_BYTES]) -> [u8; MX_BYTES] {
    let code = |i: usize| halves[i % MX_BYTES] >> (4 * (i / MX_BYTES)) & 15;
    core::array::from_fn(|j| code(2 * j) | code(2 * j + 1) << 4)
}
