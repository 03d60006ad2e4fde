//! A schedule in burn-train's learner: the numbers of a loop by hand that sets specs by path and moves its batches.

use std::path::Path;

use burn::module::{AutodiffModule, Param};
use burn::nn::Linear;
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::Tensor;
use burn::train::{Learner, SupervisedTraining};
use burn_mx::module::{Schedule, StagedBatcher, StagedOptimizer, Stages, set_specs_at, specs_of};
use burn_mx::{MxAutodiff, MxBackend, MxDevice, MxSpecs};

use super::learner::{self, Regressor, Silent, Stack, loader_of};
use crate::backend::{TestDevice, Unfused};
use crate::support::*;

type Mx = MxAutodiff<Unfused>;

/// Steps of an epoch: 64 rows in batches of 16.
const STEPS: u64 = 4;
/// In the middle of the second epoch.
const CHANGE: u64 = 6;

fn regressor(device: &MxDevice<TestDevice>) -> Regressor<Mx> {
    let fp32 = MxSpecs::none().resolve().expect("sound specs");
    set_specs_at(Regressor::new(device), "head", &fp32).expect("the layer is there")
}

fn stages(regressor: &Regressor<Mx>, device: &MxDevice<TestDevice>) -> Stages {
    let text = format!(
        r#"[{{"from": 0, "preset": "mxfp8_e4m3"}}, {{"from": {CHANGE}, "preset": "mxfp4"}}]"#
    );
    let schedule: Schedule = serde_json::from_str(&text).expect("a schedule");
    let batch = loader_of::<Mx, _>(Stack, 5, device).iter().next();
    let batch = batch.expect("there are rows");
    Stages::new(&schedule, regressor, |model| model.regress(batch)).expect("the layers are there")
}

fn launch(
    regressor: Regressor<Mx>,
    stages: &Stages,
    directory: &Path,
    epochs: usize,
    from: Option<usize>,
) -> Regressor<MxBackend<Unfused>> {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let batcher = StagedBatcher::new(Stack, stages);
    let loaders = (
        loader_of::<Mx, _>(batcher.clone(), 5, &device),
        loader_of::<MxBackend<Unfused>, _>(batcher, 6, &device),
    );
    let optimizer = StagedOptimizer::new(AdamConfig::new().init(), stages);
    learner::launch(regressor, optimizer, loaders, directory, (epochs, from))
}

/// The same run as a loop, with calls by hand.
fn by_hand(epochs: u64, device: &MxDevice<TestDevice>) -> Regressor<MxBackend<Unfused>> {
    let mxfp4 = MxSpecs::mxfp4().resolve().expect("sound specs");
    let mut model = regressor(device);
    let mut optimizer = AdamConfig::new().init();
    let mut done = 0;
    for _ in 0..epochs {
        for _ in 0..STEPS {
            if done == CHANGE {
                model = set_specs_at(model, "hidden", &mxfp4).expect("the layer is there");
            }
            let device = match done < CHANGE {
                true => device.clone(),
                false => mx_device(&MxSpecs::mxfp4()),
            };
            let batches = loader_of::<Mx, _>(Stack, 5, &device);
            let batch = batches.iter().nth((done % STEPS) as usize);
            let loss = model.regress(batch.expect("there are rows")).loss;
            let grads = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(0.02, model, grads);
            done += 1;
        }
    }
    model.valid()
}

#[test]
#[cfg_attr(
    any(test_backend = "cuda", test_backend = "rocm"),
    ignore = "burn-fusion loses what checkpointers read"
)]
fn a_schedule_in_the_learner_is_that_of_a_loop() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let expected = by_hand(4, &device);
    let directory = tempfile::tempdir().expect("a directory can be made");
    let model = regressor(&device);
    let of_run = stages(&model, &device);
    let model = of_run.start(model, 0);
    let trained = launch(model, &of_run, directory.path(), 4, None);
    assert_all_same_bits(&weights(&trained), &weights(&expected), "weight");
    let specs = |weight: &Param<Tensor<_, 2>>| specs_of(&weight.val()).expect("it has specs");
    let sound = |specs: MxSpecs| specs.resolve().expect("sound specs");
    assert_eq!(specs(&trained.hidden.weight), sound(MxSpecs::mxfp4()));
    assert_eq!(
        specs(&trained.head.weight),
        sound(MxSpecs::none()),
        "excluded"
    );

    // The second stage changes numbers, and so do its batches.
    let first_stage = launch_without_stages(&device);
    assert_ne!(weights(&trained), weights(&first_stage));

    for epochs in [1, 2, 3] {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let model = regressor(&device);
        let of_run = stages(&model, &device);
        launch(
            of_run.start(model, 0),
            &of_run,
            directory.path(),
            epochs,
            None,
        );
        let model = with_noise_weights(regressor(&device), 77);
        let of_run = stages(&model, &device);
        let model = of_run.start(model, epochs as u64 * STEPS);
        let resumed = launch(model, &of_run, directory.path(), 4, Some(epochs));
        assert_all_same_bits(&weights(&resumed), &weights(&expected), "after the resume");
    }
}

fn launch_without_stages(device: &MxDevice<TestDevice>) -> Regressor<MxBackend<Unfused>> {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let train = loader_of::<Mx, _>(Stack, 5, device);
    let valid = loader_of::<MxBackend<Unfused>, _>(Stack, 6, device);
    let training = SupervisedTraining::new(directory.path(), train, valid)
        .with_application_logger(None)
        .renderer(Silent)
        .num_epochs(4);
    let learner = Learner::new(regressor(device), AdamConfig::new().init(), 0.02);
    training.launch(learner).model
}

#[test]
#[cfg_attr(
    any(test_backend = "cuda", test_backend = "rocm"),
    ignore = "burn-fusion loses what checkpointers read"
)]
#[should_panic(expected = "the model has the specs of step 0, and the checkpoint is of step 4")]
fn a_resumed_run_says_at_which_step_it_is() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let model = regressor(&device);
    let of_run = stages(&model, &device);
    let optimizer = StagedOptimizer::new(AdamConfig::new().init::<Mx, Linear<Mx>>(), &of_run);
    let (record, _) = Optimizer::<Linear<Mx>, Mx>::to_record(&optimizer);
    Optimizer::<Linear<Mx>, Mx>::load_record(optimizer, (record, STEPS));
}
