//! Measures how far the sums of a product are from the exact sums.

use microscaling_product::{Accumulation, Accumulator, AccumulatorOperand, SumStatistics};

/// Sums of a product that are looked at, at most.
const SUMS: usize = 256;
/// Products of these sums, at most. The scalar rule takes 10 ms for this number of products.
const PRODUCTS: usize = 1 << 17;

/// The errors of several accumulators on some of the sums of one product.
pub struct SumLooks {
    /// The product's own one is the first.
    accumulations: Vec<Accumulation>,
    /// One entry for each accumulator; `None` if the accumulator does not take the operands.
    statistics: Vec<Option<SumStatistics>>,
}

impl SumLooks {
    /// No sums yet, of these accumulators. The first one is the product's own.
    pub fn new(accumulations: Vec<Accumulation>) -> Self {
        Self {
            statistics: vec![Some(SumStatistics::default()); accumulations.len()],
            accumulations,
        }
    }

    /// Looks at some sums of a matrix product, one of several that are computed for a product by this accumulator.
    pub(super) fn see(
        &mut self,
        own: Accumulator,
        [at, matrices]: [usize; 2],
        [lhs, rhs]: [&AccumulatorOperand<'_>; 2],
    ) {
        let sums = (PRODUCTS / lhs.summed.length.max(1)).clamp(1, SUMS);
        // This matrix has this number of the sums.
        let sums = (at + 1) * sums / matrices - at * sums / matrices;
        if sums == 0 {
            return;
        }
        let others = self.accumulations.iter().skip(1);
        let others = others.map(|accumulation| accumulation.of(lhs.kind, rhs.kind));
        let accumulators = std::iter::once(Ok(own)).chain(others);
        for (accumulator, statistics) in accumulators.zip(&mut self.statistics) {
            let seen = accumulator.and_then(|accumulator| accumulator.statistics(lhs, rhs, sums));
            match (seen, statistics.as_mut()) {
                (Ok(seen), Some(statistics)) => statistics.merge(&seen),
                _ => *statistics = None,
            }
        }
    }

    /// The statistics of each accumulator.
    pub fn into_statistics(self) -> Vec<Option<SumStatistics>> {
        self.statistics
    }
}
