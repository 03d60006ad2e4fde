//! A process-wide recorder beside threads and rayon tasks, in a process that does nothing else.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, Once, mpsc};
use std::thread;
use std::time::Duration;

use burn::backend::{Flex, flex::FlexDevice};
use burn::nn::LinearConfig;
use burn::prelude::Tensor;
use burn_mx::module::{label_parameters, scope};
use burn_mx::record::{Pass, ProductKind, Recorder, RecorderConfig, Report};
use burn_mx::{MxAutodiff, MxBackend, MxDevice, MxSpecs};

type Mx = MxAutodiff<Flex>;
type Inference = MxBackend<Flex>;

/// A process has one such recorder. Rayon's pool has as many threads everywhere that some wait while others have tasks.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    static POOL: Once = Once::new();
    POOL.call_once(|| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(4);
        pool.build_global().expect("there is none yet");
    });
    ONE.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Fails where `test` hangs.
fn within<R: Send + 'static>(limit: Duration, test: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(test()));
    receiver.recv_timeout(limit).expect("it gets done")
}

fn device() -> MxDevice<FlexDevice> {
    MxDevice::new(FlexDevice, MxSpecs::mxfp4()).expect("a preset")
}

/// Wide enough for the work of a product to be shared among threads.
const WIDE: usize = 512;

/// Steps of a layer of this width.
fn train(width: usize, steps: usize) {
    let device = device();
    let layer = label_parameters(LinearConfig::new(width, width).init::<Mx>(&device));
    for _ in 0..steps {
        let x = Tensor::<Mx, 2>::ones([width, width], &device).require_grad();
        layer.forward(x).sum().backward();
    }
}

fn recorded(config: RecorderConfig, work: impl FnOnce()) -> Report {
    let folder = tempfile::tempdir().expect("a directory can be made");
    let recorder = Recorder::new(config);
    let recording = recorder.start(&folder).expect("the folder is new");
    work();
    recording.finish().expect("the records are whole")
}

#[test]
fn a_backward_pass_on_another_thread_is_of_the_same_step() {
    let _one = one_at_a_time();
    let device = device();
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
        // A backward pass without a product is not a step, neither on this thread nor on another.
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

/// Figures of an ordinary thread's steps are computed beside rayon tasks, whose steps wait for them.
#[test]
fn training_is_recorded_beside_rayon_tasks_that_train() {
    let _one = one_at_a_time();
    let report = within(Duration::from_secs(240), || {
        recorded(RecorderConfig::default(), || {
            thread::scope(|threads| {
                threads.spawn(|| train(WIDE, 40));
                // Threads that have done a small task help with what others wait for, which take up the next task.
                rayon::scope(|tasks| (0..2000).for_each(|_| tasks.spawn(|_| train(32, 1))));
            });
        })
    });
    // The steps of one thread at least are its own.
    assert!(report.steps().count() >= 40);
}

/// The names of scopes and the pass of a product come from the task that computes the product.
#[test]
fn products_of_rayon_tasks_go_by_their_own_scopes_and_passes() {
    const TASKS: usize = 48;
    const PRODUCTS: usize = 10;
    let _one = one_at_a_time();
    let multiply = || {
        let device = device();
        for _ in 0..PRODUCTS {
            let x = Tensor::<Inference, 2>::ones([WIDE, WIDE], &device);
            drop(x.clone().matmul(x));
        }
    };
    let config = RecorderConfig {
        pass: Pass::Inference,
        ..RecorderConfig::default()
    };
    let report = within(Duration::from_secs(240), move || {
        recorded(config, || {
            rayon::scope(|tasks| {
                for task in 0..TASKS {
                    tasks.spawn(move |_| match task % 3 {
                        0 => train(WIDE, 3),
                        1 => multiply(),
                        _ => scope("scope", multiply),
                    });
                }
            });
        })
    });
    let names: HashSet<(usize, String)> = report
        .steps()
        .flat_map(|step| step.products.iter().map(|x| (step.thread, x.layer.clone())))
        .collect();
    let (scoped, others): (Vec<_>, Vec<_>) = names
        .into_iter()
        .partition(|(_, name)| name.starts_with("scope"));
    assert_eq!(scoped.len(), TASKS / 3 * PRODUCTS, "{scoped:?}");
    assert_eq!(others.len(), TASKS / 3 * PRODUCTS, "{others:?}");
}
