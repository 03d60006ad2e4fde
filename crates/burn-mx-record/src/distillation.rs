//! Distillation in burn-train's learner.

use core::fmt::{self, Debug, Display, Formatter};

use burn_core::module::{AutodiffModule, HasAutodiffModule, Module, ModuleMapper, ModuleVisitor};
use burn_core::tensor::backend::{AutodiffBackend, Backend};
use burn_train::{InferenceStep, TrainOutput, TrainStep};

/// A training step of a student of type `M` by another model. Implement this trait for your float model, or for a
/// struct that holds this model and weights of losses.
///
/// The step computes the predictions of both models, the loss
/// ([`distillation_loss`](burn_mx_module::distillation_loss), [`hidden_state_loss`](burn_mx_module::hidden_state_loss)) and its gradients. The
/// batch has the specs of its device, which a float model must not see: move its inputs with
/// [`with_specs`](burn_mx_module::with_specs) first.
pub trait Teacher<M>: Clone + Debug + Send + 'static {
    /// A batch of the data loader.
    type Input: Send + 'static;
    /// The item that metrics read.
    type Output: burn_train::ItemLazy + 'static;

    /// The gradients of the student, and the item that metrics read.
    fn step(&self, student: &M, batch: Self::Input) -> TrainOutput<Self::Output>;
}

/// A student and its [`Teacher`]: the model of burn-train's learner in distillation.
///
/// As a module, it is the student. The optimizer, [paths](burn_mx_module::layers) of parameters and records see the student's parameters alone, so a
/// checkpoint of the learner loads into the student's type, and the other way round. Training steps are the teacher's. Validation is
/// the student's own `InferenceStep`. `docs/src/qat.md` has a whole program.
#[derive(Clone, Debug)]
pub struct Distillation<M, T> {
    /// The model that learns.
    pub student: M,
    teacher: T,
}

impl<M, T> Distillation<M, T> {
    /// `student`, which learns from `teacher`.
    pub const fn new(student: M, teacher: T) -> Self {
        Self { student, teacher }
    }

    /// The same teacher for another form of the student.
    fn map_student<N>(self, form: impl FnOnce(M) -> N) -> Distillation<N, T> {
        Distillation {
            student: form(self.student),
            teacher: self.teacher,
        }
    }
}

impl<M, T: Teacher<M>> TrainStep for Distillation<M, T> {
    type Input = T::Input;
    type Output = T::Output;

    fn step(&self, batch: T::Input) -> TrainOutput<T::Output> {
        self.teacher.step(&self.student, batch)
    }
}

impl<M: InferenceStep, T> InferenceStep for Distillation<M, T> {
    type Input = M::Input;
    type Output = M::Output;

    fn step(&self, batch: M::Input) -> M::Output {
        self.student.step(batch)
    }
}

impl<B: Backend, M: Module<B>, T: Clone + Debug + Send> Module<B> for Distillation<M, T> {
    type Record = M::Record;

    fn collect_devices(&self, devices: Vec<B::Device>) -> Vec<B::Device> {
        self.student.collect_devices(devices)
    }

    fn fork(self, device: &B::Device) -> Self {
        self.map_student(|student| student.fork(device))
    }

    fn to_device(self, device: &B::Device) -> Self {
        self.map_student(|student| student.to_device(device))
    }

    fn visit<V: ModuleVisitor<B>>(&self, visitor: &mut V) {
        self.student.visit(visitor);
    }

    fn map<V: ModuleMapper<B>>(self, mapper: &mut V) -> Self {
        self.map_student(|student| student.map(mapper))
    }

    fn load_record(self, record: M::Record) -> Self {
        self.map_student(|student| student.load_record(record))
    }

    fn into_record(self) -> M::Record {
        self.student.into_record()
    }
}

impl<B, M, T> AutodiffModule<B> for Distillation<M, T>
where
    B: AutodiffBackend,
    M: AutodiffModule<B>,
    T: Clone + Debug + Send,
{
    type InnerModule = Distillation<M::InnerModule, T>;

    fn valid(&self) -> Self::InnerModule {
        Distillation::new(self.student.valid(), self.teacher.clone())
    }

    fn from_inner(module: Self::InnerModule) -> Self {
        module.map_student(M::from_inner)
    }
}

impl<B, M, T> HasAutodiffModule<B> for Distillation<M, T>
where
    B: AutodiffBackend,
    M: HasAutodiffModule<B>,
    M::TrainModule: AutodiffModule<B, InnerModule = M>,
    M: Module<B::InnerBackend>,
    T: Clone + Debug + Send,
{
    type TrainModule = Distillation<M::TrainModule, T>;
}

impl<M: Display, T> Display for Distillation<M, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.student.fmt(f)
    }
}
