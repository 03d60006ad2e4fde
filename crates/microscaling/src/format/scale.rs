//! The shared scale of a block: which power of two it is.

use super::names::impl_by_name;

/// How the exponent of the shared scale follows from the largest magnitude `amax` of a block. The
/// names are torchao's.
///
/// With s the exponent of the scale, an element is stored as x / 2^s. All are computed from the bits
/// of `amax`, exactly.
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
