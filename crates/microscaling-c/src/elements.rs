//! The values of an element format.

use crate::error::ReferenceError;
use crate::template::Values;
use microscaling::{ElementFormat, SpecialCodes};

/// Sets what templates say of the elements of `format`, the text of a whole format.
pub(crate) fn set(
    values: &mut Values,
    element: ElementFormat,
    format: &str,
) -> Result<(), ReferenceError> {
    if element.is_table() {
        return Err(ReferenceError::Part {
            format: format.to_owned(),
            part: "element",
            got: element.to_string(),
            allowed: "a float or fixed point: a table of numbers is not written down",
        });
    }
    if matches!(
        element.special_codes(),
        Some(SpecialCodes::Extended | SpecialCodes::NanInf)
    ) || element.is_unsigned()
    {
        return Err(ReferenceError::Part {
            format: format.to_owned(),
            part: "element",
            got: element.to_string(),
            allowed: "elements with a sign and other special codes; the elements alone, as a format of P3109, are written down",
        });
    }
    let sign = 1_u32 << (element.bits() - 1);
    let largest = match element.is_integer() {
        true => sign - 1,
        false => largest_code(element, sign),
    };
    let specials = element.special_codes();
    let nan = (0..2 * sign).find(|code| !element.is_integer() && element.decode(*code).is_nan());
    let nan = match specials {
        // A quiet one.
        Some(SpecialCodes::Ieee) => nan.map(|_| largest + 1 + (1 << (element.mantissa_bits() - 1))),
        _ => nan,
    };
    values.set("element_text", text(element));
    values.set("bits", element.bits());
    values.hex("mask", 2 * sign - 1);
    values.hex("sign", sign);
    values.hex("sign_less", sign - 1);
    values.hex("top_fraction", (1 << element.mantissa_bits()) - 1);
    values.set("mantissa_bits", element.mantissa_bits());
    values.set("emin", element.emin());
    values.set("emax", element.emax());
    values.set("fixed", element.is_integer());
    values.set("specials", specials_name(specials));
    values.hex("max_code", largest);
    values.set("nan_code", nan.map(|code| format!("{code:x}")));
    Ok(())
}

/// The code of the largest number of a float, which has this sign bit.
pub(crate) fn largest_code(float: ElementFormat, sign: u32) -> u32 {
    let finite = |code: &u32| float.decode(*code).is_finite();
    (0..sign).rev().find(finite).expect("a float has numbers")
}

/// A kind of special codes, as templates know it.
pub(crate) fn specials_name(specials: Option<SpecialCodes>) -> &'static str {
    match specials {
        Some(SpecialCodes::Ieee) => "ieee",
        Some(SpecialCodes::Nan) => "nan",
        Some(SpecialCodes::Fnuz) => "fnuz",
        _ => "none",
    }
}

fn text(element: ElementFormat) -> String {
    match element.is_integer() {
        true => format!(
            "{element}, two's complement of {} bits in units of {}",
            element.bits(),
            element.min_subnormal()
        ),
        false => format!(
            "{element}, a sign, {} exponent bits, {} mantissa bits; the largest number is {}",
            element.exponent_bits(),
            element.mantissa_bits(),
            element.max()
        ),
    }
}
