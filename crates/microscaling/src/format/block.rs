//! One type over all block formats.

pub(super) mod bfp;
pub(super) mod float_scale;
pub(super) mod headroom;
pub(super) mod microexponent;
pub(super) mod mx;
pub(super) mod nvfp4;
pub(super) mod outer_scale;
pub(super) mod scale;
pub(super) mod scale_format;
pub(super) mod sub_scales;

use crate::format::{
    BfpFormat, ElementFormat, FloatScaleFormat, FormatError, MicroexponentFormat, MxFormat,
    Nvfp4Format, SharedExpMethod,
};

/// Any block format, with all its parameters.
///
/// The text form (`FromStr`, `Display`, serde) is one of [`NAMES`](Self::NAMES), Quark's name (`MXFP8E4M3`, `MX6`,
/// `BFP16`, …), or a family with parameters:
/// * `mx(element=int4,block_size=16,scale_mode=rceil)`, where all but the element may be left out: `block_size`
///   (32), `scale_bits` (8), `scale_mode`, `shared_exp_method`, `flush_fp32_subnorms`, `square`, `headroom`;
/// * `bfp(bit_width=12,block_size=16)`, where omitted parameters are as in `bfp16`;
/// * `microexponent(bit_width=13,block_size=32,sub_block_size=4,shift_bits=2)`, else as in `mx9`;
/// * `nvfp4(tensor_scale=true,square=true,headroom=17/16,four_over_six=true)`; a field that is left out has the value
///   of `nvfp4`. With `block_size` or `scale` it is a `block` without subnormal scales: `nvfp4(block_size=32,scale=ue5m3)`;
/// * `block(element=e2m1,scale=ue5m3,block_size=32)`, any element with any scale: `e8m0`, which is MX, or a
///   [`ScaleFormat`](crate::ScaleFormat). Optional parameters are `block_size` (32), `square` and `headroom`. With
///   `e8m0`, `scale_mode` is optional, too; with a float, `tensor_scale`, `subnormal_scales` (true), `four_over_six`,
///   `sub_scales`, `eden`, `outer_size` and `outer_scale` (float32) are.
///
/// `block` and `sub_block` are understood too.
///
/// ```
/// use microscaling::{BlockFormat, ElementFormat, MxFormat};
///
/// let mxfp4: BlockFormat = "mxfp4".parse()?;
/// assert_eq!(mxfp4, BlockFormat::Mx(MxFormat::new(ElementFormat::FP4_E2M1, 32)));
/// assert_eq!(mxfp4.bits_per_element(), 4.25);
/// # Ok::<(), microscaling::ParseFormatError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BlockFormat {
    /// An MX block (OCP MX v1.0, or with other parameters).
    Mx(MxFormat),
    /// A microexponent format.
    Microexponent(MicroexponentFormat),
    /// A block floating point format.
    Bfp(BfpFormat),
    /// NVFP4.
    Nvfp4(Nvfp4Format),
    /// Blocks with a float for a scale, of any element.
    FloatScale(FloatScaleFormat),
}

impl BlockFormat {
    /// The parameters of a format whose scales are floats. NVFP4 is such a format.
    pub fn float_scale(&self) -> Option<FloatScaleFormat> {
        match *self {
            Self::Nvfp4(format) => Some(format.into()),
            Self::FloatScale(format) => Some(format),
            _ => None,
        }
    }

    /// The format of the elements; `None` for microexponents and block floating point, whose elements are a sign and a magnitude in
    /// steps that the block's exponent fixes.
    pub const fn element(&self) -> Option<ElementFormat> {
        match self {
            Self::Mx(format) => Some(format.element),
            Self::Nvfp4(_) => Some(ElementFormat::FP4_E2M1),
            Self::FloatScale(format) => Some(format.element),
            Self::Microexponent(_) | Self::Bfp(_) => None,
        }
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// The errors of the format's own `validate`; NVFP4 is always valid.
    pub fn validate(&self) -> Result<(), FormatError> {
        match self {
            Self::Mx(format) => format.validate(),
            Self::Microexponent(format) => format.validate(),
            Self::Bfp(format) => format.validate(),
            Self::Nvfp4(_) => Ok(()),
            Self::FloatScale(format) => format.validate(),
        }
    }

    /// Elements in a block along its axis, or along each of the two axes of a [square](Self::is_square) block; 0 makes
    /// the whole axis one block. With an [outer scale](crate::OuterScale) these are the elements that share it.
    pub const fn block_size(&self) -> usize {
        match self {
            Self::Mx(format) => match format.shared_exp_method {
                SharedExpMethod::Max => format.block_size,
                SharedExpMethod::None => 1,
            },
            Self::Microexponent(format) => format.block_size,
            Self::Bfp(format) => format.block_size,
            Self::Nvfp4(_) => Nvfp4Format::BLOCK_SIZE,
            Self::FloatScale(format) => match format.outer {
                Some(outer) => outer.size,
                None => format.block_size,
            },
        }
    }

    /// Elements along the axis that share a block's own scale. Differs from [`block_size`](Self::block_size) with an
    /// [outer scale](crate::OuterScale) only.
    pub const fn scale_block_size(&self) -> usize {
        match self {
            Self::FloatScale(format) => format.block_size,
            _ => self.block_size(),
        }
    }

    /// Whether blocks are square, see [`MxFormat::square`]. MX and NVFP4 may have square blocks.
    pub const fn is_square(&self) -> bool {
        match self {
            Self::Mx(format) => format.square,
            Self::Nvfp4(format) => format.square,
            Self::FloatScale(format) => format.square,
            Self::Microexponent(_) | Self::Bfp(_) => false,
        }
    }

    /// Whether the tensor has a scale, as NVFP4 may.
    pub const fn has_tensor_scale(&self) -> bool {
        match self {
            Self::Nvfp4(format) => format.tensor_scale,
            Self::FloatScale(format) => format.tensor_scale,
            _ => false,
        }
    }

    /// Bits of an element's own code, without any scale.
    ///
    /// The format must be [valid](Self::validate).
    pub const fn element_bits(&self) -> u32 {
        match self {
            Self::Mx(format) => format.element.bits(),
            // With the sign.
            Self::Microexponent(format) => 1 + format.mantissa_bits(),
            Self::Bfp(format) => 1 + format.mantissa_bits(),
            Self::Nvfp4(_) => ElementFormat::FP4_E2M1.bits(),
            Self::FloatScale(format) => format.element.bits(),
        }
    }

    /// Whether element codes have a −0. Packing makes 0 of −0 where they have none.
    pub const fn has_negative_zero(&self) -> bool {
        match self {
            Self::Mx(format) => format.element.has_negative_zero(),
            Self::FloatScale(format) => format.element.has_negative_zero(),
            Self::Microexponent(_) | Self::Bfp(_) | Self::Nvfp4(_) => true,
        }
    }

    /// The most significant bits that a quantized value has, with any block scale and without the tensor scale, as bits
    /// of a float's significand. Values of at most 8 bits are bfloat16 numbers, if they are not too small.
    ///
    /// The format must be [valid](Self::validate).
    pub const fn significant_bits(&self) -> u32 {
        match self {
            Self::Mx(format) => format.element.mantissa_bits() + 1,
            Self::Microexponent(format) => format.mantissa_bits(),
            Self::Bfp(format) => format.mantissa_bits(),
            // An element of 2 bits times a scale of 4.
            Self::Nvfp4(_) => 6,
            Self::FloatScale(format) => {
                let element = format.element.mantissa_bits() + 1;
                let outer = match format.outer {
                    // A power of two leaves the others as they are.
                    Some(outer) if outer.scale.mantissa_bits() > 0 => {
                        outer.scale.mantissa_bits() + 1
                    }
                    _ => 0,
                };
                element + format.scale.mantissa_bits() + 1 + outer
            }
        }
    }

    /// Bits that an element takes in a full block, with its part of the block's scale and shifts. A
    /// tensor scale is not counted, nor is the scale of a block or of a part as long as its axis (size 0).
    ///
    /// The format must be [valid](Self::validate).
    pub fn bits_per_element(&self) -> f64 {
        let block_size = self.scale_block_size();
        let scale_bits = match self {
            Self::Mx(format) => f64::from(format.scale_bits),
            Self::Microexponent(format) => {
                let sub_blocks = block_size.div_ceil(format.sub_block_size);
                8.0 + f64::from(format.shift_bits) * sub_blocks as f64
            }
            Self::Bfp(_) | Self::Nvfp4(_) => 8.0,
            Self::FloatScale(format) => {
                let sub_bits = format.sub_scales.map_or([0; 2], |sub| sub.bits(block_size));
                let bits = format.scale_bits() as usize + sub_bits[0] + sub_bits[1];
                bits.next_multiple_of(8) as f64
            }
        };
        let elements = match self.is_square() {
            true => block_size as f64 * block_size as f64,
            false => block_size as f64,
        };
        let scale_bits = match block_size {
            0 => 0.0,
            _ => scale_bits / elements,
        };
        let outer = self.float_scale().and_then(|format| format.outer);
        let outer_bits = outer.map_or(0.0, |outer| match outer.size {
            0 => 0.0,
            size => f64::from(outer.scale.bits().next_multiple_of(8)) / size as f64,
        });
        f64::from(self.element_bits()) + scale_bits + outer_bits
    }
}

impl From<MxFormat> for BlockFormat {
    fn from(format: MxFormat) -> Self {
        Self::Mx(format)
    }
}

impl From<MicroexponentFormat> for BlockFormat {
    fn from(format: MicroexponentFormat) -> Self {
        Self::Microexponent(format)
    }
}

impl From<BfpFormat> for BlockFormat {
    fn from(format: BfpFormat) -> Self {
        Self::Bfp(format)
    }
}

impl From<FloatScaleFormat> for BlockFormat {
    fn from(format: FloatScaleFormat) -> Self {
        Self::FloatScale(format)
    }
}

impl From<Nvfp4Format> for BlockFormat {
    fn from(format: Nvfp4Format) -> Self {
        Self::Nvfp4(format)
    }
}
