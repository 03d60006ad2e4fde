//! `MxBackend`: the decorator's inference side.

pub(super) mod delegate;
pub(super) mod ops;
pub(super) mod portable;
pub(super) mod tensor_ops;

use core::marker::PhantomData;

use burn_backend::{
    Backend, BackendTypes, DType, DTypeUsageSet, ExecutionError, TensorData, TensorMetadata,
    tensor::{BoolTensor, FloatTensor, IntTensor, QuantizedTensor},
};
use burn_ir::{BackendIr, HandleKind, TensorHandle};

use crate::tensor::device::MxDevice;
use crate::tensor::{MxTensor, shared_specs};
use burn_mx_kernels::{MxKernels, from_f32};

/// A backend that computes on `B` and emulates the [`MxSpecs`](crate::MxSpecs) of its tensors. Matrix products
/// fake-quantize their operands to MX formats, and elementwise ops compute in an emulated bfloat or fp format.
///
/// Without specs, results equal `B`'s. For training use `MxAutodiff<B>`, not `Autodiff<MxBackend<B>>`, which cannot
/// tell a backward product from a forward one.
#[derive(Clone, Copy, Debug, Default)]
pub struct MxBackend<B> {
    _inner: PhantomData<B>,
}

impl<B: MxKernels> MxBackend<B> {
    /// Replaces the values of a weight by `values`, which are `f32` and have the weight's shape.
    pub fn with_values(
        weight: FloatTensor<Self>,
        values: B::FloatTensorPrimitive,
    ) -> FloatTensor<Self> {
        debug_assert_eq!(values.shape(), weight.shape());
        let values = from_f32::<B>(values, weight.meta.storage);
        MxTensor::new(values, weight.meta).into_weight()
    }
}

impl<B: MxKernels> BackendTypes for MxBackend<B> {
    type Device = MxDevice<B::Device>;
    type FloatTensorPrimitive = MxTensor<B::FloatTensorPrimitive>;
    type FloatElem = B::FloatElem;
    type IntTensorPrimitive = MxTensor<B::IntTensorPrimitive>;
    type IntElem = B::IntElem;
    type BoolTensorPrimitive = MxTensor<B::BoolTensorPrimitive>;
    type BoolElem = B::BoolElem;
    type QuantizedTensorPrimitive = MxTensor<B::QuantizedTensorPrimitive>;
}

impl<B: MxKernels> Backend for MxBackend<B> {
    fn ad_enabled(device: &Self::Device) -> bool {
        B::ad_enabled(&device.inner)
    }

    fn memory_persistent_allocations<
        Output: Send,
        Input: Send,
        Func: Fn(Input) -> Output + Send,
    >(
        device: &Self::Device,
        input: Input,
        func: Func,
    ) -> Output {
        B::memory_persistent_allocations(&device.inner, input, func)
    }

    fn memory_cleanup(device: &Self::Device) {
        B::memory_cleanup(&device.inner)
    }

    fn name(device: &Self::Device) -> String {
        format!("mx<{}>", B::name(&device.inner))
    }

    /// Seeds `B`, and starts the random numbers of the device's specs anew from `seed`. A device without specs restarts
    /// the random numbers of the process-wide default, by which its tensors are computed.
    ///
    /// The random numbers are the specs', not the device's: all devices with equal specs share one sequence. Specs set by
    /// path have sequences of their own, which are seeded through a device made with them.
    fn seed(device: &Self::Device, seed: u64) {
        if let Some(shared) = device.meta.specs.or_else(shared_specs::installed_default) {
            shared.reseed(seed);
        }
        B::seed(&device.inner, seed)
    }

    fn sync(device: &Self::Device) -> Result<(), ExecutionError> {
        B::sync(&device.inner)
    }

    fn staging<'a, Iter>(data: Iter, device: &Self::Device)
    where
        Iter: Iterator<Item = &'a mut TensorData>,
    {
        B::staging(data, &device.inner)
    }

    fn supports_dtype(device: &Self::Device, dtype: DType) -> bool {
        B::supports_dtype(&device.inner, dtype)
    }

    fn dtype_usage(device: &Self::Device, dtype: DType) -> DTypeUsageSet {
        B::dtype_usage(&device.inner, dtype)
    }

    fn device_count(type_id: u16) -> usize {
        B::device_count(type_id)
    }
}

/// Handles hold the decorated tensor, so that specs pass through a router or a remote session's server.
impl<B: MxKernels> BackendIr for MxBackend<B> {
    type Handle = HandleKind<Self>;

    fn float_tensor(handle: TensorHandle<Self::Handle>) -> FloatTensor<Self> {
        match handle.handle {
            HandleKind::Float(tensor) => tensor,
            other => panic!("expected a float tensor handle, got a {} one", other.name()),
        }
    }

    fn int_tensor(handle: TensorHandle<Self::Handle>) -> IntTensor<Self> {
        match handle.handle {
            HandleKind::Int(tensor) => tensor,
            other => panic!("expected an int tensor handle, got a {} one", other.name()),
        }
    }

    fn bool_tensor(handle: TensorHandle<Self::Handle>) -> BoolTensor<Self> {
        match handle.handle {
            HandleKind::Bool(tensor) => tensor,
            other => panic!("expected a bool tensor handle, got a {} one", other.name()),
        }
    }

    fn quantized_tensor(handle: TensorHandle<Self::Handle>) -> QuantizedTensor<Self> {
        match handle.handle {
            HandleKind::Quantized(tensor) => tensor,
            other => panic!(
                "expected a quantized tensor handle, got a {} one",
                other.name()
            ),
        }
    }

    fn float_tensor_handle(tensor: FloatTensor<Self>) -> Self::Handle {
        HandleKind::Float(tensor)
    }

    fn int_tensor_handle(tensor: IntTensor<Self>) -> Self::Handle {
        HandleKind::Int(tensor)
    }

    fn bool_tensor_handle(tensor: BoolTensor<Self>) -> Self::Handle {
        HandleKind::Bool(tensor)
    }

    fn quantized_tensor_handle(tensor: QuantizedTensor<Self>) -> Self::Handle {
        HandleKind::Quantized(tensor)
    }
}

impl<P: TensorMetadata> MxTensor<P> {
    /// The device of this tensor, given the wrapped tensor's.
    pub(crate) fn device_from<D>(&self, inner: D) -> MxDevice<D> {
        MxDevice::of_tensor(inner, self)
    }
}
