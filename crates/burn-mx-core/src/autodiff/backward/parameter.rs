//! The gradients of a parameter that is used several times, summed without rounding.
//!
//! burn-autodiff adds a tensor's gradients from several uses by [`MxBackend`]'s addition, which rounds. So a parameter's
//! gradients are marked, and the sum of marked gradients is not rounded. This crate's steps mark their results. Before an op
//! with burn-autodiff's step a parameter passes through a step that marks the gradient on its way back.

use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, unary};

use super::Tracked;
use crate::backend::MxBackend;
use crate::kernels::MxKernels;
use crate::tensor::{Flags, Float, Meta, OpContext};

/// The gradient of a tensor with meta `operand`, as its node gets it.
pub(crate) fn gradient_of<B: MxKernels>(operand: Meta, mut gradient: Float<B>) -> Float<B> {
    let flags = &mut gradient.meta.flags;
    flags.set(Flags::PARAMETER_GRADIENT, operand.is_parameter());
    gradient
}

#[derive(Debug)]
struct Use;

/// The tensor as an op with burn-autodiff's step takes it. Where nothing is rounded the step stays away: gradients are
/// burn-autodiff's to the order in which they are summed.
pub(crate) fn used<B: MxKernels, C: CheckpointStrategy>(tensor: Tracked<B>) -> Tracked<B> {
    match OpContext::of([Some(tensor.primitive.meta)]).rounds() {
        true => marked::<B, C>(tensor),
        false => tensor,
    }
}

/// The tensor; if it is a parameter, its gradient will be marked.
pub(crate) fn marked<B: MxKernels, C: CheckpointStrategy>(tensor: Tracked<B>) -> Tracked<B> {
    if !tensor.is_tracked() || !tensor.primitive.meta.is_parameter() {
        return tensor;
    }
    Backward::<MxBackend<B>, 1>::prepare::<C>(Use, [tensor.node])
        .compute_bound()
        .stateless(tensor.primitive)
}

impl<B: MxKernels> Backward<MxBackend<B>, 1> for Use {
    type State = ();

    fn backward(self, ops: Ops<(), 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        unary::<MxBackend<B>, _>(ops.parents, ops.node, grads, |mut grad| {
            grad.meta.flags.insert(Flags::PARAMETER_GRADIENT);
            grad
        });
    }
}

/// As [`delegate!`](crate::backend::delegate::delegate) to burn-autodiff, each float tensor by [`used`].
macro_rules! delegate_used {
    (structs $to:ty: $(fn $name:ident $args:tt -> $ret:ty;)*) => { $(
        fn $name $args -> $ret {
            let result = $crate::autodiff::backward::parameter::call_with_used!([<$to>::$name] [] $args);
            $crate::backend::delegate::SameTensors::same_tensors(result)
        }
    )* };
    ($to:ty: $(fn $name:ident $args:tt -> $ret:ty;)*) => { $(
        fn $name $args -> $ret {
            $crate::hooks::tracked(|| $crate::autodiff::backward::parameter::call_with_used!([<$to>::$name] [] $args))
        }
    )* };
}
pub(crate) use delegate_used;

/// The call of a function with the arguments of a signature: those that are dealt with, and those that are to come.
macro_rules! call_with_used {
    ([$($function:tt)*] [$($done:tt)*] ()) => {
        $($function)*($($done)*)
    };
    ([$($function:tt)*] [$($done:tt)*] ($arg:ident: FloatTensor<Self> $(, $($more:tt)*)?)) => {
        $crate::autodiff::backward::parameter::call_with_used!(
            [$($function)*]
            [$($done)* $crate::autodiff::backward::parameter::used::<B, C>($arg),]
            ($($($more)*)?)
        )
    };
    ([$($function:tt)*] [$($done:tt)*] ($arg:ident: Vec<FloatTensor<Self>> $(, $($more:tt)*)?)) => {
        $crate::autodiff::backward::parameter::call_with_used!(
            [$($function)*]
            [$($done)* $arg.into_iter().map($crate::autodiff::backward::parameter::used::<B, C>).collect(),]
            ($($($more)*)?)
        )
    };
    ([$($function:tt)*] [$($done:tt)*] ($arg:ident: $ty:ty $(, $($more:tt)*)?)) => {
        $crate::autodiff::backward::parameter::call_with_used!(
            [$($function)*] [$($done)* $arg,] ($($($more)*)?)
        )
    };
}
pub(crate) use call_with_used;
