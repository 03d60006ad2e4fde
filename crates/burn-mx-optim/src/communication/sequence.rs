//! Tensor parallelism with activations whose rows are divided among ranks: sequence parallelism.

use std::sync::{Arc, Mutex};

use burn_core::tensor::{Tensor, backend::Backend};

use super::{
    Communication, CommunicationError, RankGradients, TensorState,
    error::Checked,
    operation::Operation,
    parallel::{Transfer, TransferKind, check_state, columns},
    products::check_division,
    tensors::check_reduction,
};

/// The transfers of a product in sequence parallelism (Megatron-LM, arXiv 2205.05198). Ranks divide the rows of activations `[.., M, K]`, the
/// tokens: rank r has part r of M. A product has a transfer in each pass, each with its settings and its state. Each product of a model needs
/// its own value of this type. The passes change the states, which serde saves.
///
/// | product | forward pass | backward pass |
/// | --- | --- | --- |
/// | [`gathered_product`](Self::gathered_product), columns of `w` divided | `all_gather` of `x` | `reduce_scatter` of the gradient for `x` |
/// | [`scattered_product`](Self::scattered_product), rows of `w` divided | `reduce_scatter` of the product | `all_gather` of the product's gradient |
///
/// ```
/// # use burn_autodiff::Autodiff; use burn_core::tensor::Tensor; use burn_flex::{Flex, FlexDevice};
/// # use burn_mx_optim::communication::{Communication, SequenceParallel};
/// # type B = Autodiff<Flex>;
/// # let tensor = |shape: [usize; 2]| Tensor::<B, 2>::ones(shape, &FlexDevice).require_grad();
/// # let (x, up, down) = (tensor([8, 64]), tensor([64, 256]), tensor([256, 64]));
/// let in_format = |format: &str| Communication { format: Some(format.into()), ..Communication::default() };
/// let transfers = || SequenceParallel::new(in_format("mxfp8_e4m3"), in_format("mxfp8_e5m2"));
/// let (first, second) = (transfers(), transfers());
/// let hidden = first.gathered_product(x, up, 4)?.tanh();
/// let y = second.scattered_product(hidden, down, 4)?;
/// assert_eq!(y.dims(), [8, 64]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct SequenceParallel {
    /// The transfer of the forward pass.
    pub values: Communication,
    /// The ranks' memory of that transfer.
    pub of_values: Arc<Mutex<TensorState>>,
    /// The transfer of the backward pass.
    pub gradients: Communication,
    /// The ranks' memory of that transfer.
    pub of_gradients: Arc<Mutex<TensorState>>,
}

impl SequenceParallel {
    /// Transfers with these settings, and new states.
    pub fn new(values: Communication, gradients: Communication) -> Self {
        Self {
            values,
            gradients,
            ..Self::default()
        }
    }

    /// The product of `x` `[.., M, K]` and `w` `[.., K, N]`. The ranks gather the rows of `x`. Rank r has part r of the columns of `w`, and
    /// computes this part of the product's columns. The result is the whole product `[.., M, N]`.
    ///
    /// In the backward pass each rank has a part of the sum for the gradient for `x`. A `reduce_scatter` leaves each rank the gradient of the
    /// rank's rows. The gradient for `w` comes from the gathered `x`, and needs no transfer.
    ///
    /// With one rank nothing changes. A rank's rows of all matrices are one message: with axes before the last two, the rows come
    /// first in the message.
    ///
    /// # Errors
    /// Before any work:
    /// * no ranks, or ranks that do not divide M or N;
    /// * a `hadamard` that does not divide the numbers of a rank;
    /// * `difference` for gradients, and a float with 5 exponent bits and no scale, which gradients are too small for;
    /// * the errors of [`Communication::all_gather`] and [`Communication::reduce_scatter`].
    pub fn gathered_product<B: RankGradients, const D: usize>(
        &self,
        x: Tensor<B, D>,
        w: Tensor<B, D>,
        ranks: usize,
    ) -> Result<Tensor<B, D>, CommunicationError> {
        const { assert!(D >= 2, "matrices have two axes") };
        let (rows, count) = (x.dims()[D - 2], w.dims()[D - 1]);
        check_division("rows of the product", rows, ranks)?;
        check_division("columns of the product", count, ranks)?;
        let shape = rows_first(x.clone()).dims();
        let forward = self.gather(TransferOf::Values, &shape, ranks)?;
        let backward = self.scatter(TransferOf::Gradients, &shape, ranks)?;
        if ranks == 1 || shape.contains(&0) || count == 0 {
            return Ok(x.matmul(w));
        }
        let gathered = B::transferred(rows_first(x), forward, backward);
        let of_rank = |rank: usize| rows_first(gathered.clone().narrow(0, rank * rows, rows));
        Ok(columns(of_rank, &w, ranks))
    }

    /// The product of `x` `[.., M, K]` and `w` `[.., K, N]`. Rank r has part r of K, and multiplies it. The products `[.., M, N]` are
    /// added by a `reduce_scatter`, which leaves each rank its rows of the sum. The result is the whole product.
    ///
    /// In the backward pass the ranks gather the rows of the product's gradient. Each rank computes both of its gradients from the gathered
    /// one.
    ///
    /// # Errors
    /// As [`gathered_product`](Self::gathered_product), with ranks that do not divide M or K, and `difference` for values.
    pub fn scattered_product<B: RankGradients, const D: usize>(
        &self,
        x: Tensor<B, D>,
        w: Tensor<B, D>,
        ranks: usize,
    ) -> Result<Tensor<B, D>, CommunicationError> {
        const { assert!(D >= 2, "matrices have two axes") };
        let (rows, count) = (x.dims()[D - 2], x.dims()[D - 1]);
        check_division("rows of the product", rows, ranks)?;
        check_division("numbers of the summed axis", count, ranks)?;
        let mut shape = x.dims();
        for (own, other) in shape[..D - 2].iter_mut().zip(w.dims()) {
            // As matmul broadcasts.
            if *own == 1 {
                *own = other;
            }
        }
        shape[D - 1] = w.dims()[D - 1];
        shape.swap(0, D - 2);
        let forward = self.scatter(TransferOf::Values, &shape, ranks)?;
        let backward = self.gather(TransferOf::Gradients, &shape, ranks)?;
        if ranks == 1 || shape.contains(&0) || count == 0 {
            return Ok(x.matmul(w));
        }
        let length = count / ranks;
        let part = |rank: usize| {
            let x = x.clone().narrow(D - 1, rank * length, length);
            rows_first(x.matmul(w.clone().narrow(D - 2, rank * length, length)))
        };
        let products = Tensor::cat((0..ranks).map(part).collect(), 0);
        Ok(rows_first(B::transferred(products, forward, backward)))
    }

    /// The settings and the state of a transfer.
    fn of(&self, which: TransferOf) -> (&Communication, &Arc<Mutex<TensorState>>) {
        match which {
            TransferOf::Values => (&self.values, &self.of_values),
            TransferOf::Gradients => (&self.gradients, &self.of_gradients),
        }
    }

    /// The checked settings for a tensor of this shape, whose rows come first, and the numbers of each rank's part.
    fn operation(
        &self,
        which: TransferOf,
        shape: &[usize],
        ranks: usize,
    ) -> Checked<(Operation, usize)> {
        let (settings, _) = self.of(which);
        let operation = settings.resolve()?;
        operation.node(ranks)?;
        if which == TransferOf::Gradients {
            settings.check_range()?;
        }
        let part = shape.iter().product::<usize>() / ranks;
        if operation.padded(part) != part {
            let allowed = format!("0, or a divisor of the {part} numbers of each rank");
            let value = operation.hadamard;
            return Err(CommunicationError::new("hadamard", value, allowed));
        }
        Ok((operation, part))
    }

    fn gather(&self, which: TransferOf, shape: &[usize], ranks: usize) -> Checked<Transfer> {
        let (operation, part) = self.operation(which, shape, ranks)?;
        let (_, state) = self.of(which);
        check_state(state, &vec![part; ranks])?;
        let mut shard = shape.to_vec();
        shard[0] /= ranks;
        let operation = operation.for_shape(&shard, ranks);
        let kind = TransferKind::Gathered;
        Ok(Transfer::new(kind, operation, ranks, state))
    }

    fn scatter(&self, which: TransferOf, shape: &[usize], ranks: usize) -> Checked<Transfer> {
        let (operation, part) = self.operation(which, shape, ranks)?;
        check_reduction(&operation)?;
        let (_, state) = self.of(which);
        check_state(state, &vec![part * ranks; ranks])?;
        let operation = operation.for_shape(shape, ranks);
        let kind = TransferKind::Scattered;
        Ok(Transfer::new(kind, operation, ranks, state))
    }
}

#[derive(Clone, Copy, PartialEq)]
enum TransferOf {
    Values,
    Gradients,
}

/// The tensor with its rows along the first axis, so that a rank's rows are one part of its numbers; and back.
fn rows_first<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    match D {
        2 => x,
        _ => x.swap_dims(0, D - 2),
    }
}
