//! The datasheet of a format, with its cost.

use crate::numbers::Numbers;
use crate::product::Product;
use crate::tables::Tables;
use microscaling::BlockFormat;

impl Tables {
    /// The [datasheet](BlockFormat::datasheet) of a format, with its area and its energy by these tables: of products with both
    /// operands in the format, summed in float32. The format must be [valid](BlockFormat::validate).
    pub fn datasheet(&self, format: BlockFormat) -> Vec<(&'static str, String)> {
        let numbers = Numbers::from(format);
        let mut product = Product::matmul("", [1; 4], numbers, numbers);
        let area = self.cost(std::slice::from_ref(&product)).area;
        product.lhs.elements = 0.0;
        product.rhs.elements = 0.0;
        let computing = self.operations.product(&product);
        let reading = self.operations.memory(numbers.bits);
        let mut rows = format.datasheet();
        rows.push(("area", format!("{area:.2} of a lane of MXFP8 E4M3")));
        rows.push((
            "energy",
            format!(
                "{computing:.2} pJ to multiply and add, {reading:.1} pJ to read an element from memory"
            ),
        ));
        rows
    }
}
