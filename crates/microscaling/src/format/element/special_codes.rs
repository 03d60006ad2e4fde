//! Codes of float elements for NaN and Inf.

use super::ElementFormat;

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
    /// `extended`: as `fnuz`, and the code of the largest magnitude is Inf, as in P3109's signed extended formats.
    Extended,
    /// `nan_inf`: NaN where all bits but the sign are set, and Inf in the code before, as in the magnitudes of P3109's unsigned
    /// extended formats.
    NanInf,
}

crate::names::impl_by_name! {
    SpecialCodes, "choice of special codes",
    None: "none",
    Ieee: "ieee",
    Nan: "nan",
    Fnuz: "fnuz",
    Extended: "extended",
    NanInf: "nan_inf",
}

impl ElementFormat {
    /// The code of the largest number of a float or of fixed point.
    pub(super) const fn largest_code(self) -> u32 {
        let all = self.sign_bit() - 1;
        let special = match self.special_codes() {
            None | Some(SpecialCodes::None | SpecialCodes::Fnuz) => 0,
            Some(SpecialCodes::Nan | SpecialCodes::Extended) => 1,
            Some(SpecialCodes::NanInf) => 2,
            Some(SpecialCodes::Ieee) => 1 << self.mantissa_bits,
        };
        all - special
    }

    /// The code of +Inf; `None` where no code is Inf.
    pub const fn infinity_code(self) -> Option<u32> {
        match self.special_codes() {
            Some(SpecialCodes::Ieee | SpecialCodes::Extended | SpecialCodes::NanInf) => {
                Some(self.largest_code() + 1)
            }
            Some(SpecialCodes::None | SpecialCodes::Nan | SpecialCodes::Fnuz) | None => None,
        }
    }

    /// A code of NaN, of IEEE's NaNs the quiet one without a sign; `None` where no code is NaN.
    pub const fn nan_code(self) -> Option<u32> {
        let sign = self.sign_bit();
        match self.special_codes() {
            Some(SpecialCodes::Ieee) if self.mantissa_bits == 0 => None,
            Some(SpecialCodes::Ieee) => {
                Some(self.largest_code() + 1 + (1 << (self.mantissa_bits - 1)))
            }
            Some(SpecialCodes::Nan | SpecialCodes::NanInf) => Some(sign - 1),
            Some(SpecialCodes::Fnuz | SpecialCodes::Extended) => Some(sign),
            Some(SpecialCodes::None) | None => None,
        }
    }
}
