//! Training on devices that communicate. Burn implements that for backends on GPUs alone, so two threads stand for two
//! devices here, and Flex under another name for a backend that sums over them.

#![cfg(burn_mx_distributed)]

#[path = "../../../tests/own_backend/backend.rs"]
mod backend;

// By its published name, which the shared backend has.
extern crate burn_mx_core as burn_mx;

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard};
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
use burn_mx_core::{MxAutodiff, MxBackend, MxDevice, MxKernels, MxSpecs, ResolvedSpecs};
use burn_mx_module::{set_specs, specs_of};
use burn_mx_optim::communication::{Communication, TensorState};
use microscaling::{BlockFormat, Rounder};

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
    let _one_test = ONE_TEST.lock().unwrap_or_else(|poison| poison.into_inner());
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
