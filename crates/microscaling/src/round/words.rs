//! The words that rules compute on. A rule over [`Word`] is written once: a processor computes it with numbers, and the kernel
//! of a device gets its steps as instructions.

use super::bits::{self, MANTISSA_BITS};
use core::ops::{Add, BitAnd, BitOr, BitXor, Mul, Not, Shl, Shr, Sub};

/// A word of 32 bits: a float32 pattern, or a whole number without a sign. No sum, difference or product leaves its range.
pub trait Word:
    Copy
    + From<u32>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + BitXor<Output = Self>
    + Not<Output = Self>
    + Shl<Output = Self>
    + Shr<Output = Self>
{
    /// A whole number with a sign, such as an exponent.
    type Int: Int<Word = Self, Condition = Self::Condition>;
    /// The result of a comparison.
    type Condition: Condition;

    /// Whether this word is less than a limit.
    fn is_below(self, limit: Self) -> Self::Condition;
    /// Whether two words are equal.
    fn equals(self, other: Self) -> Self::Condition;
    /// Whether a pattern is a NaN's.
    #[inline(always)]
    fn is_nan(self) -> Self::Condition {
        Self::from(bits::INFINITY).is_below(self & bits::ABS.into())
    }
    /// One word, or the other.
    fn select(condition: Self::Condition, then: Self, otherwise: Self) -> Self;
    /// The same bits, with a sign.
    fn to_int(self) -> Self::Int;
    /// floor(log2(n)) of a word n < 2^24; −127 for 0.
    fn log2(self) -> Self::Int;
    /// The bits before the first one.
    fn leading_zeros(self) -> Self;
    /// [`bits::split`]: significand and the rest of a pattern without a sign.
    fn split(self) -> (Self, Self);
    /// [`bits::scale`]: this pattern times 2^exponent.
    fn scale(self, exponent: Self::Int) -> Self;
    /// [`bits::fixed`]: this number, which is below 2^24, times 2^exponent as a pattern.
    fn fixed(self, exponent: Self::Int) -> Self;
    /// A sum that may leave the range, of which the low bits count.
    fn wrapping_sum(self, other: Self) -> Self;
    /// The float32 product of two finite patterns without signs, rounded half to even.
    fn product(self, other: Self) -> Self;
    /// The float32 quotient of two finite patterns without signs, of which the second one is not 0, rounded half to even.
    fn quotient(self, other: Self) -> Self;
    /// The float32 sum of two patterns, rounded half to even. The second one is finite; Inf as the first one stays Inf.
    fn sum(self, other: Self) -> Self;
    /// This pattern without a sign in multiples of 2^exponent, −127 < exponent < 127, rounded down, which are less than 2^31.
    fn steps(self, exponent: Self::Int) -> Self;
    /// This normal pattern times 2^exponent, which is normal, too.
    fn times_power(self, exponent: i32) -> Self;
    /// The float32 sum of two finite patterns, rounded half to even. A device that computes float32 adds them itself, and its compiler may
    /// fuse a product with the sum: neither is a product, unless of a power of two.
    fn plus(self, other: Self) -> Self;
    /// The difference, as [`plus`](Self::plus).
    fn minus(self, other: Self) -> Self;
    /// The whole part of a pattern without a sign, which is less than 2^31.
    fn truncated(self) -> Self;

    /// One word, or the other. A processor computes that one alone.
    #[inline(always)]
    fn choose(
        condition: Self::Condition,
        then: impl FnOnce() -> Self,
        otherwise: impl FnOnce() -> Self,
    ) -> Self {
        Self::select(condition, then(), otherwise())
    }

    /// The larger one of two words.
    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        Self::select(self.is_below(other), other, self)
    }

    /// The smaller one of two words.
    #[inline(always)]
    fn smaller(self, other: Self) -> Self {
        Self::select(self.is_below(other), self, other)
    }

    /// [`bits::parts`]: significand · 2^unit of a pattern without a sign.
    #[inline(always)]
    fn parts(self) -> (Self, Self::Int) {
        let (significand, base) = self.split();
        let field = (base >> (MANTISSA_BITS as u32).into()).to_int();
        (significand, field + bits::LOWEST_EXPONENT.into())
    }

    /// [`bits::exponent`]: floor(log2(x)) of a pattern without a sign.
    #[inline(always)]
    fn exponent(self) -> Self::Int {
        let (significand, unit) = self.parts();
        significand.log2() + unit
    }

    /// The square of a pattern without a sign in multiples of 2^unit, rounded down, of which 2^16 − 1 are the most. The pattern must be
    /// less than 2^(unit + 20), or Inf for a unit of at least 2^103.
    #[inline(always)]
    fn square(self, unit: Self::Int) -> Self {
        let (significand, own) = self.parts();
        let right = (unit - own).within(0, 31).to_word();
        // Only a subnormal number has too fine a unit for its own, and then few bits.
        let left = (own - unit).within(0, 20).to_word();
        let multiples = ((significand << left) >> right).smaller(0xffff.into());
        multiples * multiples
    }
}

/// A whole number with a sign, of 32 bits.
pub trait Int:
    Copy + From<i32> + Add<Output = Self> + Sub<Output = Self> + Shl<Output = Self>
{
    /// A number without a sign.
    type Word;
    /// The result of a comparison.
    type Condition;

    /// Whether this number is less than a limit.
    fn is_below(self, limit: Self) -> Self::Condition;
    /// One number, or the other.
    fn select(condition: Self::Condition, then: Self, otherwise: Self) -> Self;
    /// The same bits, without a sign.
    fn to_word(self) -> Self::Word;

    /// The larger one of two numbers.
    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        Self::select(self.is_below(other), other, self)
    }

    /// The smaller one of two numbers.
    #[inline(always)]
    fn smaller(self, other: Self) -> Self {
        Self::select(self.is_below(other), self, other)
    }

    /// This number, or the end of a range that is nearest to it.
    #[inline(always)]
    fn within(self, least: i32, most: i32) -> Self {
        self.larger(least.into()).smaller(most.into())
    }
}

/// The result of a comparison.
pub trait Condition:
    Copy + BitAnd<Output = Self> + BitOr<Output = Self> + Not<Output = Self>
{
}

impl Condition for bool {}

impl Word for u32 {
    type Int = i32;
    type Condition = bool;

    #[inline(always)]
    fn is_below(self, limit: Self) -> bool {
        self < limit
    }

    #[inline(always)]
    fn equals(self, other: Self) -> bool {
        self == other
    }

    #[inline(always)]
    fn is_nan(self) -> bool {
        f32::from_bits(self).is_nan()
    }

    #[inline(always)]
    fn select(condition: bool, then: Self, otherwise: Self) -> Self {
        if condition { then } else { otherwise }
    }

    #[inline(always)]
    fn to_int(self) -> i32 {
        self as i32
    }

    #[inline(always)]
    fn log2(self) -> i32 {
        bits::log2(self)
    }

    #[inline(always)]
    fn leading_zeros(self) -> Self {
        self.leading_zeros()
    }

    #[inline(always)]
    fn split(self) -> (Self, Self) {
        bits::split(self)
    }

    #[inline(always)]
    fn scale(self, exponent: i32) -> Self {
        bits::scale(self, exponent)
    }

    #[inline(always)]
    fn fixed(self, exponent: i32) -> Self {
        bits::fixed(self, exponent)
    }

    #[inline(always)]
    fn wrapping_sum(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    #[inline(always)]
    fn product(self, other: Self) -> Self {
        bits::product(self, other)
    }

    #[inline(always)]
    fn quotient(self, other: Self) -> Self {
        bits::quotient(self, other)
    }

    #[inline(always)]
    fn sum(self, other: Self) -> Self {
        bits::sum(self, other)
    }

    #[inline(always)]
    fn steps(self, exponent: i32) -> Self {
        // Without a branch on the exponent, which would keep loops from vectors.
        let per_unit = ((bits::BIAS - exponent) as u32) << MANTISSA_BITS;
        bits::product(self, per_unit).truncated()
    }

    #[inline(always)]
    fn times_power(self, exponent: i32) -> Self {
        self.wrapping_add((exponent as u32) << MANTISSA_BITS)
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        bits::sum(self, other)
    }

    #[inline(always)]
    fn minus(self, other: Self) -> Self {
        (f32::from_bits(self) - f32::from_bits(other)).to_bits()
    }

    #[inline(always)]
    fn truncated(self) -> Self {
        f32::from_bits(self) as i32 as u32
    }

    #[inline(always)]
    fn choose(
        condition: bool,
        then: impl FnOnce() -> Self,
        otherwise: impl FnOnce() -> Self,
    ) -> Self {
        if condition { then() } else { otherwise() }
    }
}

impl Int for i32 {
    type Word = u32;
    type Condition = bool;

    #[inline(always)]
    fn is_below(self, limit: Self) -> bool {
        self < limit
    }

    #[inline(always)]
    fn select(condition: bool, then: Self, otherwise: Self) -> Self {
        if condition { then } else { otherwise }
    }

    #[inline(always)]
    fn to_word(self) -> u32 {
        self as u32
    }
}
