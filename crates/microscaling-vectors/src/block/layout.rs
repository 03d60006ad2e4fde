//! The fields of a block.

use super::model::BlockModel;
use crate::element::rule::ElementRule;
use crate::layout::{BusField, BusLayout};

/// Whether a case has one scale alone.
pub(super) fn is_one_scale(model: &BlockModel) -> bool {
    model.format.is_element_times_scale() && !model.format.tensor_scale
}

/// The fields of a case with `length` elements, and `record` bytes of scales.
pub(super) fn layout(
    model: &BlockModel,
    rule: &ElementRule,
    [length, record]: [usize; 2],
    values: bool,
) -> BusLayout {
    let format = &model.format;
    let mut fields = vec![
        BusField::input("count", length.ilog2() + 1, 0),
        BusField::input("input", model.input.bits(), length),
    ];
    if rule.rounding.is_stochastic() {
        fields.push(BusField::input("random", rule.random_bits, length));
    }
    if format.tensor_scale {
        fields.push(BusField::output("tensor_scale", 32, 0));
    }
    fields.push(match is_one_scale(model) {
        // A power of two is stored as a byte, with any number of bits.
        true if format.has_exponent() => BusField::output("scale", 8, 0),
        true => BusField::output("scale", format.scale_bits(), 0),
        false => BusField::output("scale", 8, record),
    });
    fields.push(BusField::output("code", format.element_bits(), length));
    if values {
        fields.push(BusField::output("value", 32, length));
    }
    BusLayout::new(fields)
}
