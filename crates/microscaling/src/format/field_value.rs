//! Values of fields, in errors.

use crate::format::{ElementFormat, Headroom, OuterScale, ScaleFormat, Shifts, SubScales};
use core::fmt;

/// The value of a field of a format, in an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldValue {
    /// A name, or `true` or `false`.
    Name(&'static str),
    /// A number.
    Number(u32),
    /// An element format.
    Element(ElementFormat),
    /// A scale format.
    Scale(ScaleFormat),
    /// A headroom.
    Headroom(Headroom),
    /// Sub-scales.
    SubScales(SubScales),
    /// An outer scale.
    Outer(OuterScale),
    /// Shifts of sub-blocks.
    Shifts(Shifts),
}

impl From<bool> for FieldValue {
    fn from(value: bool) -> Self {
        Self::Name(if value { "true" } else { "false" })
    }
}

impl fmt::Display for FieldValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.pad(name),
            Self::Number(number) => number.fmt(f),
            Self::Element(element) => element.fmt(f),
            Self::Scale(scale) => scale.fmt(f),
            Self::Headroom(headroom) => headroom.fmt(f),
            Self::SubScales(sub_scales) => sub_scales.fmt(f),
            Self::Outer(outer) => outer.fmt(f),
            Self::Shifts(Shifts { block_size, bits }) => {
                write!(f, "{bits} bits for each {block_size} elements")
            }
        }
    }
}
