//! Rounding a magnitude to a grid: the one place where bits are dropped.

use crate::bits::{self, IMPLICIT, LOWEST_EXPONENT, MANTISSA_BITS};
use crate::names::impl_by_name;
use core::ops::{Range, RangeInclusive};

/// How a number between two neighbours of a grid becomes one of them. All modes are symmetric in the
/// sign; a number on the grid stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Rounding {
    /// `nearest`: the nearer one, a tie goes away from zero.
    #[default]
    Nearest,
    /// `even`: the nearer one, a tie goes to the one with an even last digit (IEEE's default).
    Even,
    /// `floor`: toward zero, the magnitude is truncated.
    Floor,
    /// `stochastic` (alias `dither`, the reference's name): away from zero with a probability equal
    /// to the fraction of the step that would be cut off. With u = draw / 2^32 from a
    /// [`RandomStream`](crate::RandomStream), the magnitude in steps becomes floor(|x| / step + u).
    /// Fractions are cut to 31 bits, which matters only for magnitudes below step / 2^8.
    Stochastic,
}

impl Rounding {
    /// Every mode.
    pub const ALL: [Self; 4] = [Self::Nearest, Self::Even, Self::Floor, Self::Stochastic];

    /// The name, for example `even`: what `Display`, `FromStr` and serde use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nearest => "nearest",
            Self::Even => "even",
            Self::Floor => "floor",
            Self::Stochastic => "stochastic",
        }
    }

    /// Other names that `FromStr` and serde understand.
    pub const fn aliases(self) -> &'static [&'static str] {
        match self {
            Self::Stochastic => &["dither"],
            _ => &[],
        }
    }
}

impl_by_name!(Rounding, "rounding mode");

/// A rounding mode as a type, so that a loop is compiled for each.
pub(crate) trait Rule: Copy + Send + Sync {
    /// Whether `draw` is looked at.
    const USES_DRAWS: bool = false;
    /// Largest number of dropped bits that is told from a larger one. At least 25, so that a 24-bit
    /// significand is less than half a step.
    const MAX_SHIFT: i32 = 25;

    /// What to add to `significand` before its low `shift` ≤ [`MAX_SHIFT`](Self::MAX_SHIFT) bits are
    /// cut off; 0 for `shift` = 0.
    fn addend(significand: u32, shift: u32, draw: u32) -> u32;

    /// Corrects what rounding to nearest, half to even, made of a magnitude x: `even`, a multiple of
    /// `step`. Exact float arithmetic, see [`round_normal`]. Never called if the rule wants draws.
    fn from_even(x: f32, even: f32, step: f32) -> f32;
}

#[derive(Clone, Copy)]
pub(crate) struct Nearest;
impl Rule for Nearest {
    #[inline(always)]
    fn addend(_: u32, shift: u32, _: u32) -> u32 {
        (1 << shift) >> 1
    }

    #[inline(always)]
    fn from_even(x: f32, even: f32, step: f32) -> f32 {
        let tie_went_down = x - even == 0.5 * step;
        even + if tie_went_down { step } else { 0.0 }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Even;
impl Rule for Even {
    #[inline(always)]
    fn addend(significand: u32, shift: u32, _: u32) -> u32 {
        let dropped = (1 << shift) - 1;
        // Just under half, and one more if the last kept digit is odd. `dropped` is odd too, unless
        // nothing is dropped.
        (dropped >> 1) + ((significand >> shift) & dropped & 1)
    }

    #[inline(always)]
    fn from_even(_: f32, even: f32, _: f32) -> f32 {
        even
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Floor;
impl Rule for Floor {
    #[inline(always)]
    fn addend(_: u32, _: u32, _: u32) -> u32 {
        0
    }

    #[inline(always)]
    fn from_even(x: f32, even: f32, step: f32) -> f32 {
        even - if even > x { step } else { 0.0 }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Stochastic;
impl Rule for Stochastic {
    const USES_DRAWS: bool = true;
    // 31 bits of the draw take part.
    const MAX_SHIFT: i32 = 31;

    #[inline(always)]
    fn addend(_: u32, shift: u32, draw: u32) -> u32 {
        // The upper `shift` bits of the draw, in two steps because a shift by 32 has no meaning.
        (draw >> 1) >> (31 - shift)
    }

    #[inline(always)]
    fn from_even(_: f32, _: f32, _: f32) -> f32 {
        unreachable!("the draws are added as integers")
    }
}

/// Runs `$body` with `$rule` bound to the [`Rule`] of a [`Rounding`].
macro_rules! with_rule {
    ($rounding:expr, $rule:ident => $body:expr) => {
        match $rounding {
            $crate::Rounding::Nearest => {
                let $rule = $crate::round::Nearest;
                $body
            }
            $crate::Rounding::Even => {
                let $rule = $crate::round::Even;
                $body
            }
            $crate::Rounding::Floor => {
                let $rule = $crate::round::Floor;
                $body
            }
            $crate::Rounding::Stochastic => {
                let $rule = $crate::round::Stochastic;
                $body
            }
        }
    };
}
pub(crate) use with_rule;

/// Rounds a finite magnitude, given as a pattern, to `mantissa_bits` explicit mantissa bits of its own
/// exponent, but not finer than the numbers of exponent `emin` have them. Returns a pattern, which may
/// have carried into the next exponent, at the top into that of Inf.
///
/// Integer arithmetic only, without a branch, the same for normal and subnormal numbers.
#[inline(always)]
pub(crate) fn round_magnitude<R: Rule>(abs: u32, mantissa_bits: i32, emin: i32, draw: u32) -> u32 {
    // The significand counts units of 2^(-149 + field).
    let (significand, base) = bits::split(abs);
    let field = (base >> MANTISSA_BITS) as i32;
    let finest = emin - LOWEST_EXPONENT - field;
    let wanted = bits::log2(significand).max(finest) - mantissa_bits;
    let shift = wanted.clamp(0, R::MAX_SHIFT) as u32;
    // A step too large for the shift: the significand is made smaller instead.
    let excess = (wanted - R::MAX_SHIFT).clamp(0, 31) as u32;
    let kept = if R::USES_DRAWS {
        significand >> excess
    } else {
        significand
    };

    let dropped = (1 << shift) - 1;
    let rounded = (kept + R::addend(kept, shift, draw)) & !dropped;

    let carried = if R::USES_DRAWS && rounded > 2 * IMPLICIT {
        // One step, which is longer than a significand: 2^(-149 + field + wanted), a normal number.
        ((field + wanted - MANTISSA_BITS + 1) as u32) << MANTISSA_BITS
    } else {
        // A carry goes where it belongs: into the exponent field.
        rounded + base
    };
    if rounded == 0 { 0 } else { carried }
}

/// The exponents `emin` and those of magnitudes that [`round_normal`] is for; of magnitudes, all smaller
/// ones too.
pub(crate) const NORMAL: RangeInclusive<i32> = -100..=100;

/// The patterns of 2^lowest up to 2^end, which is left out; empty if there are none.
pub(crate) fn normal(lowest: i32, end: i32) -> Range<u32> {
    if lowest < end {
        bits::pow2(lowest)..bits::pow2(end)
    } else {
        0..0
    }
}

/// [`round_magnitude`] with fewer operations, of float32, within [`NORMAL`] and by a rule without draws.
/// `smallest` is the pattern of 2^emin.
///
/// All numbers that matter are normal or zero: half a step is, and a subnormal is less than that. So
/// the flush-to-zero state of the thread does not matter.
#[inline(always)]
pub(crate) fn round_normal<R: Rule>(abs: u32, mantissa_bits: i32, smallest: u32) -> u32 {
    // 2 to the exponent of the magnitude, or to emin.
    let power = (abs & bits::INFINITY).max(smallest);
    let fraction_bits = |bits: i32| (bits as u32) << MANTISSA_BITS;
    let step = f32::from_bits(power - fraction_bits(mantissa_bits));
    // So large that one step is its unit in the last place: the sum rounds to a multiple of the step.
    let large = f32::from_bits(power + fraction_bits(MANTISSA_BITS - mantissa_bits));
    let x = f32::from_bits(abs);
    R::from_even(x, (x + large) - large, step).to_bits()
}
