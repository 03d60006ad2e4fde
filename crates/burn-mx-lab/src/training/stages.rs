//! Specs that change between two steps of a run.

use std::{
    fmt::{self, Debug, Formatter},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use burn::{
    backend::Autodiff,
    tensor::backend::{AutodiffBackend, Backend},
};
use burn_mx::{
    MxAutodiff, MxDevice, MxKernels, ResolvedSpecs,
    module::{Limit, set_specs},
    record::StepRecord,
};
use serde::{Serialize, Serializer};

use super::{layers::Layer, models::Model};

/// Steps with the same specs.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SpecsStage {
    /// The first step; with a limit the first step from which on the limit counts.
    pub(crate) from: usize,
    /// The limit of the recorder's figure at which the stage begins. Only the last stage may have a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) when: Option<Limit>,
    #[serde(serialize_with = "fields")]
    pub(crate) specs: ResolvedSpecs,
    /// Specs by path.
    pub(crate) layers: Vec<Layer>,
}

fn fields<S: Serializer>(specs: &ResolvedSpecs, serializer: S) -> Result<S::Ok, S::Error> {
    specs.specs().serialize(serializer)
}

impl SpecsStage {
    /// The stage with the step at which it began; `None` if it did not begin.
    pub(crate) fn begun(&self, at_limit: Option<usize>) -> Option<Self> {
        let from = match self.when {
            None => self.from,
            Some(_) => at_limit?,
        };
        Some(Self {
            from,
            ..self.clone()
        })
    }
}

/// The stages of a run after its first one, and the steps that are done. Clones share the number of steps.
#[derive(Clone)]
pub(crate) struct Stages {
    list: Arc<Vec<SpecsStage>>,
    state: Arc<Mutex<StagesState>>,
}

#[derive(Default)]
struct StagesState {
    /// Steps that are done.
    done: usize,
    /// The step at which the stage with a limit began.
    at_limit: Option<usize>,
    /// The recorder's last step.
    latest: Option<Box<Latest>>,
}

type Latest = dyn Fn() -> Option<Arc<StepRecord>> + Send;

impl Debug for Stages {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.list.fmt(f)
    }
}

impl Stages {
    pub(crate) fn new(list: Vec<SpecsStage>) -> Self {
        Self {
            list: Arc::new(list),
            state: Arc::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, StagesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes on after this number of steps. The stage with a limit began at the step `at_limit`, if it did.
    pub(crate) fn skip(&self, done: usize, at_limit: Option<usize>) {
        let mut state = self.state();
        (state.done, state.at_limit) = (done, at_limit);
    }

    /// Asks the recorder for its last step.
    pub(crate) fn watch(&self, latest: impl Fn() -> Option<Arc<StepRecord>> + Send + 'static) {
        self.state().latest = Some(Box::new(latest));
    }

    /// The step at which the stage with a limit began.
    pub(crate) fn at_limit(&self) -> Option<usize> {
        self.state().at_limit
    }

    /// The stage of the next step; `None` in the first one.
    pub(crate) fn current(&self) -> Option<SpecsStage> {
        let state = self.state();
        let begun = self.list.iter().rev();
        let mut begun = begun.filter_map(|stage| stage.begun(state.at_limit));
        begun.find(|stage| stage.from <= state.done)
    }

    /// Counts a step. Returns the stage that begins after the step.
    pub(crate) fn step(&self) -> Option<SpecsStage> {
        let mut state = self.state();
        state.done += 1;
        let done = state.done;
        if let (None, Some(last)) = (state.at_limit, self.list.last())
            && let (Some(limit), Some(latest)) = (last.when, &state.latest)
            && last.from <= done
        {
            // An earlier step is over for a run that goes on, too.
            let counts = |step: &Arc<StepRecord>| step.step + 1 >= last.from as u64;
            let latest = latest().filter(counts);
            if latest.is_some_and(|step| step.is_beyond(limit)) {
                state.at_limit = Some(done);
            }
        }
        let mut begun = self.list.iter();
        begun.find_map(|stage| {
            stage
                .begun(state.at_limit)
                .filter(|stage| stage.from == done)
        })
    }
}

/// A backend on which a run trains. The specs of plain Burn never change.
pub(crate) trait Staged: AutodiffBackend {
    /// The device with the specs of a stage.
    fn device(device: &Self::Device, stage: &SpecsStage) -> Self::Device;

    /// The model with the specs of a stage, whose paths were tried before.
    fn model(model: Model<Self>, stage: &SpecsStage) -> Model<Self>;
}

impl<B: Backend> Staged for Autodiff<B>
where
    Self: AutodiffBackend,
{
    fn device(device: &Self::Device, _: &SpecsStage) -> Self::Device {
        device.clone()
    }

    fn model(model: Model<Self>, _: &SpecsStage) -> Model<Self> {
        model
    }
}

impl<B: MxKernels> Staged for MxAutodiff<B> {
    fn device(device: &Self::Device, stage: &SpecsStage) -> Self::Device {
        MxDevice::new(device.inner().clone(), &stage.specs).expect("resolved specs")
    }

    fn model(model: Model<Self>, stage: &SpecsStage) -> Model<Self> {
        let model = set_specs(model, &stage.specs).with_layers(&stage.layers);
        model.expect("the paths were tried before the run")
    }
}
