//! How checkpoints lay a packed weight out: names, types, shapes and bytes of the tensors that it becomes.

#[cfg(feature = "safetensors")]
mod config;
mod error;
mod load;

use crate::format::{BlockFormat, ElementFormat, SharedExpMethod};
use crate::names::impl_by_name;
use crate::pack::PackedView;
use crate::round::bits::{self, INFINITY, ONE};
use alloc::{borrow::ToOwned, boxed::Box, format, string::String, vec, vec::Vec};
pub use error::WeightLayoutError;
use microscaling_processor::float_state::ieee;

/// How another tool's checkpoint lays out a packed weight, with blocks along the last axis: \[out, in\] for a linear
/// layer. `NAME` is the name of the weight, `layers.0.proj.weight` for example.
///
/// | layout | format | tensors |
/// | --- | --- | --- |
/// | `mxfp4-pack-quantized` | MXFP4 | `NAME_packed` u8 \[out, in / 2\], `NAME_scale` u8 \[out, in / 32\] |
/// | `mxfp6-pack-quantized` | MXFP6 E2M3 | `NAME_packed` u8 \[out, in · 3 / 4\], `NAME_scale` u8 \[out, in / 32\] |
/// | `mxfp8-quantized` | MXFP8 E4M3 | `NAME` F8_E4M3 \[out, in\], `NAME_scale` u8 \[out, in / 32\] |
/// | `nvfp4-pack-quantized` | NVFP4 with a tensor scale | `NAME_packed` u8 \[out, in / 2\], `NAME_scale` F8_E4M3 \[out, in / 16\], `NAME_global_scale` F32 \[1\], a divisor |
/// | `modelopt-nvfp4` | NVFP4 with a tensor scale | `NAME` u8 \[out, in / 2\], `NAME_scale` F8_E4M3 \[out, in / 16\], `NAME_scale_2` F32 \[\], a factor |
/// | `gpt-oss` | MXFP4 | `NAME_blocks` u8 \[…, in / 32, 16\], `NAME_scales` u8 \[…, in / 32\] |
/// | `gguf-mxfp4` | MXFP4 | `NAME` u8 \[…, in / 32 · 17\]: the scale of a block, then elements j and j + 16 in the nibbles of byte j |
///
/// The first four are compressed-tensors', the fifth is NVIDIA Model Optimizer's. Scales of MX are E8M0. Two FP4 elements
/// share a byte, the even one in the low nibble, unless the table says otherwise. FP6 elements follow one another, the low bits first. A layout does not record how a scale was
/// chosen. So a stored format may differ from the named one in scale mode, headroom and `four_over_six`, and a loaded format
/// has their defaults. Nothing is lost: [`load`](Self::load) gives what [`store`](Self::store) got, to the bit. (The decoders
/// of ggml and of Model Optimizer take FP4's −0 for 0.)
///
/// The tests compare with files of compressed-tensors 0.20, Model Optimizer 0.47 and gguf 0.19. Other tests compare with the
/// tensors that these tools and the gpt-oss of transformers 5.23 read. compressed-tensors 0.13 had the same names, and no
/// `mxfp8-quantized`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WeightLayout {
    /// `mxfp4-pack-quantized`, of compressed-tensors.
    Mxfp4PackQuantized,
    /// `mxfp6-pack-quantized`, of compressed-tensors.
    Mxfp6PackQuantized,
    /// `mxfp8-quantized`, of compressed-tensors.
    Mxfp8Quantized,
    /// `nvfp4-pack-quantized`, of compressed-tensors.
    Nvfp4PackQuantized,
    /// `modelopt-nvfp4`, of NVIDIA Model Optimizer.
    ModelOptNvfp4,
    /// `gpt-oss`, of that model's own files.
    GptOss,
    /// `gguf-mxfp4`, the blocks of a GGUF file.
    GgufMxfp4,
}

impl_by_name! {
    WeightLayout, "weight layout",
    Mxfp4PackQuantized: "mxfp4-pack-quantized",
    Mxfp6PackQuantized: "mxfp6-pack-quantized",
    Mxfp8Quantized: "mxfp8-quantized",
    Nvfp4PackQuantized: "nvfp4-pack-quantized",
    ModelOptNvfp4: "modelopt-nvfp4",
    GptOss: "gpt-oss",
    GgufMxfp4: "gguf-mxfp4",
}

/// The type of a stored tensor's elements; a name of safetensors'.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoredType {
    /// `U8`.
    U8,
    /// `F8_E4M3`.
    F8E4M3,
    /// `F8_E8M0`: powers of two. Files have scales of MX as these or as `U8`; the bytes are the same.
    F8E8M0,
    /// `F32`, little-endian.
    F32,
}

impl StoredType {
    /// safetensors' name of the type.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "U8",
            Self::F8E4M3 => "F8_E4M3",
            Self::F8E8M0 => "F8_E8M0",
            Self::F32 => "F32",
        }
    }

    const fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::F8E4M3 | Self::F8E8M0 => 1,
            Self::F32 => 4,
        }
    }
}

/// A tensor in the form of the file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StoredTensor {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub dtype: StoredType,
    /// The lengths of its axes.
    pub shape: Vec<usize>,
    /// Its bytes, in row-major order.
    pub bytes: Vec<u8>,
}

/// A tensor of a file, whose bytes are borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoredView<'a> {
    /// The type of its elements.
    pub dtype: StoredType,
    /// The lengths of its axes.
    pub shape: &'a [usize],
    /// Its bytes, in row-major order.
    pub bytes: &'a [u8],
}

/// The tensors of a weight, by the ends of their names.
struct Parts {
    elements: (&'static str, StoredType),
    /// `None` where scales stand among the elements.
    scales: Option<(&'static str, StoredType)>,
    /// An F32 tensor of one number.
    tensor_scale: Option<&'static str>,
}

/// The blocks of MXFP4.
const MX_BLOCK: usize = 32;
/// Bytes of its codes.
const MX_BYTES: usize = MX_BLOCK / 2;
/// The scale NaN of E8M0, and the magnitude of E4M3's.
const NAN_E8M0: u8 = 255;
const NAN_E4M3: u8 = 0x7f;

impl WeightLayout {
    /// The format of a loaded tensor.
    pub const fn format(self) -> BlockFormat {
        match self {
            Self::Mxfp4PackQuantized | Self::GptOss | Self::GgufMxfp4 => {
                BlockFormat::mx(ElementFormat::FP4_E2M1, MX_BLOCK)
            }
            Self::Mxfp6PackQuantized => BlockFormat::mx(ElementFormat::FP6_E2M3, MX_BLOCK),
            Self::Mxfp8Quantized => BlockFormat::mx(ElementFormat::FP8_E4M3, MX_BLOCK),
            Self::Nvfp4PackQuantized | Self::ModelOptNvfp4 => BlockFormat::nvfp4(true),
        }
    }

    /// The tensors that a weight of this name becomes, and the types of their elements.
    pub fn stored_as(self, name: &str) -> Vec<(String, StoredType)> {
        let parts = self.parts();
        let tensor_scale = parts.tensor_scale.map(|suffix| (suffix, StoredType::F32));
        let parts = [Some(parts.elements), parts.scales, tensor_scale];
        let named = |(suffix, dtype)| (format!("{name}{suffix}"), dtype);
        parts.into_iter().flatten().map(named).collect()
    }

    /// Whether the layout can represent the format.
    pub fn has(self, format: BlockFormat) -> bool {
        let own = self.format();
        let is_kind = match own.has_exponent() {
            true => {
                format.is_mx()
                    && own.element == format.element
                    && own.block_size == format.block_size
                    && format.shared_exp_method == SharedExpMethod::Max
            }
            false => format.is_nvfp4() && format.tensor_scale,
        };
        is_kind && !format.square && format.other_scales().is_none()
    }

    const fn parts(self) -> Parts {
        use StoredType::{F8E4M3, U8};
        let (elements, scales, tensor_scale) = match self {
            Self::Mxfp4PackQuantized | Self::Mxfp6PackQuantized => {
                (("_packed", U8), Some(("_scale", U8)), None)
            }
            Self::Mxfp8Quantized => (("", F8E4M3), Some(("_scale", U8)), None),
            Self::Nvfp4PackQuantized => {
                let scales = Some(("_scale", F8E4M3));
                (("_packed", U8), scales, Some("_global_scale"))
            }
            Self::ModelOptNvfp4 => (("", U8), Some(("_scale", F8E4M3)), Some("_scale_2")),
            Self::GptOss => (("_blocks", U8), Some(("_scales", U8)), None),
            Self::GgufMxfp4 => (("", U8), None, None),
        };
        Parts {
            elements,
            scales,
            tensor_scale,
        }
    }

    /// Whether weights of any rank have a place.
    const fn any_rank(self) -> bool {
        matches!(self, Self::GptOss | Self::GgufMxfp4)
    }

    /// The tensors that a packed weight becomes.
    ///
    /// `nvfp4-pack-quantized` stores `divisor` in place of the tensor scale, or the [weight's own](PackedView::divisor). A
    /// [`DialectTensor`](crate::DialectTensor) knows its divisor; for `None`, a divisor is computed. The other layouts ignore
    /// `divisor`.
    ///
    /// # Errors
    /// [`WeightLayoutError`], the reason why the layout cannot represent this weight.
    pub fn store(
        self,
        name: &str,
        weight: &PackedView<'_>,
        divisor: Option<f32>,
    ) -> Result<Vec<StoredTensor>, WeightLayoutError> {
        self.check(name, weight)?;
        let shape = weight.shape();
        let (rows, width) = shape.split_at(shape.len() - 1);
        let with = |last: &[usize]| [rows, last].concat();
        let (width, format) = (width[0], weight.format());
        let blocks = width / format.block_size;
        let tensor = |(suffix, dtype), shape: Vec<usize>, bytes: Vec<u8>| StoredTensor {
            name: format!("{name}{suffix}"),
            dtype,
            shape,
            bytes,
        };
        let shape = match self {
            Self::GptOss => with(&[blocks, MX_BYTES]),
            Self::GgufMxfp4 => with(&[blocks * (1 + MX_BYTES)]),
            _ => with(&[width * format.element_bits() as usize / 8]),
        };
        let bytes = match self {
            Self::GgufMxfp4 => {
                let codes = weight.elements().as_chunks::<MX_BYTES>().0.iter();
                let blocks = codes.zip(weight.scales());
                let bytes = blocks.flat_map(|(codes, scale)| {
                    core::iter::once(*scale).chain(halves_of_pairs(*codes))
                });
                bytes.collect()
            }
            _ => weight.elements().to_vec(),
        };
        let parts = self.parts();
        let mut stored = vec![tensor(parts.elements, shape, bytes)];
        if let Some(scales) = parts.scales {
            stored.push(tensor(scales, with(&[blocks]), weight.scales().to_vec()));
        }
        if let Some(suffix) = parts.tensor_scale {
            let scale = weight.tensor_scale().unwrap_or(1.0);
            let (shape, number) = match self {
                Self::Nvfp4PackQuantized => {
                    let known = weight.divisor().or(divisor);
                    let known = known.filter(|divisor| is_reciprocal(*divisor, scale));
                    let divisor = known.or_else(|| divisor_of(scale)).ok_or_else(|| {
                        WeightLayoutError::Divisor {
                            name: name.to_owned(),
                            tensor_scale: scale,
                        }
                    })?;
                    (vec![1], divisor)
                }
                _ => (vec![], scale),
            };
            let bytes = number.to_le_bytes().to_vec();
            stored.push(tensor((suffix, StoredType::F32), shape, bytes));
        }
        Ok(stored)
    }

    /// That the layout can say the weight.
    fn check(self, name: &str, weight: &PackedView<'_>) -> Result<(), WeightLayoutError> {
        let name = || name.to_owned();
        if !self.has(weight.format()) {
            return Err(WeightLayoutError::Format {
                layout: self,
                name: name(),
                format: Box::new(weight.format()),
            });
        }
        let shape = weight.shape();
        let last = shape.len() - 1;
        let ranks = shape.len() == 2 || (self.any_rank() && shape.len() > 2);
        let whole = shape[last].is_multiple_of(weight.format().block_size);
        if !ranks || !whole || weight.axis() != last || shape.contains(&0) {
            return Err(WeightLayoutError::Shape {
                layout: self,
                name: name(),
                shape: shape.to_vec(),
                axis: weight.axis(),
                block: weight.format().block_size,
            });
        }
        let nan = |scale: &u8| match self.format().has_exponent() {
            true => *scale == NAN_E8M0,
            false => scale & 0x7f == NAN_E4M3,
        };
        let scale = weight.tensor_scale().unwrap_or(1.0).to_bits();
        let block = weight.scales().iter().position(nan);
        let block = block.or((scale >= INFINITY).then_some(0));
        match block {
            Some(block) => Err(WeightLayoutError::NotANumber {
                layout: self,
                name: name(),
                block,
            }),
            None => Ok(()),
        }
    }
}

/// 1 / x; NaN unless x is positive.
fn reciprocal(x: f32) -> f32 {
    match x.to_bits() {
        1..INFINITY => f32::from_bits(ieee(|| bits::quotient(ONE, x.to_bits()))),
        _ => f32::NAN,
    }
}

/// A divisor whose reciprocal is the scale, if there is one: reciprocals of neighbours are not always neighbours.
fn divisor_of(scale: f32) -> Option<f32> {
    let near = reciprocal(scale).to_bits();
    let near = [near, near.wrapping_sub(1), near.wrapping_add(1)];
    near.map(f32::from_bits)
        .into_iter()
        .find(|divisor| is_reciprocal(*divisor, scale))
}

/// Whether 1 / x is a number.
fn is_reciprocal(x: f32, number: f32) -> bool {
    // By patterns: the thread may compare subnormals as zeros.
    reciprocal(x).to_bits() == number.to_bits()
}

/// From elements 2j and 2j + 1 in byte j to elements j and j + 16.
fn halves_of_pairs(pairs: [u8; MX_BYTES]) -> [u8; MX_BYTES] {
    let code = |i: usize| pairs[i / 2] >> (4 * (i % 2)) & 15;
    core::array::from_fn(|j| code(j) | code(j + MX_BYTES) << 4)
}
