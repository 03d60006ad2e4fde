//! The switches of hardware as rules: the rounding of an element's magnitude, and the steps after rounding.

use super::Grid;
use crate::format::{BlockFormat, ElementConversion, ElementOverflow, ElementRounding, NonFinite};
use crate::p3109::StochasticVariant;
use crate::round::bits::{INFINITY, NAN, ONE, SIGN};
use crate::round::mode::{
    AwayFromZero, Even, Floor, Nearest, Stochastic, TiesToOdd, TiesToZero, ToOdd,
};
use crate::round::words::Word;
use crate::round::{RoundingRule, round_magnitude};

/// The elements of any block, without tables, with switches of hardware that can be replaced.
///
/// The methods must be `#[inline(always)]`, see [`Kernel`](microscaling_processor::instruction_set::Kernel).
pub(crate) trait AnyNumbers: Copy {
    /// The switches, if one differs from the library.
    fn conversion(&self) -> Option<ConversionRule>;

    /// The same with these switches: its own ones, with a constant for the rounding.
    fn with_conversion(self, conversion: Option<ConversionRule>) -> Self;

    /// Rounds an element.
    fn round<R: RoundingRule>(&self, grid: Grid, x: f32, draw: u32) -> f32;
}

/// [`ElementConversion`] as the loops hold it.
#[derive(Clone, Copy)]
pub(crate) struct ConversionRule {
    conversion: ElementConversion,
    mantissa_bits: i32,
    /// The result beyond the largest number, and below the smallest one: the pattern of Inf or NaN, or 0 for this number itself.
    beyond: [u32; 2],
    /// The results for +Inf and −Inf that are elements.
    infinity: [u32; 2],
    /// Whether the element lacks negative numbers.
    is_unsigned: bool,
}

impl ConversionRule {
    /// `None` for the library's conversion.
    pub(super) fn of(format: &BlockFormat) -> Option<Self> {
        let conversion = format.conversion;
        let has_infinity = format.element.infinity_code().is_some();
        let is_unsigned = format.element.is_unsigned();
        let beyond = |negative: bool| match conversion.overflow {
            ElementOverflow::Saturate
            | ElementOverflow::Propagate
            | ElementOverflow::Renormalize => 0,
            ElementOverflow::Infinity if is_unsigned && negative => NAN,
            ElementOverflow::Infinity if has_infinity => INFINITY,
            // As in P3109, which has such formats alone.
            ElementOverflow::Infinity if is_unsigned => 0,
            ElementOverflow::Infinity | ElementOverflow::Nan => NAN,
        };
        let infinity = |negative: bool| match conversion.overflow {
            ElementOverflow::Propagate if has_infinity && !(is_unsigned && negative) => INFINITY,
            ElementOverflow::Propagate
            | ElementOverflow::Saturate
            | ElementOverflow::Infinity
            | ElementOverflow::Nan
            | ElementOverflow::Renormalize => beyond(negative),
        };
        let has_special = format.non_finite == NonFinite::Elements;
        (has_special || is_unsigned || !conversion.is_of_library()).then(|| Self {
            conversion,
            mantissa_bits: format.element.mantissa_bits() as i32,
            beyond: [false, true].map(beyond),
            infinity: [false, true].map(infinity),
            is_unsigned,
        })
    }

    /// The rounding of the format, if the format has one that needs no draws.
    #[inline(always)]
    pub(crate) fn own_rounding(self) -> Option<ElementRounding> {
        self.conversion.own_rounding()
    }

    /// The rounding of the format, if the format has one.
    #[inline(always)]
    pub(crate) fn rounding(self) -> Option<ElementRounding> {
        self.conversion.rounding
    }

    /// The same with this rounding.
    #[inline(always)]
    pub(crate) fn with_rounding(self, rounding: Option<ElementRounding>) -> Self {
        Self {
            conversion: ElementConversion {
                rounding,
                ..self.conversion
            },
            ..self
        }
    }

    /// Whether the block is rounded again where a number overflows.
    pub(super) fn renormalizes(self) -> bool {
        self.conversion.overflow == ElementOverflow::Renormalize
    }

    /// The element of a finite magnitude with a sign bit: rounded to the numbers with that smallest normal exponent, then limited to
    /// `max`, a pattern. `max` is 0 where all becomes zero.
    #[inline(always)]
    pub(super) fn element<R: RoundingRule, W: Word>(
        self,
        sign: W,
        abs: W,
        (emin, max): (W::Int, W),
        draw: W,
    ) -> W {
        let negative = !sign.equals(0.into());
        let mut magnitude = self.magnitude::<R, W>(negative, abs, emin, draw);
        if self.conversion.flush_outputs {
            let is_subnormal = magnitude.is_below(W::from(ONE).scale(emin));
            magnitude = W::select(is_subnormal, 0.into(), magnitude);
        }
        // Without a sign, 0 is next to all numbers below.
        let (sign, limit) = match self.is_unsigned {
            true => (0.into(), W::select(negative, 0.into(), max)),
            false => (sign, max),
        };
        let mut limited = magnitude.smaller(limit);
        let [above, below] = self.beyond;
        if above > 0 || below > 0 {
            let beyond = W::select(negative, below.into(), above.into());
            let is_limit = max.equals(0.into()) | beyond.equals(0.into());
            let mut overflows = limit.is_below(magnitude) & !is_limit;
            let by_direction = self.conversion.overflow == ElementOverflow::Infinity;
            if !by_direction {
                // NaN in any direction.
            } else if let Some(rounding) = self.conversion.own_rounding() {
                // P3109 has this exception.
                let is_exception = self.is_unsigned && rounding == ElementRounding::ToOdd;
                if rounding.stays_finite(false) || is_exception {
                    overflows = overflows & negative;
                }
                if rounding.stays_finite(true) {
                    overflows = overflows & !negative;
                }
            } else if R::TRUNCATES {
                overflows = overflows & !overflows;
            }
            limited = W::select(overflows, beyond, limited);
        }
        let signed = sign | limited;
        let signed = W::select(W::from(INFINITY).is_below(limited), NAN.into(), signed);
        self.zero(signed)
    }

    /// The element for an Inf or NaN, given the largest number.
    #[inline(always)]
    pub(super) fn special(self, sign: u32, abs: u32, max: u32) -> u32 {
        let negative = sign != 0;
        match (abs > INFINITY, self.infinity[usize::from(negative)]) {
            (true, _) | (false, NAN) => NAN,
            (false, 0) if negative && self.is_unsigned => 0,
            (false, 0) => sign | max,
            (false, infinity) => sign | infinity,
        }
    }

    /// −0 becomes +0, where elements have no −0.
    #[inline(always)]
    fn zero<W: Word>(self, x: W) -> W {
        match self.conversion.negative_zero {
            true => x,
            false => W::select(x.equals(SIGN.into()), 0.into(), x),
        }
    }

    #[inline(always)]
    fn magnitude<R: RoundingRule, W: Word>(
        self,
        negative: W::Condition,
        abs: W,
        emin: W::Int,
        draw: W,
    ) -> W {
        let bits = self.mantissa_bits;
        let nearest = || round_magnitude::<Nearest, W>(abs, bits, emin, draw);
        let to_zero = || round_magnitude::<TiesToZero, W>(abs, bits, emin, draw);
        let floor = || round_magnitude::<Floor, W>(abs, bits, emin, draw);
        let away = || round_magnitude::<AwayFromZero, W>(abs, bits, emin, draw);
        let random_bits = self.conversion.random_bits;
        // The highest bits of the draw. Stochastic rounding has 31 at most.
        let random = |bits: u32| draw & (u32::MAX << (32 - bits)).into();
        match self.conversion.rounding {
            Some(ElementRounding::TiesToEven) => round_magnitude::<Even, W>(abs, bits, emin, draw),
            Some(ElementRounding::TiesToAway) => nearest(),
            Some(ElementRounding::TiesToZero) => to_zero(),
            Some(ElementRounding::TiesToOdd) => {
                round_magnitude::<TiesToOdd, W>(abs, bits, emin, draw)
            }
            Some(ElementRounding::TiesTowardPositive) => W::select(negative, to_zero(), nearest()),
            Some(ElementRounding::TiesTowardNegative) => W::select(negative, nearest(), to_zero()),
            Some(ElementRounding::TowardZero) => floor(),
            Some(ElementRounding::AwayFromZero) => away(),
            Some(ElementRounding::TowardPositive) => W::select(negative, floor(), away()),
            Some(ElementRounding::TowardNegative) => W::select(negative, away(), floor()),
            Some(ElementRounding::ToOdd) => round_magnitude::<ToOdd, W>(abs, bits, emin, draw),
            None | Some(ElementRounding::Stochastic(_)) if !R::USES_DRAWS => {
                round_magnitude::<R, W>(abs, bits, emin, draw)
            }
            None => round_magnitude::<Stochastic, W>(abs, bits, emin, random(random_bits)),
            // The fraction is rounded to N bits first.
            Some(ElementRounding::Stochastic(variant)) => {
                let finer = bits + random_bits as i32;
                let abs = match variant {
                    // Half a unit more than the random number is a fraction that is rounded half up.
                    StochasticVariant::B => round_magnitude::<Nearest, W>(abs, finer, emin, draw),
                    StochasticVariant::C => round_magnitude::<Even, W>(abs, finer, emin, draw),
                    StochasticVariant::A => abs,
                };
                round_magnitude::<Stochastic, W>(abs, bits, emin, random(random_bits))
            }
        }
    }
}
