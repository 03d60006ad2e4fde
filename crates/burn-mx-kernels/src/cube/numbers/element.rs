//! The codes of elements, and their numbers: `microscaling`'s, on patterns.

use super::words::written_by_rules;
use cubecl::prelude::*;
use microscaling::ElementFormat;
use microscaling::internal::ElementCodes;

written_by_rules! {
    /// The code of a number of the format times 2^exponent; Inf stands for 2^128.
    pub(in crate::cube) fn element_code(x: u32, exponent: i32; element: ElementFormat) -> u32 {
        ElementCodes::of_element(element).code(x, exponent)
    }

    /// The number of a code times 2^exponent, toward zero where that is too fine for float32, as a pattern.
    pub(in crate::cube) fn element_value(code: u32, exponent: i32; element: ElementFormat) -> u32 {
        ElementCodes::of_element(element).value(code, exponent)
    }
}
