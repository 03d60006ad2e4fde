//! The search in the numbers of a table.

use crate::round::RoundingRule;
use crate::round::bits::{INFINITY, ONE, SIGN};
use crate::round::words::Word;

/// Bits of the fraction of a step between neighbours.
pub(crate) const FRACTION_BITS: u32 = 24;
/// Half a step. Rounding to nearest needs to know only whether a number is at, below or above half a step.
const HALF: u32 = 1 << (FRACTION_BITS - 1);

/// The place, among the magnitudes of one sign, of what a magnitude becomes. The magnitudes stand in order from the place `first` on.
/// There are fewer than `length` of them, which is a power of two, and then Inf, or exactly `length`. `mean` gives the mean of the
/// magnitude at a place and the next one.
#[inline(always)]
pub fn round_on_side<R: RoundingRule, W: Word>(
    first: W,
    length: usize,
    abs: W,
    draw: W,
    magnitude: impl Fn(W) -> W,
    mean: impl Fn(W) -> W,
) -> W {
    // Where there is no next number stands Inf.
    let abs = abs.smaller((INFINITY - 1).into());
    let mut below = first;
    let mut step = length as u32 / 2;
    while step > 0 {
        let next = below + step.into();
        below = W::select(abs.is_below(magnitude(next)), below, next);
        step /= 2;
    }
    let fraction = match R::USES_DRAWS {
        true => fraction(magnitude(below), magnitude(below + 1.into()), abs),
        false => {
            // Nothing goes up from the last one: its mean is Inf.
            let mean = mean(below);
            let reaches = W::select(abs.is_below(mean), 0.into(), 1.into());
            let exceeds = W::select(mean.is_below(abs), 1.into(), 0.into());
            W::from(HALF - 1) + reaches + exceeds
        }
    };
    let exact = (below - first) << FRACTION_BITS.into() | fraction;
    let carried = exact + R::addend(exact, FRACTION_BITS.into(), draw);
    first + (carried >> FRACTION_BITS.into())
}

/// How far a magnitude is on the way from one neighbour to the other; 0 of the last one.
#[inline(always)]
fn fraction<W: Word>(below: W, above: W, abs: W) -> W {
    // After the last one stands Inf, or 0 for the other sign.
    let has_next = below.is_below(above) & above.is_below(INFINITY.into());
    let negative = below | SIGN.into();
    let whole = W::select(has_next, above.sum(negative), ONE.into());
    let steps = abs
        .sum(negative)
        .quotient(whole)
        .steps((-(FRACTION_BITS as i32)).into());
    W::select(has_next, steps.smaller((2 * HALF - 1).into()), 0.into())
}
