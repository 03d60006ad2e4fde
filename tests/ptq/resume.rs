//! Fast fine-tuning that was stopped and goes on.

use std::cell::RefCell;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Linear, LinearConfig, Relu};
use burn::prelude::*;
use burn_mx::ptq::{FastFinetune, OptimAlgorithm, PtqError, QuantConfig, Quantized, Quantizer};
use burn_mx::{MxBackend, MxDevice};

use crate::support::*;

type B = MxBackend<TestBackend>;

const STEPS: usize = 60;

#[derive(Module, Debug)]
struct Net<B: Backend> {
    conv: Conv2d<B>,
    hidden: Linear<B>,
    head: Linear<B>,
}

impl Net<B> {
    fn new() -> Self {
        let device = MxDevice::default();
        let net = Self {
            conv: Conv2dConfig::new([4, 8], [3, 3]).init(&device),
            hidden: LinearConfig::new(32, 24).init(&device),
            head: LinearConfig::new(24, 5).with_bias(false).init(&device),
        };
        with_noise_weights(net, 71)
    }

    fn forward(&self, x: &Tensor<B, 4>) -> Tensor<B, 2> {
        let x = Relu.forward(self.conv.forward(x.clone()));
        self.head
            .forward(Relu.forward(self.hidden.forward(x.flatten(1, 3))))
    }
}

fn images(seed: u64) -> Vec<Tensor<B, 4>> {
    let batch = |seed| noise_tensor([6, 4, 4, 4], seed, &MxDevice::default());
    (seed..seed + 3).map(batch).collect()
}

fn quantizer(optim_algorithm: OptimAlgorithm, fixed_seed: u64) -> Quantizer {
    let learning_rate = match optim_algorithm {
        OptimAlgorithm::AdaQuant => 1e-3,
        _ => 0.05,
    };
    let config = QuantConfig {
        fast_finetune: Some(FastFinetune {
            num_iterations: STEPS,
            learning_rate: Some(learning_rate),
            optim_algorithm,
            fixed_seed,
            early_stop: false,
            ..FastFinetune::default()
        }),
        ..QuantConfig::named("MXFP4E2M1").expect("it is one")
    };
    Quantizer::new(config).unwrap()
}

/// The numbers of steps done that are told, and the model; it stops with a panic after `last` of them.
fn run(quantizer: &Quantizer, seed: u64, last: usize) -> (Vec<usize>, Option<Quantized<Net<B>>>) {
    let told = RefCell::new(Vec::new());
    let progress = |done, _| {
        told.borrow_mut().push(done);
        assert!(done <= last, "stopped");
    };
    let forward = |net: &Net<B>, x: &Tensor<B, 4>| net.forward(x);
    let quantized = catch_unwind(AssertUnwindSafe(|| {
        quantizer
            .quantize_with_progress(Net::new(), &images(seed), forward, progress)
            .unwrap()
    }));
    (told.into_inner(), quantized.ok())
}

fn all(
    quantizer: &Quantizer,
    seed: u64,
) -> (Vec<usize>, Vec<Vec<f32>>, Vec<burn_mx::ptq::TunedLayer>) {
    let (told, quantized) = run(quantizer, seed, usize::MAX);
    let quantized = quantized.unwrap();
    (told, weights(&quantized.model), quantized.tuned)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn a_run_that_was_stopped_ends_with_the_bits_of_one_that_was_not() {
    for algorithm in [OptimAlgorithm::AdaQuant, OptimAlgorithm::AdaRound] {
        let plain = quantizer(algorithm, 1);
        let (told, expected, tuned) = all(&plain, 80);
        let of_first_two = |told: &[usize]| told.iter().filter(|done| **done <= 2 * STEPS).count();
        assert!(of_first_two(&told) > 20);

        let folder = tempfile::tempdir().unwrap();
        let kept = plain.resumable(folder.path().join("tuned")).unwrap();
        let folder = folder.path().join("tuned");
        let (_, stopped) = run(&kept, 80, 2 * STEPS);
        assert!(stopped.is_none());
        let names: Vec<String> = files(&folder)
            .iter()
            .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
            .collect();
        assert_eq!(names, ["000-conv.safetensors", "001-hidden.safetensors"]);

        let (told, resumed, tuned_again) = all(&kept, 80);
        assert_all_same_bits(&resumed, &expected, "resumed");
        assert_eq!(tuned_again, tuned);
        assert_eq!(
            of_first_two(&told),
            2,
            "no step of them was taken: {told:?}"
        );

        // Now all three are there; of other data, settings or after damage none is taken.
        assert_eq!(files(&folder).len(), 3);
        let (told, again, _) = all(&kept, 80);
        assert_all_same_bits(&again, &expected, "from the files");
        assert_eq!(told, [STEPS, 2 * STEPS, 3 * STEPS]);
        let file = &files(&folder)[1];
        let bytes = fs::read(file).unwrap();
        for damaged in [&bytes[..bytes.len() - 9], &bytes[..5], b"{}", b""] {
            fs::write(file, damaged).unwrap();
            let (told, again, _) = all(&kept, 80);
            assert_all_same_bits(&again, &expected, "after damage");
            assert!(told.len() > 10);
            assert_eq!(fs::read(file).unwrap(), bytes, "it is replaced");
        }
        // Each might be somebody's.
        let kept =
            |n: usize| fs::read(file.with_extension(format!("safetensors.kept-{n}"))).unwrap();
        assert_eq!((kept(3), kept(4)), (b"{}".to_vec(), Vec::new()));
        let (_, other, _) = all(&quantizer(algorithm, 2), 90);
        let kept = quantizer(algorithm, 2).resumable(&folder).unwrap();
        let (told, again, _) = all(&kept, 90);
        assert_all_same_bits(&again, &other, "of other data");
        assert!(told.len() > 30);
    }
}

#[test]
fn a_folder_that_cannot_be_is_an_error_at_once() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let quantizer = quantizer(OptimAlgorithm::AdaQuant, 1);
    let error = quantizer.resumable(file.path().join("tuned")).unwrap_err();
    assert!(matches!(error, PtqError::Folder { .. }), "{error}");
    assert!(error.to_string().contains("tuned"), "{error}");
    let untuned = Quantizer::new(QuantConfig::named("MX6").unwrap()).unwrap();
    let error = untuned.resumable(std::env::temp_dir()).unwrap_err();
    assert!(
        error.to_string().contains("`fast_finetune` is missing"),
        "{error}"
    );
}
