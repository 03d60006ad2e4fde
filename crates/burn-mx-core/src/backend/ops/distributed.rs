//! Communication between devices, by the wrapped backend. Sums over devices are in float32. An installed
//! [`GradientExchange`] rounds gradients before and after such a sum.

use burn_backend::distributed::{
    CollectiveTensor, DistributedBackend, DistributedConfig, DistributedParams, ReduceOperation,
    TensorRef,
};
use burn_backend::tensor::{Device, FloatTensor};
use burn_backend::{DeviceId, DeviceOps, TensorData, TensorMetadata, read_sync};

use crate::backend::MxBackend;
use crate::hooks::gradients::{
    GradientExchange, GradientMessage, after_exchange, begin_backward_pass, end_exchange, exchange,
};
use crate::tensor::{Meta, MxTensor};
use burn_mx_kernels::MxKernels;

/// The number of a parameter, which Burn shows to serde alone.
fn number(params: &DistributedParams) -> u64 {
    let number = serde_json::to_value(params.param_id).ok();
    let number = number.and_then(|number| number.as_u64());
    number.expect("Burn 0.21's parameters have a number")
}

/// Sends a gradient, through the host's memory.
///
/// # Safety
/// Nobody else accesses the tensor meanwhile.
unsafe fn send<B: MxKernels>(
    tensor: *mut FloatTensor<B>,
    exchange: &dyn GradientExchange,
    message: GradientMessage,
) {
    // SAFETY: the caller's promise.
    let tensor = unsafe { &mut *tensor };
    let (device, dtype, shape) = (B::float_device(tensor), tensor.dtype(), tensor.shape());
    let data = read_sync(B::float_into_data(tensor.clone()));
    let data = data.unwrap_or_else(|error| panic!("burn-mx: a gradient's exchange: {error}"));
    let numbers = data.convert::<f32>().into_vec();
    let mut numbers: Vec<f32> = numbers.expect("float32 numbers");
    exchange.send(message, &shape, &mut numbers);
    let data = TensorData::new(numbers, shape).convert_dtype(dtype);
    *tensor = B::float_from_data(data, &device);
}

/// For exactly those `B` that are a `DistributedBackend` themselves.
impl<B: MxKernels + DistributedBackend> DistributedBackend for MxBackend<B> {
    // Delegated

    fn start_communication_server(devices: &[Device<Self>], config: DistributedConfig) {
        let devices: Vec<_> = devices.iter().map(|device| device.inner.clone()).collect();
        B::start_communication_server(&devices, config);
    }

    fn close_communication_server(device: &Device<Self>) {
        B::close_communication_server(&device.inner);
    }

    /// A backward pass begins on this thread.
    fn register_sync_parameters(device: &Device<Self>, distributed_params: Vec<DistributedParams>) {
        begin_backward_pass();
        B::register_sync_parameters(&device.inner, distributed_params);
    }

    /// Returns when the sums are there, each rounded by the exchange that was installed when its gradient was submitted.
    fn submit_sync_collective(device: &Device<Self>) {
        B::submit_sync_collective(&device.inner);
        end_exchange();
    }

    /// `B` replaces the wrapped tensor where it lies; what the gradient is to the emulation stays.
    fn submit_gradient_sync(tensor: TensorRef<Self>, distributed_params: DistributedParams) {
        // SAFETY: the caller who submits a reference has the tensor alone until this call returns, and leaves it alone and in place until
        // the communication is over. Both hold for the tensor's field.
        let inner = unsafe {
            // A sum or mean over devices is not a number of the format any more.
            (*tensor.0).meta.rounded = None;
            &raw mut (*tensor.0).inner
        };
        if let Some(exchange) = exchange() {
            // SAFETY: as above.
            let device = unsafe { B::float_device(&*inner) };
            let message = |is_reduced| GradientMessage {
                parameter: number(&distributed_params),
                rank: usize::from(device.id().index_id),
                is_reduced,
            };
            let (own, reduced) = (message(false), message(true));
            // SAFETY: as above.
            unsafe { send::<B>(inner, exchange.as_ref(), own) };
            let inner = TensorRef::<B>(inner);
            // SAFETY: the caller leaves the tensor in place until its `submit_sync_collective` returns, which calls this after `B` has
            // finished with the tensor.
            after_exchange(move || unsafe { send::<B>(inner.0, exchange.as_ref(), reduced) });
        }
        B::submit_gradient_sync(TensorRef(inner), distributed_params);
    }

    fn all_reduce(
        tensor: FloatTensor<Self>,
        op: ReduceOperation,
        device_ids: Vec<DeviceId>,
    ) -> CollectiveTensor<Self> {
        let meta = Meta::computed([Some(tensor.meta)]);
        let reduced = B::all_reduce(tensor.inner, op, device_ids);
        // SAFETY: the handle is not read here, and goes on as one that is to be resolved.
        let inner = unsafe { reduced.assume_resolved() };
        CollectiveTensor::new(MxTensor::new(inner, meta))
    }

    fn sync_collective(device: &Device<Self>) {
        B::sync_collective(&device.inner);
    }

    unsafe fn comm_device(tensor: &TensorRef<Self>) -> Device<Self> {
        // SAFETY: the caller's promise, that nobody accesses the tensor meanwhile, holds for its fields.
        unsafe {
            let inner = B::comm_device(&TensorRef(&raw mut (*tensor.0).inner));
            (*tensor.0).device_from(inner)
        }
    }

    unsafe fn float_from_ref(tensor: &TensorRef<Self>) -> FloatTensor<Self> {
        // SAFETY: as in `comm_device`.
        unsafe {
            let inner = B::float_from_ref(&TensorRef(&raw mut (*tensor.0).inner));
            MxTensor::new(inner, (*tensor.0).meta)
        }
    }
}
