//! GPTQ over a model: saved layers, resumed runs, and the memory of a run.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::backend::Flex;
use burn::module::{Module, Param};
use burn::tensor::module::linear;
use burn::tensor::{Tensor, TensorData, activation::relu, backend::Backend};
use burn_mx::ptq::{GptqLayer, QuantConfig, Quantized, Quantizer};
use burn_mx::{MxBackend, MxDevice, SlotFormat};
use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

type B = MxBackend<Flex>;

#[derive(Module, Debug)]
struct Linear<B: Backend> {
    weight: Param<Tensor<B, 2>>,
}

#[derive(Module, Debug)]
struct Net<B: Backend> {
    layers: Vec<Linear<B>>,
}

/// Numbers from −0.5 to 0.5.
fn noise(shape: [usize; 2], seed: u32) -> Tensor<B, 2> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32 - 0.5
    };
    let values: Vec<f32> = (0..shape[0] * shape[1]).map(|_| next()).collect();
    Tensor::from_data(TensorData::new(values, shape), &MxDevice::default())
}

impl Net<B> {
    fn new(layers: usize, width: usize) -> Self {
        let layer = |seed: usize| Linear {
            weight: Param::from_tensor(noise([width, width], seed as u32).mul_scalar(0.2)),
        };
        Self {
            layers: (0..layers).map(layer).collect(),
        }
    }

    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let apply = |x, layer: &Linear<B>| relu(linear(x, layer.weight.val(), None));
        self.layers.iter().fold(x, apply)
    }

    fn weights(&self) -> Vec<Vec<f32>> {
        let weights = self.layers.iter().map(|layer| layer.weight.val());
        weights
            .map(|weight| weight.into_data().to_vec().unwrap())
            .collect()
    }
}

fn batches(width: usize, seed: u32) -> Vec<Tensor<B, 2>> {
    (0..3).map(|i| noise([16, width], seed + i)).collect()
}

fn quantizer(name: &str) -> Quantizer {
    let mut config = QuantConfig::named(name).unwrap();
    config.specs.a_elem_format = None::<SlotFormat>;
    Quantizer::new(config).unwrap()
}

/// The heap is everybody's: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The most bytes on the heap while a model is quantized, without the model's own bytes.
fn extra(quantizer: &Quantizer, layers: usize, width: usize) -> usize {
    let data = batches(width, 7);
    let model = Net::new(layers, width);
    let before = HEAP.current_usage();
    HEAP.reset_peak_usage();
    let forward = |net: &Net<B>, x: &Tensor<B, 2>| net.forward(x.clone());
    let quantized = quantizer.quantize(model, &data, forward).unwrap();
    assert_eq!(quantized.gptq.len(), layers);
    HEAP.peak_usage() - before
}

/// The model, its packed weights, and one layer: more layers take no more than their packed weights.
#[test]
fn memory_holds_the_model_and_one_layer() {
    let _alone = alone();
    const WIDTH: usize = 256;
    let weight = 4 * WIDTH * WIDTH;
    for name in ["MXFP4E2M1_GPTQ", "MXFP4E2M1_MRGPTQ"] {
        let quantizer = quantizer(name);
        // Threads and scratch memory of products come up.
        extra(&quantizer, 2, WIDTH);
        let [few, many] = [4, 12].map(|layers| extra(&quantizer, layers, WIDTH));
        let grown = many.saturating_sub(few) / 8;
        println!("{name}: {few} bytes with 4 layers, {grown} more with another layer of {weight}");
        // 4.25 bits of 32, and some for names and specs.
        assert!(grown < weight / 6, "{name}: {grown} {weight}");
        // The Hessian and the factor in float64 are four weights.
        assert!(few < 12 * weight, "{name}: {few} {weight}");
    }
}

/// The weights, the reports, and the output of a quantized model.
type Run = (Vec<Vec<f32>>, Vec<GptqLayer>, Vec<f32>);

fn run(quantizer: &Quantizer, seed: u32, last: usize) -> Option<Run> {
    let data = batches(64, seed);
    let forward = |net: &Net<B>, x: &Tensor<B, 2>| net.forward(x.clone());
    let progress = |done, all| {
        assert_eq!(all, 3);
        assert!(done < last, "stopped");
    };
    let quantized = catch_unwind(AssertUnwindSafe(|| {
        quantizer
            .quantize_with_progress(Net::new(3, 64), &data, forward, progress)
            .unwrap()
    }));
    let Quantized { model, gptq, .. } = quantized.ok()?;
    let output = model.forward(data[0].clone()).into_data();
    Some((model.weights(), gptq, output.to_vec().unwrap()))
}

#[test]
fn a_run_that_was_stopped_goes_on() {
    let _alone = alone();
    for name in ["MXFP4E2M1_GPTQ", "MXFP4E2M1_MRGPTQ"] {
        let plain = quantizer(name);
        let expected = run(&plain, 80, 9).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kept = plain.resumable(folder.path()).unwrap();
        assert!(run(&kept, 80, 2).is_none(), "it is stopped");
        let files = || {
            let files = fs::read_dir(folder.path()).unwrap();
            let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
            files.sort();
            files
        };
        assert_eq!(files().len(), 2);
        // A saved layer is not computed again: a changed report comes back.
        let file = &files()[0];
        let bytes = fs::read(file).unwrap();
        let error = expected.1[0].error_nearest.to_bits().to_string();
        let text = String::from_utf8_lossy(&bytes[8..]).into_owned();
        let place = 8 + text.find(&error).expect("the report is there");
        let mut other = bytes.clone();
        other[place + error.len() - 1] ^= 1;
        fs::write(file, &other).unwrap();
        let (weights, reports, _) = run(&kept, 80, 9).unwrap();
        assert_eq!(weights, expected.0, "{name}");
        assert_ne!(reports[0], expected.1[0]);
        assert_eq!(reports[1..], expected.1[1..]);
        // A damaged file is not taken, and is replaced.
        for damaged in [&bytes[..bytes.len() - 9], &bytes[..5], b""] {
            fs::write(file, damaged).unwrap();
            assert_eq!(run(&kept, 80, 9).unwrap(), expected, "{name}");
            assert!(fs::read(file).unwrap() == bytes, "it is replaced");
        }
        // Nor are files of other data.
        let of_others = run(&quantizer(name), 90, 9).unwrap();
        assert_eq!(run(&kept, 90, 9).unwrap(), of_others, "{name}");
        assert_ne!(of_others.0, expected.0);
    }
}
