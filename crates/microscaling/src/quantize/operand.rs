//! The steps of quantizing an operand.

use super::{RandomHadamard, Signs};
use crate::format::{BlockFormat, FloatFormat};
use crate::round::mode::Rounding;
use crate::round::random::RandomStream;

/// The steps that the elements of an operand go through on the way.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct OperandQuantization {
    /// Rounding to a float format, which comes first. The rounding is not stochastic.
    pub elementwise: Option<(FloatFormat, Rounding)>,
    /// A random Hadamard transform along the summed axis, which comes second. Both operands of a product need the same one.
    pub hadamard: Option<(RandomHadamard, Signs)>,
    /// A number by which all elements are multiplied then: the reciprocal of a headroom. The product has this factor, too.
    pub factor: Option<f32>,
    /// Rounding to a block format, in blocks along the summed axis. Square blocks lie along the free axis, too.
    pub blocks: Option<(BlockFormat, Rounding)>,
    /// The random numbers of [`blocks`](Self::blocks) whose rounding is stochastic. An element has the number of its place in the tensor.
    pub stream: RandomStream,
}

impl OperandQuantization {
    /// Whether the operand stays unchanged.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.elementwise.is_none() && self.is_elementwise()
    }

    /// Whether there is at most the step [`elementwise`](Self::elementwise).
    #[must_use]
    pub fn is_elementwise(&self) -> bool {
        self.hadamard.is_none() && self.factor.is_none() && self.blocks.is_none()
    }

    /// The steps that come before the blocks.
    #[must_use]
    pub fn before_blocks(self) -> Self {
        Self {
            blocks: None,
            ..self
        }
    }
}
