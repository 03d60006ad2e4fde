//! burn-train's learner with the optimizer's states in formats.

use burn::backend::Autodiff;
use burn::optim::AdamConfig;
use burn::tensor::backend::AutodiffBackend;
use burn_mx::optim::OptimizerStates;
use burn_mx::{MxAutodiff, MxSpecs};

use super::learner::{Regressor, launch, loader};
use crate::backend::{TestDevice, Unfused};
use crate::support::*;

/// Weights after training to the end of `epochs`, from the checkpoint of `from`.
fn train<B: AutodiffBackend>(
    device: &B::Device,
    states: &OptimizerStates,
    directory: &std::path::Path,
    (epochs, from): (usize, Option<usize>),
) -> Vec<Vec<f32>> {
    let loaders = (loader::<B>(5, device), loader::<B::InnerBackend>(6, device));
    let optimizer = states.adam(&AdamConfig::new());
    let optimizer = optimizer.expect("states of Adam");
    let regressor = Regressor::<B>::new(device);
    let trained = launch(regressor, optimizer, loaders, directory, (epochs, from));
    weights(&trained)
}

#[test]
#[cfg_attr(
    any(test_backend = "cuda", test_backend = "rocm"),
    ignore = "burn-fusion loses what checkpointers read"
)]
fn the_learner_resumes_with_packed_states_to_the_same_bits() {
    let mut stochastic = OptimizerStates::preset("bfloat16_stochastic").expect("a preset");
    stochastic.second_moment = Some("dynamic8_unsigned".into());
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let all = |epochs, states: &OptimizerStates| {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let first = train::<MxAutodiff<Unfused>>(&device, states, directory.path(), (epochs, None));
        match epochs {
            4 => first,
            // From the checkpoint, which has the weights and the states.
            _ => train::<MxAutodiff<Unfused>>(&device, states, directory.path(), (4, Some(epochs))),
        }
    };
    let at_once = all(4, &stochastic);
    assert_all_same_bits(&all(2, &stochastic), &at_once, "after the resume");
    assert_ne!(
        at_once,
        all(4, &OptimizerStates::default()),
        "states are rounded"
    );
}

#[test]
#[cfg_attr(
    any(test_backend = "cuda", test_backend = "rocm"),
    ignore = "burn-fusion loses what checkpointers read"
)]
fn without_emulation_the_decorator_trains_with_packed_states_as_burn_alone() {
    let states = OptimizerStates::preset("bfloat16_kahan").expect("a preset");
    let [decorated, plain] =
        [(); 2].map(|()| tempfile::tempdir().expect("a directory can be made"));
    let device = mx_device(&MxSpecs::none());
    let decorated = train::<MxAutodiff<Unfused>>(&device, &states, decorated.path(), (2, None));
    let device = TestDevice::default();
    let plain = train::<Autodiff<Unfused>>(&device, &states, plain.path(), (2, None));
    assert_all_same_bits(&decorated, &plain, "weight");
}
