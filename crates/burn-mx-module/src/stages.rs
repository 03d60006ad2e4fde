//! The stages of a schedule on a model.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn_core::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn_core::tensor::Tensor;
use burn_mx_core::hooks::SharedSpecs;
use burn_mx_core::{Exemptions, MxDevice, MxSpecs, MxTensorOps};

use super::exempt::exempt_layers;
use super::on_load::{Update, specs_by_path};
use super::pattern::Pattern;
use super::schedule::{Schedule, ScheduleError};

/// The stages of a [`Schedule`] on one model, and the number of steps that are done. Clones share this number.
///
/// A stage sets the specs of every parameter, except those that had specs by path when the stages were made: what
/// [`set_specs_at`](super::set_specs_at) excluded stays excluded.
///
/// A step is one update by the optimizer.
///
/// ```
/// # mod burn_mx { pub use burn_mx_core::*; pub use burn_mx_module as module; }
/// # use burn_core::module::Param;
/// # use burn_core::tensor::Tensor;
/// # use burn_flex::{Flex, FlexDevice};
/// # use burn_mx::module::{Schedule, Stages, set_specs_at, specs_of};
/// # use burn_mx::{MxBackend, MxDevice, MxSpecs};
/// # let device = MxDevice::new(FlexDevice, "mxfp8_e4m3")?;
/// # let weight = || Param::from_tensor(Tensor::<MxBackend<Flex>, 2>::ones([2, 2], &device));
/// # let x = Tensor::<MxBackend<Flex>, 2>::ones([2, 2], &device);
/// let text = r#"[{"from": 0, "preset": "mxfp8_e4m3"}, {"from": 2, "preset": "mxfp4"}]"#;
/// let schedule: Schedule = serde_json::from_str(text)?;
/// let model = vec![weight(), weight()];
/// let model = set_specs_at(model, "1", &MxSpecs::none().resolve()?)?;
///
/// let stages = Stages::new(&schedule, &model, |model| x.matmul(model[0].val()).matmul(model[1].val()))?;
/// let mut model = stages.start(model, 0);
/// for _ in 0..4 {
///     let device = stages.device(&device); // for the batch
///     // model = optimizer.step(..);
///     model = stages.step(model);
/// }
/// assert_eq!(specs_of(&model[0].val()), Some(MxSpecs::mxfp4().resolve()?));
/// assert_eq!(specs_of(&model[1].val()), Some(MxSpecs::none().resolve()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Stages {
    stages: Arc<Vec<Stage>>,
    /// Paths of parameters that the stages leave as they are.
    kept: Arc<BTreeSet<String>>,
    done: Arc<Mutex<u64>>,
}

/// Steps with the same specs.
struct Stage {
    from: u64,
    specs: &'static SharedSpecs,
    /// Where several match a parameter, the last one counts.
    layers: Vec<(Pattern, &'static SharedSpecs)>,
}

impl fmt::Debug for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from: Vec<u64> = self.stages.iter().map(|stage| stage.from).collect();
        write!(
            f,
            "Stages {{ from: {from:?}, kept: {:?}, done: {} }}",
            self.kept,
            self.done()
        )
    }
}

impl Stages {
    /// The stages of `schedule` on `model`. `forward` runs one forward pass of the given model, on an input of any size, as
    /// for [`exempt_layers`].
    ///
    /// # Errors
    ///
    /// * A pattern of a recipe matches no layer, or `forward` runs no layer.
    /// * The schedule waits for a limit (`when`).
    /// * Every parameter has specs by path, so that no stage would change anything.
    ///
    /// # Panics
    ///
    /// If `forward` does.
    pub fn new<B: MxTensorOps, M: Module<B>, R>(
        schedule: &Schedule,
        model: &M,
        forward: impl FnOnce(&M) -> R + Send,
    ) -> Result<Self, ScheduleError> {
        let limit = schedule.phases().iter().enumerate();
        let mut limit = limit.filter_map(|(phase, of_phase)| Some((phase, of_phase.when?)));
        if let Some((phase, limit)) = limit.next() {
            let expected = "none: `Stages` has no recorder whose figures it could read";
            return Err(ScheduleError::When {
                phase,
                limit,
                expected,
            });
        }
        let mut paths = ByPath::default();
        model.visit(&mut paths);
        if paths.others == 0 {
            return Err(ScheduleError::NothingToChange {
                parameters: paths.kept.len(),
            });
        }
        let layers = exempt_layers::<B, M, R>(model, Exemptions::ALL, forward)?;
        let stages = schedule.stages(&layers)?.into_iter().map(|stage| {
            let layers = stage.recipe.layers.iter();
            let layers = layers.map(|(path, specs)| Ok((Pattern::new(path)?, shared(specs))));
            Ok(Stage {
                from: stage.from,
                specs: shared(&stage.recipe.specs),
                layers: layers.collect::<Result<_, ScheduleError>>()?,
            })
        });
        Ok(Self {
            stages: Arc::new(stages.collect::<Result<_, ScheduleError>>()?),
            kept: Arc::new(paths.kept),
            done: Arc::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, u64> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of steps that are done.
    pub fn done(&self) -> u64 {
        *self.state()
    }

    /// The stage of the step after `done` others.
    fn after(&self, done: u64) -> &Stage {
        let begun = self.stages.iter().rev().find(|stage| stage.from <= done);
        begun.expect("the first stage begins at step 0")
    }

    /// The model with the specs of the step after `done` others: 0 for a new run, the number of steps before the checkpoint for
    /// a run that resumes.
    pub fn start<B: MxTensorOps, M: Module<B>>(&self, model: M, done: u64) -> M {
        *self.state() = done;
        self.set(model, self.after(done))
    }

    /// Counts a step. Returns the model, with new specs if a stage begins.
    pub fn step<B: MxTensorOps, M: Module<B>>(&self, model: M) -> M {
        let done = {
            let mut done = self.state();
            *done += 1;
            *done
        };
        match self.stages.iter().find(|stage| stage.from == done) {
            Some(stage) => self.set(model, stage),
            None => model,
        }
    }

    /// The device with the specs of the next step, for its batch. Activations and products of two activations follow the
    /// specs of the batch.
    pub fn device<D: Clone>(&self, device: &MxDevice<D>) -> MxDevice<D> {
        let specs = self.after(self.done()).specs.resolved();
        MxDevice::new(device.inner().clone(), specs).expect("resolved specs")
    }

    fn set<B: MxTensorOps, M: Module<B>>(&self, model: M, stage: &Stage) -> M {
        let kept = &self.kept;
        let path = Vec::new();
        model.map(&mut Setter { stage, kept, path })
    }
}

/// Specs of a stage, which the schedule has resolved before.
fn shared(specs: &MxSpecs) -> &'static SharedSpecs {
    SharedSpecs::of(&specs.resolve().expect("a schedule has sound specs"))
}

/// The paths of parameters with specs by path, and the number of other parameters.
#[derive(Default)]
struct ByPath {
    path: Vec<String>,
    kept: BTreeSet<String>,
    others: usize,
}

impl<B: MxTensorOps> ModuleVisitor<B> for ByPath {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if !B::is_weight(&param.val().into_primitive().tensor()) {
            return;
        }
        match specs_by_path(param) {
            Some(_) => drop(self.kept.insert(self.path.join("."))),
            None => self.others += 1,
        }
    }
}

/// Sets the specs of a stage.
struct Setter<'a> {
    stage: &'a Stage,
    kept: &'a BTreeSet<String>,
    path: Vec<String>,
}

impl<B: MxTensorOps> ModuleMapper<B> for Setter<'_> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let path = self.path.join(".");
        if self.kept.contains(&path) || !B::is_weight(&param.val().into_primitive().tensor()) {
            return param;
        }
        let mut own = self.stage.layers.iter().rev();
        let own = own.find(|(pattern, _)| pattern.matches(&path));
        let specs = own.map_or(self.stage.specs, |(_, specs)| *specs);
        Update::Specs(Some(specs)).apply(param, &path)
    }
}
