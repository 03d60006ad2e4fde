//! Rounding modes.

use crate::names::impl_by_name;
use crate::round::random::RandomStream;
use crate::round::words::Word;

/// How a number between two neighbours of a grid becomes one of them. All modes are symmetric in the sign, and keep a
/// number on the grid.
///
/// There will be no other modes, so a `match` needs no case for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Rounding {
    /// `nearest`: the nearer one, a tie goes away from zero.
    #[default]
    NearestAway,
    /// `even`: the nearer one, a tie goes to the one with an even last digit (IEEE's default). Powers of two alone, of a format
    /// without mantissa bits, have no such digit: there the tie goes to the one with the even code (IEEE P3109, interim report 4.0,
    /// precision 1).
    NearestEven,
    /// `floor`: toward zero, the magnitude is truncated.
    TowardZero,
    /// `stochastic` (alias `dither`, the reference's name): away from zero with a probability equal
    /// to the fraction of the step that would be cut off. With u = draw / 2^32 from a
    /// [`RandomStream`](crate::RandomStream), the magnitude in steps becomes floor(|x| / step + u).
    /// Fractions are cut to 31 bits, which matters only for magnitudes below step / 2^8.
    Stochastic,
}

impl_by_name! {
    Rounding, "rounding mode",
    NearestAway: "nearest",
    NearestEven: "even",
    TowardZero: "floor",
    Stochastic: "stochastic" | "dither",
}

impl Rounding {
    /// This mode, ready to round a tensor. `stream` is looked at by [`Stochastic`](Self::Stochastic) alone.
    pub const fn with(self, stream: RandomStream) -> Rounder {
        match self {
            Self::NearestAway => Rounder::NearestAway,
            Self::NearestEven => Rounder::NearestEven,
            Self::TowardZero => Rounder::TowardZero,
            Self::Stochastic => Rounder::Stochastic(stream),
        }
    }
}

/// How a tensor is rounded: a [`Rounding`] mode, and the random numbers of stochastic rounding.
///
/// ```
/// use microscaling::{RandomStream, Rounder, Rounding};
///
/// let stream = RandomStream::new(42, 0);
/// assert_eq!(Rounding::Stochastic.with(stream), Rounder::Stochastic(stream));
/// assert_eq!(Rounding::NearestEven.with(stream), Rounder::NearestEven);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rounder {
    /// [`Rounding::NearestAway`].
    NearestAway,
    /// [`Rounding::NearestEven`].
    NearestEven,
    /// [`Rounding::TowardZero`].
    TowardZero,
    /// [`Rounding::Stochastic`]. The draw of an element is the word of the stream at the element's position.
    Stochastic(RandomStream),
}

impl Rounder {
    /// The mode.
    pub const fn rounding(self) -> Rounding {
        match self {
            Self::NearestAway => Rounding::NearestAway,
            Self::NearestEven => Rounding::NearestEven,
            Self::TowardZero => Rounding::TowardZero,
            Self::Stochastic(_) => Rounding::Stochastic,
        }
    }

    /// The random numbers; of modes that draw none, any.
    pub(crate) const fn stream(self) -> RandomStream {
        match self {
            Self::Stochastic(stream) => stream,
            _ => RandomStream::new(0, 0),
        }
    }
}

/// From where on a magnitude between two neighbours becomes the upper one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Upper {
    /// From halfway.
    Half,
    /// From halfway to a neighbour that is even, above halfway to one that is odd.
    HalfToEven,
    /// When it is the upper one.
    Whole,
}

/// A rounding mode as a type, so that a loop is compiled for each.
pub trait RoundingRule: Copy + Send + Sync {
    /// Whether `draw` is looked at.
    const USES_DRAWS: bool = false;
    /// Largest number of dropped bits that is told from a larger one. At least 25, so that a 24-bit
    /// significand is less than half a step.
    const MAX_SHIFT: i32 = 25;
    /// Whether a result depends on which neighbour is even.
    const BY_PARITY: bool = false;
    /// Whether results are never larger than the number.
    const TRUNCATES: bool = false;
    /// Whether the smallest magnitude, too, may become a whole step.
    const LIFTS: bool = false;
    /// From where on a magnitude between two neighbours becomes the upper one. Never looked at if the rule wants draws.
    const UPPER: Upper;

    /// The addend of `significand` before its low `shift` ≤ [`MAX_SHIFT`](Self::MAX_SHIFT) bits are cut off; 0 for
    /// `shift` = 0.
    fn addend<W: Word>(significand: W, shift: W, draw: W) -> W;

    /// Corrects what rounding to nearest, half to even, made of a magnitude x: `even`, a multiple of
    /// `step`. Exact float arithmetic, see `round_normal`. Never called if the rule wants draws.
    fn from_even<W: Word>(x: W, even: W, step: W) -> W;
}

/// [`Rounding::NearestAway`]
#[derive(Clone, Copy)]
pub struct Nearest;
impl RoundingRule for Nearest {
    const UPPER: Upper = Upper::Half;

    #[inline(always)]
    fn addend<W: Word>(_: W, shift: W, _: W) -> W {
        (W::from(1) << shift) >> 1.into()
    }

    #[inline(always)]
    fn from_even<W: Word>(x: W, even: W, step: W) -> W {
        let tie_went_down = x.minus(even).equals(step.times_power(-1));
        even.plus(W::select(tie_went_down, step, 0.into()))
    }
}

/// [`Rounding::NearestEven`]
#[derive(Clone, Copy)]
pub struct Even;
impl RoundingRule for Even {
    const BY_PARITY: bool = true;
    const UPPER: Upper = Upper::HalfToEven;

    #[inline(always)]
    fn addend<W: Word>(significand: W, shift: W, _: W) -> W {
        let one = W::from(1);
        let dropped = (one << shift) - one;
        // Just under half, and one more if the last kept digit is odd. `dropped` is odd too, unless
        // nothing is dropped.
        (dropped >> one) + ((significand >> shift) & dropped & one)
    }

    #[inline(always)]
    fn from_even<W: Word>(_: W, even: W, _: W) -> W {
        even
    }
}

/// [`Rounding::TowardZero`]
#[derive(Clone, Copy)]
pub struct Floor;
impl RoundingRule for Floor {
    const TRUNCATES: bool = true;
    const UPPER: Upper = Upper::Whole;

    #[inline(always)]
    fn addend<W: Word>(_: W, _: W, _: W) -> W {
        0.into()
    }

    #[inline(always)]
    fn from_even<W: Word>(x: W, even: W, step: W) -> W {
        even.minus(W::select(x.is_below(even), step, 0.into()))
    }
}

/// [`Rounding::Stochastic`]
#[derive(Clone, Copy)]
pub struct Stochastic;
impl RoundingRule for Stochastic {
    const USES_DRAWS: bool = true;
    const UPPER: Upper = Upper::Whole;
    // 31 bits of the draw take part.
    const MAX_SHIFT: i32 = 31;

    #[inline(always)]
    fn addend<W: Word>(_: W, shift: W, draw: W) -> W {
        // The upper `shift` bits of the draw, in two steps because a shift by 32 has no meaning.
        (draw >> 1.into()) >> (W::from(31) - shift)
    }

    #[inline(always)]
    fn from_even<W: Word>(_: W, _: W, _: W) -> W {
        unreachable!("the draws are added as integers")
    }
}

/// The rounding rules of hardware for magnitudes, beside the rules of [`Rounding`]. Only the exact way of rounding has them.
macro_rules! exact_rule {
    ($(#[$doc:meta])* $name:ident, $($constant:ident)*, |$significand:ident, $shift:ident, $dropped:ident| $addend:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name;
        impl RoundingRule for $name {
            $(const $constant: bool = true;)*
            const UPPER: Upper = Upper::Half;

            #[inline(always)]
            fn addend<W: Word>($significand: W, $shift: W, _: W) -> W {
                let $dropped = (W::from(1) << $shift) - 1.into();
                $addend
            }

            fn from_even<W: Word>(_: W, _: W, _: W) -> W {
                unreachable!("hardware's modes take the exact way")
            }
        }
    };
}

exact_rule!(
    /// To nearest, ties toward zero.
    TiesToZero,,
    |_significand, shift, dropped| dropped >> 1.into()
);
exact_rule!(
    /// To nearest, ties to the odd code.
    TiesToOdd, BY_PARITY,
    |significand, shift, dropped| {
        (dropped >> 1.into()) + (!(significand >> shift) & dropped & 1.into())
    }
);
exact_rule!(
    /// Away from zero.
    AwayFromZero, LIFTS,
    |_significand, shift, dropped| dropped
);
exact_rule!(
    /// An inexact number becomes the neighbour with the odd code.
    ToOdd, BY_PARITY LIFTS,
    |significand, shift, dropped| {
        let is_even = ((significand >> shift) & 1.into()).equals(0.into());
        W::select(is_even, dropped, 0.into())
    }
);

/// Runs `$body` with `$rule` naming the [`RoundingRule`] of a [`Rounding`].
#[doc(hidden)]
#[macro_export]
macro_rules! with_rule {
    ($rounding:expr, $rule:ident => $body:expr) => {
        match $rounding {
            $crate::Rounding::NearestAway => {
                use $crate::internal::Nearest as $rule;
                $body
            }
            $crate::Rounding::NearestEven => {
                use $crate::internal::Even as $rule;
                $body
            }
            $crate::Rounding::TowardZero => {
                use $crate::internal::Floor as $rule;
                $body
            }
            $crate::Rounding::Stochastic => {
                use $crate::internal::Stochastic as $rule;
                $body
            }
        }
    };
}
pub(crate) use with_rule;
