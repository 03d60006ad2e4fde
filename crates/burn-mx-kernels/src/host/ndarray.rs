//! NdArray: its tensors in memory.

use ::ndarray::{ArcArray, IxDyn};
use burn_backend::{DType, TensorMetadata};
use burn_ndarray::{
    FloatNdArrayElement, IntNdArrayElement, NdArray, NdArrayTensor, QuantElement, SharedArray,
};

use super::memory::{InMemory, change_in_place, changed_copy, memory_order};
use super::{HostBackend, on_host};
use crate::MxKernels;
use crate::kernel_set::KernelSet;

impl<E, I, Q> MxKernels for NdArray<E, I, Q>
where
    E: FloatNdArrayElement,
    I: IntNdArrayElement,
    Q: QuantElement,
    NdArrayTensor: From<SharedArray<E>> + From<SharedArray<I>>,
{
    fn kernels() -> &'static dyn KernelSet<Self> {
        on_host()
    }
}

impl<E, I, Q> HostBackend for NdArray<E, I, Q>
where
    E: FloatNdArrayElement,
    I: IntNdArrayElement,
    Q: QuantElement,
    NdArrayTensor: From<SharedArray<E>> + From<SharedArray<I>>,
{
    type Memory = ArcArray<f32, IxDyn>;

    fn in_memory(tensor: NdArrayTensor) -> Self::Memory {
        match tensor {
            NdArrayTensor::F32(storage) => storage.into_shared(),
            other => panic!(
                "burn-mx: expected {:?} data, got {:?}",
                DType::F32,
                other.dtype()
            ),
        }
    }
}

impl InMemory for ArcArray<f32, IxDyn> {
    fn from_values(values: Vec<f32>, dims: Vec<usize>) -> Self {
        Self::from_shape_vec(dims, values).expect("as many values as the shape has")
    }

    fn dims(&self) -> Vec<usize> {
        self.shape().to_vec()
    }

    fn is_row_major(&self) -> bool {
        self.is_standard_layout()
    }

    fn row_major(self) -> Self {
        match self.is_standard_layout() {
            true => self,
            false => self.as_standard_layout().into_owned().into_shared(),
        }
    }

    fn values(&self) -> &[f32] {
        self.as_slice().expect(ROW_MAJOR)
    }

    fn strided(&self) -> Option<(&[f32], Vec<usize>)> {
        let strides: Result<_, _> = self
            .strides()
            .iter()
            .map(|&stride| stride.try_into())
            .collect();
        // Without negative strides the first element is the first in memory.
        Some((self.as_slice_memory_order()?, strides.ok()?))
    }

    fn change(mut self, unit: usize, work: impl Fn(usize, &mut [f32]) + Sync) -> Self {
        if self.is_unique() {
            change_in_place(self.as_slice_mut().expect(ROW_MAJOR), unit, work);
            return self;
        }
        let values = changed_copy(self.values(), unit, work);
        Self::from_shape_vec(self.raw_dim(), values).expect("the copy has as many elements")
    }

    fn change_where_it_lies(mut self, kernel: impl FnOnce(&mut [f32], &[usize], &[usize])) -> Self {
        let order = memory_order(self.shape(), self.strides()).unwrap_or_else(|| {
            self = self.as_standard_layout().into_owned().into_shared();
            (0..self.ndim()).collect()
        });
        let shape: Vec<usize> = order.iter().map(|&axis| self.shape()[axis]).collect();
        let data = self
            .as_slice_memory_order_mut()
            .expect("the array is dense in memory");
        kernel(data, &shape, &order);
        self
    }

    fn expand(self, dims: &[usize]) -> Self {
        let view = self.broadcast(dims).expect("the shapes broadcast");
        view.to_owned().into_shared()
    }
}

const ROW_MAJOR: &str = "the array has standard layout";
