//! The shared scale of a block: which power of two it is.

use alloc::format;
use alloc::string::String;

use crate::names::impl_by_name;

/// How the exponent of the shared scale follows from the largest magnitude `amax` of a block. The
/// names are torchao's.
///
/// With s the exponent of the scale, an element is stored as x / 2^s. Every mode computes s exactly, from the bits of
/// `amax`; [`Rms`](Self::Rms) uses the bits of all elements of the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
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
    /// `rms`, for `fp4_e2m1` alone: s = floor(log2(c · r)), where r is the root mean square of the block and c = 2.92247856
    /// / 6. This factor puts the largest element, 6, next to the clipping point with the least mean squared error for a
    /// normal distribution (Quartet, arXiv 2505.14669, and its code). Larger numbers saturate, on purpose.
    ///
    /// So that no order of summation matters, r has a definition in integers, see
    /// [`BlockFormat::scale_exponent_of`](crate::BlockFormat::scale_exponent_of). Quartet's code takes the standard deviation
    /// of the block, which is less than r where the mean is not 0, and adds 10^−8, which limits s to at least −27.
    Rms,
    /// `max_abs_finite`, for scales that are floats: the scale is `amax` itself, rounded half to even to the numbers of its format, 0
    /// included. The elements are at most about 1, so that most of their range is not used. A scale of 0 makes every element 0.
    /// `ConvertToBlockMaxAbsFinite` of P3109 (interim report 4.0) is this mode with [`NonFinite::Elements`](crate::NonFinite::Elements).
    MaxAbsFinite,
}

impl ScaleMode {
    /// The modes of scales that are powers of two.
    pub const POWERS: [Self; 5] = [Self::Floor, Self::Ceil, Self::Even, Self::Rceil, Self::Rms];

    /// The exponent of the scale as a formula. `h` is the headroom as a factor, `emax` the subtrahend of the element's largest exponent,
    /// and `max` its largest number; each is empty where there is none.
    pub(crate) fn formula(self, h: &str, emax: &str, max: &str, mantissa_bits: u32) -> String {
        match self {
            Self::Floor => format!(
                "s = floor(log2({h}amax)){emax} (`floor`, OCP MX v1.0); larger elements saturate"
            ),
            Self::Ceil => format!("s = ceil(log2({h}amax)){emax} (`ceil`)"),
            Self::Even => format!(
                "s = floor(log2(amax')){emax} (`even`), where amax' is {h}amax, rounded half up to {mantissa_bits} mantissa bits"
            ),
            Self::Rceil => format!("s = ceil(log2({h}amax / {max})) (`rceil`)"),
            Self::MaxAbsFinite => format!("{h}amax (`max_abs_finite`, P3109)"),
            Self::Rms => format!(
                "s = floor(log2({h}0.487 · root mean square)) (`rms`, Quartet); larger elements saturate"
            ),
        }
    }
}

impl_by_name! {
    ScaleMode, "scale mode",
    Floor: "floor",
    Ceil: "ceil",
    Even: "even",
    Rceil: "rceil",
    Rms: "rms",
    MaxAbsFinite: "max_abs_finite",
}

/// How many elements share a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SharedExpMethod {
    /// `max`: the block shares the scale of its largest magnitude.
    #[default]
    Max,
    /// `none`: every element has its own scale, for every block size.
    None,
}

impl_by_name! {
    SharedExpMethod, "shared exponent method",
    Max: "max",
    None: "none",
}
