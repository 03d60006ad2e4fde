//! Rounding an element to the numbers that its block can hold, for any block with a power-of-two scale.

use super::{AnyNumbers, ConversionRule};
use crate::round::bits::{ABS, INFINITY, NAN, SIGN};
use crate::round::words::Word;
use crate::round::{RoundingRule, round_magnitude};

/// Data that the elements of a block share, as two words, so that there can be arrays of each. Each rule has its own
/// words: [`Steps`] or [`ScalePair`](super::ScalePair).
pub(crate) type Grid = [u32; 2];

/// The grid of a block with a power-of-two scale.
#[derive(Clone, Copy)]
pub struct Steps<W: Word = u32> {
    /// Exponent of the smallest number with all its mantissa bits.
    pub emin: W::Int,
    /// Pattern of the largest number, or of NaN if everything becomes NaN.
    pub max: W,
}

impl Steps {
    #[inline(always)]
    pub(crate) const fn words(self) -> Grid {
        [self.emin as u32, self.max]
    }

    #[inline(always)]
    pub(crate) const fn of([emin, max]: Grid) -> Self {
        Self {
            emin: emin as i32,
            max,
        }
    }
}

/// How elements are rounded to [`Steps`].
#[derive(Clone, Copy)]
pub(crate) struct StepElement {
    pub(crate) mantissa_bits: i32,
    /// Magnitudes below this pattern count as zero.
    pub(crate) flush_below: u32,
    /// Whether NaN and Inf stay as they are; otherwise the whole block becomes NaN.
    pub(crate) keeps_special: bool,
    /// The switches of hardware, if one differs from the library.
    pub(crate) conversion: Option<ConversionRule>,
}

impl AnyNumbers for StepElement {
    #[inline(always)]
    fn conversion(&self) -> Option<ConversionRule> {
        self.conversion
    }

    #[inline(always)]
    fn with_conversion(self, conversion: Option<ConversionRule>) -> Self {
        Self { conversion, ..self }
    }

    #[inline(always)]
    fn round<R: RoundingRule>(&self, grid: Grid, x: f32, draw: u32) -> f32 {
        f32::from_bits(self.round_word::<R, _>(Steps::of(grid), x.to_bits(), draw))
    }
}

impl StepElement {
    /// Rounds the element with the pattern `x`.
    #[inline(always)]
    pub(crate) fn round_word<R: RoundingRule, W: Word>(&self, steps: Steps<W>, x: W, draw: W) -> W {
        let Steps { emin, max } = steps;
        let abs = x & ABS.into();
        let special = !abs.is_below(INFINITY.into());
        // The result does not count in a block that becomes NaN, nor for an element that passes unchanged.
        let mut counted = W::select(special, 0.into(), abs);
        if self.flush_below > 0 {
            counted = W::select(abs.is_below(self.flush_below.into()), 0.into(), counted);
        }
        let sign = x & SIGN.into();
        let mut result = match self.conversion {
            Some(rule) => rule.element::<R, _>(sign, counted, (emin, max), draw),
            None => {
                let magnitude = round_magnitude::<R, _>(counted, self.mantissa_bits, emin, draw);
                sign | magnitude.smaller(max)
            }
        };
        if self.keeps_special {
            result = W::select(special, x, result);
        }
        W::select(W::from(INFINITY).is_below(max), NAN.into(), result)
    }
}
