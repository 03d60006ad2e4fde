//! AdamW in one pass: the bits of Burn's ops on the same backend, and of the kernel on processors.

use burn::backend::Flex;
use burn::optim::{AdamWConfig, AdamWState, SimpleOptimizer};
use burn::tensor::{Tensor, TensorData, backend::Backend};
use burn_mx::MxKernels;
use burn_mx::module::MxModelOps;
use burn_mx::optim::AdamW;
use burn_mx_kernels::internal::AdamWStep;

use super::support::*;
use crate::backend::{TestBackend, Unfused};

/// The parameter and its moments after four steps, the first of which is Burn's.
fn steps<B: Backend>(optimizer: &impl SimpleOptimizer<B, State<2> = AdamWState<B, 2>>) -> Vec<f32> {
    let device = B::Device::default();
    let tensor = |shape: [usize; 2], seed| {
        let values = noise(shape[0] * shape[1], seed);
        Tensor::<B, 2>::from_data(TensorData::new(values, shape), &device)
    };
    let (mut parameter, mut state) = (tensor([50, 33], 1), None);
    for step in 0..4 {
        let gradient = match step {
            // As a product may leave it.
            2 => tensor([33, 50], 9).transpose(),
            _ => tensor([50, 33], 2 + step),
        };
        (parameter, state) = optimizer.step(0.02, parameter, gradient, state);
    }
    let momentum = state.expect("AdamW has a state").momentum;
    let results = [parameter, momentum.moment_1, momentum.moment_2];
    let results = results.map(|tensor| tensor.into_data().into_vec::<f32>());
    results
        .map(|numbers| numbers.expect("the tensor holds f32"))
        .concat()
}

fn in_one_pass<B: MxModelOps>(config: &AdamWConfig) -> Vec<f32> {
    steps::<B>(&AdamW::new(config))
}

/// The backend's kernel computes a step by hand.
fn assert_kernel<B: MxKernels>() {
    let operands = [0; 4].map(|_| tensor::<B>(&[1.0], &[1]));
    let step = AdamWStep {
        betas: [0.5; 2],
        shares: [0.5; 2],
        corrections: [0.5; 2],
        epsilon: 0.0,
        kept: 1.0,
        rate: 0.25,
    };
    let results = B::kernels().adamw(step, operands);
    let results = results.expect("the backend has a kernel");
    let expected = [1.0 - 0.25 * 2.0 / 2_f32.sqrt(), 1.0, 1.0];
    assert_same(&results.map(values::<B>).concat(), &expected, "by hand");
}

/// burn-fusion joins Burn's ops into kernels. Without burn-fusion, AdamW has its own kernel.
#[test]
fn a_step_of_adamw_has_the_bits_of_the_ops() {
    let config = AdamWConfig::new().with_weight_decay(0.3).with_epsilon(1e-8);
    let burns = config.build();
    // The types of CUDA and ROCm have burn-fusion, whose kernels may contract a product and a sum.
    if !cfg!(any(test_backend = "cuda", test_backend = "rocm")) {
        assert_kernel::<Unfused>();
        let own = in_one_pass::<Unfused>(&config);
        assert_same(&own, &in_one_pass::<Flex>(&config), "Flex's kernel");
        assert_same(&own, &steps::<Unfused>(&burns), "Burn's ops");
    }
    let fused = in_one_pass::<TestBackend>(&config);
    assert_same(&fused, &steps::<TestBackend>(&burns), "Burn's ops, fused");
}
