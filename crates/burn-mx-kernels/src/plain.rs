//! The functions beside Burn's ops on backends that emulate nothing, by Burn's ops.

use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, DType, Shape, TensorMetadata};

use crate::MxKernels;
use crate::arithmetic::Function;
use crate::kernel_op::adamw::AdamWStep;

/// Functions beside Burn's ops, which models and losses call. The defaults are plain arithmetic. A `Change` is one of a tensor's
/// role in an emulation.
///
/// The trait stands beside [`MxKernels`]: only the crate of [`MxKernels`] may implement a trait both for every backend with
/// kernels and for burn's `Autodiff` of every such backend.
pub trait ModelOps<Change>: Backend {
    /// The tensor with a changed role or exemption in the emulation. Without emulation, this is the tensor.
    fn change(tensor: FloatTensor<Self>, change: Change) -> FloatTensor<Self> {
        let _ = change;
        tensor
    }

    /// A function of the tensor.
    fn apply(tensor: FloatTensor<Self>, function: Function) -> FloatTensor<Self> {
        plain_function::<Self>(function, tensor)
    }

    /// `γ x / sqrt(mean x² + ε) + β` over the last axis: `x` `[.., D]`, `gamma` and `beta` `[D]`.
    fn rms_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: Option<FloatTensor<Self>>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        plain_rms_norm::<Self>(x, gamma, beta, epsilon)
    }

    /// `target · (1 − weight) + online · weight` in plain `f32`, as what `target` is to the emulation.
    fn lerp(
        target: FloatTensor<Self>,
        online: FloatTensor<Self>,
        weight: f64,
    ) -> FloatTensor<Self> {
        let require_grad = Self::float_is_require_grad(&target);
        let kept = Self::float_mul_scalar(target, (1.0 - weight).into());
        let new = Self::float_mul_scalar(online, weight.into());
        let leaf = Self::float_detach(Self::float_add(kept, new));
        Self::float_set_require_grad(leaf, require_grad)
    }

    /// A step of AdamW from a parameter, its gradient and its two moments: the new parameter and moments, with the bits of Burn's ops.
    ///
    /// # Errors
    /// The tensors, where Burn's ops have to compute the step: no kernel takes these tensors, or the backend emulates the ops.
    #[doc(hidden)]
    fn adamw(
        _step: AdamWStep,
        tensors: [FloatTensor<Self>; 4],
    ) -> Result<[FloatTensor<Self>; 3], [FloatTensor<Self>; 4]> {
        Err(tensors)
    }
}

impl<B: MxKernels, Change> ModelOps<Change> for B {
    fn adamw(
        step: AdamWStep,
        tensors: [FloatTensor<Self>; 4],
    ) -> Result<[FloatTensor<Self>; 3], [FloatTensor<Self>; 4]> {
        let shape = tensors[0].shape();
        let fits =
            |tensor: &FloatTensor<Self>| tensor.dtype() == DType::F32 && tensor.shape() == shape;
        match tensors.iter().all(fits) {
            true => B::kernels().adamw(step, tensors),
            false => Err(tensors),
        }
    }
}

impl<B: MxKernels, C: CheckpointStrategy, Change> ModelOps<Change> for Autodiff<B, C> {}

/// The slope of the first-order gelu's sigmoid.
const GELU_SLOPE: f32 = 1.702;

/// A function of each number.
pub fn plain_function<B: Backend>(function: Function, x: FloatTensor<B>) -> FloatTensor<B> {
    match function {
        Function::Exp => B::float_exp(x),
        Function::Exp2 => B::float_exp(B::float_mul_scalar(x, core::f32::consts::LN_2.into())),
        Function::Sigmoid => B::sigmoid(x),
        Function::Gelu => B::gelu(x),
        Function::GeluFirstOrder => {
            let gate = B::float_mul_scalar(x.clone(), GELU_SLOPE.into());
            B::float_mul(x, B::sigmoid(gate))
        }
        Function::Silu => B::float_mul(x.clone(), B::sigmoid(x)),
        Function::Mish => {
            let softplus = B::float_log(B::float_add_scalar(B::float_exp(x.clone()), 1.0.into()));
            B::float_mul(x, B::float_tanh(softplus))
        }
    }
}

/// `γ x / sqrt(mean x² + ε) + β` over the last axis.
pub fn plain_rms_norm<B: Backend>(
    x: FloatTensor<B>,
    gamma: FloatTensor<B>,
    beta: Option<FloatTensor<B>>,
    epsilon: f64,
) -> FloatTensor<B> {
    let rank = x.rank();
    let square = B::float_mul(x.clone(), x.clone());
    let mean = B::float_mean_dim(square, rank - 1);
    let rms = B::float_sqrt(B::float_add_scalar(mean, epsilon.into()));
    let scaled = B::float_mul(B::float_div(x, rms), as_row::<B>(gamma, rank));
    match beta {
        Some(beta) => B::float_add(scaled, as_row::<B>(beta, rank)),
        None => scaled,
    }
}

/// A parameter `[D]` as a tensor `[1, .., 1, D]`.
pub fn as_row<B: Backend>(parameter: FloatTensor<B>, rank: usize) -> FloatTensor<B> {
    let mut dims = vec![1; rank];
    dims[rank - 1] = parameter.shape()[0];
    B::float_reshape(parameter, Shape::from(dims))
}
