//! Forward and backward passes on threads of their own, in a process that does nothing else.

use std::thread;

use burn::backend::{Flex, flex::FlexDevice};
use burn::nn::LinearConfig;
use burn::prelude::Tensor;
use burn_mx::module::label_parameters;
use burn_mx::record::{ProductKind, Recorder, RecorderConfig};
use burn_mx::{MxAutodiff, MxDevice, MxSpecs};

type Mx = MxAutodiff<Flex>;

#[test]
fn a_backward_pass_on_another_thread_is_of_the_same_step() {
    let specs = MxSpecs::mxfp4().resolve().expect("a preset");
    let device = MxDevice::new(FlexDevice, &specs);
    let layer = label_parameters(LinearConfig::new(32, 16).init::<Mx>(&device));
    let folder = tempfile::tempdir().expect("a directory can be made");
    let recorder = Recorder::new(RecorderConfig::default());
    let recording = recorder.start(&folder).expect("the folder is new");
    let forward = || {
        let x = Tensor::<Mx, 2>::ones([4, 32], &device).require_grad();
        layer.forward(x).sum()
    };
    for _ in 0..3 {
        let loss = thread::scope(|scope| scope.spawn(forward).join().expect("it computes"));
        // A backward pass without a product is no step, neither of this thread nor of another.
        let x = Tensor::<Mx, 1>::ones([4], &device).require_grad();
        x.sum().backward();
        loss.backward();
    }
    // Both on this thread.
    forward().backward();
    let report = recording.finish().expect("the records are whole");
    for step in report.steps() {
        let mut kinds: Vec<ProductKind> = step.products.iter().map(|x| x.product).collect();
        kinds.sort_by_key(|kind| ProductKind::ALL.iter().position(|other| other == kind));
        assert_eq!(kinds, ProductKind::ALL, "{step:?}");
    }
    assert_eq!(report.steps().count(), 4);
}
