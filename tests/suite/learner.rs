//! burn-train's supervised learner runs unchanged, with checkpoint and resume.
//!
//! Under burn-fusion 0.21 tensors are lost that another thread reads, as the learner's checkpointers do, with or without
//! emulation (tracel-ai/burn, issue 4347): so it is without.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::backend::Autodiff;
use burn::data::dataloader::{DataLoader, DataLoaderBuilder, batcher::Batcher};
use burn::data::dataset::InMemDataset;
use burn::module::{AutodiffModule, Module};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, Optimizer};
use burn::prelude::*;
use burn::record::{FullPrecisionSettings, NamedMpkFileRecorder};
use burn::tensor::activation;
use burn::tensor::backend::AutodiffBackend;
use burn::train::metric::LossMetric;
use burn::train::renderer::*;
use burn::train::{
    InferenceStep, Learner, RegressionOutput, SupervisedTraining, TrainOutput, TrainStep,
};
use burn_mx::module::{set_specs_at, specs_of};
use burn_mx::{MxAutodiff, MxBackend, MxSpecs};

use crate::backend::Unfused;
use crate::support::*;

type Plain = Autodiff<Unfused>;
type Mx = MxAutodiff<Unfused>;

#[derive(Module, Debug)]
pub(crate) struct Regressor<B: Backend> {
    pub(crate) hidden: Linear<B>,
    pub(crate) head: Linear<B>,
}

impl<B: Backend> Regressor<B> {
    pub(crate) fn new(device: &B::Device) -> Self {
        let regressor = Self {
            hidden: LinearConfig::new(8, 16).init(device),
            head: LinearConfig::new(16, 1).init(device),
        };
        with_noise_weights(regressor, 2)
    }

    /// The outputs of the hidden layer and of the head.
    pub(crate) fn states(&self, inputs: Tensor<B, 2>) -> [Tensor<B, 2>; 2] {
        let hidden = activation::gelu(self.hidden.forward(inputs));
        [hidden.clone(), self.head.forward(hidden)]
    }

    pub(crate) fn regress(&self, batch: Batch<B>) -> RegressionOutput<B> {
        let [_, output] = self.states(batch.inputs);
        let loss = (output.clone() - batch.targets.clone()).square().mean();
        RegressionOutput::new(loss, output, batch.targets)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Batch<B: Backend> {
    pub(crate) inputs: Tensor<B, 2>,
    pub(crate) targets: Tensor<B, 2>,
}

#[derive(Clone, Debug)]
pub(crate) struct Stack;

impl<B: Backend> Batcher<B, [f32; 9], Batch<B>> for Stack {
    fn batch(&self, items: Vec<[f32; 9]>, device: &B::Device) -> Batch<B> {
        let rows = items.len();
        let data = TensorData::new(items.concat(), [rows, 9]);
        let rows = Tensor::<B, 2>::from_data(data, device);
        Batch {
            inputs: rows.clone().slice(s![.., ..8]),
            targets: rows.slice(s![.., 8..]),
        }
    }
}

impl<B: AutodiffBackend> TrainStep for Regressor<B> {
    type Input = Batch<B>;
    type Output = RegressionOutput<B>;

    fn step(&self, batch: Batch<B>) -> TrainOutput<RegressionOutput<B>> {
        let output = self.regress(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl<B: Backend> InferenceStep for Regressor<B> {
    type Input = Batch<B>;
    type Output = RegressionOutput<B>;

    fn step(&self, batch: Batch<B>) -> RegressionOutput<B> {
        self.regress(batch)
    }
}

/// Rows of eight inputs and a target that a network can learn.
pub(crate) fn loader<B: Backend>(
    seed: u64,
    device: &B::Device,
) -> Arc<dyn DataLoader<B, Batch<B>>> {
    loader_of(Stack, seed, device)
}

/// The same by another batcher.
pub(crate) fn loader_of<B: Backend, T: Batcher<B, [f32; 9], Batch<B>> + 'static>(
    batcher: T,
    seed: u64,
    device: &B::Device,
) -> Arc<dyn DataLoader<B, Batch<B>>> {
    let rows = noise(8 * 64, seed);
    let rows = rows.chunks_exact(8).map(|x| {
        let target = 0.5 * x[0] - 0.3 * x[1] + 0.2 * x[2] * x[3];
        let mut row = [target; 9];
        row[..8].copy_from_slice(x);
        row
    });
    let builder = DataLoaderBuilder::new(batcher)
        .batch_size(16)
        .set_device(device.clone());
    builder.build(InMemDataset::new(rows.collect()))
}

/// Prints nothing.
pub(crate) struct Silent;

impl MetricsRendererTraining for Silent {
    fn update_train(&mut self, _: MetricState) {}
    fn update_valid(&mut self, _: MetricState) {}
    fn render_train(&mut self, _: TrainingProgress, _: Vec<ProgressType>) {}
    fn render_valid(&mut self, _: TrainingProgress, _: Vec<ProgressType>) {}
}

impl MetricsRendererEvaluation for Silent {
    fn update_test(&mut self, _: EvaluationName, _: MetricState) {}
    fn render_test(&mut self, _: EvaluationProgress, _: Vec<ProgressType>) {}
}

impl MetricsRenderer for Silent {
    fn manual_close(&mut self) {}
    fn register_metric(&mut self, _: burn::train::metric::MetricDefinition) {}
}

/// Trains `regressor` to the end of epoch `epochs`, from the checkpoint of epoch `from` if given.
fn train<B: AutodiffBackend>(
    regressor: Regressor<B>,
    device: &B::Device,
    directory: &Path,
    epochs: usize,
    from: Option<usize>,
) -> Regressor<B::InnerBackend> {
    let loaders = (loader::<B>(5, device), loader::<B::InnerBackend>(6, device));
    launch(
        regressor,
        AdamConfig::new().init(),
        loaders,
        directory,
        (epochs, from),
    )
}

/// The batches of training, and the batches of validation.
type Loaders<B> = (
    Arc<dyn DataLoader<B, Batch<B>>>,
    Arc<
        dyn DataLoader<
                <B as AutodiffBackend>::InnerBackend,
                Batch<<B as AutodiffBackend>::InnerBackend>,
            >,
    >,
);

/// As [`train`], by this optimizer and on these batches.
pub(crate) fn launch<B, M>(
    model: M,
    optimizer: impl Optimizer<M, B> + 'static,
    (train, valid): Loaders<B>,
    directory: &Path,
    (epochs, from): (usize, Option<usize>),
) -> M::InnerModule
where
    B: AutodiffBackend,
    M: TrainStep<Input = Batch<B>, Output = RegressionOutput<B>> + AutodiffModule<B>,
    M: std::fmt::Display + 'static,
    M::InnerModule:
        InferenceStep<Input = Batch<B::InnerBackend>, Output = RegressionOutput<B::InnerBackend>>,
{
    let mut training = SupervisedTraining::new(directory, train, valid)
        .metrics((LossMetric::new(),))
        .with_file_checkpointer(NamedMpkFileRecorder::<FullPrecisionSettings>::new())
        .with_application_logger(None)
        .renderer(Silent)
        .num_epochs(epochs);
    if let Some(epoch) = from {
        training = training.checkpoint(epoch);
    }
    let learner = Learner::new(model, optimizer, 0.02);
    training.launch(learner).model
}

/// The recorder of the documentation and the examples keeps all bits, as the recorder above does.
#[test]
fn no_recorder_in_the_documentation_is_of_half_precision() {
    fn texts(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in std::fs::read_dir(folder).expect("the folder is there") {
            let path = entry.expect("the entry can be read").path();
            let is_text = path
                .extension()
                .is_some_and(|end| end == "md" || end == "rs");
            match path.is_dir() {
                true => texts(&path, found),
                false if is_text => {
                    let text = std::fs::read_to_string(&path).expect("it is text");
                    found.push((path, text));
                }
                false => {}
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for folder in ["docs", "examples", "benches", "crates"] {
        texts(&root.join(folder), &mut found);
    }
    for readme in ["README.md", "crates/burn-mx/README.md"] {
        let text = std::fs::read_to_string(root.join(readme)).expect("the README is there");
        found.push((readme.into(), text));
    }
    for (path, text) in &found {
        for recorder in [
            "CompactRecorder::",
            "CompactRecorder,",
            "<HalfPrecisionSettings>",
        ] {
            assert!(!text.contains(recorder), "{}: {recorder}", path.display());
        }
    }
    let how_to = found.iter().find(|(path, _)| path.ends_with("how-to.md"));
    let recorder = "with_file_checkpointer(NamedMpkFileRecorder::<FullPrecisionSettings>::new())";
    assert!(how_to.is_some_and(|(_, text)| text.contains(recorder)));
}

/// Mean squared error on the training data.
fn loss<B: Backend>(regressor: &Regressor<B>, device: &B::Device) -> f32 {
    let losses: Vec<f32> = loader::<B>(5, device)
        .iter()
        .map(|batch| values(regressor.regress(batch).loss)[0])
        .collect();
    losses.iter().sum::<f32>() / losses.len() as f32
}

/// Weights after four epochs at once, and after two, a checkpoint, and two more in a new process's place.
fn at_once_and_resumed<B: AutodiffBackend>(device: &B::Device) -> [Vec<Vec<f32>>; 2] {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let before = Regressor::<B>::new(device);
    let at_once = train(before.clone(), device, directory.path(), 4, None);
    let (first, last) = (loss(&before.valid(), device), loss(&at_once, device));
    assert!(last < 0.5 * first, "loss {first} → {last}");

    let directory = tempfile::tempdir().expect("a directory can be made");
    let half = train(before.clone(), device, directory.path(), 2, None);
    assert!(loss(&half, device) < first);
    // The learner's model here must not matter: the checkpoint replaces it.
    let fresh = with_noise_weights(before, 77);
    let resumed = train(fresh, device, directory.path(), 4, Some(2));
    [weights(&at_once), weights(&resumed)]
}

#[test]
#[cfg_attr(
    any(test_backend = "cuda", test_backend = "rocm"),
    ignore = "burn-fusion loses what checkpointers read"
)]
fn the_learner_trains_checkpoints_and_resumes_to_the_same_bits() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let [at_once, resumed] = at_once_and_resumed::<Mx>(&device);
    assert_all_same_bits(&resumed, &at_once, "weight after the resume");
    let [plain, plain_resumed] = at_once_and_resumed::<Plain>(&TestDevice::default());
    assert_all_same_bits(
        &plain_resumed,
        &plain,
        "Burn alone: weight after the resume",
    );
    assert_ne!(at_once, plain, "training is emulated");
}

#[test]
#[cfg_attr(
    any(test_backend = "cuda", test_backend = "rocm"),
    ignore = "burn-fusion loses what checkpointers read"
)]
fn the_learner_without_emulation_trains_as_burn_alone() {
    let [at_once, resumed] = at_once_and_resumed::<Mx>(&mx_device(&MxSpecs::none()));
    let [plain, plain_resumed] = at_once_and_resumed::<Plain>(&TestDevice::default());
    assert_all_same_bits(&at_once, &plain, "weight");
    assert_all_same_bits(&resumed, &plain_resumed, "weight after the resume");
}

#[test]
#[cfg_attr(
    any(test_backend = "cuda", test_backend = "rocm"),
    ignore = "burn-fusion loses what checkpointers read"
)]
fn the_learner_keeps_the_specs_of_each_layer() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let sound = "the specs are sound";
    let (coarse, fine) = (
        MxSpecs::mxfp4().resolve().expect(sound),
        MxSpecs::mxfp8_e4m3().resolve().expect(sound),
    );
    for (pinned, other) in [("head", "hidden"), ("hidden", "head")] {
        let regressor = Regressor::<Mx>::new(&device);
        let regressor = set_specs_at(regressor, pinned, &coarse).expect("the layer is there");
        let directory = tempfile::tempdir().expect("a directory can be made");
        train(regressor.clone(), &device, directory.path(), 1, None);
        let trained = train(regressor, &device, directory.path(), 2, Some(1));
        let specs = |layer: &str| {
            let layer: &Linear<MxBackend<Unfused>> = match layer {
                "head" => &trained.head,
                _ => &trained.hidden,
            };
            specs_of(&layer.weight.val())
        };
        assert_eq!(
            specs(pinned).as_ref(),
            Some(&coarse),
            "the pinned layer, {pinned}"
        );
        assert_eq!(
            specs(other).as_ref(),
            Some(&fine),
            "the other layer, {other}"
        );
    }
}
