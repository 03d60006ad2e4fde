//! The number types that packed tensors are encoded from and decode to.

use sealed::{FromPattern, Widen};

/// A number type that tensors are packed from: `f32`, and with the feature `half` `half::bf16` and `half::f16`. All of their
/// numbers are float32 numbers, subnormals included, and are packed as float32 numbers.
pub trait EncodeNumber: Widen + Copy + Send + Sync {}

/// A number type that packed tensors decode to: `f32`, and with the feature `half` `half::bf16` and `half::f16`.
///
/// The values of a packed tensor are float32 numbers. The other types hold them rounded half to even: ±Inf beyond the
/// largest number, subnormals kept, and one NaN, the rounded `f32::NAN`. Whether bf16 rounds anything is a matter of the
/// format: the elements of MX have at most 8 significant bits each.
pub trait DecodeNumber: FromPattern + Copy + Default + Send + Sync {}

pub(crate) mod sealed {
    /// Do not implement this trait elsewhere: patterns are numbers or the one NaN.
    pub trait FromPattern: Sized {
        /// From the pattern of a float32.
        fn from_pattern(pattern: u32) -> Self;

        /// [`from_pattern`](Self::from_pattern) of a NaN, an Inf, or a number of at most 8 significant bits, which is 0 or no
        /// subnormal.
        #[inline(always)]
        fn from_short_pattern(pattern: u32) -> Self {
            Self::from_pattern(pattern)
        }
    }

    /// Not to be implemented elsewhere, either: `#[inline(always)]`.
    pub trait Widen: Copy {
        /// The pattern of the same number as float32; of a NaN for a NaN.
        fn pattern(self) -> u32;

        /// The numbers, if they are float32 already.
        fn as_f32(_: &[Self]) -> Option<&[f32]> {
            None
        }
    }
}

impl EncodeNumber for f32 {}

impl Widen for f32 {
    #[inline(always)]
    fn pattern(self) -> u32 {
        self.to_bits()
    }

    fn as_f32(data: &[Self]) -> Option<&[f32]> {
        Some(data)
    }
}

impl DecodeNumber for f32 {}

impl FromPattern for f32 {
    #[inline(always)]
    fn from_pattern(pattern: u32) -> Self {
        Self::from_bits(pattern)
    }
}

#[cfg(feature = "half")]
mod halves {
    use super::{DecodeNumber, EncodeNumber, FromPattern, Widen};
    use crate::round::bits::{ABS, INFINITY, SIGN};

    impl DecodeNumber for half::bf16 {}

    impl FromPattern for half::bf16 {
        #[inline(always)]
        fn from_pattern(pattern: u32) -> Self {
            // A carry goes into the exponent field, at the top into the field of Inf. The one NaN has no bit that carries.
            let last = pattern >> 16 & 1;
            Self::from_bits(((pattern + 0x7fff + last) >> 16) as u16)
        }

        #[inline(always)]
        fn from_short_pattern(pattern: u32) -> Self {
            Self::from_bits((pattern >> 16) as u16)
        }
    }

    impl EncodeNumber for half::bf16 {}

    impl Widen for half::bf16 {
        #[inline(always)]
        fn pattern(self) -> u32 {
            u32::from(self.to_bits()) << 16
        }
    }

    impl EncodeNumber for half::f16 {}

    impl Widen for half::f16 {
        #[inline(always)]
        fn pattern(self) -> u32 {
            let sign = u32::from(self.to_bits() & 0x8000) << 16;
            let abs = u32::from(self.to_bits() & 0x7fff);
            // Rebiased by 127 − 15. A subnormal gets the exponent of the smallest normal number, of which it is then taken.
            let normal = (abs << 13) + (112 << 23);
            let raised = f32::from_bits((abs << 13) + MIN_NORMAL);
            let subnormal = (raised - f32::from_bits(MIN_NORMAL)).to_bits();
            let number = if abs < 0x0400 { subnormal } else { normal };
            let special = INFINITY | abs << 13;
            sign | if abs < 0x7c00 { number } else { special }
        }
    }

    impl DecodeNumber for half::f16 {}

    /// The pattern of 2^−14, the smallest normal f16.
    const MIN_NORMAL: u32 = (127 - 14) << 23;
    /// The pattern of 1/2, whose last place is worth 2^−24, the smallest subnormal f16.
    const HALF: u32 = 126 << 23;

    impl FromPattern for half::f16 {
        #[inline(always)]
        fn from_pattern(pattern: u32) -> Self {
            let abs = pattern & ABS;
            let last = abs >> 13 & 1;
            // Rebiased by 127 − 15; less than the smallest normal is not looked at here.
            let normal = (abs.wrapping_add(0xfff + last).wrapping_sub(112 << 23) >> 13).min(0x7c00);
            // The sum rounds to multiples of 2^−24. A flushed operand is less than half of that.
            let small = f32::from_bits(abs.min(MIN_NORMAL)) + f32::from_bits(HALF);
            let subnormal = small.to_bits() - HALF;
            let number = if abs < MIN_NORMAL { subnormal } else { normal };
            let magnitude = if abs > INFINITY { 0x7e00 } else { number };
            Self::from_bits(((pattern & SIGN) >> 16 | magnitude) as u16)
        }
    }
}
