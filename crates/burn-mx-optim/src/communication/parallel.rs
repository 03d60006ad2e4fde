//! Transfers between ranks in both passes, and products whose output axis is divided among ranks: their backward pass sums the gradients of
//! all ranks.

use std::sync::{Arc, Mutex, MutexGuard};

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
    tensors::{check_reduction, gather, tensor},
};
use crate::state::numbers;

/// A transfer of all ranks' tensors, which are joined along the first axis.
#[derive(Debug, Clone)]
#[doc(hidden)]
pub struct Transfer {
    kind: TransferKind,
    operation: Operation,
    ranks: usize,
    state: Arc<Mutex<TensorState>>,
}

/// The result of a transfer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum TransferKind {
    /// Each rank has the tensor already. Nothing is sent.
    Copies,
    /// The sum of all ranks' tensors: `all_reduce`.
    Sum,
    /// All parts of the tensor, for each rank: `all_gather`.
    Gathered,
    /// A part of the sum of all ranks' tensors for each rank: `reduce_scatter`.
    Scattered,
}

mod sealed {
    pub trait Sealed {}
}

/// Autodiff backends whose gradients a collective can sum: Burn's `Autodiff`, and `MxAutodiff`.
pub trait RankGradients: AutodiffBackend + sealed::Sealed {
    /// The tensor after one transfer. The backward pass makes the other one.
    #[doc(hidden)]
    fn transferred<const D: usize>(
        tensor: Tensor<Self, D>,
        forward: Transfer,
        backward: Transfer,
    ) -> Tensor<Self, D>;
}

impl<B: Backend, C: CheckpointStrategy> sealed::Sealed for Autodiff<B, C> {}

impl<B: Backend, C: CheckpointStrategy> RankGradients for Autodiff<B, C>
where
    Self: AutodiffBackend,
{
    fn transferred<const D: usize>(
        tensor: Tensor<Self, D>,
        forward: Transfer,
        backward: Transfer,
    ) -> Tensor<Self, D> {
        let tensor = tensor.into_primitive().tensor();
        let tensor = transferred::<B, C, D>(tensor, forward, backward);
        Tensor::from_primitive(TensorPrimitive::Float(tensor))
    }
}

impl<B: MxKernels, C: CheckpointStrategy> sealed::Sealed for MxAutodiff<B, C> {}

impl<B: MxKernels, C: CheckpointStrategy> RankGradients for MxAutodiff<B, C>
where
    Self: AutodiffBackend<FloatTensorPrimitive = FloatTensor<Autodiff<MxBackend<B>, C>>>,
{
    fn transferred<const D: usize>(
        tensor: Tensor<Self, D>,
        forward: Transfer,
        backward: Transfer,
    ) -> Tensor<Self, D> {
        let tensor = tensor.into_primitive().tensor();
        let tensor = transferred::<MxBackend<B>, C, D>(tensor, forward, backward);
        Tensor::from_primitive(TensorPrimitive::Float(tensor))
    }
}

fn transferred<B: Backend, C: CheckpointStrategy, const D: usize>(
    tensor: FloatTensor<Autodiff<B, C>>,
    forward: Transfer,
    backward: Transfer,
) -> FloatTensor<Autodiff<B, C>> {
    let values = forward.of_primitive::<B, D>(tensor.primitive);
    let step = Backward::<B, 1>::prepare::<C>(TransferStep::<D>, [tensor.node]);
    match step.compute_bound().stateful() {
        OpsKind::Tracked(step) => step.finish(backward, values),
        OpsKind::UnTracked(step) => step.finish(values),
    }
}

#[derive(Debug)]
struct TransferStep<const D: usize>;

impl<B: Backend, const D: usize> Backward<B, 1> for TransferStep<D> {
    type State = Transfer;

    fn backward(self, ops: Ops<Transfer, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        unary::<B, _>(ops.parents, ops.node, grads, |grad| {
            ops.state.of_primitive::<B, D>(grad)
        });
    }
}

impl Transfer {
    pub(super) fn new(
        kind: TransferKind,
        operation: Operation,
        ranks: usize,
        state: &Arc<Mutex<TensorState>>,
    ) -> Self {
        Self {
            kind,
            operation,
            ranks,
            state: Arc::clone(state),
        }
    }

    fn of_primitive<B: Backend, const D: usize>(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        let tensor = Tensor::<B, D>::from_primitive(TensorPrimitive::Float(tensor));
        let tensor = match self.kind {
            TransferKind::Copies => self.copies(tensor),
            TransferKind::Gathered => self.copies(self.gathered(tensor)),
            TransferKind::Sum | TransferKind::Scattered => self.sum(tensor),
        };
        tensor.into_primitive().tensor()
    }

    fn copies<B: Backend, const D: usize>(&self, tensor: Tensor<B, D>) -> Tensor<B, D> {
        Tensor::cat(vec![tensor; self.ranks], 0)
    }

    /// The tensor with its parts as they arrive.
    fn gathered<B: Backend, const D: usize>(&self, tensor: Tensor<B, D>) -> Tensor<B, D> {
        if self.operation.gathers_unchanged() {
            return tensor;
        }
        let values = numbers(tensor.clone());
        let shards = values.chunks_exact(values.len() / self.ranks);
        let shards = shards.map(<[f32]>::to_vec).collect();
        let mut state = self.lock();
        let gathered = gather(self.operation, shards, &mut state);
        let gathered = gathered.unwrap_or_else(|error| panic!("burn-mx: a gather: {error}"));
        with_numbers(tensor, gathered.concat())
    }

    /// The sum over ranks. Parts that a `reduce_scatter` leaves on several ranks are joined.
    fn sum<B: Backend, const D: usize>(&self, tensors: Tensor<B, D>) -> Tensor<B, D> {
        let length = tensors.dims()[0] / self.ranks;
        let of_rank = |rank: usize| tensors.clone().narrow(0, rank * length, length);
        let operands = (0..self.ranks).map(|rank| numbers(of_rank(rank)));
        let for_all = self.kind == TransferKind::Sum;
        let mut state = self.lock();
        let sum = reduce(self.operation, operands.collect(), &mut state, for_all);
        let sum = sum.unwrap_or_else(|error| panic!("burn-mx: a sum over ranks: {error}"));
        with_numbers(of_rank(0), sum)
    }

    fn lock(&self) -> MutexGuard<'_, TensorState> {
        // A thread that panicked left a whole state.
        self.state.lock().unwrap_or_else(|error| error.into_inner())
    }
}

/// A tensor like `like` with these numbers. Not a new one: a tensor of MxBackend carries marks.
fn with_numbers<B: Backend, const D: usize>(like: Tensor<B, D>, numbers: Vec<f32>) -> Tensor<B, D> {
    let new = tensor::<B, D>(numbers, like.dims(), (&like.device(), like.dtype()));
    let all = like.zeros_like().equal_elem(0.0);
    like.mask_where(all, new)
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
        check_state(state, &vec![padded; ranks])?;
        if ranks == 1 || padded == 0 || count == 0 {
            return Ok(x.matmul(w));
        }
        let transfer = |kind| Transfer::new(kind, operation, ranks, state);
        let copies = B::transferred(
            x,
            transfer(TransferKind::Copies),
            transfer(TransferKind::Sum),
        );
        let of_rank = |rank: usize| copies.clone().narrow(0, rank * rows, rows);
        Ok(columns(of_rank, &w, ranks))
    }
}

/// Checks that a state which a backward pass may share fits operands of these lengths.
pub(super) fn check_state(
    state: &Mutex<TensorState>,
    lengths: &[usize],
) -> Result<(), CommunicationError> {
    let kept = state.lock().unwrap_or_else(|error| error.into_inner());
    kept.check(lengths)
}

/// The columns of all ranks: each rank's copy times its columns of `w`.
pub(super) fn columns<B: Backend, const D: usize>(
    of_rank: impl Fn(usize) -> Tensor<B, D>,
    w: &Tensor<B, D>,
    ranks: usize,
) -> Tensor<B, D> {
    let length = w.dims()[D - 1] / ranks;
    let part = |rank: usize| of_rank(rank).matmul(w.clone().narrow(D - 1, rank * length, length));
    Tensor::cat((0..ranks).map(part).collect(), D - 1)
}
