//! Communication between devices, by the wrapped backend. Nothing is emulated: sums over devices are in float32.

use burn_backend::DeviceId;
use burn_backend::distributed::{
    CollectiveTensor, DistributedBackend, DistributedConfig, DistributedParams, ReduceOperation,
    TensorRef,
};
use burn_backend::tensor::{Device, FloatTensor};

use crate::backend::MxBackend;
use crate::tensor::{Meta, MxTensor};
use burn_mx_kernels::MxKernels;

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

    fn register_sync_parameters(device: &Device<Self>, distributed_params: Vec<DistributedParams>) {
        B::register_sync_parameters(&device.inner, distributed_params);
    }

    fn submit_sync_collective(device: &Device<Self>) {
        B::submit_sync_collective(&device.inner);
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
