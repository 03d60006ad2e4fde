//! Models trained side by side in the tasks of a rayon pool, whose threads take up one model's work while they wait for
//! another's.

use std::panic::catch_unwind;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use burn::module::Param;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::Tensor;
use burn_mx::diagnose::{GradientBias, Products, gradient_bias};
use burn_mx::module::specs_of;
use burn_mx::ptq::{Activations, QuantConfig, Quantizer};
use burn_mx::{MxBackend, MxDevice, MxSpecs};
use rayon::prelude::*;

use super::training::{losses, phased_specs, trained};
use crate::models::*;
use crate::support::*;

fn pool(threads: usize) -> rayon::ThreadPool {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.expect("threads can be started")
}

/// Fails where `test` hangs: threads that wait for themselves do.
fn within<R: Send + 'static>(limit: Duration, test: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(test()));
    receiver.recv_timeout(limit).expect("the tasks get done")
}

#[test]
fn models_in_rayon_tasks_train_as_if_alone() {
    let runs: Vec<MxSpecs> = [phased_specs(), phased_specs(), phased_specs()].concat();
    let train = |specs: &MxSpecs| trained::<Wide>(specs, 3);
    let alone: Vec<_> = phased_specs().iter().map(train).collect();
    assert!(alone[0] != alone[1] && alone[1] != alone[2]);
    let alone = [alone.clone(), alone.clone(), alone].concat();
    for threads in [2, 4] {
        for _ in 0..3 {
            let runs = runs.clone();
            let together: Vec<_> = within(Duration::from_secs(300), move || {
                pool(threads).install(|| runs.par_iter().map(train).collect())
            });
            assert_eq!(together, alone, "{threads} threads");
        }
    }
}

/// A thread that waits for one task's walk must not pile the next task on it.
#[test]
fn a_thread_has_room_for_any_number_of_tasks() {
    let [specs, _, _] = phased_specs();
    let alone = trained::<Mlp>(&specs, 1);
    let (sender, together) = mpsc::channel();
    within(Duration::from_secs(300), move || {
        pool(2).scope(|tasks| {
            for _ in 0..2000 {
                let (sender, specs) = (sender.clone(), &specs);
                tasks.spawn(move |_| sender.send(trained::<Mlp>(specs, 1)).unwrap());
            }
        });
    });
    let together: Vec<_> = together.into_iter().collect();
    assert_eq!(together.len(), 2000);
    assert!(together.iter().all(|trained| *trained == alone));
}

#[test]
fn a_panic_in_a_walk_reaches_the_task_and_leaves_its_thread_in_the_forward_phase() {
    let specs = MxSpecs {
        quantize_backprop: false,
        ..MxSpecs::mxfp8_e4m3()
    };
    let device = mx_device(&specs);
    let expected = values(model::<Mlp, Mx>(&device).outputs(&device));
    pool(1).install(|| {
        for _ in 0..3 {
            let panicked = catch_unwind(|| {
                let device = mx_device(&MxSpecs::mxfp8_e4m3());
                let x: Tensor<Mx, 2> = noise_tensor([2, 3], 1, &device).require_grad();
                let loss = (x.clone() * x).sum();
                loss.clone().backward();
                // The graph is gone.
                loss.backward();
            });
            assert!(panicked.is_err());
            let after = values(model::<Mlp, Mx>(&device).outputs(&device));
            assert_same_bits(&after, &expected, "output");
            assert_eq!(losses::<Mlp>(&specs, 2).len(), 2);
        }
    });
}

/// How the gradients of a wide layer deviate by coarse specs.
fn deviations() -> Vec<f64> {
    let device = mx_device(&MxSpecs::mxfp4());
    let weight = noise_tensor::<Mx, 2>([256, 256], 3, &device);
    let model = vec![Param::from_tensor(weight)];
    let config = GradientBias {
        backward_passes: 8,
        products: vec![Products::All],
        ..GradientBias::default()
    };
    let loss = |model: &Vec<Param<Tensor<Mx, 2>>>, x: &Tensor<Mx, 2>| {
        let y = x.clone().matmul(model[0].val());
        y.clone().matmul(y).square().mean()
    };
    let x = noise_tensor::<Mx, 2>([256, 256], 4, &device);
    let biases = gradient_bias(&model, &x, loss, &config).expect("it has gradients");
    let bias = biases.parameters[0].of(Products::All);
    bias.error.clone()
}

#[test]
fn a_diagnosis_in_a_rayon_task_leaves_other_tasks_their_specs() {
    let [specs, _, _] = phased_specs();
    let expected = trained::<Wide>(&specs, 3);
    let deviations_alone = deviations();
    let (trained_beside, deviations_beside): (Vec<_>, Vec<_>) =
        within(Duration::from_secs(300), move || {
            let task = |task: usize| match task % 2 {
                0 => (Some(trained::<Wide>(&specs, 3)), None),
                _ => (None, Some(deviations())),
            };
            pool(2).install(|| (0..16).into_par_iter().map(task).unzip())
        });
    for got in trained_beside.into_iter().flatten() {
        assert!(got == expected, "training");
    }
    for got in deviations_beside.into_iter().flatten() {
        assert!(got == deviations_alone, "diagnosis");
    }
}

/// The scales of a layer's input, which is `factor` times noise, as calibration fixes them.
fn calibrated(factor: f32) -> Linear<MxBackend<TestBackend>> {
    let device = MxDevice::default();
    let layer = with_noise_weights(LinearConfig::new(512, 512).init(&device), 1);
    let batches: Vec<Tensor<MxBackend<TestBackend>, 2>> = (0..10)
        .map(|seed| noise_tensor([512, 512], seed, &device) * factor)
        .collect();
    let config = QuantConfig {
        activations: Activations::Static,
        ..QuantConfig::named("MXFP4E2M1").expect("it is one")
    };
    let quantizer = Quantizer::new(config).expect("the configuration is sound");
    let forward = |layer: &Linear<_>, x: &Tensor<_, 2>| layer.forward(x.clone());
    let quantized = quantizer.quantize(layer, &batches, forward);
    quantized.expect("the layer is called").model
}

#[test]
fn a_calibration_in_a_rayon_task_hears_no_other_tasks_layers() {
    let factor = |task: usize| 2.0_f32.powi(task as i32 % 4);
    let expected = [0, 1, 2, 3].map(|task| calibrated(factor(task)));
    let specs = |layer: &Linear<MxBackend<TestBackend>>| {
        specs_of(&layer.weight.val()).expect("they are set").clone()
    };
    assert!(specs(&expected[0]) != specs(&expected[1]));
    let together: Vec<_> = within(Duration::from_secs(300), move || {
        let task = |task| calibrated(factor(task));
        pool(4).install(|| (0..48).into_par_iter().map(task).collect())
    });
    for (task, layer) in together.iter().enumerate() {
        let same = specs(layer) == specs(&expected[task % 4]);
        assert!(same, "scales of task {task}");
    }
}
