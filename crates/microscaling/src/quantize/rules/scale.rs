//! The shared scale of an MX block: which power of two it is.

use super::element_row::ElementRow;
use crate::format::{Headroom, ScaleMode};
use crate::round::bits::{BIAS, IMPLICIT, MANTISSA_BITS};
use crate::round::words::{Int, Word};

/// The choice of a power of two as the scale of a block, in every mode with any headroom.
///
/// In every mode the exponent of the scale goes up where the largest magnitude passes a threshold. Each binade has one
/// threshold, twice the one before. So the exponent is the exponent of the magnitude after an addition to its
/// significand.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PowerScale {
    /// Whether the magnitude is multiplied by the reciprocal of the element's largest number, in float32. Otherwise the exponent of
    /// the element's largest number is subtracted.
    pub divides: bool,
    /// Whether float32 subnormals are taken as they are. Otherwise they have their true exponent.
    pub keeps_subnormals: bool,
    /// The addend, in units of 2^−23 of the magnitude's power of two; at most 2^24.
    pub addend: u32,
}

impl PowerScale {
    /// The headroom h times the magnitude is compared with the thresholds of the mode, exactly.
    /// `None` of a mode whose scale does not follow from the magnitude.
    pub(crate) const fn of(
        headroom: Headroom,
        mode: ScaleMode,
        mantissa_bits: i32,
    ) -> Option<Self> {
        const NEXT: u64 = 2 * IMPLICIT as u64;
        let numerator = headroom.numerator() as u64;
        let denominator = headroom.denominator() as u64;
        let addend = match mode {
            ScaleMode::Rms | ScaleMode::MaxAbsFinite => return None,
            // From NEXT / h on.
            ScaleMode::Floor => NEXT - (NEXT * denominator).div_ceil(numerator),
            // One more, from above 1 / h on, and another from above NEXT / h on.
            ScaleMode::Ceil | ScaleMode::Rceil => {
                NEXT / 2 + NEXT - (NEXT * denominator / numerator + 1)
            }
            // From where half a unit in the last place is missing to NEXT / h, or to twice that.
            ScaleMode::Even => {
                let from = NEXT - (IMPLICIT as u64 >> (mantissa_bits + 1));
                let from = [from * denominator, 2 * from * denominator];
                match from[0].div_ceil(numerator) {
                    first if first >= NEXT / 2 => NEXT - first,
                    _ => NEXT / 2 + NEXT - from[1].div_ceil(numerator),
                }
            }
        };
        Some(Self {
            divides: matches!(mode, ScaleMode::Rceil),
            // As the reference does, which has no headroom.
            keeps_subnormals: matches!(mode, ScaleMode::Even) && headroom.is_none(),
            addend: addend as u32,
        })
    }

    /// The exponent s for a block whose largest magnitude is the finite float32 with pattern `amax`, before it is limited to what
    /// the scale can hold. A block of zeros counts as 2^−126.
    #[inline(always)]
    pub(crate) fn exponent<W: Word>(self, amax: W, element: &ElementRow) -> W::Int {
        let (magnitude, emax) = match self.divides {
            true => (amax.product(element.inverse_max.into()), 0),
            false => (amax, element.emax),
        };
        let (significand, unit) = magnitude.parts();
        let log2 = match self.keeps_subnormals {
            true => MANTISSA_BITS.into(),
            false => significand.log2(),
        };
        let normal = significand << (W::Int::from(MANTISSA_BITS) - log2).within(0, 31).to_word();
        let carried = (normal + self.addend.into()) >> (MANTISSA_BITS as u32).into();
        let exponent = unit + log2 + carried.to_int() - (1 + emax).into();
        let of_zeros = W::Int::from(1 - BIAS - element.emax);
        W::Int::select(amax.equals(0.into()), of_zeros, exponent)
    }
}
