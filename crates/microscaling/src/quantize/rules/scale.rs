//! The shared scale of an MX block: which power of two it is.

use super::mx::ElementRow;
use crate::format::{Headroom, ScaleMode};
use crate::round::bits::{self, BIAS, IMPLICIT, LOWEST_EXPONENT, MANTISSA_BITS};

impl ScaleMode {
    /// The exponent s for a block whose largest magnitude is the finite float32 with pattern `amax`,
    /// before it is limited to what the scale can hold, without headroom. A block of zeros counts as 2^−126.
    #[inline(always)]
    pub(crate) fn exponent(self, amax: u32, element: &ElementRow) -> i32 {
        if amax == 0 {
            return 1 - BIAS - element.emax;
        }
        match self {
            Self::Floor => bits::exponent(amax) - element.emax,
            Self::Ceil => {
                let exponent = bits::exponent(amax);
                exponent + i32::from(amax != bits::pow2(exponent)) - element.emax
            }
            Self::Even => {
                // Of a normal amax this is the rounding that the name promises. Of a subnormal one it
                // rounds at the place of the normals, as the reference does; either way the scale
                // ends at the smallest code or the next.
                let half_ulp = IMPLICIT >> (element.mantissa_bits + 1);
                ((amax + half_ulp) >> MANTISSA_BITS) as i32 - BIAS - element.emax
            }
            Self::Rceil => ceil_log2_of_product(amax, element.inverse_max),
            // Follows from the second look at a block.
            Self::Rms => 0,
        }
    }
}

/// The choice of a scale with headroom.
///
/// In every mode the exponent of the scale goes up where the largest magnitude passes a threshold. Each binade has one
/// threshold, twice the one before. So the exponent is the exponent of the magnitude after an addition to its
/// significand.
#[derive(Clone, Copy)]
pub(crate) struct HeadroomScale {
    /// Whether there is headroom at all.
    pub(crate) is_some: bool,
    /// The addend, in units of 2^−23 of the magnitude's power of two; at most 2^24.
    pub(crate) addend: u32,
}

impl HeadroomScale {
    /// h times the magnitude is compared with the thresholds, exactly.
    pub(crate) const fn of(headroom: Headroom, mode: ScaleMode, mantissa_bits: i32) -> Self {
        const NEXT: u64 = 2 * IMPLICIT as u64;
        let numerator = headroom.numerator() as u64;
        let denominator = headroom.denominator() as u64;
        let addend = match mode {
            // From NEXT / h on.
            ScaleMode::Floor | ScaleMode::Rms => NEXT - (NEXT * denominator).div_ceil(numerator),
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
        Self {
            is_some: !headroom.is_none(),
            addend: addend as u32,
        }
    }

    /// [`ScaleMode::exponent`] with headroom.
    #[inline(always)]
    pub(crate) fn exponent(self, mode: ScaleMode, amax: u32, element: &ElementRow) -> i32 {
        if amax == 0 {
            return 1 - BIAS - element.emax;
        }
        let (magnitude, emax) = match mode {
            ScaleMode::Rceil => (bits::product(amax, element.inverse_max), 0),
            ScaleMode::Floor | ScaleMode::Ceil | ScaleMode::Even | ScaleMode::Rms => {
                (amax, element.emax)
            }
        };
        let (significand, unit) = bits::parts(magnitude);
        let log2 = bits::log2(significand);
        let normal = significand << (MANTISSA_BITS - log2).clamp(0, 31);
        unit + log2 + ((normal + self.addend) >> MANTISSA_BITS) as i32 - 1 - emax
    }
}

/// ceil(log2(p)) with p the float32 product a · b (rounded half to even, with subnormals) of two
/// positive finite floats given as patterns.
fn ceil_log2_of_product(a: u32, b: u32) -> i32 {
    let (a_significand, a_unit) = bits::parts(a);
    let (b_significand, b_unit) = bits::parts(b);
    let product = u64::from(a_significand) * u64::from(b_significand);
    let unit = a_unit + b_unit;
    let log2 = 63 - product.leading_zeros() as i32;
    // The product rounds down to the power of two below it up to half an ulp above: the ulp is
    // 2^-23 of that power, but never below the smallest subnormal.
    let half_ulp = (unit + log2 - MANTISSA_BITS).max(LOWEST_EXPONENT) - 1 - unit;
    let excess = product - (1 << log2);
    let above = match half_ulp {
        ..0 => excess > 0,
        0..64 => excess > 1 << half_ulp,
        _ => false,
    };
    unit + log2 + i32::from(above)
}
