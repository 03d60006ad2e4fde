//! Specs that change between two steps of a run.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use burn::{
    backend::Autodiff,
    tensor::backend::{AutodiffBackend, Backend},
};
use burn_mx::{MxAutodiff, MxDevice, MxKernels, ResolvedSpecs, module::set_specs};
use serde::{Serialize, Serializer};

use super::{layers::Layer, models::Model};

/// Steps with the same specs.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Stage {
    /// The first step.
    pub(crate) from: usize,
    #[serde(serialize_with = "fields")]
    pub(crate) specs: ResolvedSpecs,
    /// Specs by path.
    pub(crate) layers: Vec<Layer>,
}

fn fields<S: Serializer>(specs: &ResolvedSpecs, serializer: S) -> Result<S::Ok, S::Error> {
    specs.specs().serialize(serializer)
}

/// The stages of a run after its first one, and the steps that are done. Clones share the number of steps.
#[derive(Debug, Clone)]
pub(crate) struct Stages {
    list: Arc<Vec<Stage>>,
    done: Arc<AtomicUsize>,
}

impl Stages {
    pub(crate) fn new(list: Vec<Stage>) -> Self {
        Self {
            list: Arc::new(list),
            done: Arc::default(),
        }
    }

    /// Goes on after this number of steps.
    pub(crate) fn skip(&self, done: usize) {
        self.done.store(done, Ordering::Relaxed);
    }

    pub(crate) fn last(&self) -> Option<&Stage> {
        self.list.last()
    }

    /// The stage of the next step; `None` in the first one.
    pub(crate) fn current(&self) -> Option<&Stage> {
        let done = self.done.load(Ordering::Relaxed);
        self.list.iter().rev().find(|stage| stage.from <= done)
    }

    /// Counts a step. Returns the stage that begins after the step.
    pub(crate) fn step(&self) -> Option<&Stage> {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        self.list.iter().find(|stage| stage.from == done)
    }
}

/// A backend on which a run trains. The specs of plain Burn never change.
pub(crate) trait Staged: AutodiffBackend {
    /// The device with the specs of a stage.
    fn device(device: &Self::Device, stage: &Stage) -> Self::Device;

    /// The model with the specs of a stage, whose paths were tried before.
    fn model(model: Model<Self>, stage: &Stage) -> Model<Self>;
}

impl<B: Backend> Staged for Autodiff<B>
where
    Self: AutodiffBackend,
{
    fn device(device: &Self::Device, _: &Stage) -> Self::Device {
        device.clone()
    }

    fn model(model: Model<Self>, _: &Stage) -> Model<Self> {
        model
    }
}

impl<B: MxKernels> Staged for MxAutodiff<B> {
    fn device(device: &Self::Device, stage: &Stage) -> Self::Device {
        MxDevice::new(device.inner().clone(), &stage.specs).expect("resolved specs")
    }

    fn model(model: Model<Self>, stage: &Stage) -> Model<Self> {
        let model = set_specs(model, &stage.specs).with_layers(&stage.layers);
        model.expect("the paths were tried before the run")
    }
}
