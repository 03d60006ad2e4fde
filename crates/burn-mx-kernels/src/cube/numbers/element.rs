//! The codes of elements, and their numbers: `microscaling`'s, on patterns.

use super::words::{KernelValue, written};
use cubecl::prelude::*;
use microscaling::ElementFormat;
use microscaling::internal::ElementCodes;

/// The code of a number of the format times 2^exponent; Inf stands for 2^128.
#[cube]
#[allow(unused_variables, reason = "used where the kernel is written")]
pub(in crate::cube) fn element_code(
    x: u32,
    exponent: i32,
    #[comptime] element: ElementFormat,
) -> u32 {
    intrinsic!(|scope| written(scope, || {
        let (x, exponent) = (KernelValue::of(x), KernelValue::of(exponent));
        ElementCodes::of_element(element)
            .code(x, exponent)
            .variable()
    }))
}

/// The number of a code times 2^exponent, toward zero where that is too fine for float32, as a pattern.
#[cube]
#[allow(unused_variables, reason = "used where the kernel is written")]
pub(in crate::cube) fn element_value(
    code: u32,
    exponent: i32,
    #[comptime] element: ElementFormat,
) -> u32 {
    intrinsic!(|scope| written(scope, || {
        let (code, exponent) = (KernelValue::of(code), KernelValue::of(exponent));
        ElementCodes::of_element(element)
            .value(code, exponent)
            .variable()
    }))
}
