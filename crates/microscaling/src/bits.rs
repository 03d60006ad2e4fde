//! The bit pattern of a float32, and exact arithmetic on it.
//!
//! Everything that decides a result works on these patterns as integers. A float operation on a
//! subnormal would depend on the flush-to-zero state of the thread, which other libraries change.

/// All bits but the sign.
pub(crate) const ABS: u32 = 0x7fff_ffff;
/// The sign bit.
pub(crate) const SIGN: u32 = 0x8000_0000;
/// The exponent field, which is also the pattern of +Inf. Absolute patterns from here on are not
/// finite.
pub(crate) const INFINITY: u32 = 0x7f80_0000;
/// The one NaN that this crate produces, the pattern of [`f32::NAN`].
pub(crate) const NAN: u32 = 0x7fc0_0000;
/// Explicit mantissa bits of a float32.
pub(crate) const MANTISSA_BITS: i32 = 23;
/// The implicit bit of a normal significand, which is also the pattern of the smallest normal.
pub(crate) const IMPLICIT: u32 = 1 << MANTISSA_BITS;
/// Bias of the exponent field.
pub(crate) const BIAS: i32 = 127;
/// Exponent of the smallest subnormal: patterns below 2 · [`IMPLICIT`] count multiples of it.
pub(crate) const LOWEST_EXPONENT: i32 = -149;

/// 2^exponent as a pattern, for −149 ≤ exponent ≤ 127; 0 below and +Inf above that.
#[inline]
pub(crate) const fn pow2(exponent: i32) -> u32 {
    scale(0x3f80_0000, exponent)
}

/// value · 2^exponent as a pattern, for a normal non-negative `value`: truncated if the product is
/// subnormal (callers pass values with so few significant bits that it is exact), +Inf if it is too
/// large.
#[inline(always)]
pub(crate) const fn scale(value: u32, exponent: i32) -> u32 {
    let biased = (value >> MANTISSA_BITS) as i32 + exponent;
    if biased > 254 {
        INFINITY
    } else if biased >= 1 {
        (value & (IMPLICIT - 1)) | ((biased as u32) << MANTISSA_BITS)
    } else if biased > -MANTISSA_BITS {
        ((value & (IMPLICIT - 1)) | IMPLICIT) >> (1 - biased)
    } else {
        0
    }
}

/// The significand of a pattern, with its implicit bit if there is one, and what remains: a pattern is
/// the sum of both.
#[inline(always)]
pub(crate) const fn split(abs: u32) -> (u32, u32) {
    // Subnormals have the exponent of the smallest normals.
    let base = (abs & INFINITY).saturating_sub(IMPLICIT);
    (abs - base, base)
}

/// floor(log2(n)) for 0 < n < 2^24; −127 for 0.
#[inline(always)]
pub(crate) const fn log2(n: u32) -> i32 {
    // The conversion is exact and never subnormal. Unlike a count of leading zeros it is one vector
    // instruction everywhere.
    ((n as i32 as f32).to_bits() >> MANTISSA_BITS) as i32 - BIAS
}

/// floor(log2(x)) of a positive finite `x`, given as a pattern; subnormals have their true exponent.
#[inline(always)]
pub(crate) const fn exponent(abs: u32) -> i32 {
    let (significand, base) = split(abs);
    log2(significand) + (base >> MANTISSA_BITS) as i32 + LOWEST_EXPONENT
}
