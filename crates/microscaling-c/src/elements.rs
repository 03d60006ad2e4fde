//! The values of an element format, and of the rule that converts numbers to elements.

use crate::error::ReferenceError;
use crate::template::Values;
use microscaling::p3109::StochasticVariant;
use microscaling::{
    ElementConversion, ElementFormat, ElementOverflow, ElementRounding, SpecialCodes,
};

/// Sets what templates say of the elements of `format`, the text of a whole format.
pub(crate) fn set(
    values: &mut Values,
    element: ElementFormat,
    conversion: &ElementConversion,
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
    // Above all bits of a code without a sign.
    let sign = element.sign_bit();
    let largest = match element.is_integer() {
        true => sign - 1,
        false => largest_code(element, sign),
    };
    let mask = (1 << element.bits()) - 1;
    values.set("element_text", text(element));
    values.set("bits", element.bits());
    values.hex("mask", mask);
    values.hex("sign", sign);
    values.hex("sign_less", sign - 1);
    values.hex("top_fraction", (1 << element.mantissa_bits()) - 1);
    values.hex("smallest_normal", 1 << element.mantissa_bits());
    values.set("mantissa_bits", element.mantissa_bits());
    values.set("emin", element.emin());
    values.set("emax", element.emax());
    values.set("fixed", element.is_integer());
    values.set("unsigned", element.is_unsigned());
    values.set("specials", specials_name(element.special_codes()));
    values.hex("max_code", largest);
    values.set(
        "nan_code",
        element.nan_code().map(|code| format!("{code:x}")),
    );
    set_conversion(values, element, conversion, largest);
    Ok(())
}

/// Sets what templates say of rounding, overflow and small results.
fn set_conversion(
    values: &mut Values,
    element: ElementFormat,
    conversion: &ElementConversion,
    largest: u32,
) {
    let ElementConversion {
        rounding,
        random_bits,
        overflow,
        flush_outputs,
        negative_zero,
    } = *conversion;
    let own = rounding.filter(|rounding| !rounding.is_stochastic());
    values.set("own_rounding", own.map(mode_name));
    values.set("random_bits", random_bits);
    let variant = match rounding {
        Some(ElementRounding::Stochastic(StochasticVariant::B)) => "NEAREST_AWAY",
        Some(ElementRounding::Stochastic(StochasticVariant::C)) => "NEAREST_EVEN",
        _ => "",
    };
    // How the fraction is rounded to the bits of the random word; empty where the fraction is cut off.
    values.set("fraction_rounding", variant);
    values.hex("random_mask", u32::MAX << (32 - random_bits));
    values.hex("random_mask_half", (u32::MAX << (32 - random_bits)) >> 1);
    values.set("flush_outputs", flush_outputs);
    let has_negative_zero = element.has_negative_zero() && negative_zero && !element.is_unsigned();
    values.set("negative_zero", has_negative_zero);
    values.set("overflow_text", overflow.to_string());
    values.set("by_direction", overflow == ElementOverflow::Infinity);
    for (name, infinity_name, negative) in [
        ("beyond_positive", "code_of_infinity", false),
        ("beyond_negative", "code_of_negative_infinity", true),
    ] {
        let beyond = beyond(element, overflow, negative);
        let of_infinity = match (overflow, element.infinity_code()) {
            (ElementOverflow::Propagate, Some(infinity))
                if !(negative && element.is_unsigned()) =>
            {
                Some(infinity | sign_of(element, negative))
            }
            _ => beyond,
        };
        let extreme = match (negative, element.is_unsigned(), element.is_integer()) {
            (true, true, _) => 0,
            (true, false, true) => (1 << element.bits()) - largest,
            _ => largest | sign_of(element, negative),
        };
        values.set(name, beyond.map(|code| format!("{code:x}")));
        values.hex(infinity_name, of_infinity.unwrap_or(extreme));
    }
}

fn sign_of(element: ElementFormat, negative: bool) -> u32 {
    match negative {
        true => element.sign_bit(),
        false => 0,
    }
}

/// The code of Inf or NaN for a finite number beyond the largest or the smallest one; `None` where numbers saturate.
fn beyond(element: ElementFormat, overflow: ElementOverflow, negative: bool) -> Option<u32> {
    let below_unsigned = negative && element.is_unsigned();
    match (overflow, element.infinity_code()) {
        (ElementOverflow::Infinity, Some(infinity)) if !below_unsigned => {
            Some(infinity | sign_of(element, negative))
        }
        // As in P3109, which has such formats alone.
        (ElementOverflow::Infinity, None) if element.is_unsigned() && !negative => None,
        (ElementOverflow::Infinity | ElementOverflow::Nan, _) => element.nan_code(),
        (
            ElementOverflow::Saturate | ElementOverflow::Propagate | ElementOverflow::Renormalize,
            _,
        ) => None,
    }
}

/// A rounding mode, as templates name its constant.
fn mode_name(rounding: ElementRounding) -> &'static str {
    match rounding {
        ElementRounding::TiesToEven => "NEAREST_EVEN",
        ElementRounding::TiesToAway => "NEAREST_AWAY",
        ElementRounding::TiesToZero => "TIES_TO_ZERO",
        ElementRounding::TiesToOdd => "TIES_TO_ODD",
        ElementRounding::TiesTowardPositive => "TIES_UP",
        ElementRounding::TiesTowardNegative => "TIES_DOWN",
        ElementRounding::TowardZero => "TOWARD_ZERO",
        ElementRounding::AwayFromZero => "AWAY_FROM_ZERO",
        ElementRounding::TowardPositive => "UPWARD",
        ElementRounding::TowardNegative => "DOWNWARD",
        ElementRounding::ToOdd => "TO_ODD",
        ElementRounding::Stochastic(_) => "STOCHASTIC",
    }
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
        Some(SpecialCodes::Extended) => "extended",
        Some(SpecialCodes::NanInf) => "nan_inf",
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
            "{element}, {} sign, {} exponent bits, {} mantissa bits; the largest number is {}",
            if element.is_unsigned() { "no" } else { "a" },
            element.exponent_bits(),
            element.mantissa_bits(),
            element.max()
        ),
    }
}
