//! The codes of elements, and their numbers.

use super::bits::{self, ABS, INFINITY, NAN, SIGN};
use cubecl::prelude::*;
use microscaling::ElementFormat;

/// The code of a number of the format times 2^exponent; Inf stands for 2^128.
#[cube]
pub(in crate::cube) fn element_code(
    x: u32,
    exponent: i32,
    #[comptime] element: ElementFormat,
) -> u32 {
    let abs = x & ABS;
    let lowest = comptime!(element.emin()) + exponent;
    let own = max(bits::exponent(abs), lowest);
    // The implicit bit counts as one more in the exponent field.
    let magnitude = bits::steps(abs, own - comptime!(element.mantissa_bits() as i32))
        + (((own - lowest) as u32) << comptime!(element.mantissa_bits()));
    let sign = comptime!(1u32 << (element.bits() - 1));
    let negative = if comptime!(element.is_integer()) {
        (0u32 - magnitude) & comptime!(2 * sign - 1)
    } else if comptime!(element.has_negative_zero()) {
        magnitude | sign
    } else {
        select(magnitude == 0, 0, magnitude | sign)
    };
    select(x & SIGN == 0, magnitude, negative)
}

/// The number of a code times 2^exponent, toward zero where that is too fine for float32, as a pattern.
#[cube]
pub(in crate::cube) fn element_value(
    code: u32,
    exponent: i32,
    #[comptime] element: ElementFormat,
) -> u32 {
    let sign = comptime!(1u32 << (element.bits() - 1));
    let is_negative = code & sign != 0;
    let mantissa_bits = comptime!(element.mantissa_bits());
    let lowest = comptime!(element.emin() - element.mantissa_bits() as i32) + exponent;
    let number = if comptime!(element.is_integer()) {
        let complement = (0u32 - code) & comptime!(2 * sign - 1);
        bits::fixed(select(is_negative, complement, code), lowest)
    } else {
        let magnitude = code & comptime!(sign - 1);
        let implicit = max(magnitude >> mantissa_bits, 1) - 1;
        let significand = magnitude - (implicit << mantissa_bits);
        let number = bits::fixed(significand, lowest + implicit as i32);
        let (special, lowest_special) = comptime!(specials(element));
        let of_special = select(magnitude == special, lowest_special, NAN);
        let number = select(magnitude < special, number, of_special);
        if comptime!(element.has_negative_zero()) {
            number
        } else {
            select(is_negative && magnitude == 0, NAN, number)
        }
    };
    let signed = select(is_negative, number | SIGN, number);
    select(number > INFINITY, NAN, signed)
}

/// The lowest magnitude code for NaN or Inf, and its meaning: all codes above are NaN.
fn specials(element: ElementFormat) -> (u32, u32) {
    let sign = 1u32 << (element.bits() - 1);
    // From above: an element may have millions of numbers, and few codes for none.
    let largest = (0..sign)
        .rev()
        .find(|code| element.decode(*code).is_finite());
    match largest.map_or(0, |largest| largest + 1) {
        special if special < sign => (special, element.decode(special).to_bits()),
        _ => (u32::MAX, NAN),
    }
}
