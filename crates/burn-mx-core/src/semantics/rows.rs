//! Rows along one axis of tensors.

use core::marker::PhantomData;

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;

use burn_mx_kernels::MxKernels;
use burn_mx_kernels::internal::formulas::Rows;

/// Rows along `axis`, all at once: closures are called with whole tensors, and the numbers of a row are tensors with
/// length 1 along the axis.
pub(crate) struct TensorRows<B> {
    axis: usize,
    _backend: PhantomData<B>,
}

impl<B> TensorRows<B> {
    pub(crate) fn along(axis: usize) -> Self {
        Self {
            axis,
            _backend: PhantomData,
        }
    }
}

impl<B: MxKernels> Rows for TensorRows<B> {
    type Value = FloatTensor<B>;
    type Row = FloatTensor<B>;
    type View = FloatTensor<B>;
    type Room = ();

    fn view(row: &FloatTensor<B>) -> &FloatTensor<B> {
        row
    }

    fn map(
        &self,
        row: FloatTensor<B>,
        f: impl Fn(FloatTensor<B>) -> FloatTensor<B>,
    ) -> FloatTensor<B> {
        f(row)
    }

    fn zip(
        &self,
        row: FloatTensor<B>,
        other: &FloatTensor<B>,
        f: impl Fn(FloatTensor<B>, FloatTensor<B>) -> FloatTensor<B>,
    ) -> FloatTensor<B> {
        f(row, other.clone())
    }

    fn zip_new(
        &self,
        (): (),
        lhs: &FloatTensor<B>,
        rhs: &FloatTensor<B>,
        f: impl Fn(FloatTensor<B>, FloatTensor<B>) -> FloatTensor<B>,
    ) -> FloatTensor<B> {
        f(lhs.clone(), rhs.clone())
    }

    fn sum(
        &self,
        row: &FloatTensor<B>,
        f: impl Fn(FloatTensor<B>) -> FloatTensor<B>,
    ) -> FloatTensor<B> {
        B::float_sum_dim(f(row.clone()), self.axis)
    }

    fn sum_of_two(
        &self,
        lhs: &FloatTensor<B>,
        rhs: &FloatTensor<B>,
        f: impl Fn(FloatTensor<B>, FloatTensor<B>) -> FloatTensor<B>,
    ) -> FloatTensor<B> {
        B::float_sum_dim(f(lhs.clone(), rhs.clone()), self.axis)
    }

    fn max(&self, row: &FloatTensor<B>) -> FloatTensor<B> {
        B::float_max_dim(row.clone(), self.axis)
    }

    fn length(&self, row: &FloatTensor<B>) -> usize {
        row.shape()[self.axis]
    }
}
