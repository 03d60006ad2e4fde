//! The values of a format of P3109.

use crate::template::Values;
use microscaling::p3109::P3109Format;

/// Sets what templates say of such a format.
pub(crate) fn set(values: &mut Values, format: P3109Format) {
    let infinity = format.infinity(false);
    let signed = format.is_signed();
    // The codes of +Inf and, in unsigned formats, of NaN come after the largest number.
    let codes = 1_u32 << (format.bits() - u32::from(signed));
    let largest = codes - 1 - u32::from(format.is_extended()) - u32::from(!signed);
    values.set("bits", format.bits());
    values.set("precision", format.precision());
    values.set("bias", format.bias());
    values.set("signed", signed);
    values.set("extended", format.is_extended());
    values.set("fits_float32", format.fits_float32());
    values.hex("nan_code", format.nan());
    values.hex("max_code", largest);
    values.hex("sign_less", (1 << (format.bits() - 1)) - 1);
    values.set("infinity", infinity.map(|code| format!("{code:x}")));
}
