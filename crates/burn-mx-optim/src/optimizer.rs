//! An optimizer with its states in formats.

use std::sync::atomic::{AtomicU64, Ordering};

use burn_core::{
    module::AutodiffModule,
    tensor::{
        DType, Tensor, TensorData,
        backend::{AutodiffBackend, Backend},
    },
};
use burn_mx_core::MxModelOps;
use burn_optim::{
    AdamConfig, AdamWConfig, LearningRate, MuonConfig, Optimizer, SgdConfig, SimpleOptimizer,
    adaptor::OptimizerAdaptor,
    record::{AdaptorRecord, AdaptorRecordV1},
};

use crate::{
    AdamW, Moments, OpenState, OptimizerStates, PackedState, ParameterState, StateBytes,
    StateTensor, StatesError,
    low_rank::{Split, normal},
    momentum::Sgd,
    muon::Muon,
    state::{numbers, tensor},
    states::{ResolvedStates, Slot},
};

/// An optimizer of the type `O` that keeps its states as [`OptimizerStates`] says. A step unpacks the states, is `O`'s own step in full
/// precision, and packs the new states. So the update of the weights uses the moments before they are rounded, as in bitsandbytes, COAT and
/// the 4-bit optimizers.
///
/// # Panics
/// A step panics if a state has a NaN or Inf and its format is block floating point, which has no code for them. Other formats keep the NaN.
#[derive(Debug)]
pub struct PackedStates<O> {
    optimizer: O,
    states: ResolvedStates,
    /// Parameters that have made a step.
    parameters: AtomicU64,
}

impl<O: Clone> Clone for PackedStates<O> {
    fn clone(&self) -> Self {
        Self {
            optimizer: self.optimizer.clone(),
            states: self.states,
            parameters: AtomicU64::new(self.parameters.load(Ordering::Relaxed)),
        }
    }
}

/// [`PackedStates`] as an optimizer of a module, such as burn-train's learner takes.
pub type PackedAdaptor<O, M, B> = OptimizerAdaptor<PackedStates<O>, M, B>;

impl<O> PackedStates<O> {
    /// The optimizer with states in formats.
    ///
    /// # Errors
    /// The errors of [`OptimizerStates::check`], or a field that has no effect on the optimizer.
    pub fn new<B: Backend>(optimizer: O, states: &OptimizerStates) -> Result<Self, StatesError>
    where
        O: OpenState<B>,
    {
        O::check(states)?;
        Ok(Self {
            optimizer,
            states: states.resolve()?,
            parameters: AtomicU64::new(0),
        })
    }

    /// Rounds new weights to the format of `master`, and returns what rounding lost if that is kept.
    fn round_weights<B: Backend, const D: usize>(
        &self,
        weights: Tensor<B, D>,
        counters: [u64; 2],
    ) -> (Tensor<B, D>, Option<StateTensor<B, D>>) {
        let data = || numbers(weights.clone());
        let shape = weights.dims();
        let Some(packed) = self.states.pack(Slot::Master, counters, &shape, data) else {
            return (weights, None);
        };
        let rounded = tensor(&packed, &weights.device(), weights.dtype());
        let lost = || {
            let lost = weights.clone() - rounded.clone();
            StateTensor::keep(&self.states, Slot::Master, counters, lost)
        };
        let lost = self.states.kahan.then(lost);
        // Not `rounded` itself: a tensor of MxBackend carries its parameter's specs and name from op to op.
        let all = weights.clone().equal(weights.clone());
        (weights.mask_where(all, rounded), lost)
    }
}

/// A kept first moment: whole, or as the rest and two factors.
struct FirstMoment<B: Backend, const D: usize> {
    rest: Option<StateTensor<B, D>>,
    factors: Option<[PackedState; 2]>,
}

impl<B: Backend, const D: usize> FirstMoment<B, D> {
    fn keep(
        states: &ResolvedStates,
        counters: [u64; 2],
        moment: Tensor<B, D>,
        before: Option<&PackedState>,
    ) -> Self {
        let shape = moment.dims();
        let Some(rank) = states.rank(&shape) else {
            let rest = StateTensor::keep(states, Slot::FirstMoment, counters, moment);
            return Self {
                rest: Some(rest),
                factors: None,
            };
        };
        let shape = [shape[0], shape[1]];
        let fits = |right: &&PackedState| right.shape() == [rank, shape[1]];
        let before = match before.filter(fits) {
            Some(right) => right.decode(),
            None => normal(
                rank * shape[1],
                states.stream(Slot::FirstRightFactor, counters),
            ),
        };
        let Split { left, right, rest } = Split::new(&numbers(moment), shape, &before);
        let factor =
            |slot, data: &[f32], length| states.pack_factor(slot, counters, [rank, length], data);
        let rest = states.pack(Slot::FirstMoment, counters, &shape, || rest);
        Self {
            rest: rest.map(StateTensor::Packed),
            factors: Some([
                factor(Slot::LeftFactor, &left, shape[0]),
                factor(Slot::RightFactor, &right, shape[1]),
            ]),
        }
    }

    /// Of SGD without momentum.
    fn none() -> Self {
        Self {
            rest: None,
            factors: None,
        }
    }

    fn open(self, device: &B::Device, dtype: DType) -> Option<Tensor<B, D>> {
        let (Some(StateTensor::Packed(rest)), Some([left, right])) = (&self.rest, &self.factors)
        else {
            return self.rest.map(|kept| kept.open(device, dtype));
        };
        let shape = [rest.shape()[0], rest.shape()[1]];
        let [left, right, rest] = [left, right, rest].map(PackedState::decode);
        let joined = Split { left, right, rest }.joined(shape);
        let data = TensorData::new(joined, shape).convert_dtype(dtype);
        Some(Tensor::from_data(data, (device, dtype)))
    }
}

impl<B: Backend, O: OpenState<B>> SimpleOptimizer<B> for PackedStates<O> {
    type State<const D: usize> = ParameterState<B, D>;

    fn step<const D: usize>(
        &self,
        lr: LearningRate,
        tensor: Tensor<B, D>,
        grad: Tensor<B, D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<B, D>, Option<Self::State<D>>) {
        // The marks of MxBackend's tensors come with the gradient's device.
        let (device, dtype) = (grad.device(), grad.dtype());
        let open = |kept: Option<StateTensor<B, D>>| kept.map(|kept| kept.open(&device, dtype));
        let mut weights = tensor;
        let mut right = None;
        let (before, steps, parameter) = match state {
            None => (None, 1, self.parameters.fetch_add(1, Ordering::Relaxed)),
            Some(state) => {
                if let Some(lost) = open(state.compensation) {
                    weights = weights + lost;
                }
                let first = FirstMoment {
                    rest: state.first_moment,
                    factors: state.factors,
                };
                right = first.factors.as_ref().map(|[_, right]| right.clone());
                let moments = Moments {
                    first: first.open(&device, dtype),
                    second: open(state.second_moment),
                    largest_second: open(state.largest_second_moment),
                };
                let before = O::state(state.steps as usize, moments);
                (Some(before), state.steps + 1, state.parameter)
            }
        };
        let (weights, after) = self.optimizer.step(lr, weights, grad, before);
        let counters = [parameter, steps];
        let keep = |slot, tensor: Option<Tensor<B, D>>| {
            tensor.map(|tensor| StateTensor::keep(&self.states, slot, counters, tensor))
        };
        let moments = O::moments(after.expect("every one of these optimizers has a state"));
        let (weights, compensation) = self.round_weights(weights, counters);
        let first = moments.first.map_or_else(FirstMoment::none, |moment| {
            FirstMoment::keep(&self.states, counters, moment, right.as_ref())
        });
        let state = ParameterState {
            steps,
            parameter,
            first_moment: first.rest,
            factors: first.factors,
            second_moment: keep(Slot::SecondMoment, moments.second),
            largest_second_moment: keep(Slot::LargestSecondMoment, moments.largest_second),
            compensation,
        };
        (weights, Some(state))
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &B::Device) -> Self::State<D> {
        state.moved(device)
    }
}

/// The adaptor with the gradient clipping of Burn's own, which only the adaptor's builder knows.
fn adaptor<O, P, M, B>(
    optimizer: O,
    clipping: &OptimizerAdaptor<P, M, B>,
    states: &OptimizerStates,
) -> Result<PackedAdaptor<O, M, B>, StatesError>
where
    B: AutodiffBackend,
    M: AutodiffModule<B>,
    O: OpenState<B::InnerBackend>,
    P: SimpleOptimizer<B::InnerBackend>,
{
    let adaptor = OptimizerAdaptor::from(PackedStates::new(optimizer, states)?);
    Ok(match clipping.grad_clipping() {
        Some(clipping) => adaptor.with_grad_clipping(clipping.clone()),
        None => adaptor,
    })
}

/// Each function makes the optimizer of one of Burn's configs, with gradient clipping, for burn-train's learner or a loop of your own. With
/// [`OptimizerStates::default`] every bit is as with the config's `init`.
///
/// # Errors
/// The errors of [`PackedStates::new`].
impl OptimizerStates {
    /// Adam.
    pub fn adam<B: AutodiffBackend, M: AutodiffModule<B>>(
        &self,
        config: &AdamConfig,
    ) -> Result<PackedAdaptor<burn_optim::Adam, M, B>, StatesError> {
        adaptor(config.build(), &config.init::<B, M>(), self)
    }

    /// AdamW, [in one pass](AdamW) over a parameter.
    pub fn adamw<B, M>(
        &self,
        config: &AdamWConfig,
    ) -> Result<PackedAdaptor<AdamW, M, B>, StatesError>
    where
        B: AutodiffBackend<InnerBackend: MxModelOps>,
        M: AutodiffModule<B>,
    {
        adaptor(AdamW::new(config), &config.init::<B, M>(), self)
    }

    /// Stochastic gradient descent, with momentum if the config has one.
    pub fn sgd<B: AutodiffBackend, M: AutodiffModule<B>>(
        &self,
        config: &SgdConfig,
    ) -> Result<PackedAdaptor<Sgd, M, B>, StatesError> {
        let optimizer = Sgd::new(config);
        if !optimizer.has_momentum() {
            crate::moments::refuse(
                &[("first_moment", &self.first_moment)],
                "SGD without momentum",
            )?;
        }
        adaptor(optimizer, &config.init::<B, M>(), self)
    }

    /// Muon. As Burn's, a step panics on a parameter that is not a matrix.
    pub fn muon<B: AutodiffBackend, M: AutodiffModule<B>>(
        &self,
        config: &MuonConfig,
    ) -> Result<PackedAdaptor<Muon, M, B>, StatesError> {
        let optimizer = Muon::new(config, &self.resolve()?, &self.newton_schulz_further);
        adaptor(optimizer, &config.init::<B, M>(), self)
    }
}

/// Bytes that the tensors of an optimizer's states take. The states are cloned for this; packed bytes are, tensors are shared.
pub fn state_bytes<O, M, B>(optimizer: &PackedAdaptor<O, M, B>) -> StateBytes
where
    B: AutodiffBackend,
    M: AutodiffModule<B>,
    O: OpenState<B::InnerBackend>,
{
    let records = optimizer.to_record().into_values();
    let each = records.map(|AdaptorRecord::V1(record)| match record {
        AdaptorRecordV1::Rank0(state) => state.bytes(),
        AdaptorRecordV1::Rank1(state) => state.bytes(),
        AdaptorRecordV1::Rank2(state) => state.bytes(),
        AdaptorRecordV1::Rank3(state) => state.bytes(),
        AdaptorRecordV1::Rank4(state) => state.bytes(),
        AdaptorRecordV1::Rank5(state) => state.bytes(),
        AdaptorRecordV1::Rank6(state) => state.bytes(),
        AdaptorRecordV1::Rank7(state) => state.bytes(),
        AdaptorRecordV1::Rank8(state) => state.bytes(),
    });
    each.fold(StateBytes::default(), |sum, bytes| sum + bytes)
}
