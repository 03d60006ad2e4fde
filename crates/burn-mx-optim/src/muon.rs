//! Muon, with the Newton–Schulz iteration in a format. Burn's own keeps its state private.

use burn_core::tensor::{Tensor, backend::Backend};
use burn_optim::{
    AdjustLrFn, LearningRate, MuonConfig, SimpleOptimizer, decay::WeightDecayConfig,
    momentum::MomentumConfig,
};
use microscaling::RandomStream;
use serde::Deserialize;

use crate::{
    Moments, OpenState, OptimizerStates, PackedState, StatesError,
    low_rank::LEAST_NORM,
    moments::refuse,
    momentum::{Velocity, fields, update, velocity},
    state::{numbers, tensor},
    states::{Kept, ResolvedStates},
};

/// The fields of Burn's config.
#[derive(Clone, Deserialize)]
struct MuonFields {
    weight_decay: Option<WeightDecayConfig>,
    momentum: MomentumConfig,
    ns_coefficients: (f32, f32, f32),
    epsilon: f32,
    ns_steps: usize,
    adjust_lr_fn: AdjustLrFn,
}

/// Muon, with Burn's formulas in the same order.
#[derive(Clone)]
pub struct Muon {
    config: MuonFields,
    operands: Option<Kept>,
    further: Vec<[f32; 3]>,
    normalizes: bool,
}

impl Muon {
    /// The optimizer of Burn's config.
    pub(crate) fn new(config: &MuonConfig, states: &ResolvedStates, further: &[[f32; 3]]) -> Self {
        Self {
            config: fields(config),
            operands: states.newton_schulz,
            further: further.to_vec(),
            normalizes: states.normalized_momentum,
        }
    }

    /// An operand of a product.
    fn operand<B: Backend, const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        let Some(kept) = self.operands else { return x };
        let (device, dtype, shape) = (x.device(), x.dtype(), x.dims());
        let rounder = kept.rounding.with(RandomStream::new(0, 0));
        let packed = PackedState::encode(kept.format, &numbers(x), &shape, rounder);
        let packed = packed.unwrap_or_else(|error| panic!("burn-mx: Newton–Schulz: {error}"));
        tensor(&packed, &device, dtype)
    }

    /// The iteration: X ← a·X + (b·A + c·A²)·X with A = X·Xᵀ. Operands of the three products are rounded.
    fn orthogonalize<B: Backend, const D: usize>(&self, g: Tensor<B, D>) -> Tensor<B, D> {
        let [rows, columns] = [g.dims()[D - 2], g.dims()[D - 1]];
        let is_tall = rows > columns;
        let mut x = match is_tall {
            true => g.swap_dims(D - 2, D - 1),
            false => g,
        };
        let norm = x.clone().powf_scalar(2.0).sum().sqrt();
        x = x.div(norm.clamp_min(self.config.epsilon).unsqueeze());
        let first = core::iter::repeat_n(self.config.ns_coefficients, self.config.ns_steps);
        let further = self.further.iter().map(|[a, b, c]| (*a, *b, *c));
        for (a, b, c) in first.chain(further) {
            let left = self.operand(x.clone());
            let squared = left.clone().matmul(left.clone().swap_dims(D - 2, D - 1));
            let factor = self.operand(squared.clone());
            let fourth = factor.clone().matmul(factor);
            let sum = squared.mul_scalar(b).add(fourth.mul_scalar(c));
            x = x.mul_scalar(a).add(self.operand(sum).matmul(left));
        }
        match is_tall {
            true => x.swap_dims(D - 2, D - 1),
            false => x,
        }
    }

    /// The tensor over its Frobenius norm, if the momentum is normalized.
    fn normalized<B: Backend, const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        if !self.normalizes {
            return x;
        }
        let norm = x.clone().powf_scalar(2.0).sum().sqrt();
        x.div(norm.add_scalar(LEAST_NORM).unsqueeze())
    }

    /// The factor of the learning rate, as Burn has it.
    fn ratio(&self, [rows, columns]: [usize; 2]) -> f64 {
        let [rows, columns] = [rows as f64, columns as f64];
        match self.config.adjust_lr_fn {
            AdjustLrFn::Original => (rows / columns).max(1.0).sqrt(),
            AdjustLrFn::MatchRmsAdamW => 0.2 * rows.max(columns).sqrt(),
        }
    }
}

impl<B: Backend> SimpleOptimizer<B> for Muon {
    type State<const D: usize> = Velocity<B, D>;

    fn step<const D: usize>(
        &self,
        lr: LearningRate,
        tensor: Tensor<B, D>,
        grad: Tensor<B, D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<B, D>, Option<Self::State<D>>) {
        assert!(
            D == 2,
            "burn-mx: Muon needs parameters of 2 axes, got {D}; allowed for others: AdamW or SGD"
        );
        let before = state.and_then(|state| state.velocity);
        let grad = self.normalized(grad);
        let velocity = velocity(&self.config.momentum, &grad, before);
        let velocity = self.normalized(velocity);
        let update = update(&self.config.momentum, grad, &velocity);
        let update = self.orthogonalize(update);
        let rate = lr * self.ratio([tensor.dims()[0], tensor.dims()[1]]);
        let tensor = match &self.config.weight_decay {
            Some(decay) => tensor.mul_scalar(1.0 - lr * f64::from(decay.penalty)),
            None => tensor,
        };
        let state = Velocity {
            velocity: Some(velocity),
        };
        (tensor - update.mul_scalar(rate), Some(state))
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &B::Device) -> Self::State<D> {
        state.moved(device)
    }
}

impl<B: Backend> OpenState<B> for Muon {
    fn moments<const D: usize>(state: Self::State<D>) -> Moments<Tensor<B, D>> {
        state.moments()
    }

    fn state<const D: usize>(_: usize, moments: Moments<Tensor<B, D>>) -> Self::State<D> {
        Velocity {
            velocity: moments.first,
        }
    }

    fn check(states: &OptimizerStates) -> Result<(), StatesError> {
        refuse(&[("second_moment", &states.second_moment)], "Muon")
    }
}
