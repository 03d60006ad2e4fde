//! A layer, to be computed by any backend.

use burn_core::tensor::backend::{AutodiffBackend, Backend};
use burn_core::tensor::{Tensor, TensorData};

fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn tensor<B: Backend, const D: usize>(
    shape: [usize; D],
    seed: u32,
    device: &B::Device,
) -> Tensor<B, D> {
    let values = numbers(shape.iter().product(), seed);
    Tensor::from_data(TensorData::new(values, shape), device)
}

fn values<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().into_vec().expect("it holds f32")
}

/// A layer's output, and the gradients of its input and its weight.
pub(crate) fn pass<B: AutodiffBackend>(device: &B::Device) -> [Vec<f32>; 3] {
    let x = tensor::<B, 2>([5, 40], 1, device).require_grad();
    let w = tensor::<B, 2>([40, 9], 2, device).require_grad();
    let y = burn_core::tensor::activation::gelu(x.clone().matmul(w.clone()));
    let grads = (y.clone() * tensor::<B, 2>([5, 9], 3, device))
        .sum()
        .backward();
    [
        values(y),
        values(x.grad(&grads).expect("x is a leaf")),
        values(w.grad(&grads).expect("w is a leaf")),
    ]
}

/// The layer's product.
pub(crate) fn product<B: Backend>(device: &B::Device) -> Vec<f32> {
    values(tensor::<B, 2>([5, 40], 1, device).matmul(tensor([40, 9], 2, device)))
}
