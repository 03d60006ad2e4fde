//! Block floating point: one exponent for each block, and fixed-point elements.

use crate::format::{FormatError, MicroexponentFormat};
use crate::round::bits::{ABS, MANTISSA_BITS};

/// A block floating point format (AMD Quark's `to_bfp`): blocks of fixed-point numbers that share the
/// exponent of the largest.
///
/// With E the biased exponent of the largest finite magnitude of a block (the exponent field of its
/// float32, so 0 for a subnormal) and m = [`mantissa_bits`](Self::mantissa_bits), an element x becomes
/// `round(x / u) · u` with u = 2^(E − 127 − (m − 1)), and saturates at ±(2^m − 1) · u, which is
/// 2^(E − 126) − u.
///
/// NaN and ±Inf pass unchanged and do not count for E, so the other elements of their block stay numbers. A block of
/// zeros stays zero; −0 stays −0, and a negative number that rounds to zero becomes −0. Subnormals are ordinary
/// numbers. There is no overflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BfpFormat {
    /// Bits of one element with its sign and all 8 bits of the shared exponent, as Quark counts:
    /// 10 to 32, for 1 to 23 mantissa bits.
    pub bit_width: u32,
    /// Elements in a block, at least 1. If the block is longer than the axis, the axis is one short block.
    pub block_size: usize,
}

impl BfpFormat {
    /// `bfp16`: elements of 7 mantissa bits and a sign, in blocks of 8 (Quark's BFP16).
    pub const BFP16: Self = Self {
        bit_width: 16,
        block_size: 8,
    };

    /// Allowed values of [`bit_width`](Self::bit_width).
    pub(crate) const BIT_WIDTHS: (usize, usize) = (10, 32);

    /// Checks the fields.
    ///
    /// # Errors
    /// [`FormatError::Field`] unless `bit_width` is 10 to 32 and `block_size` at least 1.
    pub const fn validate(&self) -> Result<(), FormatError> {
        let bit_width = self.bit_width as usize;
        if let Err(error) = FormatError::check("bfp", "bit_width", bit_width, Self::BIT_WIDTHS) {
            return Err(error);
        }
        FormatError::check("bfp", "block_size", self.block_size, (1, usize::MAX))
    }

    /// Magnitude bits of an element: `bit_width` − 9.
    pub const fn mantissa_bits(&self) -> u32 {
        self.bit_width - 9
    }

    /// The microexponent format with the same steps: shifts of 0 bits, whole blocks for sub-blocks.
    pub(crate) const fn without_shifts(&self) -> MicroexponentFormat {
        MicroexponentFormat {
            bit_width: self.bit_width,
            block_size: self.block_size,
            sub_block_size: self.block_size,
            shift_bits: 0,
        }
    }

    /// The biased shared exponent E, 0 to 254, of a block whose largest finite magnitude has the
    /// float32 pattern `amax`. The sign bit of `amax` is ignored.
    pub const fn shared_exponent(&self, amax: u32) -> u8 {
        ((amax & ABS) >> MANTISSA_BITS) as u8
    }
}
