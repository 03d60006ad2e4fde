//! Distillation in burn-train's learner: the numbers of a loop by hand, and checkpoints of the student alone.

use std::path::Path;

use burn::module::{AutodiffModule, HasAutodiffModule, Module};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::prelude::*;
use burn::record::{FullPrecisionSettings, NamedMpkFileRecorder};
use burn::train::{RegressionOutput, TrainOutput};
use burn_mx::module::{Distillation, Teacher, hidden_state_loss, layers, with_specs};
use burn_mx::{MxAutodiff, MxBackend, MxDevice, MxSpecs};

use super::learner::{self, Batch, Regressor, loader};
use crate::backend::{TestDevice, Unfused};
use crate::support::*;

type Mx = MxAutodiff<Unfused>;
type Plain = MxBackend<Unfused>;

const EPOCHS: usize = 3;

/// A float model, and the weight of the distance of hidden states.
#[derive(Clone, Debug)]
struct Float {
    model: Regressor<Plain>,
    hidden_states: f64,
}

impl Float {
    fn output(&self, student: &Regressor<Mx>, batch: Batch<Mx>) -> RegressionOutput<Mx> {
        let none = MxSpecs::none().resolve().expect("sound specs");
        let inputs = with_specs(batch.inputs.clone().inner(), &none);
        let [wanted_states, wanted] = self.model.states(inputs).map(Tensor::from_inner);
        let [states, output] = student.states(batch.inputs);
        let loss = hidden_state_loss(output.clone(), wanted)
            + hidden_state_loss(states, wanted_states) * self.hidden_states;
        RegressionOutput::new(loss, output, batch.targets)
    }
}

impl Teacher<Regressor<Mx>> for Float {
    type Input = Batch<Mx>;
    type Output = RegressionOutput<Mx>;

    fn step(&self, student: &Regressor<Mx>, batch: Batch<Mx>) -> TrainOutput<Self::Output> {
        let output = self.output(student, batch);
        TrainOutput::new(student, output.loss.backward(), output)
    }
}

fn teacher() -> Float {
    let model = Regressor::<Mx>::new(&mx_device(&MxSpecs::none()));
    Float {
        model: with_noise_weights(model, 9).valid(),
        hidden_states: 0.5,
    }
}

fn launch(
    student: Regressor<Mx>,
    device: &MxDevice<TestDevice>,
    directory: &Path,
    epochs: usize,
    from: Option<usize>,
) -> Regressor<Plain> {
    let loaders = (loader::<Mx>(5, device), loader::<Plain>(6, device));
    let model = Distillation::new(student, teacher());
    let optimizer = AdamConfig::new().init();
    learner::launch(model, optimizer, loaders, directory, (epochs, from)).student
}

/// The same run as a loop.
fn by_hand(mut student: Regressor<Mx>, device: &MxDevice<TestDevice>) -> Regressor<Plain> {
    let teacher = teacher();
    let mut optimizer = AdamConfig::new().init();
    for _ in 0..EPOCHS {
        for batch in loader::<Mx>(5, device).iter() {
            let loss = teacher.output(&student, batch).loss;
            let gradients = GradientsParams::from_grads(loss.backward(), &student);
            student = optimizer.step(0.02, student, gradients);
        }
    }
    student.valid()
}

#[test]
#[cfg_attr(
    any(test_backend = "cuda", test_backend = "rocm"),
    ignore = "burn-fusion loses what checkpointers read"
)]
fn distillation_in_the_learner_is_that_of_a_loop() {
    let device = mx_device(&MxSpecs::mxfp4().straight_through());
    let student = Regressor::<Mx>::new(&device);
    let distance = |student: &Regressor<Plain>| {
        let student = student.clone().train::<Mx>();
        let batches = loader::<Mx>(5, &device);
        let losses = batches.iter().map(|batch| {
            let output = teacher().output(&student, batch);
            values(output.loss)[0]
        });
        losses.sum::<f32>()
    };
    let expected = by_hand(student.clone(), &device);
    let (first, last) = (distance(&student.valid()), distance(&expected));
    assert!(last < 0.6 * first, "{first} {last}");

    let directory = tempfile::tempdir().expect("a directory can be made");
    let trained = launch(student.clone(), &device, directory.path(), EPOCHS, None);
    assert_all_same_bits(&weights(&trained), &weights(&expected), "weight");

    // The checkpoint holds the student's parameters, under the student's paths.
    let file = directory
        .path()
        .join(format!("checkpoint/model-{EPOCHS}.mpk"));
    let recorder = NamedMpkFileRecorder::<FullPrecisionSettings>::new();
    let other = with_noise_weights(student.clone(), 77);
    let loaded = other.clone().load_file(file, &recorder, &device);
    let loaded = loaded.expect("the student's record");
    assert_all_same_bits(&weights(&loaded.valid()), &weights(&expected), "loaded");

    // Another student is replaced by the checkpoint.
    let directory = tempfile::tempdir().expect("a directory can be made");
    launch(student, &device, directory.path(), 1, None);
    let resumed = launch(other, &device, directory.path(), EPOCHS, Some(1));
    assert_all_same_bits(&weights(&resumed), &weights(&expected), "resumed");
}

#[test]
fn a_distillation_is_the_student_to_all_that_reads_modules() {
    let device = mx_device(&MxSpecs::mxfp4());
    let student = Regressor::<Mx>::new(&device);
    let model = Distillation::new(student.clone(), teacher());
    assert_eq!(model.num_params(), student.num_params());
    assert_eq!(model.to_string(), student.to_string());
    assert_eq!(
        Module::<Mx>::devices(&model),
        Module::<Mx>::devices(&student)
    );
    assert_eq!(layers::<Mx, _>(&model), layers::<Mx, _>(&student));
    // There and back.
    let inner = AutodiffModule::<Mx>::valid(&model);
    let back: <Distillation<Regressor<Plain>, Float> as HasAutodiffModule<Mx>>::TrainModule =
        inner.train::<Mx>();
    assert_all_same_bits(
        &weights(&back.student.valid()),
        &weights(&student.valid()),
        "weight",
    );
}
