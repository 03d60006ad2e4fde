//! The columns of a linear layer's operands that are not like the others, as a field of the specs.

mod ranking;

use microscaling::Rounding;

use super::grouped::{FieldGroup, fields_table, named};
use crate::specs::SlotFormat;
pub use ranking::{ColumnRanking, ParseColumnRankingError};

fields_table! {
    /// The hot columns of linear layers: a share of the input channels, which a product treats apart from the others. A column is
    /// a column of x [.., M, K] and the row of w [K, N] that it meets.
    ///
    /// All columns are ranked by a [score](Self::score), and the first ones are hot. Their number is K · `percent` / 100, rounded
    /// down, then up to a multiple of [`multiple`](Self::multiple). The number is at most the largest multiple below K, so a layer with no
    /// more columns than `multiple` has no hot ones.
    ///
    /// With [`treatment=format`](HotTreatment::Format), hot columns form a product of their own (OutControl of TetraJet-v2, arXiv 2510.27527):
    ///
    /// * y is the sum of two products in float32. Both parts are gathered in the order of the ranking, so blocks hold columns of
    ///   neighbouring rank. The hot part has [`format`](Self::format) in both operands, the rest has the formats of the slots.
    /// * dw: the hot rows are a product in `format` of x and the output's gradient, without a Hadamard transform. The other rows are the usual
    ///   product.
    /// * dx is the usual product of all columns. With `gradient_operands = forward`, w is as the forward product's two parts had it, and so is
    ///   x in dw.
    ///
    /// With [`treatment=residual`](HotTreatment::Residual), a product multiplies hot columns once more (CHON, arXiv 2602.02047). The result is
    /// y = x̃·w̃ − Δx·w̃ − x̃·Δw. x̃ and w̃ are the quantized operands of all columns. Δ is the quantized operand less the exact one. The
    /// last two products sum over the hot columns alone. Of the error of hot columns, −Δx·Δw remains. Δx and Δw have `format`, and x̃ and w̃ stay as they are. Both gradients
    /// are the usual products. That gradients are not patched is our choice, because the sources do not say.
    ///
    /// Products of convolutions and of two activations have no hot columns. Observers see the result of the whole product. Its operands are the
    /// other columns and, in `format`, the [hot](crate::hooks::OperandView::is_hot) ones.
    ///
    /// The text form (`FromStr`, `Display`, serde) is `hot_columns(field=value,…)` with the fields that are not at their default.
    ///
    /// ```
    /// # extern crate burn_mx_core as burn_mx;
    /// use burn_mx::HotColumns;
    ///
    /// let hot: HotColumns = "hot_columns(percent=10,multiple=128,format=mxfp8_e4m3)".parse()?;
    /// assert_eq!(hot.count(1280), 128);
    /// assert_eq!(hot.count(128), 0);
    /// # Ok::<(), burn_mx::ParseGroupError>(())
    /// ```
    pub struct HotColumns;

    /// The share of hot columns in percent, 1 to 99. Default: 10, as TetraJet-v2 has it.
    percent: usize = 10;
    /// The number of hot columns is a multiple of this, 1 or more. Default: 1. TetraJet-v2's code has 128, and its paper's
    /// simulation rounds to the nearest number.
    multiple: usize = 1;
    /// The treatment of hot columns: a product keeps them in a `format` (default), or subtracts their `residual`.
    treatment: HotTreatment = HotTreatment::Format;
    /// Format of hot columns, of both operands, or of their residuals: an element as in the slots, in blocks of the slots, or a whole block
    /// format. Default: none, hot columns keep the elementwise format and residuals are exact.
    format: Option<SlotFormat> = None;
    /// Rounding to `format`, not stochastic. Default: `even`.
    rounding: Rounding = Rounding::NearestEven;
    /// The score that ranks columns: the norm of the `input` (default), or the mean `error` of both operands.
    score: ColumnScore = ColumnScore::Input;
    /// When columns are ranked: anew in each `product` (default), or `fixed` by `ranking`. Fixed columns without a ranking are none yet, and
    /// products are those without hot columns. `module::ColumnRanks` ranks them after a window of training steps.
    chosen: ColumnChoice = ColumnChoice::Product;
    /// All columns of a layer, the hottest first: the indices with spaces between. For `chosen=fixed`. Default: none.
    ranking: Option<ColumnRanking> = None;
}

named! {
    /// The treatment of hot columns in a product.
    HotTreatment {
        /// They form a product of their own, in another format.
        Format = "format",
        /// The product of their quantization errors is subtracted.
        Residual = "residual",
    }
}

named! {
    /// The score of a column. Equal scores are ranked by index.
    ColumnScore {
        /// The root of the sum of squares of a column of x, as the op gets x (TetraJet-v2's code).
        Input = "input",
        /// mean|Δx| of the column of x plus mean|Δw| of the row of w, where Δ is quantized in the slots' formats less exact (CHON).
        Error = "error",
    }
}

named! {
    /// When columns are ranked.
    ColumnChoice {
        /// In each forward product.
        Product = "product",
        /// Once, by the ranking in the specs.
        Fixed = "fixed",
    }
}

impl HotColumns {
    /// The number of hot columns among this number of columns.
    pub fn count(&self, columns: usize) -> usize {
        let multiple = self.multiple.max(1);
        let share = (columns * self.percent / 100).next_multiple_of(multiple);
        let most = columns.saturating_sub(1) / multiple * multiple;
        share.min(most)
    }
}

impl FieldGroup for HotColumns {
    const NAME: &'static str = "hot_columns";
    const WORDS: &'static str = "hot columns";
}
