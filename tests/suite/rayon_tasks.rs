//! Models trained side by side in the tasks of a rayon pool, whose threads take up one model's work while they wait for
//! another's.

use std::panic::catch_unwind;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use burn::tensor::Tensor;
use burn_mx::MxSpecs;
use rayon::prelude::*;

use super::models::*;
use super::support::*;
use super::training::{losses, phased_specs, trained};

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
