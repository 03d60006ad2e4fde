//! AdamW in one pass over a parameter.

use burn_core::tensor::{Tensor, TensorPrimitive, backend::Backend, ops::FloatTensor};
use burn_mx_core::{MxModelOps, internal::AdamWStep};
use burn_optim::{AdamWConfig, AdamWState, AdaptiveMomentumState, LearningRate, SimpleOptimizer};
use serde::Deserialize;

use crate::{Moments, OpenState, OptimizerStates, StatesError, momentum::fields};

/// The fields of Burn's config.
#[derive(Clone, Copy, Debug, Deserialize)]
struct AdamWFields {
    beta_1: f32,
    beta_2: f32,
    epsilon: f32,
    weight_decay: f32,
    cautious_weight_decay: bool,
    amsgrad: bool,
}

/// AdamW with the states and the bits of Burn's own.
///
/// Burn's AdamW is 15 ops, each a pass over the parameter's elements. This one takes one pass, in place on processors and in one kernel on
/// devices without burn-fusion. Burn's ops compute what remains: a parameter's first step, tensors that are not float32, AMSGrad, cautious
/// weight decay, and all steps on backends of your own or with burn-fusion. burn-fusion joins ops into kernels by itself.
///
/// [`OptimizerStates::adamw`] adds the config's gradient clipping, and formats for the states:
///
/// ```
/// # use burn_flex::{Flex, FlexDevice};
/// # use burn_core::module::Param; use burn_core::tensor::Tensor;
/// # use burn_mx_core::MxAutodiff; use burn_mx_optim::OptimizerStates; use burn_optim::AdamWConfig;
/// # type Model<B> = Param<Tensor<B, 1>>;
/// type B = MxAutodiff<Flex>;
/// // was: AdamWConfig::new().init()
/// let optimizer = OptimizerStates::default().adamw::<B, Model<B>>(&AdamWConfig::new())?;
/// # Ok::<(), burn_mx_optim::StatesError>(())
/// ```
#[derive(Clone)]
pub struct AdamW {
    fields: AdamWFields,
    by_ops: burn_optim::AdamW,
}

impl AdamW {
    /// The optimizer of Burn's config, without its gradient clipping, which the adaptor does.
    pub fn new(config: &AdamWConfig) -> Self {
        Self {
            fields: fields(config),
            by_ops: config.build(),
        }
    }

    /// The step after `steps` others, unless only Burn's ops compute it.
    fn in_one_pass(&self, lr: LearningRate, steps: usize) -> Option<AdamWStep> {
        let AdamWFields {
            beta_1,
            beta_2,
            epsilon,
            weight_decay,
            cautious_weight_decay,
            amsgrad,
        } = self.fields;
        if amsgrad || cautious_weight_decay {
            return None;
        }
        let time = i32::try_from(steps + 1).ok()?;
        let kept = 1.0 - lr * f64::from(weight_decay);
        Some(AdamWStep {
            betas: [beta_1, beta_2],
            shares: [beta_1, beta_2].map(|beta| 1.0 - beta),
            corrections: [beta_1, beta_2].map(|beta| 1.0 - beta.powi(time)),
            epsilon,
            kept: kept as f32,
            rate: lr as f32,
        })
    }
}

impl<B: MxModelOps> SimpleOptimizer<B> for AdamW {
    type State<const D: usize> = AdamWState<B, D>;

    fn step<const D: usize>(
        &self,
        lr: LearningRate,
        tensor: Tensor<B, D>,
        grad: Tensor<B, D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<B, D>, Option<Self::State<D>>) {
        let of_step = |state: &Self::State<D>| self.in_one_pass(lr, state.momentum.time);
        let step = state.as_ref().and_then(of_step);
        let (state, step) = match (state, step) {
            (Some(state), Some(step)) => (state.momentum, step),
            (state, _) => return self.by_ops.step(lr, tensor, grad, state),
        };
        let AdaptiveMomentumState {
            time: steps,
            moment_1,
            moment_2,
            ..
        } = state;
        let tensors = [tensor, grad, moment_1, moment_2];
        let tensors = tensors.map(|tensor| tensor.into_primitive().tensor());
        let state = |time, moment_1, moment_2| {
            Some(AdamWState::new(AdaptiveMomentumState::new(
                time, moment_1, moment_2,
            )))
        };
        match B::adamw(step, tensors) {
            Ok(results) => {
                let [tensor, first, second] = results.map(whole);
                (tensor, state(steps + 1, first, second))
            }
            Err(tensors) => {
                let [tensor, grad, first, second] = tensors.map(whole);
                self.by_ops
                    .step(lr, tensor, grad, state(steps, first, second))
            }
        }
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &B::Device) -> Self::State<D> {
        <burn_optim::AdamW as SimpleOptimizer<B>>::to_device(state, device)
    }
}

fn whole<B: Backend, const D: usize>(tensor: FloatTensor<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(tensor))
}

impl<B: MxModelOps> OpenState<B> for AdamW {
    fn moments<const D: usize>(state: Self::State<D>) -> Moments<Tensor<B, D>> {
        <burn_optim::AdamW as OpenState<B>>::moments(state)
    }

    fn state<const D: usize>(steps: usize, moments: Moments<Tensor<B, D>>) -> Self::State<D> {
        <burn_optim::AdamW as OpenState<B>>::state(steps, moments)
    }

    fn check(states: &OptimizerStates) -> Result<(), StatesError> {
        <burn_optim::AdamW as OpenState<B>>::check(states)
    }
}
