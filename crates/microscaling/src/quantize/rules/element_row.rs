//! Element formats as the rules hold them.

use crate::format::ElementFormat;
use crate::round::bits::{self, IMPLICIT, INFINITY, ONE};
use microscaling_processor::float_state::ieee;

/// The properties of an element format that rounding needs, as integers.
#[derive(Clone, Copy)]
pub(crate) struct ElementRow {
    pub(crate) mantissa_bits: i32,
    pub(crate) emin: i32,
    pub(crate) emax: i32,
    /// Pattern of the largest number.
    pub(crate) max: u32,
    /// Pattern of its float32 reciprocal.
    pub(crate) inverse_max: u32,
    /// Pattern of the largest number below 2^128 of all blocks that have larger ones.
    pub(crate) top: u32,
}

impl ElementRow {
    pub(crate) fn of(element: ElementFormat) -> Self {
        Self {
            mantissa_bits: element.mantissa_bits() as i32,
            emin: element.emin(),
            emax: element.emax(),
            max: element.max().to_bits(),
            inverse_max: ieee(|| bits::quotient(ONE, element.max().to_bits())),
            top: INFINITY - (IMPLICIT >> element.mantissa_bits()),
        }
    }
}
