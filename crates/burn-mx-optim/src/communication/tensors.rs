//! Operations on tensors.

use burn_core::tensor::{DType, Tensor, TensorData, backend::Backend};

use super::{
    Communication, CommunicationError, TensorState,
    error::Checked,
    operation::{CollectiveCall, LAST, MessageStage, Operation, Sender},
    reduce::{part_length, reduce},
};
use crate::state::numbers;

/// A tensor of these numbers.
pub(super) fn tensor<B: Backend, const D: usize>(
    numbers: Vec<f32>,
    shape: [usize; D],
    (device, dtype): (&B::Device, DType),
) -> Tensor<B, D> {
    let data = TensorData::new(numbers, shape);
    Tensor::from_data(data.convert_dtype(dtype), (device, dtype))
}

/// Refuses operands of which there are none, or with different shapes.
fn check_operands<B: Backend, const D: usize>(operands: &[Tensor<B, D>]) -> Checked<()> {
    let shapes: Vec<_> = operands.iter().map(Tensor::dims).collect();
    let Some(first) = shapes.first() else {
        return Err(CommunicationError::new(
            "operands",
            "empty",
            "one tensor or more",
        ));
    };
    if shapes.iter().any(|shape| shape != first) {
        let value = format!("of shapes {shapes:?}");
        return Err(CommunicationError::new(
            "operands",
            value,
            "tensors of one shape",
        ));
    }
    Ok(())
}

impl Communication {
    /// The settings for a tensor of this shape.
    fn operation(&self, shape: &[usize], ranks: usize) -> Checked<Operation> {
        let operation = self.resolve()?;
        Ok(match shape.len() {
            1 if !self.vectors => operation.plain(),
            _ => operation.for_shape(shape, ranks),
        })
    }

    /// The sum over ranks, which all ranks have: `operands[r]` is the tensor of rank r. All have one shape, and the result has this shape.
    ///
    /// With one rank, and where no format applies, nothing is rounded; the sum is in float32, in the order of
    /// [`route`](Self::route) and [`order`](Self::order). A NaN or Inf becomes a number of its sum, and of its block, by the rules of the format.
    ///
    /// ```
    /// # use burn_core::tensor::Tensor; use burn_flex::{Flex, FlexDevice};
    /// # use burn_mx_optim::communication::{Communication, TensorState};
    /// let wire = Communication { format: Some("mxfp4".into()), ..Communication::default() };
    /// let operand = |x: [f32; 2]| Tensor::<Flex, 1>::from_floats(x, &FlexDevice);
    /// let operands = vec![operand([1.0, 2.0]), operand([1.5, 3.0])];
    /// let sum = wire.all_reduce(operands, &mut TensorState::default())?;
    /// // Each number is a message here: 2.5 is 2 as a number of mxfp4, and 5 is 4.
    /// assert_eq!(sum.into_data().to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Before any work: the errors of [`check`](Self::check), no operand, operands of different shapes, ranks that
    /// [`ranks_per_node`](Self::ranks_per_node) does not divide, a state of operands with other lengths, and `difference`, which only gathers
    /// have.
    pub fn all_reduce<B: Backend, const D: usize>(
        &self,
        mut operands: Vec<Tensor<B, D>>,
        state: &mut TensorState,
    ) -> Result<Tensor<B, D>, CommunicationError> {
        check_operands(&operands)?;
        let shape = operands[0].dims();
        let operation = self.operation(&shape, operands.len())?;
        let of_result = (&operands[0].device(), operands[0].dtype());
        check_reduction(&operation)?;
        if operands.len() == 1 {
            return Ok(operands.remove(0));
        }
        let operands = operands.into_iter().map(numbers).collect();
        let sum = reduce(operation, operands, state, true)?;
        Ok(tensor(sum, shape, of_result))
    }

    /// The sum over ranks, a part for each rank: `operands[r]` is the tensor of rank r, and entry r of the result is part r of the sum's
    /// numbers in row-major order (see [`Communication`]). Results are not rounded, unless a sum that ends at another rank is sent to its owner.
    ///
    /// # Errors
    /// The errors of [`all_reduce`](Self::all_reduce).
    pub fn reduce_scatter<B: Backend, const D: usize>(
        &self,
        mut operands: Vec<Tensor<B, D>>,
        state: &mut TensorState,
    ) -> Result<Vec<Tensor<B, 1>>, CommunicationError> {
        check_operands(&operands)?;
        let (shape, ranks) = (operands[0].dims(), operands.len());
        let operation = self.operation(&shape, ranks)?;
        let (device, dtype) = (operands[0].device(), operands[0].dtype());
        check_reduction(&operation)?;
        let count: usize = shape.iter().product();
        if ranks == 1 {
            return Ok(vec![operands.remove(0).reshape([count])]);
        }
        let operands = operands.into_iter().map(numbers).collect();
        let sum = reduce(operation, operands, state, false)?;
        let length = part_length(&operation, count, ranks);
        let part = |rank: usize| {
            let range = (rank * length).min(count)..((rank + 1) * length).min(count);
            let part = sum[range].to_vec();
            let shape = [part.len()];
            tensor(part, shape, (&device, dtype))
        };
        Ok((0..ranks).map(part).collect())
    }

    /// The tensors of all ranks, joined along `axis`, as every rank has them: `shards[r]` is the tensor of rank r, which is one message.
    /// Lengths along `axis` may differ. With one rank nothing is rounded.
    ///
    /// Fields of sums have no effect: `accumulator`, `route`, `order`, `requantize`, `quantize_own`, `mean` and nodes.
    ///
    /// # Errors
    /// Before any work: the errors of [`check`](Self::check), no shard, an axis that the tensors do not have, different lengths of the other
    /// axes, and a state of other lengths.
    pub fn all_gather<B: Backend, const D: usize>(
        &self,
        mut shards: Vec<Tensor<B, D>>,
        axis: usize,
        state: &mut TensorState,
    ) -> Result<Tensor<B, D>, CommunicationError> {
        let shapes: Vec<_> = shards.iter().map(Tensor::dims).collect();
        let Some(first) = shapes.first() else {
            return Err(CommunicationError::new(
                "shards",
                "empty",
                "one tensor or more",
            ));
        };
        if axis >= D {
            let allowed = format!("0 to {}", D.saturating_sub(1));
            return Err(CommunicationError::new("axis", axis, allowed));
        }
        let others = |shape: &[usize; D]| {
            let mut others = *shape;
            others[axis] = 0;
            others
        };
        if shapes.iter().any(|shape| others(shape) != others(first)) {
            let allowed = format!("shapes that are equal but along axis {axis}");
            let value = format!("of shapes {shapes:?}");
            return Err(CommunicationError::new("shards", value, allowed));
        }
        let operation = self.operation(first, shapes.len())?;
        if shards.len() == 1 {
            return Ok(shards.remove(0));
        }
        if operation.gathers_unchanged() {
            return Ok(Tensor::cat(shards, axis));
        }
        let of_result = (&shards[0].device(), shards[0].dtype());
        let shards = shards.into_iter().map(numbers).collect();
        let gathered = gather(operation, shards, state)?;
        let tensors = gathered.into_iter().zip(shapes);
        let tensors = tensors.map(|(numbers, shape)| tensor(numbers, shape, of_result));
        Ok(Tensor::cat(tensors.collect(), axis))
    }
}

impl Communication {
    /// The tensor as `rank` sends it, rounded as one message, for an exchange that another library makes. With `sent` before and after Burn's
    /// own `all_reduce`, operands and result are rounded. After the exchange all ranks call with `rank` 0 and equal states, so
    /// that all of them round alike. The result is detached from autodiff. The exchange makes the sum, so the fields of sums (`route`, `order`,
    /// `requantize`, `quantize_own`, `ranks_per_node`, `accumulator`, `mean`) are the exchange's to follow.
    ///
    /// # Errors
    /// Before any work: the errors of [`check`](Self::check), a state of another length, `difference`, and `shared_scale`, which needs
    /// the numbers of all ranks.
    pub fn sent<B: Backend, const D: usize>(
        &self,
        tensor: Tensor<B, D>,
        rank: usize,
        state: &mut TensorState,
    ) -> Result<Tensor<B, D>, CommunicationError> {
        let shape = tensor.dims();
        let operation = self.operation(&shape, 1)?;
        check_reduction(&operation)?;
        check_own_scale(&operation)?;
        if operation.gathers_unchanged() {
            return Ok(tensor);
        }
        let of_result = (&tensor.device(), tensor.dtype());
        let sender = (MessageStage::Operand, rank);
        let message = message(operation, numbers(tensor), sender, state)?;
        Ok(self::tensor(message, shape, of_result))
    }
}

/// A tensor's numbers as they arrive, where the tensor is one message.
pub(super) fn message(
    operation: Operation,
    numbers: Vec<f32>,
    (stage, rank): (MessageStage, usize),
    state: &mut TensorState,
) -> Checked<Vec<f32>> {
    let count = numbers.len();
    let padded = operation.padded(count);
    state.check(&[padded])?;
    let key = state.begin(&[padded], operation.seed);
    let mut messages = [numbers];
    operation.prepare(&mut messages);
    let [mut message] = messages;
    let sender = Sender {
        stage,
        rank,
        part: 0,
        start: 0,
        count: padded,
    };
    let mut call = CollectiveCall {
        operation,
        state,
        key,
    };
    call.send(sender, &mut message);
    operation.restore(&mut message, count, 1.0);
    Ok(message)
}

/// Refuses a scale of all ranks.
pub(super) fn check_own_scale(operation: &Operation) -> Checked<()> {
    if operation.shared_scale.is_some() {
        let allowed = "false: one tensor does not have the numbers of all ranks";
        return Err(CommunicationError::new("shared_scale", true, allowed));
    }
    Ok(())
}

/// Refuses settings that only gathers have.
pub(super) fn check_reduction(operation: &Operation) -> Checked<()> {
    if operation.difference {
        let allowed = "false, unless weights are gathered: a sum has `error_feedback`";
        return Err(CommunicationError::new("difference", true, allowed));
    }
    Ok(())
}

/// Every rank's numbers as they arrive.
pub(super) fn gather(
    operation: Operation,
    mut shards: Vec<Vec<f32>>,
    state: &mut TensorState,
) -> Checked<Vec<Vec<f32>>> {
    let counts: Vec<usize> = shards.iter().map(Vec::len).collect();
    let lengths: Vec<usize> = counts
        .iter()
        .map(|count| operation.padded(*count))
        .collect();
    state.check(&lengths)?;
    let key = state.begin(&lengths, operation.seed);
    let lasts: Vec<_> = (0..shards.len())
        .map(|rank| state.last(LAST, rank).map(<[f32]>::to_vec))
        .collect();
    if operation.difference && lasts.iter().any(Option::is_none) {
        for (rank, shard) in shards.iter().enumerate() {
            state.numbers(LAST, rank, shard.len()).clone_from(shard);
        }
        return Ok(shards);
    }
    for (shard, last) in shards.iter_mut().zip(lasts.iter().flatten()) {
        shard.iter_mut().zip(last).for_each(|(x, last)| *x -= last);
    }
    let factor = operation.prepare(&mut shards);
    let mut call = CollectiveCall {
        operation,
        state,
        key,
    };
    for (rank, shard) in shards.iter_mut().enumerate() {
        let sender = Sender {
            stage: MessageStage::Gather,
            rank,
            part: rank,
            start: 0,
            count: shard.len(),
        };
        call.send(sender, shard);
        operation.restore(shard, counts[rank], factor);
    }
    for (rank, (shard, last)) in shards.iter_mut().zip(lasts.iter().flatten()).enumerate() {
        shard.iter_mut().zip(last).for_each(|(x, last)| *x += last);
        state.numbers(LAST, rank, shard.len()).clone_from(shard);
    }
    Ok(shards)
}
