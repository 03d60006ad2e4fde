//! AdaRound: which neighbour on its grid each element of a weight is rounded to.

use burn::nn::conv::{Conv2d, Conv2dConfig, ConvTranspose2d, ConvTranspose2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d, Relu};
use burn::prelude::*;
use burn_mx::ptq::{FastFinetune, OptimAlgorithm, QuantConfig, Quantized, Quantizer};
use burn_mx::{BlockFormat, Rounder};
use burn_mx::{MxBackend, MxDevice, MxKernels, MxSpecs, Slot};

use crate::support::*;

type B = MxBackend<TestBackend>;

#[derive(Module, Debug)]
struct Net<B: Backend> {
    conv: Conv2d<B>,
    up: ConvTranspose2d<B>,
    hidden: Linear<B>,
    head: Linear<B>,
}

impl<B: Backend> Net<B> {
    fn new(device: &B::Device) -> Self {
        let net = Self {
            conv: Conv2dConfig::new([8, 12], [3, 3])
                .with_padding(PaddingConfig2d::Same)
                .with_groups(2)
                .init(device),
            up: ConvTranspose2dConfig::new([12, 4], [2, 2])
                .with_stride([2, 2])
                .init(device),
            hidden: LinearConfig::new(64, 48).init(device),
            head: LinearConfig::new(48, 5).with_bias(false).init(device),
        };
        with_noise_weights(net, 71)
    }

    fn forward(&self, x: &Tensor<B, 4>) -> Tensor<B, 2> {
        let x = Relu.forward(self.conv.forward(x.clone()));
        let x = Relu.forward(self.up.forward(x)).mean_dim(1);
        let x = Relu.forward(self.hidden.forward(x.flatten(1, 3)));
        self.head.forward(x)
    }
}

fn images<B: Backend>(device: &B::Device) -> Vec<Tensor<B, 4>> {
    let batch = |seed| noise_tensor([8, 8, 4, 4], seed, device);
    (72..76).map(batch).collect()
}

fn config(name: &str, tuning: FastFinetune) -> QuantConfig {
    let mut config = QuantConfig::named(name).expect("it is one");
    // The text on weights is not lost in the text on activations.
    config.specs.a_elem_format = None;
    config.fast_finetune = Some(tuning);
    config
}

fn rounding() -> FastFinetune {
    FastFinetune {
        num_iterations: 300,
        batch_size: 8,
        learning_rate: Some(0.02),
        optim_algorithm: OptimAlgorithm::AdaRound,
        ..FastFinetune::default()
    }
}

fn quantize<K: MxKernels>(config: QuantConfig) -> Quantized<Net<MxBackend<K>>> {
    let device = MxDevice::<K::Device>::default();
    let net = Net::<MxBackend<K>>::new(&device);
    let quantizer = Quantizer::new(config).unwrap();
    quantizer
        .quantize(net, &images(&device), Net::forward)
        .unwrap()
}

/// Each weight with the axis that its blocks lie along.
fn blocks<K: MxKernels>(net: &Net<MxBackend<K>>) -> Vec<(Vec<f32>, Vec<usize>, usize)> {
    fn of<K: MxKernels, const D: usize>(
        weight: Tensor<MxBackend<K>, D>,
        axis: usize,
    ) -> (Vec<f32>, Vec<usize>, usize) {
        let shape = weight.dims().to_vec();
        (values(weight), shape, axis)
    }
    vec![
        of(net.conv.weight.val(), 1),
        of(net.up.weight.val(), 0),
        of(net.hidden.weight.val(), 0),
        of(net.head.weight.val(), 0),
    ]
}

/// For each format, a tuned weight is one of the two grid numbers around the old weight, quantization leaves it unchanged,
/// and the output is closer.
fn rounds_on_the_grid<K: MxKernels>(
    names: impl IntoIterator<Item = String>,
    num_iterations: usize,
) {
    let device = MxDevice::<K::Device>::default();
    let before = blocks(&Net::<MxBackend<K>>::new(&device));
    for name in names {
        let tuning = FastFinetune {
            num_iterations,
            ..rounding()
        };
        let config = config(&name, tuning);
        let format = config.specs.resolve().unwrap().block_format(Slot::W);
        let format: BlockFormat = format.unwrap();
        let quantized = quantize::<K>(config);
        assert_eq!(quantized.tuned.len(), 4);
        for layer in &quantized.tuned {
            assert!(layer.error_after <= layer.error_before, "{name}: {layer:?}");
        }
        let sum =
            |of: fn(&burn_mx::ptq::TunedLayer) -> f64| quantized.tuned.iter().map(of).sum::<f64>();
        let [old, new] = [
            sum(|layer| layer.error_before),
            sum(|layer| layer.error_after),
        ];
        assert!(new < 0.95 * old, "{name}: {old:e} {new:e}");
        let after = blocks(&quantized.model);
        let mut flipped = 0;
        for ((old, shape, axis), (new, _, _)) in before.iter().zip(&after) {
            let rounded = |values: &[f32], rounder| {
                let mut values = values.to_vec();
                format.quantize(&mut values, shape, *axis, rounder).unwrap();
                values
            };
            let [nearest, inner] =
                [Rounder::NearestEven, Rounder::TowardZero].map(|rounder| rounded(old, rounder));
            let again = rounded(new, Rounder::NearestEven);
            let layer_changed = old != new;
            for at in 0..old.len() {
                let (old, new) = (old[at], again[at]);
                let moved = new != nearest[at];
                flipped += usize::from(moved);
                assert!(layer_changed || !moved, "{name}");
                let is_inner = new == inner[at];
                let is_beyond = new.abs() >= old.abs() && old * new >= 0.0;
                assert!(is_inner || is_beyond, "{name}: {old} became {new}");
            }
            // Elements are on the grid, or of an unchanged block.
            for (at, value) in new.iter().enumerate() {
                assert!(*value == again[at] || *value == old[at], "{name}: {value}");
            }
        }
        assert!(flipped > 0, "{name}");
    }
}

#[test]
fn weights_get_a_neighbour_on_their_grid() {
    rounds_on_the_grid::<TestBackend>(
        QuantConfig::names().filter(|name| !name.ends_with("_ADAQUANT")),
        300,
    );
}

#[cfg(feature = "ndarray")]
#[test]
fn weights_get_a_neighbour_on_their_grid_on_another_backend() {
    rounds_on_the_grid::<burn::backend::NdArray>(["MXFP4E2M1", "MX4"].map(String::from), 100);
}

#[test]
fn roundings_are_the_same_each_time_and_biases_stay() {
    let tuned = |fixed_seed| {
        let tuning = FastFinetune {
            fixed_seed,
            ..rounding()
        };
        let quantized = quantize::<TestBackend>(config("MXFP4E2M1", tuning));
        (weights(&quantized.model), quantized.tuned)
    };
    let (first, layers) = tuned(1);
    let (again, layers_again) = tuned(1);
    assert_all_same_bits(&again, &first, "weight");
    assert_eq!(layers, layers_again);
    assert_ne!(tuned(2).0, first);
    let net = Net::<B>::new(&MxDevice::default());
    let given = weights(&net);
    let is_bias = |values: &[f32]| [12, 4, 48].contains(&values.len());
    let pairs = given.iter().zip(&first).filter(|(given, _)| is_bias(given));
    let mut count = 0;
    for (given, after) in pairs {
        assert_same_bits(after, given, "bias");
        count += 1;
    }
    assert_eq!(count, 3);
}

/// With steps too small to flip anything nothing gets better, and with a regularizer alone nothing is learned of the data.
#[test]
fn layers_that_get_no_better_keep_their_weights() {
    let tuning = FastFinetune {
        learning_rate: Some(1e-12),
        ..rounding()
    };
    let quantized = quantize::<TestBackend>(config("MX6", tuning));
    for layer in &quantized.tuned {
        assert_eq!(layer.error_after, layer.error_before, "{layer:?}");
        // 5 looks of 15 steps after the warm start of 60, which ends with a look.
        assert_eq!(layer.iterations, 60 + 4 * 15, "{layer:?}");
    }
    let given = weights(&Net::<B>::new(&MxDevice::default()));
    assert_all_same_bits(&weights(&quantized.model), &given, "weight");
}

#[test]
fn what_cannot_be_rounded_so_is_refused() {
    let json = r#"{ "MXAttributes": { "element_dtype": "fp4_e2m1" },
                    "FastFinetune": { "OptimAlgorithm": "adaround", "RegParam": 0.02, "BetaRange": [10, 2], "WarmStart": 0.1 } }"#;
    let read = QuantConfig::from_json(json).unwrap();
    assert_eq!(QuantConfig::from_json(&read.to_json()).unwrap(), read);
    let read = read.fast_finetune.unwrap();
    assert_eq!(
        read,
        FastFinetune {
            optim_algorithm: OptimAlgorithm::AdaRound,
            reg_param: 0.02,
            beta_range: [10.0, 2.0],
            warm_start: 0.1,
            ..FastFinetune::default()
        }
    );
    let refused = |tuning, change: fn(&mut MxSpecs)| {
        let mut config = config("MXFP4E2M1", tuning);
        change(&mut config.specs);
        Quantizer::new(config).unwrap_err().to_string()
    };
    let fields = |tuning| refused(tuning, |_| ());
    for (message, parts) in [
        (
            fields(FastFinetune {
                reg_param: -1.0,
                ..rounding()
            }),
            ["`RegParam` is -1.0", "0 or a positive number"],
        ),
        (
            fields(FastFinetune {
                beta_range: [2.0, 20.0],
                ..rounding()
            }),
            ["`BetaRange` is [2.0, 20.0]", "the first no less"],
        ),
        (
            fields(FastFinetune {
                warm_start: 1.0,
                ..rounding()
            }),
            ["`WarmStart` is 1.0", "less than 1"],
        ),
        (
            refused(rounding(), |specs| {
                specs.a_elem_format = specs.w_elem_format.take();
            }),
            [
                "`OptimAlgorithm` is `adaround` with the specs",
                "or `adaquant`",
            ],
        ),
        (
            refused(rounding(), |specs| {
                specs.w_elem_format = Some("nvfp4".into());
                specs.block_size = 0;
            }),
            ["nvfp4", "or `adaquant`"],
        ),
    ] {
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }
}
