//! The products of a recorded step for [models of their cost](burn_mx_cost).

use burn_mx_cost::Product;
use microscaling::FloatFormat;

use burn_mx_core::hooks::ProductKind;

use super::figures::{OperandRecord, ProductRecord, StepRecord};
use crate::products::Formats;

impl StepRecord {
    /// The step's products with their formats, for [models of their cost](burn_mx_cost). A product is left out
    /// * if one of its operands was not recorded ([`RecorderConfig::operands`](crate::RecorderConfig::operands));
    /// * if its size was not recorded, as by earlier versions;
    /// * if this version does not know one of its formats.
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
        if self.macs == 0 {
            return Vec::new();
        }
        let products = pairs.into_iter().filter_map(|(pair, share)| {
            let [lhs, rhs] = pair.map(|operand| operand.figures.elements as f64);
            let elements = [lhs, rhs, share.of_result * self.result_elements as f64];
            let formats = self.formats(pair)?;
            Some(formats.product(&self.layer, share.of_macs * self.macs as f64, elements))
        });
        products.collect()
    }

    /// The operands that are multiplied with each other. The gradients of two activations are two products of one record: each has
    /// an output gradient and the other activation, and as many multiplications. Hot columns of a linear layer are another product.
    fn pairs(&self) -> Vec<([&OperandRecord; 2], Share)> {
        let named = |name: &str| self.operands.iter().find(|operand| operand.operand == name);
        let gradients = [
            ("output gradient", "rhs"),
            ("lhs", "output gradient for rhs"),
        ];
        let (hot, usual): (Vec<_>, Vec<_>) =
            self.operands.iter().partition(|operand| operand.is_hot());
        match (&usual[..], &hot[..]) {
            ([lhs, rhs], []) => vec![([lhs, rhs], Share::ALL)],
            ([lhs, rhs], [hot_lhs, hot_rhs]) => {
                let elements = |operand: &OperandRecord| operand.figures.elements as f64;
                // Columns of x are terms of the forward product, and rows of a weight's gradient.
                let of_hot = elements(hot_lhs) / (elements(lhs) + elements(hot_lhs)).max(1.0);
                let share = |of_macs: f64| Share {
                    of_macs,
                    of_result: match self.product {
                        ProductKind::WeightGradient => of_macs,
                        _ => 1.0,
                    },
                };
                vec![
                    ([lhs, rhs], share(1.0 - of_hot)),
                    ([hot_lhs, hot_rhs], share(of_hot)),
                ]
            }
            ([_, _, _, _], []) => gradients
                .iter()
                .filter_map(|(lhs, rhs)| Some(([named(lhs)?, named(rhs)?], Share::HALF)))
                .collect(),
            _ => Vec::new(),
        }
    }

    /// The formats of these operands; `None` if one is unknown.
    fn formats(&self, [lhs, rhs]: [&OperandRecord; 2]) -> Option<Formats> {
        let point = |operand: &OperandRecord| operand.format.as_deref().map(str::parse).transpose();
        let accumulation = self.accumulator.as_deref().map(str::parse).transpose();
        Some(Formats {
            points: [point(lhs).ok()?, point(rhs).ok()?],
            elementwise: match &self.elementwise {
                Some(name) => Some(float_format(name)?),
                None => None,
            },
            accumulation: accumulation.ok()?,
        })
    }
}

/// The part of a record that one of its products is.
struct Share {
    of_macs: f64,
    of_result: f64,
}

impl Share {
    const ALL: Self = Self {
        of_macs: 1.0,
        of_result: 1.0,
    };
    const HALF: Self = Self {
        of_macs: 0.5,
        of_result: 0.5,
    };
}

/// The format of this name, such as `bfloat16`.
fn float_format(name: &str) -> Option<FloatFormat> {
    let bits = |family: &str| name.strip_prefix(family)?.parse().ok();
    match bits("bfloat") {
        Some(bits) => FloatFormat::bfloat(bits).ok(),
        None => FloatFormat::fp(bits("fp")?).ok(),
    }
}
