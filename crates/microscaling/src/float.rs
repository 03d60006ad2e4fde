//! Elementwise float formats: bfloatN and fpN, without a shared scale.

use crate::bits::{self, ABS, BIAS, IMPLICIT, INFINITY, MANTISSA_BITS, SIGN};
use crate::dispatch::{Kernel, dispatch};
use crate::draws::{Draws, WINDOW};
use crate::parallel::for_each_piece;
use crate::round::{Rule, round_magnitude, with_rule};
use crate::{FormatError, RandomStream, Rounding};
use core::fmt;
use core::marker::PhantomData;

/// A float format narrower than float32, for rounding each number on its own (the `bfloat` and `fp`
/// of the reference emulation library).
///
/// * bfloatN, N = 10 … 32: sign, 8 exponent bits, N − 9 mantissa bits. bfloat16 is the usual one,
///   bfloat32 is float32.
/// * fpN, N = 7 … 29: sign, 5 exponent bits, N − 6 mantissa bits. fp16 is IEEE binary16.
///
/// NaN and ±Inf pass unchanged. A finite number that rounds beyond [`max`](Self::max) becomes ±Inf
/// (with [`Rounding::Floor`] that is one of at least 2^16 in fpN, and none in bfloatN). Subnormals of
/// the format are kept, or, without subnormals, numbers below [`min_normal`](Self::min_normal) become
/// zero before anything is rounded. Zero keeps its sign, also where it is a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FloatFormat {
    exponent_bits: u32,
    mantissa_bits: u32,
    subnormals: bool,
}

/// A family of float formats: name, exponent bits, allowed total bits.
type Family = (&'static str, u32, u32, u32);
const BFLOAT: Family = ("bfloat", 8, 10, 32);
const FP: Family = ("fp", 5, 7, 29);

impl FloatFormat {
    /// bfloatN with N = `bits`, with subnormals.
    ///
    /// # Errors
    /// [`FormatError::FloatBits`] unless `bits` is 10 to 32.
    pub const fn bfloat(bits: u32) -> Result<Self, FormatError> {
        Self::of(BFLOAT, bits)
    }

    /// fpN with N = `bits`, with subnormals.
    ///
    /// # Errors
    /// [`FormatError::FloatBits`] unless `bits` is 7 to 29.
    pub const fn fp(bits: u32) -> Result<Self, FormatError> {
        Self::of(FP, bits)
    }

    const fn of((family, exponent_bits, min, max): Family, bits: u32) -> Result<Self, FormatError> {
        if bits < min || bits > max {
            return Err(FormatError::FloatBits {
                family,
                min,
                max,
                got: bits,
            });
        }
        Ok(Self {
            exponent_bits,
            mantissa_bits: bits - 1 - exponent_bits,
            subnormals: true,
        })
    }

    /// The same format with or without subnormals.
    pub const fn with_subnormals(self, subnormals: bool) -> Self {
        Self { subnormals, ..self }
    }

    /// True if rounding changes nothing: bfloat32, with or without subnormals, is off.
    pub const fn is_identity(self) -> bool {
        self.bits() == 32
    }

    /// Bits of a number, sign included.
    pub const fn bits(self) -> u32 {
        1 + self.exponent_bits + self.mantissa_bits
    }

    /// Bits of the exponent field: 8 or 5.
    pub const fn exponent_bits(self) -> u32 {
        self.exponent_bits
    }

    /// Explicit mantissa bits.
    pub const fn mantissa_bits(self) -> u32 {
        self.mantissa_bits
    }

    /// Whether numbers below [`min_normal`](Self::min_normal) exist.
    pub const fn subnormals(self) -> bool {
        self.subnormals
    }

    const fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    /// The largest finite number.
    pub const fn max(self) -> f32 {
        let significand = (IMPLICIT << 1) - (IMPLICIT >> self.mantissa_bits);
        f32::from_bits((significand - IMPLICIT) | bits::pow2(self.bias()))
    }

    /// The smallest positive normal number: 2^−126 or 2^−14.
    pub const fn min_normal(self) -> f32 {
        f32::from_bits(bits::pow2(1 - self.bias()))
    }

    /// Rounds one number. `draw` matters only to [`Rounding::Stochastic`].
    #[inline(always)]
    pub fn round(self, x: f32, rounding: Rounding, draw: u32) -> f32 {
        if self.is_identity() {
            return x;
        }
        with_rule!(rounding, rule => match self.exponent_bits == BFLOAT.1 {
            true => self.round_bfloat(rule, x, draw),
            false => self.round_fp(rule, x, draw),
        })
    }

    /// Rounds every number of `data` in place; the draw of a number is that at its position.
    pub fn round_slice(&self, data: &mut [f32], rounding: Rounding, stream: RandomStream) {
        if self.is_identity() {
            return;
        }
        let format = *self;
        with_rule!(rounding, rule => match self.exponent_bits == BFLOAT.1 {
            true => map_with_draws(
                rule,
                data,
                stream,
                #[inline(always)]
                move |x, draw| format.round_bfloat(rule, x, draw),
            ),
            false => map_with_draws(
                rule,
                data,
                stream,
                #[inline(always)]
                move |x, draw| format.round_fp(rule, x, draw),
            ),
        })
    }

    /// Rounding in a format with the exponents of float32: integer rounding of the whole pattern, a
    /// carry runs from the mantissa into the exponent and from the largest number to Inf.
    #[inline(always)]
    fn round_bfloat<R: Rule>(self, _: R, x: f32, draw: u32) -> f32 {
        let sign = x.to_bits() & SIGN;
        let abs = x.to_bits() & ABS;
        let shift = MANTISSA_BITS as u32 - self.mantissa_bits;
        let kept = if abs < self.flush_below() { 0 } else { abs };
        let rounded = (kept + R::addend(kept, shift, draw)) & !((1 << shift) - 1);
        f32::from_bits(sign | if abs >= INFINITY { abs } else { rounded })
    }

    #[inline(always)]
    fn round_fp<R: Rule>(self, _: R, x: f32, draw: u32) -> f32 {
        let sign = x.to_bits() & SIGN;
        let abs = x.to_bits() & ABS;
        let kept = if abs < self.flush_below() { 0 } else { abs };
        let rounded = round_magnitude::<R>(kept, self.mantissa_bits as i32, 1 - self.bias(), draw);
        let finite = if rounded > self.max().to_bits() {
            INFINITY
        } else {
            rounded
        };
        f32::from_bits(sign | if abs >= INFINITY { abs } else { finite })
    }

    /// Magnitudes with a pattern below this become zero.
    #[inline(always)]
    const fn flush_below(self) -> u32 {
        if self.subnormals {
            0
        } else {
            ((1 - self.bias() + BIAS) as u32) << MANTISSA_BITS
        }
    }
}

/// `bfloat16`, `fp12`, …; a format without subnormals is not told apart.
impl fmt::Display for FloatFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = if self.exponent_bits == BFLOAT.1 {
            BFLOAT.0
        } else {
            FP.0
        };
        write!(f, "{family}{}", self.bits())
    }
}

/// Replaces every number by a function of it and the draw at its position.
fn map_with_draws<R: Rule>(
    _: R,
    data: &mut [f32],
    stream: RandomStream,
    function: impl Fn(f32, u32) -> f32 + Copy + Send + Sync,
) {
    for_each_piece(data, 0, &|start, piece| {
        dispatch(Map {
            rule: PhantomData::<R>,
            piece,
            start,
            stream,
            function,
        })
    });
}

/// [`map_with_draws`] on one thread.
struct Map<'a, R, F> {
    rule: PhantomData<R>,
    piece: &'a mut [f32],
    /// Position of the piece's first number.
    start: u64,
    stream: RandomStream,
    function: F,
}

impl<R: Rule, F: Fn(f32, u32) -> f32> Kernel for Map<'_, R, F> {
    #[inline(always)]
    fn run(self) {
        let Self {
            rule: _,
            piece,
            start,
            stream,
            function,
        } = self;
        let mut draws = Draws::new(stream);
        for (i, chunk) in piece.chunks_mut(WINDOW).enumerate() {
            let draws = draws.get::<R>(start + (i * WINDOW) as u64, chunk.len());
            for (x, draw) in chunk.iter_mut().zip(draws) {
                *x = function(*x, *draw);
            }
        }
    }
}
