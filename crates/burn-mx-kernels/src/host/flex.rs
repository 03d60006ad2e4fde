//! Flex: its tensors in memory.

use burn_backend::ops::FloatTensorOps;
use burn_backend::{BoolStore, Bytes, DType, Scalar, Shape, TensorMetadata};
use burn_flex::{Flex, FlexTensor, Layout};

use super::copy::{StridedAxis, offset};
use super::memory::{InMemory, change_in_place, changed_copy, memory_order};
use super::{HostBackend, on_host};
use crate::MxKernels;
use crate::kernel_set::KernelSet;

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

    /// Flex expands the mask to the tensor's shape in memory. A mask of attention is the same for all heads.
    fn mask_fill(tensor: FlexTensor, mask: FlexTensor, value: Scalar) -> FlexTensor {
        let is_bytes = matches!(mask.dtype(), DType::Bool(BoolStore::Native | BoolStore::U8));
        let strides = mask.layout().strides();
        let is_like_rows = tensor.dtype() == DType::F32
            && is_bytes
            && mask.layout().shape() == tensor.layout().shape()
            && strides.iter().all(|&stride| stride >= 0)
            && matches!(strides.last(), Some(0 | 1));
        if !is_like_rows {
            return Flex::float_mask_fill(tensor, mask, value);
        }
        let value = value.elem();
        let dims = tensor.dims();
        let (length, outer) = dims.split_last().expect("there is a last axis");
        // A view without elements may begin behind the end.
        let bytes = mask.bytes().get(mask.layout().start_offset()..);
        let bytes = bytes.unwrap_or(&[]);
        let (step, strides) = strides.split_last().expect("there is a last axis");
        let outer = outer.iter().zip(strides);
        let outer = outer.map(|(&length, &stride)| StridedAxis { length, stride });
        let outer: Vec<StridedAxis> = outer.collect();
        super::memory::rows(tensor, |rows, _, start| {
            for (i, row) in rows.chunks_exact_mut(*length).enumerate() {
                let at = offset(&outer, start / length + i) as usize;
                match step {
                    0 if bytes[at] != 0 => row.fill(value),
                    0 => {}
                    _ => {
                        for (x, masked) in row.iter_mut().zip(&bytes[at..at + length]) {
                            *x = if *masked != 0 { value } else { *x };
                        }
                    }
                }
            }
        })
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
        // Flex copies most layouts element by element, on one thread.
        let layout = self.layout();
        let (start, strides) = (layout.start_offset(), layout.strides());
        let dims = self.dims();
        let values = super::copy::row_major(self.storage::<f32>(), start, &dims, strides);
        Self::from_values(values, dims)
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
        // A view without elements may begin behind the end.
        let values = self.storage::<f32>().get(layout.start_offset()..);
        Some((values.unwrap_or(&[]), strides.ok()?))
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

#[cfg(test)]
mod tests {
    use burn_backend::ops::{BoolTensorOps, FloatTensorOps};
    use burn_backend::{BoolDType, Distribution, Slice, TensorData};

    use super::*;

    /// Such a view may begin behind the end of its memory.
    #[test]
    fn views_without_elements() {
        let device = Default::default();
        let tensor = Flex::float_zeros(Shape::new([4, 3]), &device, DType::F32.into());
        let slices = [Slice::from(4..4), Slice::from(1..3)];
        let empty = Flex::float_slice(tensor, &slices);
        assert_eq!(InMemory::row_major(empty.clone()).dims(), [0, 2]);
        let mask = Flex::float_equal_elem(empty.clone(), 0.0.into(), BoolDType::Native);
        let filled = <Flex as HostBackend>::mask_fill(empty, mask, 1.0.into());
        assert_eq!(filled.dims(), [0, 2]);
    }

    /// Masks that are expanded, sliced and transposed, and tensors of no and of many elements: as Flex fills them.
    #[test]
    fn masked_elements_are_flexs() {
        let device = Default::default();
        for shape in [[2, 3, 40, 70], [3, 2, 5, 1], [2, 0, 4, 3], [4, 4, 128, 128]] {
            let [batch, heads, queries, keys] = shape;
            let random = |shape: [usize; 4]| {
                let shape = Shape::new(shape);
                Flex::float_random(shape, Distribution::Default, &device, DType::F32.into())
            };
            let mask = |shape: [usize; 4]| {
                let count = shape.iter().product();
                let values: Vec<bool> = (0..count).map(|i: usize| i * i % 7 < 3).collect();
                Flex::bool_from_data(TensorData::new(values, shape), &device)
            };
            let expanded = |mask| Flex::bool_expand(mask, Shape::new(shape));
            let masks = [
                mask(shape),
                expanded(mask([1, 1, queries, keys])),
                expanded(mask([batch, 1, 1, keys])),
                expanded(mask([batch, heads, queries, 1])),
                Flex::bool_swap_dims(mask([batch, heads, keys, queries]), 2, 3),
                mask([1, 1, queries, keys]),
            ];
            for mask in masks {
                let swapped = [batch, queries, heads, keys];
                for tensor in [random(shape), Flex::float_swap_dims(random(swapped), 1, 2)] {
                    let value = Scalar::from(f32::NEG_INFINITY);
                    let expected = Flex::float_mask_fill(tensor.clone(), mask.clone(), value);
                    let filled = <Flex as HostBackend>::mask_fill(tensor, mask.clone(), value);
                    assert_eq!(filled.dims(), expected.dims());
                    let [filled, expected] = [filled, expected].map(InMemory::row_major);
                    assert_eq!(filled.values(), expected.values(), "{shape:?}");
                }
            }
        }
    }
}
