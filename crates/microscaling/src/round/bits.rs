//! The bit pattern of a float32, and exact arithmetic on it.
//!
//! Everything that decides a result works on these patterns as integers, or runs in
//! [IEEE's default state](crate::float_state): a float operation on a subnormal would depend on the flush-to-zero state of the
//! thread, which other libraries change. So would a comparison of a pattern with 0, which compilers make one of floats.

/// All bits but the sign.
pub(crate) const ABS: u32 = 0x7fff_ffff;
/// The sign bit.
pub(crate) const SIGN: u32 = 0x8000_0000;
/// The exponent field, which is also the pattern of +Inf. Absolute patterns from here on are not
/// finite.
pub(crate) const INFINITY: u32 = 0x7f80_0000;
/// The pattern of 1.
pub(crate) const ONE: u32 = (BIAS as u32) << MANTISSA_BITS;
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

/// significand · 2^unit of a pattern, with the unit of its exponent field.
#[inline(always)]
pub(crate) const fn parts(abs: u32) -> (u32, i32) {
    let (significand, base) = split(abs);
    (
        significand,
        (base >> MANTISSA_BITS) as i32 + LOWEST_EXPONENT,
    )
}

/// steps · 2^exponent as a pattern, for `steps` < 2^24; limits as in [`scale`].
#[inline(always)]
pub(crate) const fn fixed(steps: u32, exponent: i32) -> u32 {
    if steps == 0 {
        return 0;
    }
    scale((steps as i32 as f32).to_bits(), exponent)
}

/// A magnitude in multiples of 2^unit, rounded down; 2^16 − 1 at most. It must be less than 2^(unit + 20), or Inf for a
/// unit of at least 2^103.
#[inline(always)]
pub(crate) const fn fixed_point(abs: u32, unit: i32) -> u32 {
    let (significand, own) = parts(abs);
    let shift = unit - own;
    let right = if shift > 31 {
        31
    } else if shift > 0 {
        shift
    } else {
        0
    };
    // Only a subnormal number has too fine a unit for its own, and then few bits.
    let left = if shift < -20 {
        20
    } else if shift < 0 {
        -shift
    } else {
        0
    };
    let multiples = (significand << left) >> right;
    if multiples > 0xffff {
        0xffff
    } else {
        multiples
    }
}

/// The float64 of a finite pattern, exactly.
#[inline(always)]
pub(crate) fn widen(abs: u32) -> f64 {
    let (significand, unit) = parts(abs);
    // Conversion and product are exact, and never subnormal.
    f64::from(significand as i32) * f64::from_bits(((unit + 1023) as u64) << 52)
}

/// The pattern of a non-negative float64, rounded half to even, with subnormals; +Inf if too large.
#[inline(always)]
fn narrow(x: f64) -> u32 {
    let pattern = x.to_bits();
    let exponent = (pattern >> 52) as i32 - 1023;
    if exponent > BIAS {
        return INFINITY;
    }
    let significand = (pattern & ((1 << 52) - 1)) | (1 << 52);
    // A subnormal loses more bits; from 54 on nothing but zero can remain.
    let lowest = 1 - BIAS;
    let shift = (29 + (lowest - exponent).max(0)).min(54) as u32;
    let last = (significand >> shift) & 1;
    let rounded = ((significand + (1 << (shift - 1)) - 1 + last) >> shift) as u32;
    // A carry goes into the exponent field, at the top into that of Inf.
    rounded + (((exponent - lowest).max(0) as u32) << MANTISSA_BITS)
}

/// The float32 quotient of two finite patterns, of which `b` is not 0: rounded half to even, +Inf if
/// too large. Unlike `/` it knows nothing of the thread's flush-to-zero state.
#[inline(always)]
pub(crate) fn quotient(a: u32, b: u32) -> u32 {
    // 53 bits are enough that rounding twice is rounding once, also to a subnormal.
    narrow(widen(a) / widen(b))
}

/// The float32 sum of two finite patterns with their signs, as [`quotient`].
#[inline(always)]
pub(crate) fn sum(a: u32, b: u32) -> u32 {
    let signed = |x: u32| {
        let magnitude = widen(x & ABS);
        if x & SIGN == 0 { magnitude } else { -magnitude }
    };
    // Of float32 numbers 53 bits are enough that rounding twice is rounding once; no such sum is too small for a
    // normal float64.
    let sum = signed(a) + signed(b);
    let sign = if sum.is_sign_negative() { SIGN } else { 0 };
    sign | narrow(sum.abs())
}

/// The float32 product of two finite patterns, as [`quotient`].
#[inline(always)]
pub(crate) fn product(a: u32, b: u32) -> u32 {
    // The product of 24-bit significands is exact.
    narrow(widen(a) * widen(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RandomStream;

    /// The hardware's quotients and products, of all sizes.
    #[test]
    fn arithmetic_is_ieee() {
        let stream = RandomStream::new(5, 5);
        for i in 0..400_000 {
            let [a, b] = [0, 1].map(|j| stream.draw(2 * i + j) & ABS);
            // Small significands make ties; every fourth pair is subnormal.
            let [a, b] = if i % 2 == 0 {
                [a, b]
            } else {
                [a & !0xfff, b & !0x7ff]
            };
            let a = if i % 4 < 2 { a } else { a & (IMPLICIT - 1) };
            if a >= INFINITY || b >= INFINITY || b == 0 {
                continue;
            }
            let [x, y] = [a, b].map(f32::from_bits);
            assert_eq!(quotient(a, b), (x / y).to_bits(), "{x:e} / {y:e}");
            assert_eq!(product(a, b), (x * y).to_bits(), "{x:e} * {y:e}");
            // As close as sums are interesting, and with signs.
            let near = ((a & INFINITY) ^ (b & (7 << MANTISSA_BITS))) | (b & (IMPLICIT - 1));
            let signs = [0, SIGN].map(|sign| near.min(INFINITY - 1) | sign);
            for b in signs.into_iter().chain([b, b | SIGN, a | SIGN, SIGN]) {
                for a in [a, a | SIGN] {
                    let [x, y] = [a, b].map(f32::from_bits);
                    assert_eq!(sum(a, b), (x + y).to_bits(), "{x:e} + {y:e}");
                }
            }
        }
    }
}
