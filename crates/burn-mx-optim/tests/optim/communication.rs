//! Collective operations.

mod anchors;
mod feedback;
mod gradients;
mod integers;
mod loops;
mod parallel;
mod refused;
mod sequence;
mod strangers;
mod weights;
mod written_out;

use burn_core::tensor::{Tensor, TensorData};
use burn_flex::Flex;
use burn_mx_optim::communication::{Communication, TensorState};
use microscaling::RandomStream;

use crate::{DEVICE, bits, normal};

/// Whole numbers from a stream, for choices.
struct Choices(RandomStream, u64);

impl Choices {
    fn new(seed: u64) -> Self {
        Self(RandomStream::new(seed, 77), 0)
    }

    fn below(&mut self, count: usize) -> usize {
        self.1 += 1;
        self.0.draw(self.1) as usize % count
    }

    fn of<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

fn row(numbers: &[f32]) -> Tensor<Flex, 1> {
    Tensor::from_data(TensorData::new(numbers.to_vec(), [numbers.len()]), &DEVICE)
}

fn floats<const D: usize>(tensor: Tensor<Flex, D>) -> Vec<f32> {
    tensor.into_data().into_vec().unwrap()
}

fn all_reduce(wire: &Communication, operands: &[Vec<f32>], state: &mut TensorState) -> Vec<f32> {
    let operands = operands.iter().map(|operand| row(operand)).collect();
    floats(wire.all_reduce(operands, state).unwrap())
}

/// Equal bits; one NaN is as good as another.
fn assert_same(got: &[f32], expected: &[f32], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (index, (got, expected)) in got.iter().zip(expected).enumerate() {
        let is_same = got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan();
        assert!(is_same, "{what}: {got} at {index}, expected {expected}");
    }
}
