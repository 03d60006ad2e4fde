//! The state of a parameter.

use burn_core as burn;
use burn_core::{
    record::{PrecisionSettings, Record},
    tensor::{DType, Tensor, TensorData, backend::Backend},
};
use serde::{Deserialize, Serialize};

use crate::{
    PackedState,
    states::{ResolvedStates, Slot},
};

/// A kept tensor.
#[derive(Debug, Clone)]
pub enum StateTensor<B: Backend, const D: usize> {
    /// Unchanged.
    Float(Tensor<B, D>),
    /// In a format.
    Packed(PackedState),
}

/// A kept tensor as a record has it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum StateTensorItem<B: Backend, const D: usize, S: PrecisionSettings> {
    /// Unchanged.
    Float(<Tensor<B, D> as Record<B>>::Item<S>),
    /// In a format.
    Packed(PackedState),
}

impl<B: Backend, const D: usize> Record<B> for StateTensor<B, D> {
    type Item<S: PrecisionSettings> = StateTensorItem<B, D, S>;

    fn into_item<S: PrecisionSettings>(self) -> Self::Item<S> {
        match self {
            Self::Float(tensor) => StateTensorItem::Float(tensor.into_item()),
            Self::Packed(packed) => StateTensorItem::Packed(packed),
        }
    }

    fn from_item<S: PrecisionSettings>(item: Self::Item<S>, device: &B::Device) -> Self {
        match item {
            StateTensorItem::Float(item) => Self::Float(Record::<B>::from_item(item, device)),
            StateTensorItem::Packed(packed) => Self::Packed(packed),
        }
    }
}

impl<B: Backend> Record<B> for PackedState {
    type Item<S: PrecisionSettings> = Self;

    fn into_item<S: PrecisionSettings>(self) -> Self {
        self
    }

    fn from_item<S: PrecisionSettings>(item: Self, _: &B::Device) -> Self {
        item
    }
}

/// The numbers of a tensor, in row-major order.
pub(crate) fn numbers<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    let data = tensor.into_data().convert::<f32>();
    data.into_vec().expect("float32 numbers")
}

/// A tensor of these numbers, on a device and in a float type.
pub(crate) fn tensor<B: Backend, const D: usize>(
    packed: &PackedState,
    device: &B::Device,
    dtype: DType,
) -> Tensor<B, D> {
    let data = TensorData::new(packed.decode(), packed.shape().to_vec());
    Tensor::from_data(data.convert_dtype(dtype), (device, dtype))
}

impl<B: Backend, const D: usize> StateTensor<B, D> {
    /// Packs a tensor, if the settings have a format for it.
    pub(crate) fn keep(
        states: &ResolvedStates,
        slot: Slot,
        counters: [u64; 2],
        tensor: Tensor<B, D>,
    ) -> Self {
        let shape = tensor.dims();
        match states.pack(slot, counters, &shape, || numbers(tensor.clone())) {
            Some(packed) => Self::Packed(packed),
            None => Self::Float(tensor),
        }
    }

    /// The tensor. A packed tensor is decoded to this device and this float type.
    pub(crate) fn open(self, device: &B::Device, dtype: DType) -> Tensor<B, D> {
        match self {
            Self::Float(tensor) => tensor,
            Self::Packed(packed) => self::tensor(&packed, device, dtype),
        }
    }

    pub(crate) fn moved(self, device: &B::Device) -> Self {
        match self {
            Self::Float(tensor) => Self::Float(tensor.to_device(device)),
            packed @ Self::Packed(_) => packed,
        }
    }

    fn bytes(&self) -> StateBytes {
        let [kept, count] = match self {
            Self::Float(tensor) => {
                let count = tensor.shape().num_elements();
                [count * tensor.dtype().size(), count]
            }
            Self::Packed(packed) => [packed.bytes(), packed.shape().iter().product()],
        };
        StateBytes {
            kept,
            float32: 4 * count,
        }
    }
}

/// Bytes that an optimizer's tensors take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateBytes {
    /// As they are kept, scales included.
    pub kept: usize,
    /// The same optimizer's tensors in float32.
    pub float32: usize,
}

impl core::ops::Add for StateBytes {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            kept: self.kept + other.kept,
            float32: self.float32 + other.float32,
        }
    }
}

/// An optimizer's state of one parameter.
#[derive(Record, Debug, Clone)]
pub struct ParameterState<B: Backend, const D: usize> {
    /// Steps so far.
    pub steps: u64,
    /// The number of the parameter, counted as the first steps came: the stream of stochastic rounding.
    pub parameter: u64,
    /// Adam's first moment, or the momentum of SGD and Muon.
    pub first_moment: Option<StateTensor<B, D>>,
    /// A split momentum is P·Rᵀ and the rest, which `first_moment` has. The factors are Pᵀ `[rank, rows]` and Rᵀ `[rank, columns]`.
    pub factors: Option<[PackedState; 2]>,
    /// Adam's second moment.
    pub second_moment: Option<StateTensor<B, D>>,
    /// AMSGrad's largest second moment.
    pub largest_second_moment: Option<StateTensor<B, D>>,
    /// The part of the weights that rounding lost.
    pub compensation: Option<StateTensor<B, D>>,
}

impl<B: Backend, const D: usize> ParameterState<B, D> {
    /// Bytes of all tensors, without the two counters. An optimizer in float32 has no compensation and no factors, so `float32` leaves them out.
    pub fn bytes(&self) -> StateBytes {
        let moments = [
            &self.first_moment,
            &self.second_moment,
            &self.largest_second_moment,
        ];
        let moments = moments.into_iter().flatten().map(StateTensor::bytes);
        let compensation = self.compensation.iter().map(StateTensor::bytes);
        let factors = self.factors.iter().flatten().map(PackedState::bytes);
        let further = compensation.map(|bytes| bytes.kept).chain(factors);
        let further = further.map(|kept| StateBytes { kept, float32: 0 });
        let each = moments.chain(further);
        each.fold(StateBytes::default(), |sum, bytes| sum + bytes)
    }

    pub(crate) fn moved(self, device: &B::Device) -> Self {
        let moved = |tensor: Option<StateTensor<B, D>>| tensor.map(|kept| kept.moved(device));
        Self {
            first_moment: moved(self.first_moment),
            second_moment: moved(self.second_moment),
            largest_second_moment: moved(self.largest_second_moment),
            compensation: moved(self.compensation),
            ..self
        }
    }
}
