//! Products whose output axis is divided among ranks: their backward pass sums the gradients of all ranks.

use std::sync::{Arc, Mutex};

use burn_autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind, unary},
};
use burn_core::tensor::{
    Tensor, TensorPrimitive,
    backend::{AutodiffBackend, Backend},
    ops::FloatTensor,
};
use burn_mx_core::{MxAutodiff, MxBackend, MxKernels};

use super::{
    Communication, CommunicationError, TensorState,
    operation::Operation,
    products::check_division,
    reduce::reduce,
    tensors::{check_reduction, tensor},
};
use crate::state::numbers;

/// How the gradients of all ranks are summed.
#[derive(Debug, Clone)]
#[doc(hidden)]
pub struct Summation {
    operation: Operation,
    ranks: usize,
    state: Arc<Mutex<TensorState>>,
}

mod sealed {
    pub trait Sealed {}
}

/// Autodiff backends whose gradients a collective can sum: Burn's `Autodiff`, and `MxAutodiff`.
pub trait RankGradients: AutodiffBackend + sealed::Sealed {
    /// A copy for each rank, joined along the first axis. In the backward pass the gradients of the copies are summed.
    #[doc(hidden)]
    fn copies<const D: usize>(tensor: Tensor<Self, D>, summation: Summation) -> Tensor<Self, D>;
}

impl<B: Backend, C: CheckpointStrategy> sealed::Sealed for Autodiff<B, C> {}

impl<B: Backend, C: CheckpointStrategy> RankGradients for Autodiff<B, C>
where
    Self: AutodiffBackend,
{
    fn copies<const D: usize>(tensor: Tensor<Self, D>, summation: Summation) -> Tensor<Self, D> {
        let tensor = copies::<B, C, D>(tensor.into_primitive().tensor(), summation);
        Tensor::from_primitive(TensorPrimitive::Float(tensor))
    }
}

impl<B: MxKernels, C: CheckpointStrategy> sealed::Sealed for MxAutodiff<B, C> {}

impl<B: MxKernels, C: CheckpointStrategy> RankGradients for MxAutodiff<B, C>
where
    Self: AutodiffBackend<FloatTensorPrimitive = FloatTensor<Autodiff<MxBackend<B>, C>>>,
{
    fn copies<const D: usize>(tensor: Tensor<Self, D>, summation: Summation) -> Tensor<Self, D> {
        let tensor = copies::<MxBackend<B>, C, D>(tensor.into_primitive().tensor(), summation);
        Tensor::from_primitive(TensorPrimitive::Float(tensor))
    }
}

fn copies<B: Backend, C: CheckpointStrategy, const D: usize>(
    tensor: FloatTensor<Autodiff<B, C>>,
    summation: Summation,
) -> FloatTensor<Autodiff<B, C>> {
    let values = B::float_cat(vec![tensor.primitive; summation.ranks], 0);
    let step = Backward::<B, 1>::prepare::<C>(Copies::<D>, [tensor.node]);
    match step.compute_bound().stateful() {
        OpsKind::Tracked(step) => step.finish(summation, values),
        OpsKind::UnTracked(step) => step.finish(values),
    }
}

#[derive(Debug)]
struct Copies<const D: usize>;

impl<B: Backend, const D: usize> Backward<B, 1> for Copies<D> {
    type State = Summation;

    fn backward(self, ops: Ops<Summation, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        unary::<B, _>(ops.parents, ops.node, grads, |grad| {
            let grad = Tensor::<B, D>::from_primitive(TensorPrimitive::Float(grad));
            let sum = ops.state.sum(grad);
            sum.into_primitive().tensor()
        });
    }
}

impl Summation {
    fn sum<B: Backend, const D: usize>(self, gradients: Tensor<B, D>) -> Tensor<B, D> {
        let length = gradients.dims()[0] / self.ranks;
        let of_rank = |rank: usize| gradients.clone().narrow(0, rank * length, length);
        let first = of_rank(0);
        let of_result = (&first.device(), first.dtype());
        let operands = (0..self.ranks).map(|rank| numbers(of_rank(rank)));
        // A thread that panicked left a whole state.
        let mut state = self.state.lock().unwrap_or_else(|error| error.into_inner());
        let sum = reduce(self.operation, operands.collect(), &mut state, true);
        let sum = sum.unwrap_or_else(|error| panic!("burn-mx: a sum of gradients: {error}"));
        let sum = tensor::<B, D>(sum, first.dims(), of_result);
        // Not `sum` itself: a gradient of MxBackend carries marks.
        let all = first.zeros_like().equal_elem(0.0);
        first.mask_where(all, sum)
    }
}

impl Communication {
    /// The product of `x` `[.., M, K]` and `w` `[.., K, N]` as tensor parallelism computes it with N divided among ranks. Rank r has part r
    /// of the columns of `w`, and computes this part of the product's columns. The result is the whole product `[.., M, N]`. Nothing is sent.
    /// The backend multiplies, so its formats apply to the operands of each rank.
    ///
    /// The backward pass sums over N, so each rank has a part of the sum: the gradients for `x` of all ranks, `[.., M, K]` each, are
    /// added by [`all_reduce`](Self::all_reduce) with these settings. The gradient for `w` needs no sum.
    ///
    /// With one rank, nothing changes. The caller keeps the state, as for `all_reduce`; a call of the backward pass is a call of the operation.
    ///
    /// # Errors
    /// Before any work: no ranks, ranks that do not divide N, a float with 5 exponent bits and no scale, which gradients are too small for, and
    /// the errors of `all_reduce`.
    pub fn divided_product<B: RankGradients, const D: usize>(
        &self,
        x: Tensor<B, D>,
        w: Tensor<B, D>,
        ranks: usize,
        state: &Arc<Mutex<TensorState>>,
    ) -> Result<Tensor<B, D>, CommunicationError> {
        const { assert!(D >= 2, "matrices have two axes") };
        let (rows, count) = (x.dims()[0], w.dims()[D - 1]);
        check_division("columns of the product", count, ranks)?;
        let operation = self.resolve()?;
        check_reduction(&operation)?;
        operation.node(ranks)?;
        self.check_range()?;
        let operation = operation.for_shape(&x.dims(), ranks);
        let padded = operation.padded(x.shape().num_elements());
        let kept = state.lock().unwrap_or_else(|error| error.into_inner());
        kept.check(&vec![padded; ranks])?;
        drop(kept);
        if ranks == 1 || padded == 0 || count == 0 {
            return Ok(x.matmul(w));
        }
        let summation = Summation {
            operation,
            ranks,
            state: Arc::clone(state),
        };
        let copies = B::copies(x, summation);
        let length = count / ranks;
        let part = |rank: usize| {
            let x = copies.clone().narrow(0, rank * rows, rows);
            x.matmul(w.clone().narrow(D - 1, rank * length, length))
        };
        Ok(Tensor::cat((0..ranks).map(part).collect(), D - 1))
    }
}
