//! The products of a recorded step for [models of their cost](burn_mx_cost).

use burn_mx_cost::Product;
use microscaling::FloatFormat;

use super::figures::{OperandRecord, ProductRecord, StepRecord};
use crate::products::Formats;

impl StepRecord {
    /// The step's products with their formats, for [models of their cost](burn_mx_cost). A product is left out if one of its operands or its
    /// size was not recorded ([`RecorderConfig::operands`](crate::RecorderConfig::operands); records of earlier versions).
    pub fn cost_products(&self) -> Vec<Product> {
        self.products
            .iter()
            .flat_map(ProductRecord::cost_products)
            .collect()
    }
}

impl ProductRecord {
    fn cost_products(&self) -> Vec<Product> {
        let pairs = self.pairs();
        let share = 1.0 / pairs.len().max(1) as f64;
        let products = pairs.iter().filter(|_| self.macs > 0);
        let products = products.map(|pair| {
            let elements = pair.map(|operand| operand.figures.elements as f64);
            let result = self.result_elements as f64 * share;
            self.formats(*pair).product(
                &self.layer,
                self.macs as f64 * share,
                [elements[0], elements[1], result],
            )
        });
        products.collect()
    }

    /// The operands that are multiplied with each other. The gradients of two activations are two products of one record: each has
    /// an output gradient and the other activation.
    pub(crate) fn pairs(&self) -> Vec<[&OperandRecord; 2]> {
        let named = |name: &str| self.operands.iter().find(|operand| operand.operand == name);
        let gradients = [
            ("output gradient", "rhs"),
            ("lhs", "output gradient for rhs"),
        ];
        match &self.operands[..] {
            [lhs, rhs] => vec![[lhs, rhs]],
            [_, _, _, _] => gradients
                .iter()
                .filter_map(|(lhs, rhs)| Some([named(lhs)?, named(rhs)?]))
                .collect(),
            _ => Vec::new(),
        }
    }

    /// The formats of these operands.
    pub(crate) fn formats(&self, operands: [&OperandRecord; 2]) -> Formats {
        Formats {
            blocks: operands.map(|operand| operand.format.as_ref()?.parse().ok()),
            elementwise: self.elementwise.as_deref().and_then(float_format),
            accumulation: self.accumulator.as_ref().and_then(|text| text.parse().ok()),
        }
    }
}

/// The format of this name, such as `bfloat16`.
fn float_format(name: &str) -> Option<FloatFormat> {
    let bits = |family: &str| name.strip_prefix(family)?.parse().ok();
    match bits("bfloat") {
        Some(bits) => FloatFormat::bfloat(bits).ok(),
        None => FloatFormat::fp(bits("fp")?).ok(),
    }
}
