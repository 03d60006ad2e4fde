//! This crate's exponential functions.

/// e^x to within one unit in the last place, by IEEE operations alone. The code vectorizes, and every processor that
/// does not fuse the operations gives the same bits. Mathematical libraries differ from each other in these bits.
///
/// NaN gives NaN, Inf Inf and -Inf 0; above 88.72 the result is Inf, subnormals are kept.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    /// ln 2 in two parts; n times the first is exact for all n that occur.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    /// e^x is less than half the least subnormal number.
    const SMALLEST: f32 = -104.0;
    let bounded = bound(x, SMALLEST, 89.0);
    let (n, exponent) = round_to_integer(bounded * core::f32::consts::LOG2_E);
    let r = (bounded - n * LN_2_HIGH) - n * LN_2_LOW;
    scale(exp_near_zero(r), exponent, x, SMALLEST)
}

/// 2^x, as [`exp`].
#[inline(always)]
pub(crate) fn exp2(x: f32) -> f32 {
    /// 2^x is half the least subnormal number or less.
    const SMALLEST: f32 = -150.0;
    let bounded = bound(x, SMALLEST, 129.0);
    let (n, exponent) = round_to_integer(bounded);
    let y = exp_near_zero((bounded - n) * core::f32::consts::LN_2);
    scale(y, exponent, x, SMALLEST)
}

/// `x` clamped; a NaN becomes `low`, for [`scale`] to put back.
#[inline(always)]
fn bound(x: f32, low: f32, high: f32) -> f32 {
    let x = if x > low { x } else { low };
    if x < high { x } else { high }
}

/// The nearest integer of a number of magnitude less than 2^22, ties to even, in both types. A conversion from
/// one to the other saturates, which no vector instruction does.
#[inline(always)]
fn round_to_integer(x: f32) -> (f32, i32) {
    /// Its last place is worth 1.
    const MAGIC: f32 = 1.5 * (1 << 23) as f32;
    let shifted = x + MAGIC;
    let integer = shifted.to_bits().wrapping_sub(MAGIC.to_bits());
    (shifted - MAGIC, integer as i32)
}

/// e^r for |r| ≤ ln 2 / 2, by the polynomial of Cephes' `expf`.
#[inline(always)]
fn exp_near_zero(r: f32) -> f32 {
    let p = 1.987_569_1e-4;
    let p = p * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_5e-1;
    let p = p * r + 0.5;
    p * (r * r) + r + 1.0
}

/// `y · 2^n`, in two steps so that each factor is normal; 0 for an argument of `smallest` or less, and the argument's NaN.
///
/// Softmax takes the exponential of -Inf for each masked score. A product that underflows takes a processor a hundred cycles, so there
/// is none for these.
#[inline(always)]
fn scale(y: f32, n: i32, argument: f32, smallest: f32) -> f32 {
    let vanishes = argument <= smallest;
    let n = if vanishes { 0 } else { n };
    let half = n >> 1;
    let power = |n: i32| f32::from_bits(((n + 127) as u32) << 23);
    let scaled = y * power(half) * power(n - half);
    let scaled = if vanishes { 0.0 } else { scaled };
    if argument.is_nan() { argument } else { scaled }
}

#[cfg(test)]
mod tests {
    use super::{exp, exp2};

    /// Error in units in the last place of the exact result, given by an `f64` computation.
    fn error(got: f32, exact: f64) -> f64 {
        let nearest = exact as f32;
        if got == nearest {
            return 0.0;
        }
        let ulp = f64::from(nearest.next_up()) - f64::from(nearest);
        (f64::from(got) - exact).abs() / ulp
    }

    /// All bfloat16 patterns, each with 16 others in between.
    fn arguments() -> impl Iterator<Item = f32> {
        (0..=u32::MAX >> 12).map(|i| f32::from_bits(i << 12 | (i & 0xfff)))
    }

    #[test]
    fn within_an_ulp() {
        for x in arguments().filter(|x| !x.is_nan()) {
            let exact = f64::from(x).exp();
            if exact < f64::from(f32::MAX) {
                assert!(
                    error(exp(x), exact) <= 1.5,
                    "exp {x:e}: {:e} {exact:e}",
                    exp(x)
                );
            }
            let exact = f64::from(x).exp2();
            if exact < f64::from(f32::MAX) {
                assert!(
                    error(exp2(x), exact) <= 1.5,
                    "exp2 {x:e}: {:e} {exact:e}",
                    exp2(x)
                );
            }
        }
    }

    #[test]
    fn special_values() {
        for f in [exp, exp2] {
            assert_eq!(f(0.0), 1.0);
            assert_eq!(f(-0.0), 1.0);
            assert_eq!(f(f32::INFINITY), f32::INFINITY);
            assert_eq!(f(f32::NEG_INFINITY), 0.0);
            assert_eq!(f(f32::MAX), f32::INFINITY);
            assert_eq!(f(f32::MIN), 0.0);
            assert_eq!(f(f32::MIN_POSITIVE / 2.0), 1.0);
            assert!(f(f32::NAN).is_nan());
        }
        assert_eq!(exp2(127.0), 2.0f32.powi(127));
        assert_eq!(exp2(-149.0), f32::from_bits(1));
        assert_eq!(exp(89.0), f32::INFINITY);
    }
}
