//! Training on devices that communicate. Burn implements that for backends on GPUs alone, so two threads stand for two
//! devices here, and Flex under another name for a backend that sums over them.

#![cfg(burn_mx_distributed)]

#[path = "../../../tests/own_backend/backend.rs"]
mod backend;

// By its published name, which the shared backend has.
extern crate burn_mx_core as burn_mx;

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, ThreadId};

use backend::MyBackend;
use burn_backend::distributed::{
    CollectiveTensor, DistributedBackend, DistributedConfig, DistributedParamId, DistributedParams,
    ReduceOperation, TensorRef,
};
use burn_backend::ops::FloatTensorOps;
use burn_backend::tensor::FloatTensor;
use burn_backend::{AutodiffBackend, Backend, DeviceId, DeviceOps, TensorPrimitive};
use burn_core::module::Param;
use burn_core::tensor::Tensor;
use burn_flex::FlexDevice;
use burn_mx_core::hooks::{GradientExchange, GradientMessage, install_exchange};
use burn_mx_core::{MxAutodiff, MxBackend, MxDevice, MxKernels, MxSpecs, ResolvedSpecs};
use burn_mx_module::{set_specs, specs_of};
use burn_mx_optim::communication::{
    Communication, CommunicationState, DeviceExchange, Route, TensorState,
};
use microscaling::{BlockFormat, RandomStream, Rounder, Rounding};

type Mx = MxAutodiff<MyBackend>;

/// `MxAutodiff<B>` trains on every `B` that communicates.
#[allow(dead_code)]
fn trains<B: MxKernels + DistributedBackend>() {
    fn is<T: AutodiffBackend<InnerBackend: DistributedBackend> + DistributedBackend>() {}
    is::<MxAutodiff<B>>();
}

/// The state that the threads share.
#[derive(Default)]
struct Server {
    devices: usize,
    op: Option<ReduceOperation>,
    /// Parameters announced.
    registered: usize,
    gradients: HashMap<DistributedParamId, Vec<(ThreadId, TensorRef<MyBackend>)>>,
    /// The reduction in progress: the tensors so far, and the result for the threads that have not fetched it yet.
    operands: Vec<FloatTensor<MyBackend>>,
    results: Vec<FloatTensor<MyBackend>>,
}

static SERVER: Mutex<Option<Server>> = Mutex::new(None);
static CHANGED: Condvar = Condvar::new();
static ONE_TEST: Mutex<()> = Mutex::new(());

fn server() -> MutexGuard<'static, Option<Server>> {
    SERVER.lock().expect("no thread panicked")
}

fn running(server: &mut Option<Server>) -> &mut Server {
    server.as_mut().expect("the server was started")
}

fn reduce(tensors: &[FloatTensor<MyBackend>], op: ReduceOperation) -> FloatTensor<MyBackend> {
    let sum = tensors.iter().cloned().reduce(MyBackend::float_add);
    let sum = sum.expect("there is a tensor");
    match op {
        ReduceOperation::Sum => sum,
        ReduceOperation::Mean => {
            let count = tensors.len() as f32;
            MyBackend::float_div_scalar(sum, count.into())
        }
    }
}

impl DistributedBackend for MyBackend {
    fn start_communication_server(devices: &[FlexDevice], config: DistributedConfig) {
        *server() = Some(Server {
            devices: devices.len(),
            op: Some(config.all_reduce_op),
            ..Server::default()
        });
    }

    fn close_communication_server(_: &FlexDevice) {
        *server() = None;
    }

    fn register_sync_parameters(_: &FlexDevice, params: Vec<DistributedParams>) {
        running(&mut server()).registered += params.len();
    }

    fn submit_gradient_sync(tensor: TensorRef<Self>, params: DistributedParams) {
        let mut server = server();
        let server = running(&mut server);
        let gradients = server.gradients.entry(params.param_id).or_default();
        gradients.push((thread::current().id(), tensor));
        if gradients.len() == server.devices {
            let gradients = server.gradients.remove(&params.param_id);
            let gradients = gradients.expect("it was just there");
            // SAFETY: every thread leaves the gradients it submitted in place and alone until its
            // `submit_sync_collective` returns, which waits for this.
            unsafe {
                let tensors: Vec<_> = gradients.iter().map(|(_, t)| (*t.0).clone()).collect();
                let reduced = reduce(&tensors, server.op.expect("it is set at the start"));
                for (_, gradient) in &gradients {
                    *gradient.0 = reduced.clone();
                }
            }
            CHANGED.notify_all();
        }
    }

    fn submit_sync_collective(_: &FlexDevice) {
        let own = thread::current().id();
        let waits = |server: &mut Option<Server>| {
            let mut waiting = running(server).gradients.values().flatten();
            waiting.any(|(thread, _)| *thread == own)
        };
        drop(CHANGED.wait_while(server(), waits));
    }

    fn all_reduce(
        tensor: FloatTensor<Self>,
        op: ReduceOperation,
        device_ids: Vec<DeviceId>,
    ) -> CollectiveTensor<Self> {
        let count = device_ids.len();
        let busy = |server: &mut Option<Server>| !running(server).results.is_empty();
        let mut guard = CHANGED.wait_while(server(), busy).expect("no panic");
        let server = running(&mut guard);
        server.operands.push(tensor);
        if server.operands.len() == count {
            let reduced = reduce(&std::mem::take(&mut server.operands), op);
            server.results = vec![reduced; count];
            CHANGED.notify_all();
        }
        let unfinished = |server: &mut Option<Server>| running(server).results.is_empty();
        let mut guard = CHANGED.wait_while(guard, unfinished).expect("no panic");
        let result = running(&mut guard).results.pop();
        CHANGED.notify_all();
        CollectiveTensor::new(result.expect("it is not empty"))
    }

    fn sync_collective(_: &FlexDevice) {}
}

/// Runs `worker` for the numbers 0 and 1 on two threads with a server, on devices of these specs.
fn on_two_devices<T: Send>(
    specs: &ResolvedSpecs,
    op: ReduceOperation,
    worker: impl Fn(usize, MxDevice<FlexDevice>) -> T + Sync,
) -> [T; 2] {
    with_exchange(None, specs, op, worker)
}

/// The same with gradients in a format.
fn with_exchange<T: Send>(
    exchange: Option<&Arc<DeviceExchange>>,
    specs: &ResolvedSpecs,
    op: ReduceOperation,
    worker: impl Fn(usize, MxDevice<FlexDevice>) -> T + Sync,
) -> [T; 2] {
    let _one_test = ONE_TEST.lock().unwrap_or_else(|poison| poison.into_inner());
    let by_thread = |exchange: &Arc<_>| install_exchange(Arc::new(ByThread(Arc::clone(exchange))));
    let _installed = exchange.map(by_thread);
    let device = MxDevice::new(FlexDevice, specs).expect("resolved specs");
    let config = DistributedConfig { all_reduce_op: op };
    Mx::start_communication_server(&[device.clone(), device.clone()], config);
    let results = thread::scope(|scope| {
        [0, 1]
            .map(|i| {
                let (worker, device) = (&worker, device.clone());
                scope.spawn(move || worker(i, device))
            })
            .map(|thread| thread.join().expect("the worker does not panic"))
    });
    Mx::close_communication_server(&device);
    assert!(server().is_none(), "the server is closed");
    results
}

fn bfloat16() -> ResolvedSpecs {
    let specs = MxSpecs {
        bfloat: 16,
        ..MxSpecs::none()
    };
    specs.resolve().expect("the specs are sound")
}

fn values<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().into_vec().expect("the tensor holds f32")
}

fn primitive<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> FloatTensor<B> {
    tensor.into_primitive().tensor()
}

fn tensor<B: Backend, const D: usize>(primitive: FloatTensor<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

/// One bfloat16 step above 1; bfloat16 does not hold half of this step.
const STEP: f32 = 0.0078125;

/// The input of each device: the gradients of a weight that it is multiplied with.
const INPUTS: [[f32; 2]; 2] = [[1.0, 3.0], [1.0 + STEP, 5.0]];

/// The mean of `INPUTS`.
const MEAN: [f32; 2] = [1.0 + STEP / 2.0, 4.0];

#[test]
fn gradients_are_reduced_in_float32_and_are_an_optimizers() {
    let by_name = MxSpecs::mxfp4().resolve().expect("the specs are sound");
    let workers = on_two_devices(&bfloat16(), ReduceOperation::Mean, |i, device| {
        let weight = Tensor::<Mx, 1>::from_floats([2.0, 2.0], &device).require_grad();
        // Another parameter, whose specs were set by name, and one that is the device's own.
        let named = Param::from_tensor(Tensor::<Mx, 1>::from_floats([2.0, 2.0], &device));
        let named = set_specs(named, &by_name).val();
        let own = Tensor::<Mx, 1>::from_floats([2.0, 2.0], &device).require_grad();
        let mark = |weight: Tensor<Mx, 1>, id: u64| {
            let marked = Mx::set_distributed_params(primitive(weight), id.into());
            assert!(Mx::is_distributed(&marked));
            let params = Mx::distributed_params(&marked).expect("it is marked");
            assert_eq!(params.param_id, id.into());
            tensor::<Mx, 1>(marked)
        };
        let (weight, named) = (mark(weight, 1), mark(named, 2));
        assert!(!Mx::is_distributed(&primitive(own.clone())));

        let x = Tensor::<Mx, 1>::from_floats(INPUTS[i], &device);
        let loss = (weight.clone() * x.clone()).sum()
            + (named.clone() * x.clone()).sum()
            + (own.clone() * x).sum();
        let mut grads = loss.backward();

        assert_eq!(values(own.grad(&grads).expect("it has one")), INPUTS[i]);
        assert_eq!(specs_of(&named), Some(by_name.clone()));
        for parameter in [&weight, &named] {
            let grad = parameter.grad(&grads).expect("it has one");
            assert_eq!(values(grad.clone()), MEAN);
            // Specs set by name stay with the parameter: an optimizer's state, which follows from gradients, outlives them.
            assert_eq!(specs_of(&grad), Some(bfloat16()));
            // An optimizer's arithmetic is not rounded.
            assert_eq!(values(grad.clone() * 1.0), MEAN);
            assert_eq!(
                values(parameter.clone().inner() - grad),
                MEAN.map(|g| 2.0 - g)
            );
        }
        // Nor is what came back taken for a bfloat16, when it enters a model again.
        let again = Tensor::<Mx, 1>::from_inner(weight.grad_remove(&mut grads).expect("once more"));
        values(again * 3.0)
    });
    for rounded in workers {
        // 3 times the rounded mean, 1 + STEP, rounded; of the mean itself it would be 3.015625.
        assert_eq!(rounded, [3.03125, 12.0]);
    }
}

#[test]
fn a_parameter_that_is_used_several_times_is_reduced_once_all_its_gradients_are_there() {
    let workers = on_two_devices(&bfloat16(), ReduceOperation::Sum, |i, device| {
        let weight = Tensor::<Mx, 1>::from_floats([2.0, 2.0], &device).require_grad();
        let weight = tensor::<Mx, 1>(Mx::set_distributed_params(primitive(weight), 3.into()));
        let x = Tensor::<Mx, 1>::from_floats(INPUTS[i], &device);
        let y = (weight.clone() * x.clone()).sum() + (weight.clone() * x).sum();
        values(weight.grad(&y.backward()).expect("it has one"))
    });
    for grad in workers {
        assert_eq!(grad, MEAN.map(|mean| 4.0 * mean));
    }
}

#[test]
fn an_all_reduce_in_a_model_is_not_rounded_and_passes_gradients_on() {
    let workers = on_two_devices(&bfloat16(), ReduceOperation::Sum, |i, device| {
        let x = Tensor::<Mx, 1>::from_floats([[1.0, 3.0], [STEP / 2.0, 5.0]][i], &device);
        let x = x.require_grad();
        let devices = vec![device.id(); 2];
        let y = Mx::all_reduce(primitive(x.clone()), ReduceOperation::Sum, devices).resolve();
        let y = tensor::<Mx, 1>(y);
        let factor = Tensor::<Mx, 1>::from_floats(INPUTS[i], &device);
        let z = y.clone() * factor;
        assert_eq!(specs_of(&y), Some(bfloat16()));
        let grad = x.grad(&z.clone().sum().backward()).expect("it has one");
        [values(y), values(z), values(grad)]
    });
    for (i, [y, z, grad]) in workers.into_iter().enumerate() {
        // On this way a sum of two bfloat16 numbers, which is none.
        assert_eq!(y, [1.0 + STEP / 2.0, 8.0]);
        // Later ops are emulated as before: the sum is rounded.
        let rounded = [(1.0 + STEP) * INPUTS[i][0], 8.0 * INPUTS[i][1]];
        let bfloat16 = |x: f32| f32::from_bits((x.to_bits() + 0x8000) & 0xffff_0000);
        assert_eq!(z, rounded.map(bfloat16));
        assert_eq!(grad, [INPUTS[0][0] + INPUTS[1][0], 8.0]);
    }
}

/// The exchange in a format: operands and result are rounded, and all devices have the same numbers.
#[test]
fn an_all_reduce_of_sent_tensors_is_one_in_a_format() {
    type B = MxBackend<MyBackend>;
    let wire = Communication {
        format: Some("mxfp4".into()),
        error_feedback: Some("float32".into()),
        ..Communication::default()
    };
    let operand = |i: usize, step: usize| -> Vec<f32> {
        let number = |at: usize| ((at * 37 + step * 11 + i * 5) % 101) as f32 - 50.0;
        (0..70).map(number).collect()
    };
    let workers = on_two_devices(&bfloat16(), ReduceOperation::Sum, |i, device| {
        let [mut before, mut after] = [TensorState::default(), TensorState::default()];
        let mut step = |step| {
            let x = Tensor::<B, 1>::from_floats(operand(i, step).as_slice(), &device);
            let x = wire.sent(x, i, &mut before).expect("sound settings");
            let devices = vec![device.id(); 2];
            let sum = B::all_reduce(primitive(x), ReduceOperation::Sum, devices).resolve();
            values(
                wire.sent(tensor::<B, 1>(sum), 0, &mut after)
                    .expect("sound settings"),
            )
        };
        [step(0), step(1)]
    });
    // The same by hand: each message with the error of the last one.
    let format: BlockFormat = "mxfp4".parse().expect("a format");
    let sent = |x: Vec<f32>, error: &mut [f32]| {
        let x: Vec<f32> = x.iter().zip(&*error).map(|(x, error)| x + error).collect();
        let mut rounded = x.clone();
        let done = format.quantize(&mut rounded, &[70], 0, Rounder::NearestEven);
        done.expect("a row");
        error
            .iter_mut()
            .zip(x.iter().zip(&rounded))
            .for_each(|(error, (x, y))| *error = x - y);
        rounded
    };
    let mut errors = [(); 3].map(|()| vec![0.0; 70]);
    for step in 0..2 {
        let [a, b] = [0, 1].map(|i| sent(operand(i, step), &mut errors[i]));
        let sum = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        let expected = sent(sum, &mut errors[2]);
        for worker in &workers {
            assert_eq!(worker[step], expected, "step {step}");
        }
    }
}

thread_local! {
    static RANK: Cell<usize> = const { Cell::new(0) };
}

/// Both threads have Flex's one device, so a thread says its rank itself.
struct ByThread(Arc<DeviceExchange>);

impl GradientExchange for ByThread {
    fn send(&self, message: GradientMessage, shape: &[usize], numbers: &mut Vec<f32>) {
        assert_eq!(message.rank, 0, "the index of Flex's device");
        let rank = RANK.get();
        self.0
            .send(GradientMessage { rank, ..message }, shape, numbers);
    }
}

/// Gradients that change from step to step, and lie between numbers of narrow formats.
fn gradient(rank: usize, step: usize) -> Vec<f32> {
    let number = |at: usize| ((at * 37 + step * 11 + rank * 5) % 101) as f32 - 50.3;
    (0..70).map(number).collect()
}

/// The gradients of a matrix `[2, 35]` and of a vector `[70]` in some steps of a program that knows no format: one for each step and device.
fn trained(
    exchange: Option<&Arc<DeviceExchange>>,
    steps: core::ops::Range<usize>,
) -> [Vec<[Vec<f32>; 2]>; 2] {
    with_exchange(
        exchange,
        &bfloat16(),
        ReduceOperation::Mean,
        |rank, device| {
            RANK.set(rank);
            let of_step = |step| {
                // New leaves in each step, as an optimizer makes them.
                let mark = |leaf, id: u64| Mx::set_distributed_params(leaf, id.into());
                let matrix = Tensor::<Mx, 2>::zeros([2, 35], &device).require_grad();
                let vector = Tensor::<Mx, 1>::zeros([70], &device).require_grad();
                let matrix = tensor::<Mx, 2>(mark(primitive(matrix), 1 << 60));
                let vector = tensor::<Mx, 1>(mark(primitive(vector), 7));
                let x = Tensor::<Mx, 1>::from_floats(gradient(rank, step).as_slice(), &device);
                let loss = (matrix.clone() * x.clone().reshape([2, 35])).sum();
                let mut grads = (loss + (vector.clone() * x).sum()).backward();
                let of_matrix = matrix.grad_remove(&mut grads).expect("it has one");
                let of_vector = vector.grad_remove(&mut grads).expect("it has one");
                [values(of_matrix), values(of_vector)]
            };
            steps.clone().map(of_step).collect::<Vec<_>>()
        },
    )
}

/// The same program three times: without an exchange, with one, and with one whose state was saved between two steps. The second and third are
/// written out from the definitions.
#[test]
fn a_program_that_knows_no_format_has_its_gradients_in_one() {
    let plain = trained(None, 0..3);
    for (rounding, feedback) in [
        (Rounding::NearestEven, true),
        (Rounding::Stochastic, true),
        (Rounding::Stochastic, false),
    ] {
        let wire = Communication {
            format: Some("mxfp4".into()),
            rounding,
            error_feedback: feedback.then(|| "float32".into()),
            vectors: false,
            seed: 3,
            ..Communication::default()
        };
        let exchange = wire.of_devices(CommunicationState::default()).unwrap();
        let mut got = trained(Some(&exchange), 0..2);
        let text = serde_json::to_string(&exchange.state()).unwrap();
        let resumed = wire.of_devices(serde_json::from_str(&text).unwrap());
        for (all, more) in got.iter_mut().zip(trained(Some(&resumed.unwrap()), 2..3)) {
            all.extend(more);
        }
        let expected = written_out(&wire, &plain);
        for (rank, got) in got.iter().enumerate() {
            for (step, [matrix, vector]) in got.iter().enumerate() {
                assert_eq!(*vector, plain[rank][step][1], "vectors are not rounded");
                assert_ne!(*matrix, plain[rank][step][0]);
                assert_eq!(*matrix, expected[step], "{rounding} {rank} {step}");
            }
        }
    }
    assert_eq!(trained(None, 0..3), plain, "the exchange is over");
}

/// The means of three steps: each message with the error of the last one.
fn written_out(wire: &Communication, plain: &[Vec<[Vec<f32>; 2]>; 2]) -> Vec<Vec<f32>> {
    let format: BlockFormat = wire.format.as_ref().unwrap().parse().expect("a format");
    let mut errors = [(); 3].map(|()| vec![0.0; 70]);
    // Call 2·step rounds an operand, as stage 0 of its rank, and call 2·step + 1 the mean, as stage 3 of rank 0. One tensor is rounded.
    let mut sent = |x: Vec<f32>, which: usize, call: u64| {
        let mut x = x;
        if wire.error_feedback.is_some() {
            x.iter_mut().zip(&errors[which]).for_each(|(x, e)| *x += e);
        }
        let words = RandomStream::new(wire.seed, 0);
        let key = u64::from(words.draw(2 * call)) | u64::from(words.draw(2 * call + 1)) << 32;
        let number = match which {
            2 => 3 << 56,
            rank => (rank as u64) << 32,
        };
        let rounder = match wire.rounding {
            Rounding::Stochastic => Rounder::Stochastic(RandomStream::new(key, number)),
            _ => Rounder::NearestEven,
        };
        let mut rounded = x.clone();
        format
            .quantize(&mut rounded, &[70], 0, rounder)
            .expect("a row");
        let lost = x.iter().zip(&rounded).map(|(x, y)| x - y);
        errors[which] = lost.collect();
        rounded
    };
    let mut step = |step: usize| {
        // The gradients before the exchange, which the elementwise format has rounded.
        let bfloat16 = |x: &f32| {
            let bits = x.to_bits();
            f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
        };
        let own = |rank| {
            gradient(rank, step)
                .iter()
                .map(bfloat16)
                .collect::<Vec<_>>()
        };
        let mean = own(0).into_iter().zip(own(1)).map(|(a, b)| (a + b) / 2.0);
        assert_eq!(
            mean.collect::<Vec<_>>(),
            plain[0][step][0],
            "the plain mean"
        );
        let [a, b] = [0, 1].map(|rank| sent(own(rank), rank, 2 * step as u64));
        let mean = a.iter().zip(&b).map(|(a, b)| (a + b) / 2.0).collect();
        sent(mean, 2, 2 * step as u64 + 1)
    };
    (0..3).map(&mut step).collect()
}

#[test]
fn an_exchange_without_a_format_changes_no_bit_and_one_that_cannot_work_is_an_error() {
    let exchange = Communication::default().of_devices(CommunicationState::default());
    assert_eq!(trained(Some(&exchange.unwrap()), 0..2), trained(None, 0..2));
    let with = |format: &str| Communication {
        format: Some(format.into()),
        ..Communication::default()
    };
    for (wire, field) in [
        (with("fp8"), "format"),
        (with("mxfp9"), "format"),
        (
            Communication {
                mean: true,
                ..with("mxfp4")
            },
            "mean",
        ),
        (
            Communication {
                route: Route::Tree,
                ..with("mxfp4")
            },
            "route",
        ),
        (
            Communication {
                difference: true,
                ..with("mxfp4")
            },
            "difference",
        ),
        (
            Communication {
                tensors: vec!["layers.*".into()],
                ..with("mxfp4")
            },
            "tensors",
        ),
        (
            Communication::preset("ms_amp_once").unwrap(),
            "shared_scale",
        ),
    ] {
        let error = wire.of_devices(CommunicationState::default()).unwrap_err();
        assert_eq!(error.field, field, "{error}");
    }
}

/// A pass that ends by a panic between its submissions and the exchange leaves no work behind.
#[test]
fn a_pass_after_one_that_did_not_end_is_whole() {
    type B = MxBackend<MyBackend>;
    let wire = Communication {
        format: Some("mxfp4".into()),
        ..Communication::default()
    };
    let exchange = wire.of_devices(CommunicationState::default()).unwrap();
    let params = |step| DistributedParams {
        param_id: (step as u64).into(),
    };
    let op = ReduceOperation::Sum;
    let workers = with_exchange(Some(&exchange), &bfloat16(), op, |rank, device| {
        RANK.set(rank);
        let begun = |step| {
            B::register_sync_parameters(&device, vec![params(step)]);
            let own = Tensor::<B, 1>::from_floats(gradient(rank, step).as_slice(), &device);
            let mut own = Box::new(primitive(own));
            B::submit_gradient_sync(TensorRef(&raw mut *own), params(step));
            own
        };
        let first = begun(0);
        let second = begun(1);
        B::submit_sync_collective(&device);
        [first, second].map(|own| values(tensor::<B, 1>(*own)))
    });
    let format: BlockFormat = "mxfp4".parse().expect("a format");
    let rounded = |mut x: Vec<f32>| {
        let done = format.quantize(&mut x, &[70], 0, Rounder::NearestEven);
        done.expect("a row");
        x
    };
    let sum = |step| {
        let [a, b] = [0, 1].map(|rank| rounded(gradient(rank, step)));
        a.iter().zip(b).map(|(a, b)| a + b).collect::<Vec<_>>()
    };
    assert_ne!(rounded(sum(0)), sum(0));
    for [first, second] in workers {
        assert_eq!(first, sum(0), "the result of the first pass is not rounded");
        assert_eq!(second, rounded(sum(1)));
    }
}

#[test]
fn a_reference_gives_the_device_with_its_specs_and_the_tensor() {
    let device = MxDevice::new(FlexDevice, bfloat16()).expect("resolved specs");
    let x = Tensor::<Mx, 1>::from_floats(INPUTS[1], &device);
    let (mut outer, mut inner) = (primitive(x.clone()), primitive(x.inner()));
    let (outer, inner) = (TensorRef::<Mx>(&mut outer), TensorRef(&mut inner));
    // SAFETY: nobody else knows of these tensors.
    let (devices, outer, inner) = unsafe {
        let devices = [
            Mx::comm_device(&outer),
            MxBackend::<MyBackend>::comm_device(&inner),
        ];
        let inner = MxBackend::<MyBackend>::float_from_ref(&inner);
        (devices, Mx::float_from_ref(&outer), inner)
    };
    for device in devices {
        assert_eq!(device.specs(), Some(&bfloat16()));
    }
    assert_eq!(values(tensor::<Mx, 1>(outer)), INPUTS[1]);
    let inner = tensor::<MxBackend<MyBackend>, 1>(inner);
    assert_eq!(specs_of(&inner), Some(bfloat16()));
    assert_eq!(values(inner), INPUTS[1]);
}

/// Burn's own backends with a `DistributedBackend`.
#[cfg(feature = "wgpu")]
#[test]
fn backends_on_graphics_processors_train() {
    fn trains<B: burn_core::tensor::backend::AutodiffBackend>() {}
    trains::<MxAutodiff<burn_wgpu::Wgpu>>();
    #[cfg(feature = "cuda")]
    trains::<MxAutodiff<burn_cuda::Cuda>>();
}
