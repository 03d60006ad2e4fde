//! Weights in MXFP6, as compressed-tensors 0.20 writes them.

use super::FileTensor;
use crate::format::{BlockFormat, ElementFormat};
use crate::pack::Packed;
use alloc::{borrow::ToOwned, format, string::String, vec::Vec};

/// The elements that share a scale, and the bytes of their codes.
const BLOCK: usize = 32;
const BLOCK_BYTES: usize = 24;

/// A weight of `mxfp6-pack-quantized`: `NAME_packed` U8 \[out, in · 3 / 4\], FP6 E2M3 codes one after the other with the low bits first,
/// and `NAME_scale` U8 or F8_E8M0 \[out, in / 32\]. The layout is read, and not written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mxfp6Weight {
    /// The weight's shape, \[out, in\].
    pub shape: [usize; 2],
    /// The names of the tensors of codes and of scales.
    pub parts: [String; 2],
}

impl Mxfp6Weight {
    /// The format of the weight.
    pub const FORMAT: BlockFormat = BlockFormat::mx(ElementFormat::FP6_E2M3, BLOCK);

    /// The weight with these codes, and its name. The number of bytes for each scale tells MXFP6 from MXFP4.
    pub(super) fn find<'a>(
        codes: &str,
        tensor: impl Fn(&str) -> Option<FileTensor<'a>>,
    ) -> Option<(String, Self)> {
        let name = codes
            .strip_suffix("_packed")
            .filter(|name| !name.is_empty())?;
        let scales = format!("{name}_scale");
        let (of_codes, of_scales) = (tensor(codes)?, tensor(&scales)?);
        let [rows, bytes]: [usize; 2] = of_codes.shape[..].try_into().ok()?;
        let [outputs, blocks]: [usize; 2] = of_scales.shape[..].try_into().ok()?;
        let is_typed =
            of_codes.dtype == "U8" && ["U8", "F8_E8M0"].contains(&of_scales.dtype.as_str());
        let fits = rows == outputs
            && rows > 0
            && bytes > 0
            && blocks.checked_mul(BLOCK_BYTES) == Some(bytes);
        (is_typed && fits).then(|| {
            let weight = Self {
                shape: [rows, blocks * BLOCK],
                parts: [codes.to_owned(), scales],
            };
            (name.to_owned(), weight)
        })
    }

    /// The values in row-major order. `tensor` looks up the [parts](Self::parts); `None` if one is missing.
    pub fn values<'a>(&self, tensor: impl Fn(&str) -> Option<FileTensor<'a>>) -> Option<Vec<f32>> {
        let [codes, scales] = &self.parts;
        let (codes, scales) = (
            tensor(codes)?.bytes.to_vec(),
            tensor(scales)?.bytes.to_vec(),
        );
        let packed = Packed::from_parts(Self::FORMAT, &self.shape, 1, None, scales, codes);
        packed.ok().map(|packed| packed.decode())
    }
}
