//! SGD with momentum. Burn's own keeps its state private.

use burn_core as burn;
use burn_core::{
    record::Record,
    tensor::{ElementConversion, Tensor, backend::Backend},
};
use burn_optim::{
    LearningRate, SgdConfig, SimpleOptimizer,
    decay::{WeightDecay, WeightDecayConfig},
    momentum::MomentumConfig,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    Moments, OpenState, OptimizerStates, StatesError,
    moments::{refuse, refuse_muons},
};

/// The fields of a config of Burn, which are private, by way of its text.
pub(crate) fn fields<T: DeserializeOwned>(config: &impl Serialize) -> T {
    let value = serde_json::to_value(config).expect("a config of Burn is JSON");
    serde_json::from_value(value).expect("a config of Burn 0.21 has these fields")
}

#[derive(Deserialize)]
struct SgdFields {
    weight_decay: Option<WeightDecayConfig>,
    momentum: Option<MomentumConfig>,
}

/// Stochastic gradient descent, with Burn's formulas in the same order.
#[derive(Clone)]
pub struct Sgd {
    weight_decay: Option<WeightDecay>,
    momentum: Option<MomentumConfig>,
}

/// The momentum of a parameter, if there is one.
#[derive(Record, Debug, Clone)]
pub struct Velocity<B: Backend, const D: usize> {
    /// The mean of gradients.
    pub velocity: Option<Tensor<B, D>>,
}

impl<B: Backend, const D: usize> Velocity<B, D> {
    pub(crate) fn moments(self) -> Moments<Tensor<B, D>> {
        Moments {
            first: self.velocity,
            second: None,
            largest_second: None,
        }
    }

    pub(crate) fn moved(self, device: &B::Device) -> Self {
        Self {
            velocity: self.velocity.map(|tensor| tensor.to_device(device)),
        }
    }
}

/// Burn's momentum: the new velocity.
pub(crate) fn velocity<B: Backend, const D: usize>(
    config: &MomentumConfig,
    grad: &Tensor<B, D>,
    before: Option<Tensor<B, D>>,
) -> Tensor<B, D> {
    let momentum: B::FloatElem = config.momentum.elem();
    match before {
        Some(velocity) => grad
            .clone()
            .mul_scalar(1.0 - config.dampening)
            .add(velocity.mul_scalar(momentum)),
        None => grad.clone(),
    }
}

/// Burn's momentum: the update of a new velocity.
pub(crate) fn update<B: Backend, const D: usize>(
    config: &MomentumConfig,
    grad: Tensor<B, D>,
    velocity: &Tensor<B, D>,
) -> Tensor<B, D> {
    let momentum: B::FloatElem = config.momentum.elem();
    match config.nesterov {
        true => velocity.clone().mul_scalar(momentum).add(grad),
        false => velocity.clone(),
    }
}

impl Sgd {
    /// The optimizer of Burn's config, without its gradient clipping, which the adaptor does.
    pub fn new(config: &SgdConfig) -> Self {
        let SgdFields {
            weight_decay,
            momentum,
        } = fields(config);
        Self {
            weight_decay: weight_decay.as_ref().map(WeightDecay::new),
            momentum,
        }
    }

    pub(crate) fn has_momentum(&self) -> bool {
        self.momentum.is_some()
    }
}

impl<B: Backend> SimpleOptimizer<B> for Sgd {
    type State<const D: usize> = Velocity<B, D>;

    fn step<const D: usize>(
        &self,
        lr: LearningRate,
        tensor: Tensor<B, D>,
        mut grad: Tensor<B, D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<B, D>, Option<Self::State<D>>) {
        if let Some(decay) = &self.weight_decay {
            grad = decay.transform(grad, tensor.clone());
        }
        let mut velocity = None;
        if let Some(config) = &self.momentum {
            let new = self::velocity(config, &grad, state.and_then(|state| state.velocity));
            grad = update(config, grad, &new);
            velocity = Some(new);
        }
        (tensor - grad.mul_scalar(lr), Some(Velocity { velocity }))
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &B::Device) -> Self::State<D> {
        state.moved(device)
    }
}

impl<B: Backend> OpenState<B> for Sgd {
    fn moments<const D: usize>(state: Self::State<D>) -> Moments<Tensor<B, D>> {
        state.moments()
    }

    fn state<const D: usize>(_: usize, moments: Moments<Tensor<B, D>>) -> Self::State<D> {
        Velocity {
            velocity: moments.first,
        }
    }

    fn check(states: &OptimizerStates) -> Result<(), StatesError> {
        refuse_muons(states, "SGD")?;
        refuse(&[("second_moment", &states.second_moment)], "SGD")
    }
}
