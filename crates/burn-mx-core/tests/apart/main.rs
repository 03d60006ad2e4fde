//! Linear layers that treat columns or means of their operands apart, against matrices written out in `f64`. All numbers are small multiples of
//! a power of two and all scales are powers of two, so that every sum is exact and the comparison is of bits.

mod exact;
mod hot_columns;
mod mean_apart;

use burn_mx_core::{ElementwiseScope, MxSpecs};
use microscaling::Rounding;

use exact::FP4;

fn specs(hot: &str) -> MxSpecs {
    let format = Some(FP4.parse().expect("it is a format"));
    MxSpecs {
        w_elem_format: format,
        a_elem_format: format,
        elementwise_scope: ElementwiseScope::Activations,
        round: Rounding::NearestEven,
        hot_columns: (!hot.is_empty()).then(|| hot.parse().expect("it is hot columns")),
        ..MxSpecs::default()
    }
}
