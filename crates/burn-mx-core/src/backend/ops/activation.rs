//! Activations: by their formulas, or composed of ops that round.

use burn_backend::ops::ActivationOps;
use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, Scalar, TensorMetadata};

use crate::backend::MxBackend;
use crate::backend::delegate::{Unwrap, Wrap};
use crate::semantics::attention::formatted::Attention;
use crate::semantics::attention::scope::softmax_in_scope;
use crate::semantics::{activation, softmax};
use crate::tensor::{Meta, MxTensor, Rule};
use burn_mx_kernels::Function;
use burn_mx_kernels::MxKernels;

/// Burn's default compositions, through the ops of either side of the decorator.
pub(crate) struct Composition;

impl<B: Backend> ActivationOps<B> for Composition {}

/// Functions that Burn composes of smaller ops: composed if elementwise ops are emulated, else the wrapped backend's
/// own.
macro_rules! composed {
    ($(fn $name:ident($tensor:ident: FloatTensor<Self> $(, $arg:ident: $ty:ty)* $(,)?) -> FloatTensor<Self>;)*) => { $(
        fn $name($tensor: FloatTensor<Self> $(, $arg: $ty)*) -> FloatTensor<Self> {
            if activation::is_composed::<B>(&$tensor) {
                return <Composition as ActivationOps<Self>>::$name($tensor $(, $arg)*);
            }
            let meta = Meta::computed([Some($tensor.meta) $(, $arg.meta())*]);
            Wrap::wrap(B::$name($tensor.inner $(, Unwrap::unwrap($arg))*), meta)
        }
    )* };
}

impl<B: MxKernels> ActivationOps<Self> for MxBackend<B> {
    // Emulated

    fn relu(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        activation::relu::<B>(None, tensor)
    }

    fn relu_backward(output: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        activation::relu_backward::<B>(output, grad)
    }

    fn gelu(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        activation::function::<B>(Function::Gelu, None, tensor)
    }

    fn gelu_backward(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        activation::gelu_backward::<B>(x, grad)
    }

    fn sigmoid(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        activation::function::<B>(Function::Sigmoid, None, tensor)
    }

    fn sigmoid_backward(output: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        activation::sigmoid_backward::<B>(output, grad)
    }

    fn log_sigmoid(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        activation::log_sigmoid::<B>(None, tensor)
    }

    fn log_sigmoid_backward(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        activation::log_sigmoid_backward::<B>(x, grad)
    }

    fn leaky_relu(tensor: FloatTensor<Self>, negative_slope: Scalar) -> FloatTensor<Self> {
        activation::leaky_relu::<B>(None, tensor, negative_slope)
    }

    fn prelu(tensor: FloatTensor<Self>, alpha: FloatTensor<Self>) -> FloatTensor<Self> {
        activation::prelu::<B>(None, tensor, alpha)
    }

    fn softmax(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self> {
        match softmax_in_scope(tensor.meta, dim, tensor.rank()) {
            Some(specs) => Attention::<B>::apart(specs).softmax(tensor).0,
            None => softmax::forward::<B>(tensor, dim),
        }
    }

    // Composed

    composed! {
        fn hard_sigmoid(tensor: FloatTensor<Self>, alpha: Scalar, beta: Scalar) -> FloatTensor<Self>;
    }

    /// The wrapped backend's function, with which a loss begins. Emulated losses compute the function in one pass. Where one
    /// pass is not possible, the function is composed of the same rounded ops as in Burn.
    fn log_softmax(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self> {
        if softmax::log_begins_loss::<B>(&tensor) {
            let meta = Meta::computed([Some(tensor.meta)]).after(Rule::LOSS);
            return MxTensor::new(B::log_softmax(tensor.inner, dim), meta);
        }
        if softmax::log_in_one_pass::<B>(&tensor, dim) {
            return softmax::log_forward::<B>(tensor);
        }
        if activation::is_composed::<B>(&tensor) {
            return <Composition as ActivationOps<Self>>::log_softmax(tensor, dim);
        }
        let meta = Meta::computed([Some(tensor.meta)]);
        Wrap::wrap(B::log_softmax(tensor.inner, dim), meta)
    }

    /// Softmax of the negated tensor, by the formula of [`softmax`](Self::softmax).
    fn softmin(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self> {
        if activation::is_composed::<B>(&tensor) {
            return Self::softmax(
                <Self as burn_backend::ops::FloatTensorOps<Self>>::float_neg(tensor),
                dim,
            );
        }
        let meta = Meta::computed([Some(tensor.meta)]);
        Wrap::wrap(B::softmin(tensor.inner, dim), meta)
    }
}
