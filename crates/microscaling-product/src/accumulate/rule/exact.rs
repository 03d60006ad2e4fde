//! Exact numbers, exact sums of them, and the one rounding.

use crate::accumulate::accumulator::output::SumFormat;
use microscaling::internal::bits;

/// A float32 number, a product of several, or NaN or Inf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExactValue {
    Nan,
    /// ±Inf, and whether it is negative.
    Infinite(bool),
    Finite(Number),
}

/// ±magnitude · 2^unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) negative: bool,
    /// 0, or odd.
    pub(super) magnitude: u128,
    pub(super) unit: i32,
    /// Exponent before normalization; meaningless for 0.
    pub(super) exponent: i32,
}

impl ExactValue {
    pub(super) const ZERO: Self = Self::of_bits(0, 0);

    /// A float32 number. Its exponent is at least `emin`.
    pub(super) fn of(x: f32, emin: i32) -> Self {
        Self::of_bits(x.to_bits(), emin)
    }

    /// 2^exponent, also beyond float32.
    pub(super) const fn power_of_two(exponent: i32) -> Self {
        Self::Finite(Number {
            negative: false,
            magnitude: 1,
            unit: exponent,
            exponent,
        })
    }

    const fn of_bits(pattern: u32, emin: i32) -> Self {
        let (abs, negative) = (pattern & bits::ABS, pattern & bits::SIGN != 0);
        if abs > bits::INFINITY {
            return Self::Nan;
        }
        if abs == bits::INFINITY {
            return Self::Infinite(negative);
        }
        let (significand, unit) = bits::parts(abs);
        if significand == 0 {
            return Self::Finite(Number {
                negative,
                magnitude: 0,
                unit: 0,
                exponent: 0,
            });
        }
        let zeros = significand.trailing_zeros();
        let own = unit + significand.ilog2() as i32;
        Self::Finite(Number {
            negative,
            magnitude: (significand >> zeros) as u128,
            unit: unit + zeros as i32,
            exponent: if own > emin { own } else { emin },
        })
    }

    /// The exact product; exponents are added.
    pub(super) fn times(self, other: Self) -> Self {
        use ExactValue::{Finite, Infinite, Nan};
        match (self, other) {
            (Nan, _) | (_, Nan) => Nan,
            (Infinite(_), Finite(number)) | (Finite(number), Infinite(_))
                if number.magnitude == 0 =>
            {
                Nan
            }
            (Infinite(a), Infinite(b)) => Infinite(a != b),
            (Infinite(a), Finite(b)) | (Finite(b), Infinite(a)) => Infinite(a != b.negative),
            (Finite(a), Finite(b)) => Finite(Number {
                negative: a.negative != b.negative,
                magnitude: a.magnitude * b.magnitude,
                unit: a.unit + b.unit,
                exponent: a.exponent + b.exponent,
            }),
        }
    }
}

impl Number {
    pub(super) fn is_zero(&self) -> bool {
        self.magnitude == 0
    }

    /// floor(log2 of the magnitude), which must not be 0.
    pub(super) fn log2(&self) -> i32 {
        self.unit + self.magnitude.ilog2() as i32
    }

    /// In units of 2^unit, toward zero.
    pub(super) fn cut(&self, unit: i32) -> i128 {
        let magnitude = match self.unit - unit {
            left @ 0.. => self.magnitude << left,
            right @ -127.. => self.magnitude >> -right,
            _ => 0,
        };
        match self.negative {
            true => -(magnitude as i128),
            false => magnitude as i128,
        }
    }
}

/// Digits of an exact sum: all products of four float32 numbers are multiples of 2^[`LOWEST`] and below 2^520.
const DIGITS: usize = 20;
/// Unit of an exact sum.
const LOWEST: i32 = -640;

/// An exact sum, as an integer in two's complement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ExactSum {
    digits: [u64; DIGITS],
}

impl ExactSum {
    pub(super) const ZERO: Self = Self {
        digits: [0; DIGITS],
    };

    /// Adds a number.
    pub(super) fn add(&mut self, number: Number) {
        let at = (number.unit - LOWEST) as usize;
        let (first, shift) = (at / 64, at % 64);
        let low = number.magnitude << shift;
        let high = match shift {
            0 => 0,
            shift => number.magnitude >> (128 - shift),
        };
        let addend = [low as u64, (low >> 64) as u64, high as u64];
        let mut carry = false;
        for (i, digit) in self.digits.iter_mut().skip(first).enumerate() {
            if i >= addend.len() && !carry {
                break;
            }
            let addend = addend.get(i).copied().unwrap_or(0);
            let (sum, over) = match number.negative {
                true => digit.borrowing(addend, carry),
                false => digit.carrying(addend, carry),
            };
            (*digit, carry) = (sum, over);
        }
    }

    /// Adds another sum.
    pub(super) fn add_sum(&mut self, other: &Self) {
        let mut carry = false;
        for (digit, other) in self.digits.iter_mut().zip(other.digits) {
            (*digit, carry) = digit.carrying(other, carry);
        }
    }

    pub(super) fn is_zero(&self) -> bool {
        self.digits == [0; DIGITS]
    }

    pub(super) fn is_negative(&self) -> bool {
        self.digits[DIGITS - 1] >> 63 == 1
    }

    fn magnitude(&self) -> [u64; DIGITS] {
        let mut digits = self.digits;
        if self.is_negative() {
            let mut carry = true;
            for digit in &mut digits {
                (*digit, carry) = (!*digit).carrying(0, carry);
            }
        }
        digits
    }

    /// floor(log2 of the magnitude), which must not be 0.
    pub(super) fn log2(&self) -> i32 {
        let magnitude = self.magnitude();
        let top = magnitude.iter().rposition(|digit| *digit != 0);
        let top = top.expect("the sum is not 0");
        LOWEST + 64 * top as i32 + magnitude[top].ilog2() as i32
    }

    /// The sum with the other sign.
    #[cfg(feature = "std")]
    pub(super) fn negated(&self) -> Self {
        let mut digits = self.digits;
        let mut carry = true;
        for digit in &mut digits {
            (*digit, carry) = (!*digit).carrying(0, carry);
        }
        Self { digits }
    }

    /// As an odd magnitude, if it has at most 128 bits. Not of 0.
    #[cfg(feature = "std")]
    pub(super) fn reduced(&self) -> Option<Number> {
        let magnitude = self.magnitude();
        let low = magnitude.iter().position(|digit| *digit != 0)?;
        let unit = LOWEST + 64 * low as i32 + magnitude[low].trailing_zeros() as i32;
        let exponent = self.log2();
        (exponent - unit < 128).then(|| Number {
            negative: self.is_negative(),
            magnitude: quotient(&magnitude, unit),
            unit,
            exponent,
        })
    }

    /// The nearest number of 53 bits, or a neighbor of that number.
    #[cfg(feature = "std")]
    pub(super) fn to_f64(self) -> f64 {
        if self.is_zero() {
            return 0.0;
        }
        let unit = (self.log2() - 100).max(LOWEST);
        let steps = quotient(&self.magnitude(), unit) as f64;
        let magnitude = steps * 2.0_f64.powi(unit);
        if self.is_negative() {
            -magnitude
        } else {
            magnitude
        }
    }

    /// Cut off toward zero to a multiple of 2^unit.
    pub(super) fn cut(&self, unit: i32) -> Self {
        let mut cut = self.floor(unit);
        if self.is_negative() && !self.is_multiple(unit) {
            cut.add(Number {
                negative: false,
                magnitude: 1,
                unit,
                exponent: 0,
            });
        }
        cut
    }

    /// Rounded down to a multiple of 2^unit.
    pub(super) fn floor(&self, unit: i32) -> Self {
        let bits = (unit - LOWEST).max(0) as usize;
        let mut digits = self.digits;
        let whole = (bits / 64).min(DIGITS);
        digits[..whole].fill(0);
        if let Some(digit) = digits.get_mut(whole) {
            *digit &= u64::MAX << (bits % 64);
        }
        Self { digits }
    }

    /// Whether it is a multiple of 2^unit.
    fn is_multiple(&self, unit: i32) -> bool {
        let bits = (unit - LOWEST).max(0) as usize;
        let whole = self.digits.iter().take(bits / 64).all(|digit| *digit == 0);
        let part = self.digits.get(bits / 64).copied().unwrap_or(0);
        whole && part & ((1 << (bits % 64)) - 1) == 0
    }

    /// The sum rounded once; 0 for an exact 0.
    pub(super) fn round(&self, format: SumFormat) -> f32 {
        if self.is_zero() {
            return 0.0;
        }
        let exponent = self.log2().max(format.emin());
        let unit = exponent - format.mantissa_bits() as i32;
        let magnitude = self.magnitude();
        let mut steps = quotient(&magnitude, unit) as u32;
        if format.is_nearest() {
            // Twice as fine: the last bit is the half.
            let half = quotient(&magnitude, unit - 1) & 1 == 1;
            let exact = self.is_multiple(unit - 1);
            steps += u32::from(half && (!exact || steps & 1 == 1));
        }
        let sign = if self.is_negative() { bits::SIGN } else { 0 };
        let too_large = steps != 0 && steps.ilog2() as i32 + unit > format.emax();
        f32::from_bits(match too_large {
            true => sign | bits::INFINITY,
            false => sign | bits::fixed(steps, unit),
        })
    }
}

/// The lower 128 bits of digits / 2^(unit − [`LOWEST`]), rounded down.
fn quotient(digits: &[u64; DIGITS], unit: i32) -> u128 {
    let at = unit - LOWEST;
    debug_assert!(at >= 0, "below the unit of exact sums");
    let (first, shift) = (at as usize / 64, at as usize % 64);
    let digit = |i: usize| u128::from(digits.get(first + i).copied().unwrap_or(0));
    let low = digit(0) | digit(1) << 64;
    match shift {
        0 => low,
        shift => low >> shift | digit(2) << (128 - shift),
    }
}

/// Additions of digits.
trait Digit: Sized {
    /// self + other + carry, and whether there is a carry.
    fn carrying(self, other: Self, carry: bool) -> (Self, bool);
    /// self − other − borrow, and whether there is a borrow.
    fn borrowing(self, other: Self, borrow: bool) -> (Self, bool);
}

impl Digit for u64 {
    fn carrying(self, other: Self, carry: bool) -> (Self, bool) {
        let (sum, first) = self.overflowing_add(other);
        let (sum, second) = sum.overflowing_add(carry.into());
        (sum, first || second)
    }

    fn borrowing(self, other: Self, borrow: bool) -> (Self, bool) {
        let (sum, first) = self.overflowing_sub(other);
        let (sum, second) = sum.overflowing_sub(borrow.into());
        (sum, first || second)
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;

    fn sum(numbers: &[f32]) -> ExactSum {
        let mut sum = ExactSum::ZERO;
        for x in numbers {
            let ExactValue::Finite(number) = ExactValue::of(*x, -126) else {
                panic!("{x} is not finite");
            };
            sum.add(number);
        }
        sum
    }

    #[test]
    fn sums_are_exact_and_rounded_once() {
        let one = |x: f32| sum(&[x]).round(SumFormat::F32_RNE);
        for x in [1.0, -3.5, f32::MAX, -f32::MIN_POSITIVE, 1e-45, -1e-45, 0.1] {
            assert_eq!(one(x).to_bits(), x.to_bits());
        }
        let ulp = f32::EPSILON;
        for (numbers, nearest, cut) in [
            ([1.0, ulp / 2.0, 0.0], 1.0, 1.0),
            ([1.0, ulp / 2.0, 1e-45], 1.0 + ulp, 1.0),
            ([1.0 + ulp, ulp / 2.0, 0.0], 1.0 + 2.0 * ulp, 1.0 + ulp),
            ([-1.0, -ulp / 2.0, -1e-45], -1.0 - ulp, -1.0),
            ([1e30, 1.0, -1e30], 1.0, 1.0),
            ([f32::MAX, f32::MAX, -f32::MAX], f32::MAX, f32::MAX),
            ([f32::MAX, 1e30, 0.0], f32::MAX, f32::MAX),
            ([f32::MAX, 1.5e31, 0.0], f32::INFINITY, f32::MAX),
            (
                [-f32::MAX, -f32::MAX, 0.0],
                f32::NEG_INFINITY,
                f32::NEG_INFINITY,
            ),
        ] {
            assert_eq!(
                sum(&numbers).round(SumFormat::F32_RNE),
                nearest,
                "{numbers:?}"
            );
            assert_eq!(sum(&numbers).round(SumFormat::F32_RZ), cut, "{numbers:?}");
        }
        let step = 1.0 / 1024.0;
        assert_eq!(sum(&[1.0, -1e-45]).floor(-10), sum(&[1.0 - step]));
        assert_eq!(sum(&[-1.0, -1e-45]).floor(-10), sum(&[-1.0 - step]));
        assert_eq!(sum(&[-1.0, -1e-45]).cut(-10), sum(&[-1.0]));
        assert_eq!(sum(&[1.0, 1e-45]).cut(-10), sum(&[1.0]));
        assert_eq!(sum(&[-1.0]).floor(-10), sum(&[-1.0]));
        assert_eq!(sum(&[-1e-45]).cut(300), sum(&[]));
        assert_eq!(sum(&[65519.0]).round(SumFormat::F16_RNE), 65504.0);
        assert_eq!(sum(&[65520.0]).round(SumFormat::F16_RNE), f32::INFINITY);
    }
}
