//! Arithmetic of lanes in float64, without branches: what the kernels are made of.

use super::pack::{LANES, Lanes, ZERO};
use crate::accumulate::SumFormat;

/// 2^52: adding this number to a smaller magnitude, and subtracting it again, rounds to an integer.
const INTEGERS: f64 = 4_503_599_627_370_496.0;

/// 2^exponent, for −1022 ≤ exponent ≤ 1023.
#[inline(always)]
pub(super) fn pow2(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// 2^exponent, for −126 ≤ exponent ≤ 127.
#[inline(always)]
pub(super) fn pow2_single(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

/// Toward zero, for magnitudes below 2^52.
#[inline(always)]
pub(super) fn truncate(x: f64) -> f64 {
    let abs = x.abs();
    let near = (abs + INTEGERS) - INTEGERS;
    let lower = if near > abs { near - 1.0 } else { near };
    lower.copysign(x)
}

/// Rounded down, for magnitudes below 2^51.
#[inline(always)]
pub(super) fn floor(x: f64) -> f64 {
    let near = (x + 1.5 * INTEGERS) - 1.5 * INTEGERS;
    if near > x { near - 1.0 } else { near }
}

/// Exponent of a float64 that is normal or 0; −1023 of 0.
#[inline(always)]
pub(super) fn exponent(x: f64) -> i32 {
    (x.to_bits() >> 52 & 0x7ff) as i32 - 1023
}

/// x + y, rounded to odd: a second rounding to at most 51 bits gives the result of a single rounding.
#[inline(always)]
pub(super) fn sum_to_odd(x: f64, y: f64) -> f64 {
    let sum = x + y;
    let of_y = sum - x;
    let error = (x - (sum - of_y)) + (y - of_y);
    let pattern = sum.to_bits();
    let inexact = error != 0.0 && error.is_finite();
    let away = (error.to_bits() ^ pattern) >> 63 == 0;
    let other = if away {
        pattern.wrapping_add(1)
    } else {
        pattern.wrapping_sub(1)
    };
    f64::from_bits(if inexact && pattern & 1 == 0 {
        other
    } else {
        pattern
    })
}

/// A format that sums are rounded to.
#[derive(Clone, Copy)]
pub(super) struct SumRounding {
    emin: i32,
    mantissa_bits: i32,
    nearest: bool,
    /// From here on a magnitude is Inf.
    infinite: f64,
}

impl SumRounding {
    pub(super) fn new(format: SumFormat) -> Self {
        Self {
            emin: format.emin(),
            mantissa_bits: format.mantissa_bits() as i32,
            nearest: format.is_nearest(),
            infinite: pow2(format.emax() + 1),
        }
    }

    /// x rounded; NaN and Inf as they are. The sign is x's.
    #[inline(always)]
    pub(super) fn round(&self, x: f64) -> f32 {
        let abs = x.abs();
        let unit = exponent(abs).max(self.emin) - self.mantissa_bits;
        // Exact: powers of two, and nothing is subnormal.
        let steps = abs * pow2((-unit).max(-1022));
        let near = (steps + INTEGERS) - INTEGERS;
        let lower = if near > steps { near - 1.0 } else { near };
        let rounded = if self.nearest { near } else { lower } * pow2(unit.min(1023));
        let rounded = if rounded >= self.infinite {
            f64::INFINITY
        } else {
            rounded
        };
        let rounded = if abs < f64::INFINITY { rounded } else { abs };
        rounded.copysign(x) as f32
    }

    /// [`round`](Self::round) of all lanes.
    #[inline(always)]
    pub(super) fn round_all(&self, lanes: &Lanes<f64>) -> Lanes<f32> {
        let mut rounded = [0.0; LANES];
        match (self.is_single(), self.nearest) {
            (true, true) => {
                for lane in 0..LANES {
                    rounded[lane] = lanes[lane] as f32;
                }
            }
            (true, false) => {
                for lane in 0..LANES {
                    let (x, near) = (lanes[lane], lanes[lane] as f32);
                    let above = f64::from(near).abs() > x.abs();
                    let lower = f32::from_bits(near.to_bits() - u32::from(above));
                    rounded[lane] = if x.abs() >= self.infinite {
                        near
                    } else {
                        lower
                    };
                }
            }
            (false, _) => {
                for lane in 0..LANES {
                    rounded[lane] = self.round(lanes[lane]);
                }
            }
        }
        rounded
    }

    /// Whether the numbers are float32's.
    fn is_single(&self) -> bool {
        self.mantissa_bits == 23 && self.emin == -126
    }

    /// Exponent of a number c of the format before normalization; [`ZERO`] of 0.
    #[inline(always)]
    pub(super) fn exponent_of(&self, c: f32) -> i32 {
        let field = (c.to_bits() >> 23 & 0xff) as i32;
        let exponent = (field - 127).max(self.emin);
        if c == 0.0 { ZERO.into() } else { exponent }
    }

    pub(super) fn emin(&self) -> i32 {
        self.emin
    }

    pub(super) fn mantissa_bits(&self) -> i32 {
        self.mantissa_bits
    }

    pub(super) fn is_nearest(&self) -> bool {
        self.nearest
    }
}

/// The largest exponents of products of a row and the lanes of a strip, none of zeros: at most `2 · ZERO` if all are.
#[inline(always)]
pub(super) fn largest(row: &[i16], strip: &[Lanes<i16>]) -> Lanes<i16> {
    let mut top = [i16::MIN; LANES];
    for (a, b) in row.iter().zip(strip) {
        for lane in 0..LANES {
            top[lane] = top[lane].max(a.wrapping_add(b[lane]));
        }
    }
    top
}

/// Products with a smaller exponent are zero.
pub(super) const NO_EXPONENT: i32 = ZERO as i32 / 2;

/// A number cut off toward zero.
///
/// # Safety
/// The magnitude must be below 2^31.
#[inline(always)]
pub(super) unsafe fn cut(x: f32) -> i32 {
    // SAFETY: as the caller says.
    unsafe { x.to_int_unchecked() }
}

/// The sums of products of a row and the lanes of a strip, each times the lane's factor and cut off toward zero.
///
/// # Safety
/// The magnitudes, added up, must be below 2^31.
#[inline(always)]
pub(super) unsafe fn cut_sums(
    row: &[f32],
    strip: &[Lanes<f32>],
    factors: &Lanes<f32>,
) -> Lanes<i32> {
    let mut sums = [0_i32; LANES];
    for (a, b) in row.iter().zip(strip) {
        for lane in 0..LANES {
            // SAFETY: as the caller says.
            let cut = unsafe { cut(a * b[lane] * factors[lane]) };
            sums[lane] = sums[lane].wrapping_add(cut);
        }
    }
    sums
}

/// [`cut_sums`] of products that float32 does not hold. Sums are below 2^52.
#[inline(always)]
pub(super) fn cut_sums_double(
    row: &[f32],
    strip: &[Lanes<f32>],
    factors: &Lanes<f64>,
) -> Lanes<f64> {
    let mut sums = [0.0; LANES];
    for (a, b) in row.iter().zip(strip) {
        for lane in 0..LANES {
            let product = f64::from(*a) * f64::from(b[lane]);
            sums[lane] += truncate(product * factors[lane]);
        }
    }
    sums
}
