//! Formats of P3109 as elements and as scales.

use super::{ElementFormat, SpecialCodes};
use crate::format::FormatError;
use crate::p3109::P3109Format;

impl ElementFormat {
    /// A signed format of P3109, all of whose numbers float32 holds: [bits](P3109Format::bits) − [precision](P3109Format::precision) is at most 8.
    /// The format `binary8p4sf` is [`fp8_e4m3fnuz`](Self::NAMES), and `binary8p3sf` is `fp8_e5m2fnuz`.
    ///
    /// # Errors
    /// [`FormatError::P3109`], for any other format.
    pub const fn of_p3109(format: P3109Format) -> Result<Self, FormatError> {
        let specials = match format.is_extended() {
            true => SpecialCodes::Extended,
            false => SpecialCodes::Fnuz,
        };
        match format.is_signed() && format.fits_float32() {
            true => Ok(Self::float_of(format, specials)),
            false => Err(FormatError::P3109 {
                role: "element",
                got: format,
                allowed: "a signed format whose bits exceed its precision by at most 8; `microscaling vectors elements`, `check`, `c-reference` and `p3109` have all formats",
            }),
        }
    }

    /// The magnitudes of an unsigned format, as a float with a sign.
    pub(crate) const fn magnitudes_of_p3109(format: P3109Format) -> Result<Self, FormatError> {
        let specials = match format.is_extended() {
            true => SpecialCodes::NanInf,
            false => SpecialCodes::Nan,
        };
        match !format.is_signed() && format.fits_float32() && format.bits() < 16 {
            true => Ok(Self::float_of(format, specials)),
            false => Err(FormatError::P3109 {
                role: "scale",
                got: format,
                allowed: "an unsigned format of at most 15 bits, which exceed its precision by at most 7; `microscaling vectors elements`, `check`, `c-reference` and `p3109` have all formats",
            }),
        }
    }

    const fn float_of(format: P3109Format, specials: SpecialCodes) -> Self {
        let mantissa_bits = format.precision() - 1;
        let magnitude_bits = format.bits() - format.is_signed() as u32;
        Self::of_float(
            (magnitude_bits - mantissa_bits) as u8,
            mantissa_bits as u8,
            format.bias() as i16,
            specials,
        )
    }

    /// The format of P3109 with the same codes, or whose codes are the magnitudes; `None` for any other format.
    pub(crate) fn to_p3109(self, as_magnitudes: bool) -> Option<P3109Format> {
        let (signed, extended) = match self.special_codes()? {
            SpecialCodes::Fnuz => (true, false),
            SpecialCodes::Extended => (true, true),
            SpecialCodes::Nan => (false, false),
            SpecialCodes::NanInf => (false, true),
            SpecialCodes::None | SpecialCodes::Ieee => return None,
        };
        let bits = self.bits() - u32::from(!signed);
        let format = P3109Format::new(bits, self.mantissa_bits() + 1, signed, extended).ok()?;
        (signed != as_magnitudes && format.bias() == self.bias()).then_some(format)
    }
}
