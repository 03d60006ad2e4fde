//! Elementwise ops in an emulated format: round every tensor operand, compute in `f32`, round the result.
//!
//! Tensors of another float type are converted to `f32` before and back after.

use core::marker::PhantomData;

use burn_backend::tensor::FloatTensor;
use burn_backend::{FloatDType, Scalar, Shape, TensorMetadata};
use microscaling::{FloatFormat, RandomStream, Rounding};

use super::arithmetic::{Arithmetic, LOG2_E};
use super::{Float, stored};
use crate::kernels::{MxKernels, Steps, UnaryRecipe, to_f32};
use crate::registry::Interned;
use crate::tensor::{Join, MxTensor};

/// Rounding to the elementwise format of some specs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounder {
    interned: &'static Interned,
    format: FloatFormat,
    rounding: Rounding,
}

impl Rounder {
    /// `None` where the specs leave elementwise values alone.
    pub(crate) fn new(interned: &'static Interned, rounding: Rounding) -> Option<Self> {
        interned.specs.float_format().map(|format| Self {
            interned,
            format,
            rounding,
        })
    }

    pub(crate) fn round<B: MxKernels>(self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        let stream = stream_for(self.interned, self.rounding);
        B::float_round_to(tensor, self.format, self.rounding, stream)
    }

    /// Rounds a tensor that may be rounded already; the result is `f32`.
    pub(crate) fn operand<B: MxKernels>(self, tensor: Float<B>) -> FloatTensor<B> {
        let inner = to_f32::<B>(tensor.inner);
        if tensor.meta.rounded == Some(self.format) {
            return inner;
        }
        self.round::<B>(inner)
    }

    /// The result of an op, rounded and known to be so.
    pub(crate) fn result<B: MxKernels>(self, inner: FloatTensor<B>, join: &Join) -> Float<B> {
        let mut meta = join.result;
        let inner = self.round::<B>(inner);
        meta.rounded = Some(self.format);
        stored::<B>(inner, meta)
    }
}

/// The random numbers of one rounding; only stochastic rounding uses some up.
pub(crate) fn stream_for(interned: &Interned, rounding: Rounding) -> RandomStream {
    match rounding {
        Rounding::Stochastic => interned.next_stream(),
        _ => RandomStream::new(0, 0),
    }
}

fn rounder(join: &Join) -> Option<Rounder> {
    let interned = join.quantization()?;
    Rounder::new(interned, interned.specs.round())
}

/// An op on one tensor.
pub(crate) fn unary<B: MxKernels>(
    tensor: Float<B>,
    op: impl FnOnce(FloatTensor<B>) -> FloatTensor<B>,
) -> Float<B> {
    let join = Join::of([Some(tensor.meta)]);
    match rounder(&join) {
        Some(rounder) => rounder.result::<B>(op(rounder.operand::<B>(tensor)), &join),
        None => MxTensor::new(op(tensor.inner), join.result),
    }
}

/// An op on two tensors.
pub(crate) fn binary<B: MxKernels>(
    lhs: Float<B>,
    rhs: Float<B>,
    op: impl FnOnce(FloatTensor<B>, FloatTensor<B>) -> FloatTensor<B>,
) -> Float<B> {
    let join = Join::of([Some(lhs.meta), Some(rhs.meta)]);
    match rounder(&join) {
        Some(rounder) => rounder.result::<B>(
            op(rounder.operand::<B>(lhs), rounder.operand::<B>(rhs)),
            &join,
        ),
        None => MxTensor::new(op(lhs.inner, rhs.inner), join.result),
    }
}

/// An op on two tensors with two results, such as a complex one given by its parts.
pub(crate) fn complex<B: MxKernels>(
    first: Float<B>,
    second: Option<Float<B>>,
    op: impl FnOnce(FloatTensor<B>, Option<FloatTensor<B>>) -> (FloatTensor<B>, FloatTensor<B>),
) -> (Float<B>, Float<B>) {
    let join = Join::of([Some(first.meta), second.as_ref().map(|tensor| tensor.meta)]);
    match rounder(&join) {
        Some(rounder) => {
            let (re, im) = op(
                rounder.operand::<B>(first),
                second.map(|tensor| rounder.operand::<B>(tensor)),
            );
            (
                rounder.result::<B>(re, &join),
                rounder.result::<B>(im, &join),
            )
        }
        None => {
            let (re, im) = op(first.inner, second.map(|tensor| tensor.inner));
            (
                MxTensor::new(re, join.result),
                MxTensor::new(im, join.result),
            )
        }
    }
}

/// exp, by exp2 where `vec_use_exp2` says so.
pub(crate) fn exp<B: MxKernels>(tensor: Float<B>) -> Float<B> {
    let join = Join::of([Some(tensor.meta)]);
    match Vector::<B>::recipe(&join) {
        Some(vector) => vector.finish(vector.exp(vector.operand(tensor)), &join),
        None => unary::<B>(tensor, B::float_exp),
    }
}

/// Division, by a multiplication with the reciprocal where `vec_use_recip` says so.
pub(crate) fn div<B: MxKernels>(lhs: Float<B>, rhs: Float<B>) -> Float<B> {
    let join = Join::of([Some(lhs.meta), Some(rhs.meta)]);
    match Vector::<B>::recipe(&join) {
        Some(vector) => {
            let quotient = vector.div(vector.operand(lhs), vector.operand(rhs));
            vector.finish(quotient, &join)
        }
        None => binary::<B>(lhs, rhs, B::float_div),
    }
}

/// `1 / x`
pub(crate) fn recip<B: MxKernels>(tensor: Float<B>) -> Float<B> {
    let join = Join::of([Some(tensor.meta)]);
    match Vector::<B>::recipe(&join) {
        Some(vector) => vector.finish(vector.recip(vector.operand(tensor)), &join),
        None => MxTensor::new(B::float_recip(tensor.inner), join.result),
    }
}

/// Mean of all elements: the rounded sum, divided by the count, rounded again.
pub(crate) fn mean<B: MxKernels>(tensor: Float<B>) -> Float<B> {
    let join = Join::of([Some(tensor.meta)]);
    match Vector::<B>::recipe(&join) {
        Some(vector) => {
            let count = tensor.shape().num_elements();
            let sum = vector.round(B::float_sum(vector.operand(tensor)));
            vector.finish(vector.div_scalar(sum, count as f32), &join)
        }
        None => unary::<B>(tensor, B::float_mean),
    }
}

/// Mean along one axis, as [`mean`]; the axis stays with length 1.
pub(crate) fn mean_dim<B: MxKernels>(tensor: Float<B>, dim: usize) -> Float<B> {
    let join = Join::of([Some(tensor.meta)]);
    match Vector::<B>::recipe(&join) {
        Some(vector) => vector.finish(vector.mean_dim(vector.operand(tensor), dim), &join),
        None => unary::<B>(tensor, |tensor| B::float_mean_dim(tensor, dim)),
    }
}

/// Arithmetic of the recipes: every step is computed in `f32` by the wrapped backend and rounded.
///
/// Operands are expected to be `f32` and rounded. Where nothing is to be rounded (a backward pass with
/// `quantize_backprop = false`) each step is the wrapped backend's op alone, so that a recipe reads the same
/// in both cases.
pub(crate) struct Vector<B> {
    interned: &'static Interned,
    rounder: Option<Rounder>,
    _backend: PhantomData<B>,
}

impl<B: MxKernels> Vector<B> {
    /// The arithmetic of a composed function, or `None` where the function is the wrapped backend's own:
    /// nothing is emulated, or only the products are.
    pub(crate) fn recipe(join: &Join) -> Option<Self> {
        let interned = join.emulation()?;
        interned.specs.float_format()?;
        Some(Self::steps(interned, join))
    }

    /// The arithmetic that the forward pass had, also in a backward pass that is not to be quantized: what
    /// that one takes of the forward pass's results is what they were.
    pub(crate) fn as_in_forward(interned: &'static Interned) -> Self {
        Self {
            interned,
            rounder: Rounder::new(interned, interned.specs.round()),
            _backend: PhantomData,
        }
    }

    /// The arithmetic of a backward pass of our own: exact where elementwise ops are not emulated.
    pub(crate) fn steps(interned: &'static Interned, join: &Join) -> Self {
        Self {
            interned,
            rounder: rounder(join),
            _backend: PhantomData,
        }
    }

    pub(crate) fn round(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        match self.rounder {
            Some(rounder) => rounder.round::<B>(tensor),
            None => tensor,
        }
    }

    pub(crate) fn operand(&self, tensor: Float<B>) -> FloatTensor<B> {
        match self.rounder {
            Some(rounder) => rounder.operand::<B>(tensor),
            None => to_f32::<B>(tensor.inner),
        }
    }

    /// Wraps a result whose last step rounded it.
    pub(crate) fn finish(&self, inner: FloatTensor<B>, join: &Join) -> Float<B> {
        let mut meta = join.result;
        meta.rounded = self.rounder.map(|rounder| rounder.format);
        stored::<B>(inner, meta)
    }

    /// How a recipe rounds that a kernel runs in one pass; `None` if it has to be composed: where random
    /// numbers are drawn for each step, or nothing is rounded.
    pub(crate) fn in_one_pass(&self) -> Option<Steps> {
        self.rounder.and_then(|_| self.backward_in_one_pass())
    }

    /// As [`in_one_pass`](Self::in_one_pass), for the gradient of a recipe, which computes steps of the
    /// forward pass again: they are rounded also where the backward pass is not.
    pub(crate) fn backward_in_one_pass(&self) -> Option<Steps> {
        let specs = &self.interned.specs;
        let rounding = specs.round();
        let format = specs
            .float_format()
            .filter(|_| rounding != Rounding::Stochastic)?;
        Some(Steps {
            format,
            rounding,
            quantize_backward: self.rounder.is_some(),
            exp2: specs.specs().vec_use_exp2,
        })
    }

    pub(crate) fn softmax_exp2(&self) -> bool {
        self.interned.specs.specs().softmax_exp2
    }

    pub(crate) fn div(&self, lhs: FloatTensor<B>, rhs: FloatTensor<B>) -> FloatTensor<B> {
        if self.interned.specs.specs().vec_use_recip {
            return self.mul(lhs, self.recip(rhs));
        }
        self.round(B::float_div(lhs, rhs))
    }

    pub(crate) fn div_scalar(&self, lhs: FloatTensor<B>, rhs: f32) -> FloatTensor<B> {
        self.round(B::float_div_scalar(lhs, rhs.into()))
    }

    pub(crate) fn tanh(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        self.round(B::float_tanh(tensor))
    }

    pub(crate) fn exp2(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        if let Some(steps) = self.in_one_pass() {
            return B::unary_recipe(UnaryRecipe::Exp2, tensor, steps);
        }
        let device = B::float_device(&tensor);
        let dtype: FloatDType = tensor.dtype().into();
        let ones = Shape::from(vec![1; tensor.rank()]);
        let two = B::float_full(ones, Scalar::from(2.0f32), &device, dtype);
        let two = B::float_expand(two, tensor.shape());
        self.round(B::float_powf(two, tensor))
    }

    pub(crate) fn sum_dim(&self, tensor: FloatTensor<B>, dim: usize) -> FloatTensor<B> {
        self.round(B::float_sum_dim(tensor, dim))
    }

    pub(crate) fn mean_dim(&self, tensor: FloatTensor<B>, dim: usize) -> FloatTensor<B> {
        let count = tensor.shape()[dim];
        self.div_scalar(self.sum_dim(tensor, dim), count as f32)
    }

    /// Sums over several axes in `f32`, as one step; the axes stay with length 1.
    pub(crate) fn sum_dims(
        &self,
        tensor: FloatTensor<B>,
        dims: impl IntoIterator<Item = usize>,
    ) -> FloatTensor<B> {
        self.round(sum_dims::<B>(tensor, dims))
    }
}

impl<B: MxKernels> Arithmetic for Vector<B> {
    type Value = FloatTensor<B>;

    fn sub(&self, lhs: FloatTensor<B>, rhs: FloatTensor<B>) -> FloatTensor<B> {
        self.round(B::float_sub(lhs, rhs))
    }

    fn sqrt(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        self.round(B::float_sqrt(tensor))
    }

    fn add(&self, lhs: FloatTensor<B>, rhs: FloatTensor<B>) -> FloatTensor<B> {
        self.round(B::float_add(lhs, rhs))
    }

    fn mul(&self, lhs: FloatTensor<B>, rhs: FloatTensor<B>) -> FloatTensor<B> {
        self.round(B::float_mul(lhs, rhs))
    }

    fn add_scalar(&self, lhs: FloatTensor<B>, rhs: f32) -> FloatTensor<B> {
        self.round(B::float_add_scalar(lhs, rhs.into()))
    }

    fn mul_scalar(&self, lhs: FloatTensor<B>, rhs: f32) -> FloatTensor<B> {
        self.round(B::float_mul_scalar(lhs, rhs.into()))
    }

    fn neg(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        B::float_neg(tensor)
    }

    fn recip(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        self.round(B::exact_recip(tensor))
    }

    fn exp(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        if let Some(steps) = self.in_one_pass() {
            return B::unary_recipe(UnaryRecipe::Exp, tensor, steps);
        }
        if self.interned.specs.specs().vec_use_exp2 {
            return self.exp2(self.mul_scalar(tensor, LOG2_E));
        }
        self.round(B::float_exp(tensor))
    }
}

/// The arithmetic of a backward pass: what it recomputes of the forward pass, and what it computes itself.
pub(crate) struct Passes<B> {
    pub(crate) forward: Vector<B>,
    pub(crate) backward: Vector<B>,
}

impl<B: MxKernels> Passes<B> {
    /// As [`Vector::recipe`].
    pub(crate) fn recipe(join: &Join) -> Option<Self> {
        let backward = Vector::recipe(join)?;
        Some(Self {
            forward: Vector::as_in_forward(backward.interned),
            backward,
        })
    }

    /// As [`Vector::steps`].
    pub(crate) fn steps(interned: &'static Interned, join: &Join) -> Self {
        Self {
            forward: Vector::as_in_forward(interned),
            backward: Vector::steps(interned, join),
        }
    }
}

/// Sums over several axes in `f32`; the axes stay with length 1.
pub(crate) fn sum_dims<B: MxKernels>(
    tensor: FloatTensor<B>,
    dims: impl IntoIterator<Item = usize>,
) -> FloatTensor<B> {
    dims.into_iter().fold(tensor, B::float_sum_dim)
}

/// The axes along which an operand of shape `operand` was broadcast to shape `output`.
pub(crate) fn broadcast_dims(operand: &Shape, output: &Shape) -> Vec<usize> {
    (0..output.num_dims())
        .filter(|&dim| operand[dim] != output[dim])
        .collect()
}
