//! Products of which each rank has a part, and batches of which each rank has a part.

use burn_core::tensor::{BasicOps, Tensor, backend::Backend};

use super::{Communication, CommunicationError, TensorState, tensors::check_reduction};

pub(super) fn check_division(
    what: &str,
    length: usize,
    ranks: usize,
) -> Result<(), CommunicationError> {
    if ranks == 0 || !length.is_multiple_of(ranks) {
        let allowed = format!("1 or more, a divisor of the {length} {what}");
        return Err(CommunicationError::new("ranks", ranks, allowed));
    }
    Ok(())
}

/// The part of a batch for each of `ranks` ranks: equal parts along axis 0, in order.
///
/// # Errors
/// If `ranks` is 0 or does not divide the batch.
pub fn micro_batches<B: Backend, const D: usize, K: BasicOps<B>>(
    batch: Tensor<B, D, K>,
    ranks: usize,
) -> Result<Vec<Tensor<B, D, K>>, CommunicationError> {
    let count = batch.dims()[0];
    check_division("items of the batch", count, ranks)?;
    let length = count / ranks;
    let part = |rank: usize| batch.clone().narrow(0, rank * length, length);
    Ok((0..ranks).map(part).collect())
}

impl Communication {
    /// The product of `x` `[.., M, K]` and `w` `[.., K, N]` as tensor parallelism computes it: rank r has part r of K, multiplies it, and the
    /// products `[.., M, N]` are added by [`all_reduce`](Self::all_reduce). The backend multiplies, so its formats apply to the operands.
    ///
    /// On an autodiff backend gradients pass the operation unchanged, as in tensor parallelism, where each rank has the result's
    /// gradient. The sum of gradients belongs to the layer before, see [`divided_product`](Self::divided_product). An Inf in the sum of products then becomes NaN, and the last op is a subtraction, which an elementwise format of the
    /// decorator rounds.
    ///
    /// # Errors
    /// Before any work: no ranks, ranks that do not divide K, and the errors of `all_reduce`.
    pub fn summed_product<B: Backend, const D: usize>(
        &self,
        x: Tensor<B, D>,
        w: Tensor<B, D>,
        ranks: usize,
        state: &mut TensorState,
    ) -> Result<Tensor<B, D>, CommunicationError> {
        const { assert!(D >= 2, "matrices have two axes") };
        let count = x.dims()[D - 1];
        check_division("numbers of the summed axis", count, ranks)?;
        let operation = self.resolve()?;
        check_reduction(&operation)?;
        operation.node(ranks)?;
        if ranks == 1 {
            return Ok(x.matmul(w));
        }
        let length = count / ranks;
        let part = |rank: usize| {
            let x = x.clone().narrow(D - 1, rank * length, length);
            x.matmul(w.clone().narrow(D - 2, rank * length, length))
        };
        let products: Vec<_> = (0..ranks).map(part).collect();
        let values = products.iter().map(|product| product.clone().detach());
        let sum = self.all_reduce(values.collect(), state)?;
        if !B::ad_enabled(&x.device()) {
            return Ok(sum);
        }
        let plain = products.into_iter().reduce(Tensor::add).expect("a rank");
        // The difference is +0, so the value is the sum, −0 included. The gradient is of the plain sum.
        Ok(sum - (plain.clone().detach() - plain))
    }
}
