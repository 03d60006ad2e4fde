//! The tensors in an optimizer's state.

use burn_core::tensor::{Tensor, backend::Backend};
use burn_optim::{Adam, AdamState, AdamW, AdamWState, AdaptiveMomentumState, SimpleOptimizer};

use crate::{StatesError, states::OptimizerStates};

/// The tensors that an optimizer keeps of a parameter. All of them are `None` before the first step.
#[derive(Debug, Clone)]
pub struct Moments<T> {
    /// Adam's first moment, or the momentum of SGD and Muon.
    pub first: Option<T>,
    /// Adam's second moment.
    pub second: Option<T>,
    /// AMSGrad's largest second moment.
    pub largest_second: Option<T>,
}

/// An optimizer whose state is a number of steps and [`Moments`].
pub trait OpenState<B: Backend>: SimpleOptimizer<B> {
    /// The tensors of a state.
    fn moments<const D: usize>(state: Self::State<D>) -> Moments<Tensor<B, D>>;

    /// The state with these tensors after this many steps, at least one.
    fn state<const D: usize>(steps: usize, moments: Moments<Tensor<B, D>>) -> Self::State<D>;

    /// Checks that every field that is set has an effect on this optimizer.
    ///
    /// # Errors
    /// If one has none.
    fn check(states: &OptimizerStates) -> Result<(), StatesError>;
}

/// Refuses fields that the optimizer does not look at.
pub(crate) fn refuse(
    fields: &[(&'static str, &Option<String>)],
    optimizer: &str,
) -> Result<(), StatesError> {
    for (field, text) in fields {
        if let Some(text) = text {
            let allowed = format!("none: {optimizer} has no such tensor");
            return Err(StatesError::new(field, text, allowed));
        }
    }
    Ok(())
}

/// Refuses Muon's fields.
pub(crate) fn refuse_muons(states: &OptimizerStates, optimizer: &str) -> Result<(), StatesError> {
    refuse(&[("newton_schulz", &states.newton_schulz)], optimizer)?;
    if states.normalized_momentum {
        let allowed = format!("false: {optimizer} does not normalize");
        return Err(StatesError::new("normalized_momentum", true, allowed));
    }
    if states.low_rank_divisor != 0 {
        let allowed = format!("0: {optimizer} splits no matrix");
        let divisor = states.low_rank_divisor;
        return Err(StatesError::new("low_rank_divisor", divisor, allowed));
    }
    match states.newton_schulz_further.as_slice() {
        [] => Ok(()),
        further => {
            let allowed = format!("none: {optimizer} has no such iteration");
            let value = format!("{further:?}");
            Err(StatesError::new("newton_schulz_further", value, allowed))
        }
    }
}

fn adaptive<B: Backend, const D: usize>(
    state: AdaptiveMomentumState<B, D>,
) -> Moments<Tensor<B, D>> {
    Moments {
        first: Some(state.moment_1),
        second: Some(state.moment_2),
        largest_second: state.max_moment_2,
    }
}

fn adaptive_state<B: Backend, const D: usize>(
    time: usize,
    moments: Moments<Tensor<B, D>>,
) -> AdaptiveMomentumState<B, D> {
    let missing =
        "burn-mx: an Adam state without moments; is the record that of another optimizer?";
    AdaptiveMomentumState {
        time,
        moment_1: moments.first.expect(missing),
        moment_2: moments.second.expect(missing),
        max_moment_2: moments.largest_second,
    }
}

impl<B: Backend> OpenState<B> for Adam {
    fn moments<const D: usize>(state: Self::State<D>) -> Moments<Tensor<B, D>> {
        adaptive(state.momentum)
    }

    fn state<const D: usize>(steps: usize, moments: Moments<Tensor<B, D>>) -> Self::State<D> {
        AdamState::new(adaptive_state(steps, moments))
    }

    fn check(states: &OptimizerStates) -> Result<(), StatesError> {
        refuse_muons(states, "Adam")
    }
}

impl<B: Backend> OpenState<B> for AdamW {
    fn moments<const D: usize>(state: Self::State<D>) -> Moments<Tensor<B, D>> {
        adaptive(state.momentum)
    }

    fn state<const D: usize>(steps: usize, moments: Moments<Tensor<B, D>>) -> Self::State<D> {
        AdamWState::new(adaptive_state(steps, moments))
    }

    fn check(states: &OptimizerStates) -> Result<(), StatesError> {
        refuse_muons(states, "AdamW")
    }
}
