//! Models of recurrent and convolutional layers, trained on handwritten digits in MX formats and in float32.

use std::io::Read;

use burn::module::{AutodiffModule, Module, ModuleMapper, Param, Quantizer};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{
    BatchNorm, BatchNormConfig, BiLstm, BiLstmConfig, Dropout, DropoutConfig, Gru, GruConfig,
    Linear, LinearConfig, Lstm, LstmConfig,
};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::prelude::*;
use burn::tensor::activation;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::quantization::{Calibration, QuantScheme};
use burn_mx::ElementFormat;
use burn_mx::MxSpecs;

use crate::support::*;

pub(crate) const BATCH: usize = 64;

/// The first digits of `data/digits.csv.gz`, `[BATCH, 8, 8]` from 0 to 1, and their labels.
pub(crate) fn digits<B: Backend>(device: &B::Device) -> (Tensor<B, 3>, Tensor<B, 1, Int>) {
    let file: &[u8] = include_bytes!("../../data/digits.csv.gz");
    let mut text = String::new();
    let mut decoder = flate2::read::GzDecoder::new(file);
    decoder
        .read_to_string(&mut text)
        .expect("the file is sound");
    let rows: Vec<Vec<f32>> = text
        .lines()
        .take(BATCH)
        .map(|line| {
            line.split(',')
                .map(|x| x.parse().expect("a number"))
                .collect()
        })
        .collect();
    let pixels: Vec<f32> = rows
        .iter()
        .flat_map(|row| &row[..64])
        .map(|x| x / 16.0)
        .collect();
    let labels: Vec<i64> = rows.iter().map(|row| row[64] as i64).collect();
    (
        Tensor::from_data(TensorData::new(pixels, [BATCH, 8, 8]), device),
        Tensor::from_data(TensorData::new(labels, [BATCH]), device),
    )
}

pub(crate) trait Classify<B: Backend>: Module<B> {
    /// Logits `[batch, 10]` of images `[batch, 8, 8]`.
    fn logits(&self, images: Tensor<B, 3>) -> Tensor<B, 2>;
}

macro_rules! classifiers {
    ($($name:ident { $($field:ident: $layer:ident = $config:expr),* $(,)? }($model:ident, $images:ident) $logits:block)*) => { $(
        #[derive(Module, Debug)]
        pub(crate) struct $name<B: Backend> {
            $($field: $layer<B>),*
        }

        impl<B: Backend> $name<B> {
            pub(crate) fn new(device: &B::Device) -> Self {
                let model = Self { $($field: $config.init(device)),* };
                model.map(&mut SmallWeights(0))
            }
        }

        impl<B: Backend> Classify<B> for $name<B> {
            fn logits(&self, $images: Tensor<B, 3>) -> Tensor<B, 2> {
                let $model = self;
                $logits
            }
        }
    )* };
}

classifiers! {
    LstmReader {
        lstm: Lstm = LstmConfig::new(8, 24, true),
        head: Linear = LinearConfig::new(24, 10),
    }(model, images) {
        let (states, _) = model.lstm.forward(images, None);
        model.head.forward(states.slice(s![.., 7..8, ..]).squeeze_dim(1))
    }
    GruReader {
        gru: Gru = GruConfig::new(8, 24, true),
        head: Linear = LinearConfig::new(24, 10),
    }(model, images) {
        let states = model.gru.forward(images, None);
        model.head.forward(states.slice(s![.., 7..8, ..]).squeeze_dim(1))
    }
    BiLstmReader {
        lstm: BiLstm = BiLstmConfig::new(8, 16, true),
        head: Linear = LinearConfig::new(32, 10),
    }(model, images) {
        let (states, _) = model.lstm.forward(images, None);
        model.head.forward(states.mean_dim(1).squeeze_dim(1))
    }
    Cnn {
        first: Conv2d = Conv2dConfig::new([1, 8], [3, 3]),
        norm: BatchNorm = BatchNormConfig::new(8),
        second: Conv2d = Conv2dConfig::new([8, 16], [3, 3]).with_stride([2, 2]),
        head: Linear = LinearConfig::new(64, 10),
    }(model, images) {
        let x = model.norm.forward(model.first.forward(images.unsqueeze_dim(1)));
        let x = activation::relu(model.second.forward(activation::relu(x)));
        model.head.forward(x.flatten(1, 3))
    }
}

/// The same weights of moderate size on every backend; running statistics stay.
struct SmallWeights(u64);

impl<B: Backend> ModuleMapper<B> for SmallWeights {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        self.0 += 1;
        let seed = self.0;
        param.map(|old| {
            if !old.is_require_grad() {
                return old;
            }
            let shape = old.dims();
            // Biases and scales lie about one half.
            let (scale, offset) = if D == 1 { (0.05, 0.5) } else { (0.25, 0.0) };
            let values = noise(shape.iter().product(), seed);
            let values: Vec<f32> = values.into_iter().map(|x| x * scale + offset).collect();
            Tensor::from_data(TensorData::new(values, shape), &old.device()).require_grad()
        })
    }
}

pub(crate) fn loss<B: Exact>(model: &impl Classify<B>, device: &B::Device) -> Tensor<B, 1> {
    let (images, labels) = digits::<B>(device);
    let logits = B::exact(model.logits(images));
    CrossEntropyLossConfig::new()
        .init(device)
        .forward(logits, labels)
}

fn first_gradients<B: Exact, M: Classify<B>>(model: &M, device: &B::Device) -> Vec<Vec<f32>> {
    gradients::<B, _>(model, &loss(model, device).backward())
}

/// Losses of steps of Adam, and the trained model.
fn train<B: Exact, M: Classify<B> + AutodiffModule<B>>(
    mut model: M,
    steps: usize,
    device: &B::Device,
) -> (Vec<f32>, M) {
    let mut optimizer = AdamConfig::new().init();
    let mut losses = Vec::new();
    for _ in 0..steps {
        let loss = loss(&model, device);
        losses.push(values(loss.clone())[0]);
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(0.01, model, grads);
    }
    (losses, model)
}

pub(crate) fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter()
            .zip(b)
            .map(|(a, b)| f64::from(*a) * f64::from(*b))
            .sum()
    };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// Trains in mxfp8 as in float32: gradients point the same way, the loss falls as far.
macro_rules! assert_trains_like_float32 {
    ($model:ident) => {
        let (plain, mx) = (Default::default(), mx_device(&MxSpecs::mxfp8_e4m3()));
        let expected = first_gradients(&$model::<Plain>::new(&plain), &plain);
        let got = first_gradients(&$model::<Mx>::new(&mx), &mx);
        assert_eq!(got.len(), expected.len());
        for (i, (got, expected)) in got.iter().zip(&expected).enumerate() {
            if expected.iter().any(|value| value.abs() > 1e-6) {
                assert_ne!(got, expected, "gradient {i} is emulated");
            }
        }
        let cosine = cosine(&got.concat(), &expected.concat());
        // Measured: 0.988 and more.
        assert!(cosine > 0.97, "cosine of the gradients {cosine}");
        let (expected, _) = train($model::<Plain>::new(&plain), 40, &plain);
        let (got, _) = train($model::<Mx>::new(&mx), 40, &mx);
        let (first, last, expected) = (got[0], got[39], expected[39]);
        assert!(
            expected < 0.6 * first,
            "float32 learns: {first} to {expected}"
        );
        let difference = (last - expected).abs();
        assert!(
            // Measured: 0.12 for the LSTM, up to 0.02 for the others.
            difference < 0.2 * first,
            "{first} to {last}, float32 to {expected}"
        );
    };
}

#[test]
fn an_lstm_trains_like_float32() {
    assert_trains_like_float32!(LstmReader);
}

#[test]
fn a_gru_trains_like_float32() {
    assert_trains_like_float32!(GruReader);
}

#[test]
fn a_bidirectional_lstm_trains_like_float32() {
    assert_trains_like_float32!(BiLstmReader);
}

#[test]
fn convolutions_with_batch_norm_train_like_float32() {
    assert_trains_like_float32!(Cnn);
}

#[test]
fn the_formats_of_an_lstms_gradients_are_those_of_its_slots() {
    let coarse = MxSpecs {
        a_elem_format_bp_ex: Some(ElementFormat::INT2.into()),
        ..MxSpecs::mxfp8_e4m3()
    };
    let [fine, coarse] = [MxSpecs::mxfp8_e4m3(), coarse].map(|specs| mx_device(&specs));
    let model = LstmReader::<Mx>::new(&fine);
    let fine = first_gradients(&model, &fine);
    let model = LstmReader::<Mx>::new(&coarse);
    let coarse = first_gradients(&model, &coarse);
    let mut shapes = Vec::new();
    struct Ranks<'a>(&'a mut Vec<usize>);
    impl<B: Backend> burn::module::ModuleVisitor<B> for Ranks<'_> {
        fn visit_float<const D: usize>(&mut self, _: &Param<Tensor<B, D>>) {
            self.0.push(D);
        }
    }
    Module::<Mx>::visit(&model, &mut Ranks(&mut shapes));
    let both = fine.iter().zip(&coarse).zip(shapes).enumerate();
    for (i, ((fine, coarse), rank)) in both {
        // The slot is an operand of the weights' gradients alone. Recurrent weights start from zero states.
        match rank {
            1 => assert_same_bits(coarse, fine, &format!("gradient {i} of a bias")),
            _ => assert_ne!(coarse, fine, "gradient {i} of a weight"),
        }
    }
}

#[test]
fn running_statistics_follow_training_and_serve_inference() {
    let (plain, mx) = (Default::default(), mx_device(&MxSpecs::mxfp8_e4m3()));
    let (_, expected) = train(Cnn::<Plain>::new(&plain), 10, &plain);
    let (_, got) = train(Cnn::<Mx>::new(&mx), 10, &mx);
    let statistics = |mean: Vec<f32>, variance: Vec<f32>| [mean, variance];
    let expected = statistics(
        values(expected.norm.running_mean.value_sync()),
        values(expected.norm.running_var.value_sync()),
    );
    let trained = statistics(
        values(got.norm.running_mean.value_sync()),
        values(got.norm.running_var.value_sync()),
    );
    for (got, expected) in trained.concat().iter().zip(expected.concat()) {
        // Measured: up to 0.10.
        let allowed = 0.15 * expected.abs().max(0.2);
        assert!(
            (got - expected).abs() < allowed,
            "{got}, float32 {expected}"
        );
    }
    let valid = got.valid();
    let (images, _) = digits(&mx);
    let once = values(valid.logits(images.clone()));
    // One image alone has the logits that it has in a batch: inference does not look at the batch.
    let alone = values(valid.logits(images.slice(s![..1, .., ..])));
    assert_same_bits(&alone, &once[..10], "logits");
    let after = statistics(
        values(valid.norm.running_mean.value_sync()),
        values(valid.norm.running_var.value_sync()),
    );
    assert_eq!(after, trained, "inference leaves the statistics");
}

#[test]
fn dropout_zeroes_or_scales_in_training_and_does_nothing_in_inference() {
    #[derive(Module, Debug)]
    struct Dropping<B: Backend> {
        layer: Linear<B>,
        dropout: Dropout,
    }
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let model = Dropping::<Mx> {
        layer: LinearConfig::new(8, 4).init(&device),
        dropout: DropoutConfig::new(0.5).init(),
    };
    let ones = Tensor::<Mx, 2>::ones([64, 64], &device);
    let dropped = values(model.dropout.forward(ones.clone()));
    assert!(dropped.iter().all(|value| [0.0, 2.0].contains(value)));
    let kept = dropped.iter().filter(|value| **value != 0.0).count();
    assert!((1700..2400).contains(&kept), "{kept} of 4096 kept");
    let kept = values(model.valid().dropout.forward(ones.inner()));
    assert!(kept.iter().all(|value| *value == 1.0));
}

#[test]
fn gradients_accumulate_over_batches() {
    use burn::optim::GradientsAccumulator;
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let model = LstmReader::<Mx>::new(&device);
    let mut accumulator = GradientsAccumulator::new();
    for _ in 0..2 {
        let grads = GradientsParams::from_grads(loss(&model, &device).backward(), &model);
        accumulator.accumulate(&model, grads);
    }
    let id = model.head.weight.id;
    let twice = accumulator
        .grads()
        .get::<burn_mx::MxBackend<TestBackend>, 2>(id)
        .expect("it has a gradient");
    let once = GradientsParams::from_grads(loss(&model, &device).backward(), &model);
    let once = once
        .get::<burn_mx::MxBackend<TestBackend>, 2>(id)
        .expect("as before");
    let doubled: Vec<f32> = values(once).iter().map(|value| value * 2.0).collect();
    assert_same_bits(&values(twice), &doubled, "the sum is not emulated");
}

#[test]
fn a_frozen_part_has_no_gradients_and_the_rest_its_own() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let model = LstmReader::<Mx>::new(&device);
    let all = first_gradients(&model, &device);
    let frozen = LstmReader {
        lstm: model.lstm.no_grad(),
        head: model.head,
    };
    let rest = first_gradients(&frozen, &device);
    let lstm = rest.len() - 2;
    assert!(rest[..lstm].iter().all(Vec::is_empty));
    assert_all_same_bits(&rest[lstm..], &all[lstm..], "gradient of the head");
}

// burn-cubecl 0.21 stores other schemes.
#[cfg(test_backend = "flex")]
#[test]
fn a_quantized_module_computes_as_burn_alone_where_nothing_is_emulated() {
    fn quantized<B: AutodiffBackend>(device: &B::Device) -> Vec<f32>
    where
        LstmReader<B>: AutodiffModule<B, InnerModule = LstmReader<B::InnerBackend>>,
    {
        let model = LstmReader::<B>::new(device).valid();
        let scheme = QuantScheme::default();
        let mut quantizer = Quantizer {
            calibration: Calibration::MinMax,
            scheme,
        };
        let model = model.quantize_weights(&mut quantizer);
        values(model.logits(digits(device).0))
    }
    let expected = quantized::<Plain>(&Default::default());
    assert_same_bits(
        &quantized::<Mx>(&mx_device(&MxSpecs::none())),
        &expected,
        "none",
    );
    assert_same_bits(&quantized::<Mx>(&Default::default()), &expected, "unset");
    // Emulated, the dequantized weights are quantized once more.
    let emulated = quantized::<Mx>(&mx_device(&MxSpecs::mxfp8_e4m3()));
    assert_ne!(emulated, expected);
    assert!(cosine(&emulated, &expected) > 0.98);
}
