//! Codes of float elements for NaN and Inf.

/// Which codes of a float element are NaN or Inf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum SpecialCodes {
    /// `none`: every code is a number, as in OCP's FP6 and FP4.
    #[default]
    None,
    /// `ieee`: Inf and NaN where all exponent bits are set, as in OCP's FP8 E5M2.
    Ieee,
    /// `nan`: NaN where all bits but the sign are set, as in OCP's FP8 E4M3.
    Nan,
    /// `fnuz`: the code that elsewhere is −0 is NaN, the only one; there is no −0.
    Fnuz,
}

crate::names::impl_by_name! {
    SpecialCodes, "choice of special codes",
    None: "none",
    Ieee: "ieee",
    Nan: "nan",
    Fnuz: "fnuz",
}
