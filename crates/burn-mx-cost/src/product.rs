//! Products.

use crate::numbers::Numbers;
use microscaling_product::Accumulator;

/// An operand of a product.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Operand {
    /// Its numbers.
    pub numbers: Numbers,
    /// How many there are.
    pub elements: f64,
}

/// A product of a model's step or inference: a matrix product, or a convolution.
#[derive(Debug, Clone, PartialEq)]
pub struct Product {
    /// The layer that it belongs to.
    pub layer: String,
    /// Multiplications, each with an addition.
    pub macs: f64,
    /// The left operand.
    pub lhs: Operand,
    /// The right operand.
    pub rhs: Operand,
    /// Elements of the result.
    pub result_elements: f64,
    /// The accumulator, if the sum is not a float32.
    pub accumulator: Option<Accumulator>,
}

impl Product {
    /// `count` matrices `[m, k]` times `count` matrices `[k, n]`, given as `[count, m, n, k]`.
    pub fn matmul(layer: &str, [count, m, n, k]: [usize; 4], lhs: Numbers, rhs: Numbers) -> Self {
        let [count, m, n, k] = [count, m, n, k].map(|length| length as f64);
        let operand = |numbers, free| Operand {
            numbers,
            elements: count * free * k,
        };
        Self {
            layer: layer.to_owned(),
            macs: count * m * n * k,
            lhs: operand(lhs, m),
            rhs: operand(rhs, n),
            result_elements: count * m * n,
            accumulator: None,
        }
    }

    /// Bits of both operands in memory.
    pub fn operand_bits(&self) -> f64 {
        let bits = |operand: &Operand| operand.elements * operand.numbers.bits;
        bits(&self.lhs) + bits(&self.rhs)
    }
}
