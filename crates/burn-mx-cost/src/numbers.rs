//! The properties of a format that determine its hardware.

use microscaling::{BlockFormat, ElementFormat, FloatFormat};

/// The kind of scale that the elements of a block share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scale {
    /// Nothing: the elements are plain floats.
    None,
    /// A power of two.
    PowerOfTwo,
    /// A float.
    Float {
        /// Its mantissa bits, without the implicit one.
        mantissa_bits: u32,
    },
}

/// Numbers as a multiplier and a memory see them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Numbers {
    /// Exponent bits of an element; 0 makes it an integer.
    pub exponent_bits: u32,
    /// Mantissa bits of an element, without the implicit one of a float and without the sign.
    pub mantissa_bits: u32,
    /// Elements that share a scale; 0 if none do, or all.
    pub block: usize,
    /// The scale of a block.
    pub scale: Scale,
    /// The largest element over the smallest positive one, the scale apart.
    pub range: f64,
    /// Bits of an element in memory, without its part of the scale.
    pub element_bits: u32,
    /// Bits of an element in memory, with its part of the block's scales.
    pub bits: f64,
}

impl Numbers {
    /// float32, or an elementwise format.
    pub fn float(format: Option<FloatFormat>) -> Self {
        let (exponent_bits, mantissa_bits, numbers) = match format {
            None => (8, 23, [f32::MAX, f32::MIN_POSITIVE]),
            Some(format) => (
                format.exponent_bits(),
                format.mantissa_bits(),
                [format.max(), format.min_normal()],
            ),
        };
        let [largest, smallest] = numbers.map(f64::from);
        let element_bits = 1 + exponent_bits + mantissa_bits;
        Self {
            exponent_bits,
            mantissa_bits,
            block: 0,
            scale: Scale::None,
            range: largest / smallest * 2.0_f64.powi(mantissa_bits as i32),
            element_bits,
            bits: f64::from(element_bits),
        }
    }
}

impl From<ElementFormat> for Numbers {
    /// Elements without a scale.
    fn from(element: ElementFormat) -> Self {
        let block = Self::from(BlockFormat::mx(element, 0));
        Self {
            block: 0,
            scale: Scale::None,
            bits: f64::from(block.element_bits),
            ..block
        }
    }
}

impl From<BlockFormat> for Numbers {
    /// The format must be [valid](BlockFormat::validate). Elements of a table (NF4) are multiplied as bfloat16. Signs and magnitudes
    /// (MX9, BFP) count as two's complement of as many bits; the shifts of their sub-blocks take no gates here. Scales by sign
    /// count twice as bits in memory, and once in gates and operations.
    fn from(format: BlockFormat) -> Self {
        let element = match format.element {
            element if element.is_table() => ElementFormat::BFLOAT16,
            element => element,
        };
        let (exponent_bits, mantissa_bits) = match element.is_integer() || format.has_fixed_steps()
        {
            true => (0, element.bits() - 1),
            false => (element.exponent_bits(), element.mantissa_bits()),
        };
        let range = f64::from(element.max()) / f64::from(element.min_subnormal());
        Self {
            exponent_bits,
            mantissa_bits,
            // An outer scale is multiplied once for a part, as a tensor's is.
            block: format.scale_block_size(),
            scale: match format.scale.mantissa_bits() {
                0 => Scale::PowerOfTwo,
                mantissa_bits => Scale::Float { mantissa_bits },
            },
            range,
            element_bits: format.element_bits(),
            bits: format.bits_per_element(),
        }
    }
}
