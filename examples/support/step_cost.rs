//! The cost of a step's products, by models.

use burn_mx::cost::{Cost, CostError, Product};

use super::costing::Costing;

/// The cost of a step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepCost {
    pub(crate) cost: Cost,
    /// Seconds of the chip; `None` if it has no unit for such numbers.
    pub(crate) seconds: Option<f64>,
}

impl StepCost {
    /// The cost of these products.
    pub(crate) fn of(costing: &Costing, products: &[Product]) -> Self {
        let chip = costing.chip();
        let seconds: Result<f64, CostError> =
            products.iter().map(|product| chip.seconds(product)).sum();
        Self {
            cost: costing.tables().cost(products),
            seconds: seconds.ok(),
        }
    }

    /// Bits, area, energy and time as text.
    pub(crate) fn cells(&self) -> [String; 4] {
        let Self { cost, seconds } = self;
        [
            format!("{:.2}", cost.bits),
            format!("{:.2}", cost.area),
            format!("{:.1} µJ", cost.picojoules / 1e6),
            seconds.map_or("-".into(), |seconds| format!("{:.2} µs", 1e6 * seconds)),
        ]
    }
}
