//! Time on a chip: the roofline of its peaks.

use crate::error::CostError;
use crate::product::Product;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A chip's peaks.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChipRates {
    /// Its name.
    pub name: String,
    /// Where the numbers are from.
    pub source: String,
    /// 10¹² operations a second, two for each multiplication and addition, by the bits of the elements that a unit takes.
    pub tflops: BTreeMap<u32, f64>,
    /// 10¹² bytes of memory a second.
    pub terabytes_per_second: f64,
}

impl ChipRates {
    /// The bits of the narrowest unit for elements of this number of bits. A chip without a unit for FP4 multiplies FP4
    /// as FP8.
    ///
    /// # Errors
    /// [`CostError::NoUnit`]: the chip has no unit so wide.
    pub fn unit(&self, element_bits: u32) -> Result<u32, CostError> {
        let wide_enough = self.tflops.range(element_bits..).next();
        wide_enough
            .map(|(bits, _)| *bits)
            .ok_or_else(|| CostError::NoUnit {
                chip: self.name.clone(),
                bits: element_bits,
                allowed: self.tflops.keys().copied().collect(),
            })
    }

    /// Seconds of a product: the longer time of the multiplications and of the bytes in memory. The result has 16 bits. Real
    /// products reach 60 to 85 % of the peaks, and quantization takes its own time.
    ///
    /// # Errors
    /// [`CostError::NoUnit`].
    pub fn seconds(&self, product: &Product) -> Result<f64, CostError> {
        let [lhs, rhs] = [&product.lhs, &product.rhs];
        let unit = self.unit(lhs.numbers.element_bits.max(rhs.numbers.element_bits))?;
        let multiplying = 2.0 * product.macs / (self.tflops[&unit] * 1e12);
        let bytes = (product.operand_bits() + 16.0 * product.result_elements) / 8.0;
        Ok(multiplying.max(bytes / (self.terabytes_per_second * 1e12)))
    }
}
