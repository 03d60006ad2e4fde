//! Folding of batch norms before a model is quantized.

use burn::module::{Module, RunningState};
use burn::nn::conv::{Conv2d, Conv2dConfig, ConvTranspose2d, ConvTranspose2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, PaddingConfig2d, Relu};
use burn::prelude::*;
use burn_mx::module::set_specs;
use burn_mx::ptq::{BatchNormPair, FastFinetune, PtqError, QuantConfig, Quantized, Quantizer};
use burn_mx::{MxBackend, MxDevice, MxKernels, MxSpecs};

use crate::support::*;

type B = MxBackend<TestBackend>;

/// A norm after a layer of each kind.
#[derive(Module, Debug)]
struct Cnn<B: Backend> {
    first: Conv2d<B>,
    first_norm: BatchNorm<B>,
    second: Conv2d<B>,
    second_norm: BatchNorm<B>,
    up: ConvTranspose2d<B>,
    up_norm: BatchNorm<B>,
    hidden: Linear<B>,
    hidden_norm: BatchNorm<B>,
    head: Linear<B>,
}

/// A norm as after training.
fn trained<B: Backend>(
    channels: usize,
    epsilon: f64,
    seed: u64,
    device: &B::Device,
) -> BatchNorm<B> {
    let norm = BatchNormConfig::new(channels)
        .with_epsilon(epsilon)
        .init::<B>(device);
    let noise = |seed| noise_tensor::<B, 1>([channels], seed, device);
    BatchNorm {
        gamma: norm.gamma.map(|_| noise(seed).require_grad()),
        beta: norm.beta.map(|_| noise(seed + 1).require_grad()),
        running_mean: RunningState::new(noise(seed + 2)),
        running_var: RunningState::new(noise(seed + 3).square().add_scalar(0.01)),
        ..norm
    }
}

impl<B: Backend> Cnn<B> {
    fn new(device: &B::Device) -> Self {
        let conv =
            |channels| Conv2dConfig::new(channels, [3, 3]).with_padding(PaddingConfig2d::Same);
        Self {
            first: with_noise_weights(conv([4, 8]).with_bias(false).init(device), 1),
            first_norm: trained(8, 1e-5, 11, device),
            second: with_noise_weights(conv([8, 6]).with_groups(2).init(device), 2),
            second_norm: trained(6, 1e-2, 21, device),
            up: with_noise_weights(
                ConvTranspose2dConfig::new([6, 4], [2, 2])
                    .with_stride([2, 2])
                    .with_groups(2)
                    .init(device),
                3,
            ),
            up_norm: trained(4, 1e-5, 31, device),
            hidden: with_noise_weights(LinearConfig::new(64, 16).init(device), 4),
            hidden_norm: trained(16, 1e-3, 41, device),
            head: with_noise_weights(LinearConfig::new(16, 5).init(device), 5),
        }
    }

    fn forward(&self, x: &Tensor<B, 4>) -> Tensor<B, 2> {
        let x = Relu.forward(self.first_norm.forward(self.first.forward(x.clone())));
        let x = Relu.forward(self.second_norm.forward(self.second.forward(x)));
        let x = Relu.forward(self.up_norm.forward(self.up.forward(x)));
        let x = self.hidden.forward(x.mean_dim(1).flatten(1, 3));
        self.head.forward(Relu.forward(self.hidden_norm.forward(x)))
    }
}

fn images<B: Backend>(device: &B::Device) -> Vec<Tensor<B, 4>> {
    let batch = |seed| noise_tensor([3, 4, 4, 4], seed, device);
    (72..75).map(batch).collect()
}

fn outputs<B: Backend>(net: &Cnn<B>, device: &B::Device) -> Vec<f32> {
    let outputs = images(device).into_iter().map(|x| values(net.forward(&x)));
    outputs.flatten().collect()
}

/// ‖a − b‖ / ‖b‖.
fn distance(got: &[f32], wanted: &[f32]) -> f64 {
    let squares = |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x).powi(2)).sum::<f64>();
    let difference = squares(&mut got.iter().zip(wanted).map(|(a, b)| a - b));
    (difference / squares(&mut wanted.iter().copied())).sqrt()
}

fn pair(norm: &str, layer: &str, epsilon: Option<f64>) -> BatchNormPair {
    BatchNormPair {
        norm: norm.into(),
        layer: layer.into(),
        epsilon,
    }
}

/// Folding of the norms of [`Cnn`], two of which have an ε of their own.
fn folding(name: &str) -> QuantConfig {
    QuantConfig {
        fold_batch_norm: true,
        batch_norms: vec![
            pair("second_norm", "second", Some(1e-2)),
            pair("hidden_norm", "hidden", Some(1e-3)),
        ],
        ..QuantConfig::named(name).expect("it is one")
    }
}

fn paths<M>(quantized: &Quantized<M>) -> Vec<(&str, &str)> {
    let pairs = quantized.folded.iter();
    pairs.map(|pair| (&*pair.layer, &*pair.norm)).collect()
}

fn folds_all<K: MxKernels>(device: &MxDevice<K::Device>)
where
    MxDevice<K::Device>: Clone,
    MxBackend<K>: Backend<Device = MxDevice<K::Device>>,
{
    let model = Cnn::<MxBackend<K>>::new(device);
    let before = outputs(&model, device);
    let quantizer = Quantizer::new(folding("MXINT8")).unwrap();
    let quantized = quantizer
        .quantize(model.clone(), &images(device), Cnn::forward)
        .unwrap();
    let all = [
        ("first", "first_norm"),
        ("second", "second_norm"),
        ("up", "up_norm"),
        ("hidden", "hidden_norm"),
    ];
    assert_eq!(paths(&quantized), all);
    // The model that was given shares its statistics with the folded one.
    assert_same_bits(
        &outputs(&model, device),
        &before,
        "output of the model given",
    );

    let none = MxSpecs::none().resolve().unwrap();
    let float = set_specs(quantized.model.clone(), &none);
    let apart = distance(&outputs(&float, device), &before);
    assert!(
        apart < 1e-5,
        "the folded model without quantization: {apart:e}"
    );
    let apart = distance(&outputs(&quantized.model, device), &before);
    assert!((1e-4..0.1).contains(&apart), "quantized: {apart:e}");

    // By hand: γ / √(variance + ε) is in the weights.
    let of = |state: &RunningState<Tensor<MxBackend<K>, 1>>| values(state.value());
    let norm = &model.second_norm;
    let (gamma, beta) = (values(norm.gamma.val()), values(norm.beta.val()));
    let (mean, variance) = (of(&norm.running_mean), of(&norm.running_var));
    let bias = |layer: &Conv2d<MxBackend<K>>| values(layer.bias.as_ref().unwrap().val());
    let [old, new] = [&model, &quantized.model].map(|model| values(model.second.weight.val()));
    let [old_bias, new_bias] = [&model, &quantized.model].map(|model| bias(&model.second));
    for c in 0..6 {
        let scale = gamma[c] / (variance[c] + 1e-2).sqrt();
        for at in c * 36..(c + 1) * 36 {
            let wanted = old[at] * scale;
            assert!((new[at] - wanted).abs() <= 1e-6 * wanted.abs(), "{c} {at}");
        }
        let wanted = (old_bias[c] - mean[c]) * scale + beta[c];
        assert!((new_bias[c] - wanted).abs() < 1e-5, "{c}");
    }
}

#[test]
fn norms_are_folded_into_layers_of_each_kind() {
    folds_all::<TestBackend>(&MxDevice::default());
}

#[cfg(feature = "ndarray")]
#[test]
fn norms_are_folded_on_another_backend() {
    folds_all::<burn::backend::NdArray>(&MxDevice::default());
}

/// Layers are tuned to their outputs after norms are folded into them.
#[test]
fn folded_models_are_tuned() {
    let device = MxDevice::default();
    let model = Cnn::<B>::new(&device);
    let wanted = outputs(&model, &device);
    let quantized = |fast_finetune| {
        let config = QuantConfig {
            fast_finetune,
            ..folding("MXFP4E2M1")
        };
        let quantizer = Quantizer::new(config).unwrap();
        quantizer
            .quantize(model.clone(), &images(&device), Cnn::forward)
            .unwrap()
    };
    let plain = quantized(None);
    let tuned = quantized(Some(FastFinetune {
        num_iterations: 200,
        learning_rate: Some(1e-3),
        ..FastFinetune::default()
    }));
    assert_eq!(paths(&tuned), paths(&plain));
    assert_eq!(tuned.tuned.len(), 5);
    for layer in &tuned.tuned {
        assert!(layer.error_before < 0.5, "{layer:?}");
        assert!(layer.error_after < layer.error_before, "{layer:?}");
    }
    let apart = |model| distance(&outputs(model, &device), &wanted);
    assert!(apart(&tuned.model) < apart(&plain.model));
    // Where a layer has no bias its norm has it.
    let beta = |norm: &BatchNorm<B>| values(norm.beta.val());
    let [plain, tuned] = [plain.model, tuned.model];
    assert_ne!(beta(&tuned.first_norm), beta(&plain.first_norm));
    assert!(tuned.first.bias.is_none());
    assert_eq!(beta(&tuned.second_norm), beta(&plain.second_norm));
}

/// The layer's outputs that go elsewhere, and how.
#[derive(Clone, Copy)]
enum Way {
    /// Past the norm, to the output alone.
    Past,
    /// The norm is given more than the output.
    Changed,
    /// A second call of the layer has no norm.
    Twice,
    /// The output is given to the norm twice, once changed, and to another one.
    Both,
}

#[test]
fn norms_whose_folding_would_change_the_model_are_left() {
    let device = MxDevice::default();
    let model = Cnn::<B>::new(&device);
    for way in [Way::Past, Way::Changed, Way::Twice, Way::Both] {
        let forward = move |net: &Cnn<B>, x: &Tensor<B, 4>| {
            let y = net.first.forward(x.clone());
            let normal = match way {
                Way::Past => net.first_norm.forward(y.clone()) + y * 0.01,
                Way::Changed => net.first_norm.forward(Relu.forward(y)),
                Way::Twice => net.first_norm.forward(y) + net.first.forward(x.clone() * 0.5),
                Way::Both => {
                    let other = Cnn::<B>::new(&x.device()).first_norm;
                    let both = net.first_norm.forward(y.clone()) + net.first_norm.forward(y + 1.0);
                    both + other.forward(x.clone().repeat_dim(1, 2))
                }
            };
            let x = Relu.forward(normal);
            Relu.forward(net.second_norm.forward(net.second.forward(x)))
        };
        let quantized = |fold_batch_norm| {
            let base = match fold_batch_norm {
                true => folding("MXFP8E4M3"),
                false => QuantConfig::named("MXFP8E4M3").expect("it is one"),
            };
            let config = QuantConfig {
                include: vec!["first".into()],
                ..base
            };
            let quantizer = Quantizer::new(config).unwrap();
            quantizer
                .quantize(model.clone(), &images(&device), forward)
                .unwrap()
        };
        let [folded, plain] = [true, false].map(quantized);
        assert!(folded.folded.is_empty(), "{:?}", folded.folded);
        let x = &images(&device)[0];
        let [folded, plain] = [&folded.model, &plain.model].map(|net| values(forward(net, x)));
        assert_same_bits(&folded, &plain, "output");
    }

    // One that is left does not keep others from being folded.
    let forward = |net: &Cnn<B>, x: &Tensor<B, 4>| {
        let y = net.first.forward(x.clone());
        let x = Relu.forward(net.first_norm.forward(y.clone()) + y);
        net.second_norm.forward(net.second.forward(x))
    };
    let quantizer = Quantizer::new(folding("MXFP8E4M3")).unwrap();
    let folded = quantizer
        .quantize(model, &images(&device), forward)
        .unwrap();
    assert_eq!(paths(&folded), [("second", "second_norm")]);
}

/// A module does not tell the ε of its norms, nor which layer gives a norm its input.
#[test]
fn norms_go_by_the_order_of_fields_until_they_are_named() {
    let device = MxDevice::default();
    let model = Cnn::<B>::new(&device);
    let folded = |config: QuantConfig, forward: fn(&Cnn<B>, &Tensor<B, 4>) -> Tensor<B, 2>| {
        let quantizer = Quantizer::new(config).unwrap();
        let quantized = quantizer.quantize(model.clone(), &images(&device), forward);
        let folded = quantized.unwrap().folded.into_iter();
        folded
            .map(|pair| (pair.layer, pair.norm))
            .collect::<Vec<_>>()
    };
    let owned = |pairs: &[(&str, &str)]| {
        let owned = pairs
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
        owned.collect::<Vec<_>>()
    };
    let unnamed = QuantConfig {
        batch_norms: Vec::new(),
        ..folding("MX9")
    };
    let both = [("first", "first_norm"), ("up", "up_norm")];
    assert_eq!(folded(unnamed.clone(), Cnn::forward), owned(&both));
    let other = QuantConfig {
        batch_norm_epsilon: 1e-2,
        ..unnamed.clone()
    };
    assert_eq!(
        folded(other, Cnn::forward),
        owned(&[("second", "second_norm")])
    );

    // The norms of the first two layers in each other's place.
    let swapped = |net: &Cnn<B>, x: &Tensor<B, 4>| {
        let x = net.first.forward(x.clone()).slice([0..3, 0..6]);
        let x = net
            .second_norm
            .forward(x)
            .repeat_dim(1, 2)
            .slice([0..3, 0..8]);
        let x = net.second.forward(x);
        net.up.forward(x).mean_dim(1).flatten::<2>(1, 3)
    };
    assert_eq!(folded(unnamed.clone(), swapped), []);
    let moved = |net: &Cnn<B>, x: &Tensor<B, 4>| {
        let x = net.up_norm.forward(
            net.up
                .forward(net.second.forward(net.first.forward(x.clone()))),
        );
        let x = net.hidden.forward(x.mean_dim(1).flatten::<2>(1, 3));
        net.first_norm.forward(x.slice([0..3, 0..8]))
    };
    assert_eq!(folded(unnamed, moved), owned(&[("up", "up_norm")]));
}

#[test]
fn what_folding_needs_is_said() {
    let device = MxDevice::default();
    let model = Cnn::<B>::new(&device);
    let quantizer = Quantizer::new(folding("MX6")).unwrap();
    let empty = quantizer
        .quantize(model.clone(), &[], Cnn::forward)
        .unwrap_err();
    assert!(matches!(empty, PtqError::NoCalibration), "{empty}");
    assert!(empty.to_string().contains("folded batch norms"));
    let two = |net: &Cnn<B>, x: &Tensor<B, 4>| (net.forward(x), 1);
    let output = quantizer
        .quantize(model, &images(&device), two)
        .unwrap_err();
    assert!(matches!(output, PtqError::Output), "{output}");

    let named = |norm, layer| {
        let config = QuantConfig {
            batch_norms: vec![pair(norm, layer, None)],
            ..folding("MX6")
        };
        let quantizer = Quantizer::new(config).unwrap();
        let error = quantizer.quantize(Cnn::<B>::new(&device), &images(&device), Cnn::forward);
        error.unwrap_err().to_string()
    };
    let error = named("third_norm", "first");
    assert!(
        error.contains("`third_norm`") && error.contains("first_norm, second_norm"),
        "{error}"
    );
    let error = named("first_norm", "third");
    assert!(
        error.contains("`third`") && error.contains("first, second"),
        "{error}"
    );
    let refused = |config| Quantizer::new(config).unwrap_err().to_string();
    let twice = [pair("up_norm", "up", None), pair("up_norm", "first", None)];
    let error = refused(QuantConfig {
        batch_norms: twice.to_vec(),
        ..folding("MX6")
    });
    assert!(error.contains("`up_norm` twice"), "{error}");
    let error = refused(QuantConfig {
        fold_batch_norm: false,
        ..folding("MX6")
    });
    assert!(
        error.contains("`batch_norms`") && error.contains("fold_batch_norm"),
        "{error}"
    );
    let config = QuantConfig {
        batch_norm_epsilon: f64::NAN,
        ..folding("MX6")
    };
    let error = Quantizer::new(config).unwrap_err().to_string();
    assert!(error.contains("`batch_norm_epsilon` is NaN"), "{error}");

    let config = folding("MX6");
    let json = config.to_json();
    assert!(json.contains("\"fold_batch_norm\": true"), "{json}");
    assert_eq!(QuantConfig::from_json(&json).unwrap(), config);
    assert!(QuantConfig::names().all(|name| !QuantConfig::named(&name).unwrap().fold_batch_norm));
}
