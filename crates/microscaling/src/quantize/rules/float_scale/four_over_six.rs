//! Four over six: the second look at a block, whose scale is the better one of two.

use super::FloatScaleRule;
use crate::quantize::rules::ScalePair;
use crate::round::bits::{self, ABS, INFINITY, ONE, SIGN};
use crate::round::mode::Even;
use crate::round::round_normal;
use crate::round::words::Word;

/// The choice of the second look if the scale that makes the largest magnitude 4 is better; else 0.
pub(crate) const FOUR_CHOICE: u32 = 1;

/// The data for the second look at a block.
#[derive(Clone, Copy)]
pub(crate) struct Candidates {
    six: ScalePair,
    four: ScalePair,
    /// Exponent of the unit of their errors.
    unit: i32,
}

impl Candidates {
    /// As words, so that there can be arrays of each.
    #[inline(always)]
    pub(crate) fn words(self) -> [u32; 5] {
        let (six, four) = (self.six.words(), self.four.words());
        [six[0], six[1], four[0], four[1], self.unit as u32]
    }

    #[inline(always)]
    pub(crate) fn of([six, six_inverse, four, four_inverse, unit]: [u32; 5]) -> Self {
        Self {
            six: ScalePair::of([six, six_inverse]),
            four: ScalePair::of([four, four_inverse]),
            unit: unit as i32,
        }
    }
}

/// Four over six: the second look.
impl FloatScaleRule {
    /// Both scales of a block, and the unit of their errors.
    #[inline(always)]
    pub(crate) fn candidates<const EXACT: bool>(&self, amax: u32) -> Candidates {
        // Of a block that becomes NaN, anything but that.
        let amax = if amax >= INFINITY { 0 } else { amax };
        // Two calls: compilers do not inline an array's `map`.
        Candidates {
            six: self.candidate::<EXACT>(amax, 0),
            four: self.candidate::<EXACT>(amax, FOUR_CHOICE),
            unit: bits::exponent(amax) - 17,
        }
    }

    #[inline(always)]
    fn candidate<const EXACT: bool>(&self, amax: u32, choice: u32) -> ScalePair {
        let with_tensor_scale = self.with_results_in_float32();
        match EXACT {
            true => with_tensor_scale.pair(self.block_scale(amax, self.largest_unit, choice)),
            false => with_tensor_scale.ordinary_pair(amax, choice),
        }
    }

    /// By how much the squared error of an element is larger with the second scale.
    #[inline(always)]
    pub(crate) fn difference<const EXACT: bool>(&self, candidates: Candidates, x: f32) -> i64 {
        let Candidates { six, four, unit } = candidates;
        let abs = x.to_bits() & ABS;
        // A block with a NaN or Inf becomes NaN anyway.
        let abs = if EXACT && (abs >= INFINITY || six.is_nan()) {
            0
        } else {
            abs
        };
        let four = self.square_of_error::<EXACT>(four, abs, unit);
        let six = self.square_of_error::<EXACT>(six, abs, unit);
        i64::from(four) - i64::from(six)
    }

    /// The square of the error of a magnitude, in units of 2^unit.
    #[inline(always)]
    fn square_of_error<const EXACT: bool>(&self, pair: ScalePair, abs: u32, unit: i32) -> u32 {
        let q = if EXACT {
            self.round_unit::<Even>(pair, abs, 0)
        } else {
            let scaled = bits::product(abs, pair.inverse);
            round_normal::<Even, _>(scaled.min(self.element.max), 1, ONE, 0)
        };
        let value = bits::product(q, pair.scale);
        let difference = bits::sum(value, abs | SIGN);
        (difference & ABS).square(unit)
    }
}
