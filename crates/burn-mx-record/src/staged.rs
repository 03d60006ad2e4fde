//! Schedules of specs in burn-train's learner.

use burn_core::data::dataloader::batcher::Batcher;
use burn_core::module::AutodiffModule;
use burn_core::tensor::backend::{AutodiffBackend, Backend};
use burn_mx_core::{MxDevice, MxTensorOps};
use burn_mx_module::Stages;
use burn_optim::{GradientsParams, LearningRate, MultiGradientsParams, Optimizer};

/// An optimizer for burn-train's learner that goes through the stages of a schedule. After each step, it gives the model the
/// specs of the next step.
///
/// The learner's checkpoints hold the number of steps. A run that resumes calls
/// [`Stages::start`](burn_mx_module::Stages::start) with the number of steps before the checkpoint.
///
/// Not for `ExecutionStrategy::ddp`, where each device has its own optimizer.
///
/// # Panics
///
/// If the learner loads a checkpoint after another number of steps than the stages have done.
#[derive(Clone, Debug)]
pub struct StagedOptimizer<O> {
    optimizer: O,
    stages: Stages,
}

impl<O> StagedOptimizer<O> {
    /// `optimizer`, with the stages of the model that it steps.
    pub fn new(optimizer: O, stages: &Stages) -> Self {
        let stages = stages.clone();
        Self { optimizer, stages }
    }
}

impl<B, M, O> Optimizer<M, B> for StagedOptimizer<O>
where
    B: AutodiffBackend + MxTensorOps,
    M: AutodiffModule<B>,
    O: Optimizer<M, B>,
{
    /// The optimizer's record, and the number of steps.
    type Record = (O::Record, u64);

    fn step(&mut self, lr: LearningRate, module: M, grads: GradientsParams) -> M {
        self.stages.step(self.optimizer.step(lr, module, grads))
    }

    fn step_multi(&mut self, lr: LearningRate, module: M, grads: MultiGradientsParams) -> M {
        self.stages
            .step(self.optimizer.step_multi(lr, module, grads))
    }

    fn to_record(&self) -> Self::Record {
        (self.optimizer.to_record(), self.stages.done())
    }

    fn load_record(self, (record, done): Self::Record) -> Self {
        let started = self.stages.done();
        assert_eq!(
            started, done,
            "burn-mx: the model has the specs of step {started}, and the checkpoint is of step {done}; allowed: \
             `stages.start(model, {done})` before the learner loads this checkpoint"
        );
        Self {
            optimizer: self.optimizer.load_record(record),
            ..self
        }
    }
}

/// A batcher whose batches have the specs of the next step. Activations and products of two activations follow the specs of
/// their batch.
///
/// The data loader has to make each batch when the learner asks for it: `num_workers(0)`, Burn's default. Other threads would make
/// batches ahead, with the specs of an earlier step.
#[derive(Clone, Debug)]
pub struct StagedBatcher<T> {
    batcher: T,
    stages: Stages,
}

impl<T> StagedBatcher<T> {
    /// `batcher`, with the stages of the model that takes its batches.
    pub fn new(batcher: T, stages: &Stages) -> Self {
        let stages = stages.clone();
        Self { batcher, stages }
    }
}

impl<B, D, I, O, T> Batcher<B, I, O> for StagedBatcher<T>
where
    B: Backend<Device = MxDevice<D>>,
    D: Clone,
    T: Batcher<B, I, O>,
{
    fn batch(&self, items: Vec<I>, device: &MxDevice<D>) -> O {
        self.batcher.batch(items, &self.stages.device(device))
    }
}
