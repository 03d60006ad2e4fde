//! Microexponents: an exponent for each block, and a small shift for each sub-block.

use crate::format::FormatError;
use crate::round::bits::{ABS, INFINITY, MANTISSA_BITS};

/// A microexponent format: `mx4`, `mx6` and `mx9` of Rouhani et al., "With Shared Microexponents, A
/// Little Shifting Goes a Long Way" (ISCA 2023), as AMD Quark's `to_bfp_prime` computes them. Not to be
/// confused with OCP's MX formats.
///
/// A block shares E, the biased exponent (exponent field of the float32) of its largest magnitude. Each sub-block has a
/// shift d = min(E − its own largest biased exponent, 2^shift_bits − 1). With m =
/// [`mantissa_bits`](Self::mantissa_bits), an element x becomes `round(x / u) · u` with u = 2^(E − 127 − d − (m − 1)),
/// and saturates at ±(2^m − 1) · u. (Quark lets rounding run over to 2^m, which m bits cannot represent.)
///
/// Float32 subnormals count as zero, everywhere. A block with a NaN or an Inf is all NaN. A block of
/// zeros stays zero; −0 stays −0, and a negative number that becomes zero becomes −0. There is no
/// overflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MicroexponentFormat {
    /// Bits of one element with its sign and all 8 bits of the shared exponent, as Quark counts:
    /// 10 to 32, for 1 to 23 mantissa bits.
    pub bit_width: u32,
    /// Elements in a block, at least 1. If the block is longer than the axis, the axis is one short block.
    pub block_size: usize,
    /// Elements in a sub-block, 1 to `block_size`. The last sub-block of a block may be shorter.
    pub sub_block_size: usize,
    /// Bits of a sub-block's shift, 0 to 8.
    pub shift_bits: u32,
}

impl MicroexponentFormat {
    /// `mx4`: elements of 2 mantissa bits and a sign, blocks of 16, pairs with a shift of one bit. This makes 4 bits
    /// for each element.
    pub const MX4: Self = Self::paper(11);
    /// `mx6`: as [`MX4`](Self::MX4) with 4 mantissa bits.
    pub const MX6: Self = Self::paper(13);
    /// `mx9`: as [`MX4`](Self::MX4) with 7 mantissa bits.
    pub const MX9: Self = Self::paper(16);

    const fn paper(bit_width: u32) -> Self {
        Self {
            bit_width,
            block_size: 16,
            sub_block_size: 2,
            shift_bits: 1,
        }
    }

    /// Allowed values of [`bit_width`](Self::bit_width).
    pub(crate) const BIT_WIDTHS: (usize, usize) = (10, 32);
    /// Allowed values of [`shift_bits`](Self::shift_bits).
    pub(crate) const SHIFT_BITS: (usize, usize) = (0, 8);

    /// Checks the fields.
    ///
    /// # Errors
    /// [`FormatError::Field`] unless `bit_width` is 10 to 32, `block_size` at least 1,
    /// `sub_block_size` 1 to `block_size`, and `shift_bits` 0 to 8.
    pub fn validate(&self) -> Result<(), FormatError> {
        let checks = [
            ("bit_width", self.bit_width as usize, Self::BIT_WIDTHS),
            ("block_size", self.block_size, (1, usize::MAX)),
            ("sub_block_size", self.sub_block_size, (1, self.block_size)),
            ("shift_bits", self.shift_bits as usize, Self::SHIFT_BITS),
        ];
        checks.into_iter().try_for_each(|(field, got, allowed)| {
            FormatError::check("microexponent", field, got, allowed)
        })
    }

    /// Magnitude bits of an element: `bit_width` − 9.
    pub const fn mantissa_bits(&self) -> u32 {
        self.bit_width - 9
    }

    /// The biased shared exponent E, 0 to 254, of a block whose largest magnitude has the float32
    /// pattern `amax`; `None` if that is a NaN or Inf. The sign bit of `amax` is ignored.
    pub const fn shared_exponent(&self, amax: u32) -> Option<u8> {
        if amax & ABS >= INFINITY {
            return None;
        }
        Some(((amax & ABS) >> MANTISSA_BITS) as u8)
    }

    /// The shift d, 0 to 2^shift_bits − 1, of a sub-block whose largest magnitude has the float32
    /// pattern `sub_amax`, in a block whose largest magnitude has the finite pattern `amax`. Sign bits
    /// are ignored.
    pub const fn shift(&self, amax: u32, sub_amax: u32) -> u32 {
        let below =
            ((amax & ABS) >> MANTISSA_BITS).saturating_sub((sub_amax & ABS) >> MANTISSA_BITS);
        let largest = (1 << self.shift_bits) - 1;
        if below < largest { below } else { largest }
    }
}
