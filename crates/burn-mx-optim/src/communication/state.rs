//! The memory of a collective between its calls.

use std::collections::BTreeMap;

use microscaling::RandomStream;
use serde::{Deserialize, Serialize};

use super::CommunicationError;

/// The memory of the operations on one tensor: the number of calls, which random numbers depend on, the errors that
/// [`error_feedback`](super::Communication::error_feedback) keeps, and the last values of
/// [`difference`](super::Communication::difference). Serde writes the bits of all numbers, so a run that goes on with a loaded state equals
/// a run without a stop.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TensorState {
    /// The number of the tensor among tensors with one seed.
    tensor: u64,
    calls: u64,
    /// Lengths of the operands that `kept` belongs to.
    lengths: Vec<usize>,
    /// Numbers by stage and rank.
    #[serde(with = "bits")]
    kept: BTreeMap<(u8, usize), Vec<f32>>,
}

impl TensorState {
    /// A state without a call. Tensors with one seed and different numbers `tensor` have different random numbers.
    pub fn new(tensor: u64) -> Self {
        Self {
            tensor,
            ..Self::default()
        }
    }

    /// Operations with this state.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Whether the state fits operands of these lengths, one for each rank.
    pub(super) fn check(&self, lengths: &[usize]) -> Result<(), CommunicationError> {
        if self.kept.is_empty() || self.lengths == lengths {
            return Ok(());
        }
        let value = format!("of ranks with {:?} numbers", self.lengths);
        let allowed = format!("a new state, or one of ranks with {lengths:?} numbers");
        Err(CommunicationError::new("state", value, allowed))
    }

    /// Begins a call on operands of these lengths. The result is the key of the call's random numbers.
    pub(super) fn begin(&mut self, lengths: &[usize], seed: u64) -> u64 {
        self.lengths = lengths.to_vec();
        let stream = RandomStream::new(seed, self.tensor);
        let [low, high] = [0, 1].map(|word| u64::from(stream.draw(2 * self.calls + word)));
        self.calls += 1;
        low | high << 32
    }

    /// Numbers of a rank in a stage, zeros at first.
    pub(super) fn numbers(&mut self, stage: u8, rank: usize, count: usize) -> &mut Vec<f32> {
        let zeros = || vec![0.0; count];
        self.kept.entry((stage, rank)).or_insert_with(zeros)
    }

    pub(super) fn last(&self, stage: u8, rank: usize) -> Option<&[f32]> {
        self.kept.get(&(stage, rank)).map(Vec::as_slice)
    }
}

/// The memory of the operations on the tensors of a module, by the paths of parameters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CommunicationState {
    pub(super) tensors: BTreeMap<String, TensorState>,
}

impl CommunicationState {
    /// The state of the parameter at a path.
    pub fn get(&self, path: &str) -> Option<&TensorState> {
        self.tensors.get(path)
    }

    /// The state of the parameter, which is number `tensor` of the module.
    pub(super) fn of(&mut self, path: &str, tensor: u64) -> &mut TensorState {
        let new = || TensorState::new(tensor);
        self.tensors.entry(path.to_owned()).or_insert_with(new)
    }
}

/// States of a parameter on one device, by numbers. Parameters are counted as they come, so that runs repeat whose parameters have random
/// numbers; a parameter has one count on all devices.
#[cfg(burn_mx_distributed)]
impl CommunicationState {
    /// Takes the state of this parameter on this rank, or a new one.
    pub(super) fn take(&mut self, parameter: u64, rank: usize) -> TensorState {
        let path = |rank: usize| format!("{parameter}.{rank}");
        if let Some(own) = self.tensors.get_mut(&path(rank)) {
            let tensor = own.tensor;
            return std::mem::replace(own, TensorState::new(tensor));
        }
        let start = format!("{parameter}.");
        let mut others = self.tensors.range(start.clone()..);
        let other = others.next().filter(|(path, _)| path.starts_with(&start));
        let counts = self.tensors.values().map(|state| state.tensor + 1);
        let next = counts.max().unwrap_or(0);
        let tensor = other.map_or(next, |(_, state)| state.tensor);
        // The count is the parameter's from now on, also for another thread.
        self.put(parameter, rank, TensorState::new(tensor));
        TensorState::new(tensor)
    }

    pub(super) fn put(&mut self, parameter: u64, rank: usize, state: TensorState) {
        self.tensors.insert(format!("{parameter}.{rank}"), state);
    }
}

/// Numbers as their bits: JSON has neither NaN nor Inf, nor maps whose keys are pairs.
mod bits {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    type Kept = BTreeMap<(u8, usize), Vec<f32>>;

    pub(super) fn serialize<S: Serializer>(kept: &Kept, serializer: S) -> Result<S::Ok, S::Error> {
        let bits =
            |numbers: &Vec<f32>| -> Vec<u32> { numbers.iter().map(|x| x.to_bits()).collect() };
        let rows = kept.iter().map(|(key, numbers)| (key, bits(numbers)));
        rows.collect::<Vec<_>>().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Kept, D::Error> {
        let rows: Vec<((u8, usize), Vec<u32>)> = Vec::deserialize(deserializer)?;
        let numbers = |bits: Vec<u32>| bits.into_iter().map(f32::from_bits).collect();
        Ok(rows
            .into_iter()
            .map(|(key, bits)| (key, numbers(bits)))
            .collect())
    }
}
