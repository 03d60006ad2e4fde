//! Formats of P3109 as elements and as scales.

use super::{ElementFormat, SpecialCodes};
use crate::format::FormatError;
use crate::p3109::P3109Format;

impl ElementFormat {
    /// A format of P3109, all of whose numbers float32 holds: [bits](P3109Format::bits) − [precision](P3109Format::precision) is at most
    /// 8 with a sign, 7 without. The format `binary8p4sf` is [`fp8_e4m3fnuz`](Self::NAMES), and `binary8p3sf` is `fp8_e5m2fnuz`. In an
    /// unsigned format numbers below 0 become 0, or NaN where they overflow to NaN or Inf.
    ///
    /// # Errors
    /// [`FormatError::P3109`], for any other format.
    pub const fn of_p3109(format: P3109Format) -> Result<Self, FormatError> {
        if !format.fits_float32() {
            return Err(FormatError::P3109 {
                role: "element",
                got: format,
                allowed: "a format whose bits exceed its precision by at most 8 with a sign, by at most 7 without; `microscaling vectors elements`, `check`, `c-reference` and `p3109` have all formats",
            });
        }
        let specials = match (format.is_signed(), format.is_extended()) {
            (true, true) => SpecialCodes::Extended,
            (true, false) => SpecialCodes::Fnuz,
            (false, true) => SpecialCodes::NanInf,
            (false, false) => SpecialCodes::Nan,
        };
        let mantissa_bits = format.precision() - 1;
        let magnitude_bits = format.bits() - format.is_signed() as u32;
        Ok(Self {
            unsigned: !format.is_signed(),
            ..Self::of_float(
                (magnitude_bits - mantissa_bits) as u8,
                mantissa_bits as u8,
                format.bias() as i16,
                specials,
            )
        })
    }

    /// The format of P3109 with the same codes; `None` for any other format.
    pub fn to_p3109(self) -> Option<P3109Format> {
        let extended = match (self.special_codes()?, self.unsigned) {
            (SpecialCodes::Fnuz, false) | (SpecialCodes::Nan, true) => false,
            (SpecialCodes::Extended, false) | (SpecialCodes::NanInf, true) => true,
            _ => return None,
        };
        let format = P3109Format::new(
            self.bits(),
            self.mantissa_bits() + 1,
            !self.unsigned,
            extended,
        );
        format.ok().filter(|format| format.bias() == self.bias())
    }

    /// The magnitudes as a format without a sign.
    pub(crate) const fn magnitudes(self) -> Self {
        Self {
            unsigned: true,
            ..self
        }
    }

    /// The format with these magnitudes and a sign above them.
    pub(crate) const fn with_sign(self) -> Self {
        Self {
            unsigned: false,
            ..self
        }
    }
}
