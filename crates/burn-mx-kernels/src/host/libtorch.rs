//! LibTorch. Kernels work on CPU tensors in memory. Tensors of other devices are copied there and back.

use burn_backend::ops::FloatTensorOps;
use burn_backend::{DType, Shape, TensorData, TensorMetadata};
use burn_tch::{LibTorch, LibTorchDevice, TchElement, TchTensor};

use super::memory::{InMemory, change_in_place, memory_order};
use super::{HostBackend, on_host};
use crate::kernel_set::KernelSet;
use crate::{MxKernels, portable};

impl<E: TchElement> MxKernels for LibTorch<E> {
    fn kernels() -> &'static dyn KernelSet<Self> {
        on_host()
    }
}

impl<E: TchElement> HostBackend for LibTorch<E> {
    type Memory = HostTensor;

    /// Some numbers are computed in vectors and others are not.
    const IS_SAME_EVERYWHERE: bool = false;

    fn in_memory(tensor: TchTensor) -> HostTensor {
        in_memory(tensor)
    }

    fn where_it_is(tensor: &TchTensor) -> Option<HostTensor> {
        let device = LibTorch::<f32>::float_device(tensor);
        (device == LibTorchDevice::Cpu).then(|| in_memory(tensor.clone()))
    }
}

/// A tensor of `f32` in this process's memory, and the device of its results.
#[derive(Clone)]
pub(crate) struct HostTensor {
    tensor: TchTensor,
    device: LibTorchDevice,
}

fn in_memory(tensor: TchTensor) -> HostTensor {
    let dtype = tensor.dtype();
    assert!(
        dtype == DType::F32,
        "burn-mx: expected {:?} data, got {dtype:?}",
        DType::F32
    );
    let device = LibTorch::<f32>::float_device(&tensor);
    if device == LibTorchDevice::Cpu {
        return HostTensor { tensor, device };
    }
    portable::note::<LibTorch<f32>>(&device, "quantization");
    let tensor = LibTorch::<f32>::float_to_device(tensor, &LibTorchDevice::Cpu);
    HostTensor { tensor, device }
}

impl From<HostTensor> for TchTensor {
    fn from(HostTensor { tensor, device }: HostTensor) -> Self {
        LibTorch::<f32>::float_to_device(tensor, &device)
    }
}

impl HostTensor {
    /// Elements of memory from the first value to the last one.
    fn span(&self) -> usize {
        let lengths = self.dims();
        if lengths.contains(&0) {
            return 0;
        }
        let strides = self.strides();
        let last = lengths.iter().zip(strides).map(|(n, step)| (n - 1) * step);
        last.sum::<usize>() + 1
    }

    /// LibTorch has none that is negative.
    fn strides(&self) -> Vec<usize> {
        let strides = self.tensor.tensor.stride();
        strides.into_iter().map(|stride| stride as usize).collect()
    }

    fn order(&self) -> Option<Vec<usize>> {
        let strides: Vec<isize> = (self.strides().into_iter())
            .map(|stride| stride as isize)
            .collect();
        memory_order(&self.dims(), &strides)
    }

    /// The memory from the first value to the last one.
    fn memory(&self) -> &[f32] {
        let span = self.span();
        if span == 0 {
            return &[];
        }
        let start = self.tensor.tensor.data_ptr().cast_const().cast();
        // SAFETY: the tensor is dense and of `f32` in this process's memory, where it has `span` elements from `start` on, and is held for
        // as long as the slice. The memory is written to in `memory_mut` alone, and by LibTorch where nobody else has it.
        unsafe { std::slice::from_raw_parts(start, span) }
    }

    /// The same of a tensor that nobody else has.
    fn memory_mut(&mut self) -> &mut [f32] {
        assert!(self.tensor.can_mut(), "the tensor is this one's alone");
        let span = self.span();
        if span == 0 {
            return &mut [];
        }
        let start = self.tensor.tensor.data_ptr().cast();
        // SAFETY: as in `memory`; no other tensor has this storage, and this one is borrowed as its only owner.
        unsafe { std::slice::from_raw_parts_mut(start, span) }
    }

    /// A copy in row-major order.
    fn copied(self) -> Self {
        let shape = self.tensor.shape();
        let mut copy = TchTensor::empty(shape, LibTorchDevice::Cpu, DType::F32);
        copy.tensor.copy_(&self.tensor.tensor);
        Self {
            tensor: copy,
            device: self.device,
        }
    }
}

impl InMemory for HostTensor {
    fn from_values(values: Vec<f32>, dims: Vec<usize>) -> Self {
        let device = LibTorchDevice::Cpu;
        let tensor = LibTorch::<f32>::float_from_data(TensorData::new(values, dims), &device);
        Self { tensor, device }
    }

    fn dims(&self) -> Vec<usize> {
        self.tensor.shape().to_vec()
    }

    fn is_row_major(&self) -> bool {
        self.tensor.tensor.is_contiguous()
    }

    fn row_major(self) -> Self {
        match self.is_row_major() {
            true => self,
            false => self.copied(),
        }
    }

    fn values(&self) -> &[f32] {
        assert!(self.is_row_major(), "the tensor is in row-major order");
        self.memory()
    }

    fn strided(&self) -> Option<(&[f32], Vec<usize>)> {
        Some((self.memory(), self.strides()))
    }

    fn change(self, unit: usize, work: impl Fn(usize, &mut [f32]) + Sync) -> Self {
        let mut alone = match self.tensor.can_mut() {
            true => self,
            false => self.copied(),
        };
        change_in_place(alone.memory_mut(), unit, work);
        alone
    }

    fn change_where_it_lies(self, kernel: impl FnOnce(&mut [f32], &[usize], &[usize])) -> Self {
        let dims = self.dims();
        let (mut alone, order) = match self.order() {
            Some(order) if self.tensor.can_mut() => (self, order),
            _ => (self.copied(), (0..dims.len()).collect()),
        };
        let shape: Vec<usize> = order.iter().map(|&axis| dims[axis]).collect();
        kernel(alone.memory_mut(), &shape, &order);
        alone
    }

    fn expand(self, dims: &[usize]) -> Self {
        Self {
            tensor: LibTorch::<f32>::float_expand(self.tensor, Shape::from(dims.to_vec())),
            device: self.device,
        }
    }
}
