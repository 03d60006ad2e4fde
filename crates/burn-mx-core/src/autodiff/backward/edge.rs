//! The edges of ops with burn-autodiff's step: how tensors enter an op, and how their gradients leave it.
//!
//! burn-autodiff computes gradients by [`MxBackend`](crate::MxBackend)'s ops. The metas of their operands decide whether an
//! op is emulated. So an operand enters exempt if the op is exempt, and the gradient of an operand gets the operand's meta
//! where that differs from the op's.
//!
//! burn-autodiff adds a tensor's gradients from several uses by `MxBackend`'s addition, which rounds. So a parameter's
//! gradients are marked, and the sum of marked gradients is not rounded. This crate's steps mark their results.

use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_backend::TensorMetadata;

use super::boundary::{cross, enter, returned};
use super::{Tracked, metas};
use crate::tensor::{Flags, OpContext, Rule};
use burn_mx_kernels::MxKernels;

/// The edge of an op with burn-autodiff's step.
pub(crate) struct Edge {
    /// The op's context.
    context: OpContext,
    /// Whether a parameter's specs exempt the op from the emulation that its other operands come from. Such an op is a piece at
    /// full precision, or its gradients would be emulated as those operands are.
    exempt: bool,
}

impl Edge {
    /// The edge of an op in this context.
    pub(crate) fn new(context: &OpContext) -> Self {
        Self {
            exempt: context.is_exempt(),
            ..Self::of_moved(context)
        }
    }

    /// The edge of an op that rounds nothing in the forward pass.
    pub(crate) fn of_moved(context: &OpContext) -> Self {
        Self {
            context: *context,
            exempt: false,
        }
    }

    /// The tensor as the op takes it. Where nothing is rounded no step comes between: gradients are burn-autodiff's to the
    /// order in which they are summed.
    pub(crate) fn enter<B: MxKernels, C: CheckpointStrategy>(
        &self,
        tensor: Tracked<B>,
    ) -> Tracked<B> {
        if self.exempt {
            return enter::<B, C>(tensor);
        }
        let (own, context) = (tensor.primitive.meta, &self.context);
        let exemption = context.result.flags & Flags::EXEMPT;
        // Ops on data or on parameters alone are exact where only activations are emulated.
        let would_round = || own.is_activation() || !context.is_scoped();
        if !own.flags.contains(exemption) && would_round() {
            let result = context.result;
            return cross::<B, C>(tensor, |meta| meta.after_with(Rule::EXEMPT_AS, result));
        }
        let differs = own.origin() != context.result.origin() && context.has_elementwise_format();
        match differs || own.is_parameter() && context.rounds() {
            true => returned::<B, C>(tensor),
            false => tensor,
        }
    }

    /// The op's output as the next op takes it.
    pub(crate) fn leave<B: MxKernels, C: CheckpointStrategy>(
        self,
        output: Tracked<B>,
    ) -> Tracked<B> {
        match self.exempt {
            true => cross::<B, C>(output, |_| self.context.result),
            false => output,
        }
    }
}

/// An op on two tensors that is not emulated, but may be exempt.
pub(crate) fn exempt_or_not<B: MxKernels, C: CheckpointStrategy>(
    lhs: Tracked<B>,
    rhs: Tracked<B>,
    op: impl FnOnce(Tracked<B>, Tracked<B>) -> Tracked<B>,
) -> Tracked<B> {
    let edge = Edge::new(&OpContext::of(metas::<B, 2>([&lhs, &rhs])));
    let [lhs, rhs] = [lhs, rhs].map(|tensor| edge.enter::<B, C>(tensor));
    edge.leave::<B, C>(op(lhs, rhs))
}

/// The tensor before it becomes an activation by its place. A tensor of another origin gets its gradient with that origin.
pub(crate) fn returned_elsewhere<B: MxKernels, C: CheckpointStrategy>(
    tensor: Tracked<B>,
) -> Tracked<B> {
    let meta = tensor.primitive.meta;
    let is_rounded = || OpContext::of_product([Some(meta)]).has_elementwise_format();
    match tensor.is_tracked() && !meta.is_activation() && is_rounded() {
        true => returned::<B, C>(tensor),
        false => tensor,
    }
}

/// The only tensor of an op, as the op takes it.
pub(crate) fn used<B: MxKernels, C: CheckpointStrategy>(tensor: Tracked<B>) -> Tracked<B> {
    let context = OpContext::of([Some(tensor.primitive.meta)]);
    Edge::of_moved(&context).enter::<B, C>(tensor)
}

/// The tensor as a reduction to one element takes it: [`Rule::REDUCED`].
pub(crate) fn reduced<B: MxKernels, C: CheckpointStrategy>(tensor: Tracked<B>) -> Tracked<B> {
    let meta = tensor.primitive.meta;
    match meta.is_activation() && OpContext::of([Some(meta)]).has_elementwise_format() {
        true => cross::<B, C>(tensor, |meta| meta.after(Rule::REDUCED)),
        false => tensor,
    }
}

/// As [`reduced`], of a vector; other tensors keep their meta.
pub(crate) fn reduced_along_axis<B: MxKernels, C: CheckpointStrategy>(
    tensor: Tracked<B>,
) -> Tracked<B> {
    match tensor.primitive.inner.rank() {
        1 => reduced::<B, C>(tensor),
        _ => tensor,
    }
}

/// As [`delegate!`](crate::backend::delegate::delegate) to burn-autodiff, each float tensor by the op's [`Edge`].
macro_rules! delegate_used {
    (structs $to:ty: $(fn $name:ident $args:tt -> $ret:ty;)*) => { $(
        fn $name $args -> $ret {
            let result = $crate::autodiff::backward::edge::call_with_used!(edge [<$to>::$name] [] [] $args);
            $crate::backend::delegate::SameTensors::same_tensors(result)
        }
    )* };
    ($to:ty: $(fn $name:ident $args:tt -> $ret:ty;)*) => { $(
        fn $name $args -> $ret {
            $crate::hooks::tracked(|| $crate::autodiff::backward::edge::call_with_used!(edge [<$to>::$name] [] [] $args))
        }
    )* };
}
pub(crate) use delegate_used;

/// Calls a function with the arguments of a signature. Collects two lists on the way: the metas of the arguments, and the
/// arguments as the function takes them.
macro_rules! call_with_used {
    ($edge:ident [$($function:tt)*] [$($metas:tt)*] [$($done:tt)*] ()) => {{
        let context = $crate::tensor::OpContext::of([$($metas)*]);
        let $edge = $crate::autodiff::backward::edge::Edge::of_moved(&context);
        $($function)*($($done)*)
    }};
    ($edge:ident $function:tt [$($metas:tt)*] [$($done:tt)*] ($arg:ident: FloatTensor<Self> $(, $($more:tt)*)?)) => {
        $crate::autodiff::backward::edge::call_with_used!(
            $edge $function
            [$($metas)* Some($arg.primitive.meta),]
            [$($done)* $edge.enter::<B, C>($arg),]
            ($($($more)*)?)
        )
    };
    ($edge:ident $function:tt [$($metas:tt)*] [$($done:tt)*] ($arg:ident: Vec<FloatTensor<Self>> $(, $($more:tt)*)?)) => {
        $crate::autodiff::backward::edge::call_with_used!(
            $edge $function
            [$($metas)* $arg.iter().map(|tensor| tensor.primitive.meta).reduce($crate::tensor::Meta::merged),]
            [$($done)* $arg.into_iter().map(|tensor| $edge.enter::<B, C>(tensor)).collect(),]
            ($($($more)*)?)
        )
    };
    ($edge:ident $function:tt [$($metas:tt)*] [$($done:tt)*] ($arg:ident: IntTensor<Self> $(, $($more:tt)*)?)) => {
        $crate::autodiff::backward::edge::call_with_used!(
            $edge $function [$($metas)* Some($arg.meta),] [$($done)* $arg,] ($($($more)*)?)
        )
    };
    ($edge:ident $function:tt [$($metas:tt)*] [$($done:tt)*] ($arg:ident: BoolTensor<Self> $(, $($more:tt)*)?)) => {
        $crate::autodiff::backward::edge::call_with_used!(
            $edge $function [$($metas)* Some($arg.meta),] [$($done)* $arg,] ($($($more)*)?)
        )
    };
    ($edge:ident $function:tt $metas:tt [$($done:tt)*] ($arg:ident: $ty:ty $(, $($more:tt)*)?)) => {
        $crate::autodiff::backward::edge::call_with_used!(
            $edge $function $metas [$($done)* $arg,] ($($($more)*)?)
        )
    };
}
pub(crate) use call_with_used;
