//! The bit pattern of a float32, and exact arithmetic on it.
//!
//! Code that decides a result works on these patterns as integers, or runs in [IEEE's default state](microscaling_processor::float_state). A
//! float operation on a subnormal would depend on the flush-to-zero state of the thread, which other libraries change. A
//! comparison of a pattern with 0 would, too, because compilers turn it into a comparison of floats.

/// All bits but the sign.
pub const ABS: u32 = 0x7fff_ffff;
/// The sign bit.
pub const SIGN: u32 = 0x8000_0000;
/// The exponent field, which is also the pattern of +Inf. Absolute patterns from here on are not
/// finite.
pub const INFINITY: u32 = 0x7f80_0000;
/// The pattern of 1.
pub const ONE: u32 = (BIAS as u32) << MANTISSA_BITS;
/// The one NaN that this crate produces, the pattern of [`f32::NAN`].
pub const NAN: u32 = 0x7fc0_0000;
/// Explicit mantissa bits of a float32.
pub const MANTISSA_BITS: i32 = 23;
/// The implicit bit of a normal significand, which is also the pattern of the smallest normal.
pub const IMPLICIT: u32 = 1 << MANTISSA_BITS;
/// Bias of the exponent field.
pub const BIAS: i32 = 127;
/// Exponent of the smallest subnormal: patterns below 2 · [`IMPLICIT`] count multiples of this subnormal.
pub const LOWEST_EXPONENT: i32 = -149;

/// 2^exponent as a pattern, for −149 ≤ exponent ≤ 127; 0 below and +Inf above that.
#[inline]
pub const fn pow2(exponent: i32) -> u32 {
    scale(0x3f80_0000, exponent)
}

/// value · 2^exponent as a pattern, for a normal non-negative `value`: truncated if the product is
/// subnormal (callers pass values with so few significant bits that it is exact), +Inf if it is too
/// large.
#[inline(always)]
pub const fn scale(value: u32, exponent: i32) -> u32 {
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
pub const fn split(abs: u32) -> (u32, u32) {
    // Subnormals have the exponent of the smallest normals.
    let base = (abs & INFINITY).saturating_sub(IMPLICIT);
    (abs - base, base)
}

/// floor(log2(n)) for 0 < n < 2^24; −127 for 0.
#[inline(always)]
pub const fn log2(n: u32) -> i32 {
    // The conversion is exact and never subnormal. Unlike a count of leading zeros it is one vector
    // instruction everywhere.
    ((n as i32 as f32).to_bits() >> MANTISSA_BITS) as i32 - BIAS
}

/// floor(log2(x)) of a positive finite `x`, given as a pattern; subnormals have their true exponent.
#[inline(always)]
pub const fn exponent(abs: u32) -> i32 {
    let (significand, base) = split(abs);
    log2(significand) + (base >> MANTISSA_BITS) as i32 + LOWEST_EXPONENT
}

/// significand · 2^unit of a pattern, with the unit of its exponent field.
#[inline(always)]
pub const fn parts(abs: u32) -> (u32, i32) {
    let (significand, base) = split(abs);
    (
        significand,
        (base >> MANTISSA_BITS) as i32 + LOWEST_EXPONENT,
    )
}

/// steps · 2^exponent as a pattern, for `steps` < 2^24; limits as in [`scale`].
#[inline(always)]
pub const fn fixed(steps: u32, exponent: i32) -> u32 {
    if steps == 0 {
        return 0;
    }
    scale((steps as i32 as f32).to_bits(), exponent)
}

/// The float64 of a finite pattern, exactly, in any float state.
#[inline(always)]
pub fn widen(abs: u32) -> f64 {
    let (significand, unit) = parts(abs);
    // Conversion and product are exact, and never subnormal.
    f64::from(significand as i32) * f64::from_bits(((unit + 1023) as u64) << 52)
}

/// The float32 quotient of two patterns. Like the other operations on patterns it is right in
/// [IEEE's default state](microscaling_processor::float_state) alone.
#[inline(always)]
pub fn quotient(a: u32, b: u32) -> u32 {
    (f32::from_bits(a) / f32::from_bits(b)).to_bits()
}

/// The float32 sum of two patterns.
#[inline(always)]
pub fn sum(a: u32, b: u32) -> u32 {
    (f32::from_bits(a) + f32::from_bits(b)).to_bits()
}

/// The float32 product of two patterns.
#[inline(always)]
pub fn product(a: u32, b: u32) -> u32 {
    (f32::from_bits(a) * f32::from_bits(b)).to_bits()
}
