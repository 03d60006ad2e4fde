//! The budget of a search, and what products cost in its unit.

use burn_mx_cost::{ChipRates, CostError, Operations, Product};

/// The budget of a [`Search`](super::Search). Energy and time are [models](burn_mx_cost). They need the sizes of products, which records
/// have.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Budget {
    /// Mean bits of an element of an operand, over all places. Bits count storage and traffic.
    Bits(f64),
    /// Mean picojoules of a multiplication with its addition, and the share of reading the operands once.
    Energy {
        /// The budget.
        picojoules: f64,
        /// The energies of operations.
        operations: Operations,
    },
    /// Time of all products of a recorded step.
    Time {
        /// The budget.
        microseconds: f64,
        /// The chip that the products run on.
        chip: ChipRates,
    },
}

impl Budget {
    /// The budget, in its unit.
    pub fn limit(&self) -> f64 {
        match self {
            Self::Bits(bits) => *bits,
            Self::Energy { picojoules, .. } => *picojoules,
            Self::Time { microseconds, .. } => *microseconds,
        }
    }

    /// The same kind of budget without a limit.
    pub fn unlimited(&self) -> Self {
        let mut budget = self.clone();
        *match &mut budget {
            Self::Bits(limit) => limit,
            Self::Energy { picojoules, .. } => picojoules,
            Self::Time { microseconds, .. } => microseconds,
        } = f64::INFINITY;
        budget
    }

    /// The unit: `bits`, `picojoules`, or `microseconds`.
    pub fn unit(&self) -> &'static str {
        match self {
            Self::Bits(_) => "bits",
            Self::Energy { .. } => "picojoules",
            Self::Time { .. } => "microseconds",
        }
    }

    /// Whether the cost of an operand does not depend on the other operand of its product.
    pub(super) fn is_of_operands(&self) -> bool {
        matches!(self, Self::Bits(_))
    }

    /// The cost of a product, to be divided by [`shares`](Self::shares).
    pub(super) fn cost(&self, product: &Product) -> Result<f64, CostError> {
        Ok(match self {
            Self::Bits(_) => product.operand_bits(),
            Self::Energy { operations, .. } => operations.product(product),
            Self::Time { chip, .. } => 1e6 * chip.seconds(product)?,
        })
    }

    /// The divisor of the sum of all costs: elements, multiplications, or 1.
    pub(super) fn shares(&self, elements: f64, macs: f64) -> f64 {
        match self {
            Self::Bits(_) => elements,
            Self::Energy { .. } => macs,
            Self::Time { .. } => 1.0,
        }
    }
}
