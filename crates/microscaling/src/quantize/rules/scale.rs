//! The shared scale of an MX block: which power of two it is.

use super::mx::ElementRow;
use crate::ScaleMode;
use crate::round::bits::{self, BIAS, IMPLICIT, LOWEST_EXPONENT, MANTISSA_BITS};

impl ScaleMode {
    /// The exponent s for a block whose largest magnitude is the finite float32 with pattern `amax`,
    /// before it is limited to what the scale can hold. A block of zeros counts as 2^−126.
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
            // Of a block of such magnitudes alone.
            Self::Rms => super::rms::RmsScale::of(crate::Headroom::NONE)
                .exponent(1 << 30, bits::exponent(amax) - 15),
            Self::Rceil => ceil_log2_of_product(amax, element.inverse_max),
        }
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
