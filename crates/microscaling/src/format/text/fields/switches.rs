//! The parameters of hardware's switches, and of NaN and Inf.

use super::{Field, Refusal, either, one_of, range, read};
use crate::format::{ElementOverflow, ElementRounding, NonFinite, Subnormals};
use alloc::string::{String, ToString};

/// A parameter that is a switch of the conversion of its name, true or false.
macro_rules! switch {
    ($field:ident) => {
        Field {
            name: stringify!($field),
            alias: "",
            allowed: either,
            get: |format| format.conversion.$field.to_string(),
            set: |format, text| read(&mut format.conversion.$field, text),
        }
    };
}

pub(super) const ROUNDING: Field = Field {
    name: "rounding",
    alias: "",
    allowed: || one_of(ElementRounding::NAMES),
    get: |format| {
        let rounding = format.conversion.rounding;
        rounding.map_or_else(String::new, |rounding| rounding.to_string())
    },
    set: |format, text| {
        let rounding = text.parse().map_err(|_| Refusal::Value)?;
        format.conversion.rounding = Some(rounding);
        Ok(())
    },
};
pub(super) const RANDOM_BITS: Field = Field {
    name: "random_bits",
    alias: "",
    allowed: || range((1, 31)),
    get: |format| format.conversion.random_bits.to_string(),
    set: |format, text| read(&mut format.conversion.random_bits, text),
};
pub(super) const OVERFLOW: Field = Field {
    name: "overflow",
    alias: "",
    allowed: || one_of(ElementOverflow::NAMES),
    get: |format| format.conversion.overflow.to_string(),
    set: |format, text| read(&mut format.conversion.overflow, text),
};
pub(super) const FLUSH_INPUTS: Field = Field {
    name: "flush_inputs",
    alias: "",
    allowed: either,
    get: |format| (format.subnormals == Subnormals::FlushElements).to_string(),
    set: |format, text| {
        let mut flushes = false;
        read(&mut flushes, text)?;
        match (flushes, format.subnormals) {
            (false, _) => Ok(()),
            (true, Subnormals::FlushBlocks) => {
                Err(Refusal::Expected("false beside flush_fp32_subnorms"))
            }
            (true, Subnormals::Kept | Subnormals::FlushElements) => {
                format.subnormals = Subnormals::FlushElements;
                Ok(())
            }
        }
    },
};
pub(super) const NON_FINITE: Field = Field {
    name: "non_finite",
    alias: "",
    allowed: || one_of(["block", "elements"]),
    get: |format| {
        let name = match format.non_finite {
            NonFinite::Elements => "elements",
            NonFinite::OfBlock | NonFinite::Kept | NonFinite::TopExponent => "block",
        };
        name.to_string()
    },
    set: |format, text| {
        format.non_finite = match text {
            "block" => NonFinite::OfBlock,
            "elements" => NonFinite::Elements,
            _ => return Err(Refusal::Value),
        };
        Ok(())
    },
};

pub(super) const FLUSH_OUTPUTS: Field = switch!(flush_outputs);
pub(super) const NEGATIVE_ZERO: Field = switch!(negative_zero);
