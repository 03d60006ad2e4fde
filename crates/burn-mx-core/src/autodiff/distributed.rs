//! Communication between devices: burn-autodiff's, whose steps call `MxBackend`'s.

use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_backend::DeviceId;
use burn_backend::distributed::{
    CollectiveTensor, DistributedBackend, DistributedConfig, DistributedParams, ReduceOperation,
    TensorRef,
};
use burn_backend::tensor::{Device, FloatTensor};

use super::backward::edge::used;
use super::{Ad, MxAutodiff};
use crate::backend::MxBackend;
use burn_mx_kernels::MxKernels;

/// For exactly those `B` that are a `DistributedBackend` themselves.
impl<B: MxKernels + DistributedBackend, C: CheckpointStrategy> DistributedBackend
    for MxAutodiff<B, C>
{
    fn start_communication_server(devices: &[Device<Self>], config: DistributedConfig) {
        MxBackend::<B>::start_communication_server(devices, config);
    }

    fn close_communication_server(device: &Device<Self>) {
        MxBackend::<B>::close_communication_server(device);
    }

    fn register_sync_parameters(device: &Device<Self>, distributed_params: Vec<DistributedParams>) {
        MxBackend::<B>::register_sync_parameters(device, distributed_params);
    }

    fn submit_sync_collective(device: &Device<Self>) {
        MxBackend::<B>::submit_sync_collective(device);
    }

    /// Submits the tensor itself: burn-autodiff submits a copy that is gone before the communication is over.
    fn submit_gradient_sync(tensor: TensorRef<Self>, distributed_params: DistributedParams) {
        // SAFETY: the caller who submits a reference leaves the tensor in place until the communication is over; the tensor's field stays
        // with the tensor.
        let primitive = unsafe { &raw mut (*tensor.0).primitive };
        MxBackend::<B>::submit_gradient_sync(TensorRef(primitive), distributed_params);
    }

    /// Has a gradient: the result's gradient, reduced likewise.
    fn all_reduce(
        tensor: FloatTensor<Self>,
        op: ReduceOperation,
        device_ids: Vec<DeviceId>,
    ) -> CollectiveTensor<Self> {
        let reduced = Ad::<B, C>::all_reduce(used::<B, C>(tensor), op, device_ids);
        // SAFETY: the handle is not read here, and goes on as one that is to be resolved.
        CollectiveTensor::new(unsafe { reduced.assume_resolved() })
    }

    fn sync_collective(device: &Device<Self>) {
        MxBackend::<B>::sync_collective(device);
    }

    unsafe fn comm_device(tensor: &TensorRef<Self>) -> Device<Self> {
        // SAFETY: the caller's promise, that nobody accesses the tensor meanwhile, holds for its fields.
        unsafe { MxBackend::<B>::comm_device(&TensorRef(&raw mut (*tensor.0).primitive)) }
    }

    unsafe fn float_from_ref(tensor: &TensorRef<Self>) -> FloatTensor<Self> {
        // SAFETY: the caller's promise, that nobody accesses the tensor meanwhile.
        unsafe { (*tensor.0).clone() }
    }
}
