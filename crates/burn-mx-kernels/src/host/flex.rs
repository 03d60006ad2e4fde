//! Flex: its tensors in memory.

use burn_backend::ops::FloatTensorOps;
use burn_backend::{Bytes, DType, Shape, TensorMetadata};
use burn_flex::{Flex, FlexTensor, Layout};

use super::memory::{InMemory, change_in_place, changed_copy, memory_order};
use super::{HostBackend, on_host};
use crate::{KernelSet, MxKernels};

impl MxKernels for Flex {
    fn kernels() -> &'static dyn KernelSet<Self> {
        on_host()
    }
}

impl HostBackend for Flex {
    type Memory = FlexTensor;

    fn in_memory(tensor: FlexTensor) -> FlexTensor {
        tensor
    }

    fn row_major(tensor: FlexTensor) -> FlexTensor {
        match tensor.dtype() {
            DType::F32 => InMemory::row_major(tensor),
            _ => tensor,
        }
    }
}

impl InMemory for FlexTensor {
    fn from_values(values: Vec<f32>, dims: Vec<usize>) -> Self {
        let layout = Layout::contiguous(Shape::from(dims));
        FlexTensor::new(Bytes::from_elems(values), layout, DType::F32)
    }

    fn dims(&self) -> Vec<usize> {
        self.layout().shape().to_vec()
    }

    fn is_row_major(&self) -> bool {
        self.is_contiguous()
    }

    fn row_major(self) -> Self {
        if self.is_contiguous() {
            return self;
        }
        let dims = self.dims();
        match self.strided() {
            // Flex copies most layouts element by element, on one thread.
            Some((values, strides)) => {
                Self::from_values(super::copy::row_major(values, &dims, &strides), dims)
            }
            // Some axis is reversed.
            None => self.to_contiguous(),
        }
    }

    fn values(&self) -> &[f32] {
        self.as_slice().expect("the layout is row-major")
    }

    fn strided(&self) -> Option<(&[f32], Vec<usize>)> {
        let layout = self.layout();
        let strides: Result<_, _> = layout
            .strides()
            .iter()
            .map(|&stride| stride.try_into())
            .collect();
        Some((
            &self.storage::<f32>()[layout.start_offset()..],
            strides.ok()?,
        ))
    }

    fn change(mut self, unit: usize, work: impl Fn(usize, &mut [f32]) + Sync) -> Self {
        let start = self.layout().start_offset();
        let window = start..start + self.layout().num_elements();
        if let Some(storage) = self.try_storage_mut::<f32>() {
            change_in_place(&mut storage[window], unit, work);
            return self;
        }
        let values = changed_copy(self.values(), unit, work);
        Self::from_values(values, self.dims())
    }

    fn change_where_it_lies(self, kernel: impl FnOnce(&mut [f32], &[usize], &[usize])) -> Self {
        let layout = self.layout();
        match memory_order(layout.shape(), layout.strides()) {
            Some(order) => in_place(self, &order, kernel),
            None => {
                let order: Vec<usize> = (0..self.rank()).collect();
                in_place(self.row_major(), &order, kernel)
            }
        }
    }

    fn expand(self, dims: &[usize]) -> Self {
        Flex::float_expand(self, Shape::from(dims.to_vec()))
    }
}

/// [`InMemory::change_where_it_lies`] for a tensor that lies densely in the order of axes `order`.
fn in_place(
    mut tensor: FlexTensor,
    order: &[usize],
    kernel: impl FnOnce(&mut [f32], &[usize], &[usize]),
) -> FlexTensor {
    let layout = tensor.layout().clone();
    let shape: Vec<usize> = order.iter().map(|&axis| layout.shape()[axis]).collect();
    let window = layout.start_offset()..layout.start_offset() + layout.num_elements();
    if let Some(storage) = tensor.try_storage_mut::<f32>() {
        kernel(&mut storage[window], &shape, order);
        return tensor;
    }
    let mut values = tensor.storage::<f32>()[window].to_vec();
    kernel(&mut values, &shape, order);
    let layout = Layout::new(layout.shape().clone(), layout.strides().to_vec(), 0);
    FlexTensor::new(Bytes::from_elems(values), layout, tensor.dtype())
}
