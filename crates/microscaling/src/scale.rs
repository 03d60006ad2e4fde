//! The shared scale of a block: which power of two it is.

use crate::bits::{self, BIAS, IMPLICIT, LOWEST_EXPONENT, MANTISSA_BITS};
use crate::block::ElementRow;
use crate::names::impl_by_name;

/// How the exponent of the shared scale follows from the largest magnitude `amax` of a block. The
/// names are torchao's.
///
/// With s the exponent of the scale, an element is stored as x / 2^s. All are computed from the bits
/// of `amax`, exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ScaleMode {
    /// `floor`, the algorithm of OCP MX v1.0 section 6.3: s = floor(log2(amax)) − emax. The largest
    /// elements may saturate.
    #[default]
    Floor,
    /// `ceil`: s = ceil(log2(amax)) − emax. Nothing saturates.
    Ceil,
    /// `even`: as `floor`, after rounding `amax` to the mantissa bits of the element, half up.
    Even,
    /// `rceil`: s = ceil(log2(amax / max)), of the float32 product amax · (1/max), where max is the
    /// largest element (NVIDIA's recipe for MXFP8).
    Rceil,
}

impl ScaleMode {
    /// Every mode.
    pub const ALL: [Self; 4] = [Self::Floor, Self::Ceil, Self::Even, Self::Rceil];

    /// The name, for example `floor`: what `Display`, `FromStr` and serde use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Ceil => "ceil",
            Self::Even => "even",
            Self::Rceil => "rceil",
        }
    }

    /// Other names that `FromStr` and serde understand: none.
    pub const fn aliases(self) -> &'static [&'static str] {
        &[]
    }

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

impl_by_name!(ScaleMode, "scale mode");

/// How many elements share a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SharedExpMethod {
    /// `max`: the block shares the scale of its largest magnitude.
    #[default]
    Max,
    /// `none`: every element has a scale of its own, whatever the block size.
    None,
}

impl SharedExpMethod {
    /// Every method.
    pub const ALL: [Self; 2] = [Self::Max, Self::None];

    /// The name, `max` or `none`: what `Display`, `FromStr` and serde use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Max => "max",
            Self::None => "none",
        }
    }

    /// Other names that `FromStr` and serde understand: none.
    pub const fn aliases(self) -> &'static [&'static str] {
        &[]
    }
}

impl_by_name!(SharedExpMethod, "shared exponent method");
