//! The recorded products, and their threads.

use std::thread;

use burn::module::AutodiffModule;
use burn_mx::module::label_parameters;
use burn_mx::process::keep_quantized_weights;
use burn_mx::record::{Pass, ProductKind, RecorderConfig, Report, Statistic, StepRecord};
use burn_mx::{MxSpecs, Slot};

use super::{folder, names, record_here, steps};
use crate::models::{Forward as _, Mlp, model};
use crate::support::{Mx, mx_device};

#[test]
fn steps_operands_and_statistics_are_chosen() {
    let device = mx_device(&MxSpecs::mxfp4());
    let folder = folder();
    let config = RecorderConfig {
        every: 2,
        start: 1,
        end: Some(6),
        layers: vec!["up".into(), "h*".into()],
        products: vec![ProductKind::Forward],
        operands: vec![Slot::W],
        statistics: vec![Statistic::Sqnr],
        ..RecorderConfig::default()
    };
    let json = serde_json::to_string(&config).expect("it is plain JSON");
    let config: RecorderConfig = serde_json::from_str(&json).expect("it was written so");
    let recording = record_here(config, &folder);
    let model = label_parameters(model::<Mlp, Mx>(&device));
    assert!(recording.latest().is_none());
    for _ in 0..8 {
        model.outputs(&device).sum().backward();
    }
    let latest = recording.latest().expect("three were recorded");
    let report = recording.finish().expect("the records are whole");
    let recorded: Vec<u64> = report.steps().map(|step| step.step).collect();
    assert_eq!(recorded, [1, 3, 5]);
    assert_eq!(*latest, *steps(&report)[2]);
    for step in report.steps() {
        assert_eq!(
            names(step),
            [
                ("up.weight", ProductKind::Forward),
                ("head.weight", ProductKind::Forward)
            ]
        );
        for product in &step.products {
            assert!(product.result.is_none());
            let [operand] = &product.operands[..] else {
                panic!("the weight alone")
            };
            assert_eq!(operand.slot, Slot::W);
            let figures = &operand.figures;
            assert!(figures.sqnr.is_some());
            let others = [
                figures.mse,
                figures.slope,
                figures.underflow,
                figures.saturation,
                figures.amax,
            ];
            assert_eq!(others, [None; 5]);
            assert!(figures.scale_inv_histogram.is_none() && figures.block_sqnr.is_none());
        }
    }
}

#[test]
fn inference_is_recorded_where_it_is_asked_for() {
    keep_quantized_weights(true);
    let device = mx_device(&MxSpecs::mxfp4());
    let folder = folder();
    let config = RecorderConfig {
        pass: Pass::Inference,
        ..RecorderConfig::default()
    };
    let recording = record_here(config, &folder);
    let model = label_parameters(model::<Mlp, Mx>(&device));
    let evaluated = model.valid();
    for _ in 0..2 {
        evaluated.outputs(&device);
        recording.next_step();
    }
    // The evaluation contains no training, and ends no step.
    model.outputs(&device).sum().backward();
    // Nobody ends this one; copies of the weights are kept by now, and recorded as they were.
    evaluated.outputs(&device);
    let report = recording.finish().expect("the records are whole");
    let [first, second, third] = steps(&report)[..] else {
        panic!("three steps")
    };
    assert_eq!(first.products, second.products);
    assert_eq!(first.products, third.products);
    assert_eq!(first.products.len(), 4);
}

#[test]
#[should_panic(expected = "steps end with each backward pass")]
fn steps_of_training_end_by_themselves() {
    let folder = folder();
    record_here(RecorderConfig::default(), &folder).next_step();
}

#[test]
fn threads_do_not_mix() {
    let train = |specs: MxSpecs, steps: usize| {
        let folder = folder();
        let recording = record_here(RecorderConfig::default(), &folder);
        let device = mx_device(&specs);
        let model = label_parameters(model::<Mlp, Mx>(&device));
        for _ in 0..steps {
            model.outputs(&device).sum().backward();
        }
        recording.finish().expect("the records are whole")
    };
    // This number counts the products of all threads, other tests' too.
    let steps = |report: &Report| -> Vec<StepRecord> {
        let own = |step: &StepRecord| StepRecord {
            by_another_path: 0,
            ..step.clone()
        };
        report.steps().map(own).collect()
    };
    let runs = [(MxSpecs::mxfp4(), 3), (MxSpecs::mxint8(), 5)];
    let alone = runs.clone().map(|(specs, steps)| train(specs, steps));
    let together = thread::scope(|scope| {
        let threads = runs.map(|(specs, steps)| scope.spawn(move || train(specs, steps)));
        threads.map(|thread| thread.join().expect("it trains"))
    });
    for (together, alone) in together.iter().zip(&alone) {
        assert_eq!(steps(together), steps(alone));
    }
    // A backward pass that a rayon task begins moves to another thread; its products are the task's.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build();
    let in_a_task = pool
        .expect("threads can be started")
        .install(|| train(MxSpecs::mxfp4(), 3));
    assert_eq!(steps(&in_a_task), steps(&alone[0]));
}
