//! Gradients of several backward passes, summed in a format.

use std::{collections::HashMap, marker::PhantomData};

use burn_core::{
    module::{AutodiffModule, ModuleVisitor, Param, ParamId},
    tensor::{DType, Tensor, backend::AutodiffBackend},
};
use burn_optim::GradientsParams;

use crate::{
    OptimizerStates, PackedState, StatesError,
    state::{numbers, tensor},
    states::{ResolvedStates, Slot},
};

/// Sums gradients of several backward passes, as Burn's `GradientsAccumulator`. [`gradient_accumulation`](OptimizerStates::gradient_accumulation)
/// is the format: each pass rounds the sum and packs it. burn-train's learner sums gradients in float32 by itself, so this type serves
/// hand-written loops.
///
/// ```
/// # use burn_core::tensor::backend::AutodiffBackend; use burn_core::module::AutodiffModule;
/// # use burn_mx_optim::{GradientAccumulator, OptimizerStates}; use burn_optim::GradientsParams;
/// # fn train<B: AutodiffBackend, M: AutodiffModule<B>>(model: &M, passes: Vec<GradientsParams>) -> Result<(), burn_mx_optim::StatesError> {
/// let states = OptimizerStates {
///     gradient_accumulation: Some("mxfp8_e5m2".into()),
///     ..OptimizerStates::default()
/// };
/// let mut sums = GradientAccumulator::<B, M>::new(&states)?;
/// for gradients in passes {
///     sums.accumulate(model, gradients);
/// }
/// let gradients = sums.grads(model);
/// # Ok(()) }
/// ```
pub struct GradientAccumulator<B: AutodiffBackend, M> {
    states: ResolvedStates,
    /// Sums without a format.
    plain: GradientsParams,
    packed: HashMap<ParamId, PackedSum<B>>,
    passes: u64,
    module: PhantomData<M>,
}

/// A packed sum, and where the gradients were.
struct PackedSum<B: AutodiffBackend> {
    state: PackedState,
    device: B::Device,
    dtype: DType,
}

impl<B: AutodiffBackend, M: AutodiffModule<B>> GradientAccumulator<B, M> {
    /// An accumulator without gradients.
    ///
    /// # Errors
    /// The errors of [`OptimizerStates::check`].
    pub fn new(states: &OptimizerStates) -> Result<Self, StatesError> {
        Ok(Self {
            states: states.resolve()?,
            plain: GradientsParams::new(),
            packed: HashMap::new(),
            passes: 0,
            module: PhantomData,
        })
    }

    /// Adds the gradients of a pass.
    pub fn accumulate(&mut self, module: &M, gradients: GradientsParams) {
        self.passes += 1;
        module.visit(&mut Adding {
            sums: self,
            gradients,
            parameter: 0,
        });
    }

    /// The sums; the accumulator is empty afterwards.
    pub fn grads(&mut self, module: &M) -> GradientsParams {
        let mut taking = Taking {
            gradients: core::mem::take(&mut self.plain),
            packed: &mut self.packed,
        };
        module.visit(&mut taking);
        taking.gradients
    }
}

struct Adding<'a, B: AutodiffBackend, M> {
    sums: &'a mut GradientAccumulator<B, M>,
    gradients: GradientsParams,
    parameter: u64,
}

impl<B: AutodiffBackend, M> ModuleVisitor<B> for Adding<'_, B, M> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let parameter = self.parameter;
        self.parameter += 1;
        let sums = &mut *self.sums;
        let Some(new) = self.gradients.remove::<B::InnerBackend, D>(param.id) else {
            return;
        };
        let before = match sums.packed.remove(&param.id) {
            Some(PackedSum {
                state,
                device,
                dtype,
            }) => Some(tensor(&state, &device, dtype)),
            None => sums.plain.remove::<B::InnerBackend, D>(param.id),
        };
        let sum = match before {
            Some(before) => before.add(new),
            None => new,
        };
        let data = || numbers(sum.clone());
        let counters = [parameter, sums.passes];
        match sums
            .states
            .pack(Slot::Accumulation, counters, &sum.dims(), data)
        {
            Some(state) => {
                let (device, dtype) = (sum.device(), sum.dtype());
                sums.packed.insert(
                    param.id,
                    PackedSum {
                        state,
                        device,
                        dtype,
                    },
                );
            }
            None => sums.plain.register::<B::InnerBackend, D>(param.id, sum),
        }
    }
}

struct Taking<'a, B: AutodiffBackend> {
    gradients: GradientsParams,
    packed: &'a mut HashMap<ParamId, PackedSum<B>>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Taking<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(sum) = self.packed.remove(&param.id) {
            let sum = tensor::<B::InnerBackend, D>(&sum.state, &sum.device, sum.dtype);
            self.gradients.register::<B::InnerBackend, D>(param.id, sum);
        }
    }
}
