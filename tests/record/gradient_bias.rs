//! Whether gradients are biased: known biased and unbiased recipes get the right verdicts.

use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, Gelu, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::prelude::*;
use burn_mx::diagnose::{
    Biases, GradientBias, GradientBiasError, Products, Verdict, chart, gradient_bias,
    gradient_bias_with_progress,
};
use burn_mx::module::{set_exemptions, set_specs_at};
use burn_mx::{MxSpecs, Recipe};
use burn_mx::{Rounding, ScaleMode};

use crate::support::*;

#[derive(Module, Debug)]
struct Mlp<B: Backend> {
    up: Linear<B>,
    norm: LayerNorm<B>,
    down: Linear<B>,
    dropout: Dropout,
}

impl<B: Backend> Mlp<B> {
    fn new(device: &B::Device) -> Self {
        let mlp = Self {
            up: LinearConfig::new(64, 96).init(device),
            norm: LayerNormConfig::new(96).init(device),
            down: LinearConfig::new(96, 64).with_bias(false).init(device),
            dropout: DropoutConfig::new(0.0).init(),
        };
        with_noise_weights(mlp, 4)
    }

    fn loss(&self, x: &Tensor<B, 2>) -> Tensor<B, 1> {
        let hidden = Gelu::new().forward(self.norm.forward(self.up.forward(x.clone())));
        let y = self.down.forward(self.dropout.forward(hidden));
        // Gradients of all sizes.
        (y * noise_tensor::<B, 2>([64, 64], 8, &x.device()).powi_scalar(3)).mean()
    }
}

fn biases_by(specs: &MxSpecs, config: &GradientBias) -> Biases {
    let device = mx_device(specs);
    let x = noise_tensor::<Mx, 2>([64, 64], 7, &device);
    gradient_bias(&Mlp::<Mx>::new(&device), &x, Mlp::loss, config).expect("it has gradients")
}

fn stochastic(scale_mode: ScaleMode) -> MxSpecs {
    MxSpecs {
        round: Rounding::Stochastic,
        scale_mode,
        ..MxSpecs::mxfp4()
    }
}

fn verdicts(biases: &Biases, products: Products) -> Vec<(&str, Verdict)> {
    let parameters = biases.parameters.iter();
    parameters
        .map(|parameter| (parameter.parameter.as_str(), parameter.of(products).verdict))
        .collect()
}

/// The weights, whose gradients are products, by the verdict on them.
fn of_weights(biases: &Biases) -> [Verdict; 2] {
    ["up.weight", "down.weight"].map(|name| {
        let mut parameters = biases.parameters.iter();
        let weight = parameters.find(|parameter| parameter.parameter == name);
        weight.expect("the model has it").of(Products::All).verdict
    })
}

#[test]
fn nearest_rounding_comes_to_a_halt() {
    let config = GradientBias {
        backward_passes: 32,
        ..GradientBias::default()
    };
    for specs in [
        MxSpecs::mxfp4(),
        MxSpecs::nvfp4(),
        MxSpecs::mxfp8_e4m3(),
        MxSpecs::mxfp8_rceil(),
    ] {
        let biases = biases_by(&specs, &config);
        assert_eq!(of_weights(&biases), [Verdict::Biased; 2], "{specs:?}");
        for parameter in &biases.parameters {
            let bias = parameter.of(Products::All);
            assert!(bias.noise < 1e-6 && bias.slope.abs() < 1e-6);
            assert_eq!(bias.passes, [1, 2, 4, 8, 16, 32]);
        }
    }
    // The last layer's weight has no gradient of an activation; a norm has no gradient of a weight.
    let biases = biases_by(&MxSpecs::mxfp4(), &config);
    let by = |products| verdicts(&biases, products);
    use Verdict::{Biased, Exact};
    assert_eq!(
        by(Products::InputGradients),
        [
            ("up.weight", Biased),
            ("up.bias", Biased),
            ("norm.gamma", Biased),
            ("norm.beta", Biased),
            ("down.weight", Exact)
        ]
    );
    assert_eq!(
        by(Products::WeightGradients),
        [
            ("up.weight", Biased),
            ("up.bias", Exact),
            ("norm.gamma", Exact),
            ("norm.beta", Exact),
            ("down.weight", Biased)
        ]
    );
}

#[test]
fn stochastic_rounding_is_unbiased_if_nothing_saturates() {
    let config = GradientBias {
        backward_passes: 256,
        products: vec![Products::All],
        seed: 1,
    };
    for specs in [
        stochastic(ScaleMode::Rceil),
        stochastic(ScaleMode::Ceil),
        MxSpecs::mxfp4_sr_rht(),
    ] {
        let biases = biases_by(&specs, &config);
        assert_eq!(of_weights(&biases), [Verdict::Unbiased; 2], "{specs:?}");
        for parameter in &biases.parameters {
            let bias = parameter.of(Products::All);
            if parameter.parameter.ends_with("weight") {
                assert!(
                    (bias.slope + 1.0).abs() < 0.25,
                    "{}: {}",
                    parameter.parameter,
                    bias.slope
                );
            }
        }
    }
    // The floor scale lets the largest elements saturate.
    let biases = biases_by(&stochastic(ScaleMode::Floor), &config);
    assert_eq!(of_weights(&biases), [Verdict::Biased; 2]);
    let slopes = biases
        .parameters
        .iter()
        .map(|parameter| parameter.of(Products::All).slope);
    assert!(slopes.fold(-1.0, f64::max) > -0.5);

    assert!(biases.table().contains("down.weight"));
    let json: serde_json::Value = serde_json::from_str(&biases.json()).expect("it is JSON");
    assert_eq!(json["parameters"][0]["biases"][0]["passes"][8], 256);
    let svg = chart(&[("floor", &biases), ("again", &biases)]).expect("it can be drawn");
    assert!(svg.starts_with("<svg") && svg.contains("floor: ") && svg.contains("again: "));
    assert!(svg.contains("a biased parameter") && !svg.contains("an unbiased parameter"));
}

#[test]
fn the_model_and_its_random_numbers_are_left_alone() {
    let specs = stochastic(ScaleMode::Floor);
    let device = mx_device(&specs);
    let model = Mlp::<Mx>::new(&device);
    let x = noise_tensor::<Mx, 2>([64, 64], 7, &device);
    let gradients_after = |diagnose: bool| {
        Mx::seed(&device, 3);
        let config = GradientBias {
            backward_passes: 8,
            ..GradientBias::default()
        };
        let found = diagnose
            .then(|| gradient_bias(&model, &x, Mlp::loss, &config).expect("it has gradients"));
        let grads = model.loss(&x).backward();
        (
            gradients::<Mx, _>(&model, &grads),
            found.map(|biases| biases.json()),
        )
    };
    let (alone, _) = gradients_after(false);
    let (after, first) = gradients_after(true);
    assert_all_same_bits(&after, &alone, "gradient");
    // And the same diagnosis again has the same random numbers.
    assert_eq!(gradients_after(true).1, first);
}

#[test]
fn progress_is_shown_and_layers_have_specs_of_their_own() {
    let device = mx_device(&MxSpecs::mxfp4());
    let none = MxSpecs::none().resolve().expect("nothing is sound");
    let model = set_specs_at(Mlp::<Mx>::new(&device), "down", &none).expect("it has one");
    let x = noise_tensor::<Mx, 2>([64, 64], 7, &device);
    let config = GradientBias {
        backward_passes: 8,
        products: vec![Products::All, Products::WeightGradients],
        seed: 0,
    };
    let mut seen = Vec::new();
    let progress = |done, all| seen.push((done, all));
    let biases = gradient_bias_with_progress(&model, &x, Mlp::loss, &config, progress);
    let biases = biases.expect("it has gradients");
    assert_eq!(seen, (1..=16).map(|done| (done, 16)).collect::<Vec<_>>());
    assert_eq!(of_weights(&biases), [Verdict::Biased, Verdict::Exact]);
}

#[test]
fn what_cannot_be_tried_is_an_error() {
    let error = |specs: &MxSpecs, config: &GradientBias| {
        let device = mx_device(specs);
        let x = noise_tensor::<Mx, 2>([64, 64], 7, &device);
        gradient_bias(&Mlp::<Mx>::new(&device), &x, Mlp::loss, config).expect_err("it is refused")
    };
    let config = |backward_passes| GradientBias {
        backward_passes,
        ..GradientBias::default()
    };
    assert_eq!(
        error(&MxSpecs::mxfp4(), &config(7)).to_string(),
        "`backward_passes` is 7; allowed: 8 or more"
    );
    let no_products = GradientBias {
        products: vec![],
        ..config(8)
    };
    assert!(
        error(&MxSpecs::mxfp4(), &no_products)
            .to_string()
            .starts_with("`products` is empty")
    );
    let forward_only = MxSpecs {
        quantize_backprop: false,
        ..MxSpecs::mxfp4()
    };
    for specs in [MxSpecs::none(), bfloat16_only(), forward_only] {
        let error = error(&specs, &config(8));
        assert!(
            matches!(error, GradientBiasError::NotQuantized),
            "{specs:?}: {error}"
        );
    }

    let device = mx_device(&MxSpecs::mxfp4());
    let mut model = Mlp::<Mx>::new(&device);
    let x = noise_tensor::<Mx, 2>([64, 64], 7, &device);
    let constant = |_: &Mlp<Mx>, x: &Tensor<Mx, 2>| x.clone().require_grad().sum();
    let no_gradient = gradient_bias(&model, &x, constant, &config(8)).expect_err("no gradient");
    assert!(matches!(no_gradient, GradientBiasError::NoGradient));
    model.dropout = DropoutConfig::new(0.5).init();
    let random = gradient_bias(&model, &x, Mlp::loss, &config(8)).expect_err("dropout");
    assert!(random.to_string().contains("dropout"), "{random}");
}

/// A recipe's exempt layers have the elementwise format, which a diagnosis computes without: nothing of theirs is quantized.
#[test]
fn an_exempt_layer_adds_nothing() {
    let recipe = Recipe::preset("mxfp8_pretraining").expect("it is one");
    let device = mx_device(&recipe.specs);
    let x = noise_tensor::<Mx, 2>([64, 64], 7, &device);
    let forward = |model: &Mlp<Mx>| model.loss(&x);
    let (model, exempt) =
        set_exemptions(Mlp::<Mx>::new(&device), &recipe, forward).expect("it has layers");
    assert_eq!(exempt, ["down"]);
    let config = GradientBias {
        backward_passes: 8,
        products: vec![Products::All],
        seed: 1,
    };
    let biases = gradient_bias(&model, &x, Mlp::loss, &config).expect("it has gradients");
    use Verdict::{Biased, Exact};
    let expected = [
        ("up.weight", Biased),
        ("up.bias", Exact),
        ("norm.gamma", Exact),
        ("norm.beta", Exact),
        ("down.weight", Exact),
    ];
    assert_eq!(verdicts(&biases, Products::All), expected);
}

#[test]
fn recipes_of_the_literature_are_what_they_claim() {
    let config = GradientBias {
        backward_passes: 256,
        products: vec![Products::All],
        seed: 1,
    };
    let of = |specs: &MxSpecs| of_weights(&biases_by(specs, &config));
    assert_eq!(of(&MxSpecs::mxfp4_backward()), [Verdict::Unbiased; 2]);
    // The same without its headroom saturates; to nearest, and with weights and inputs to nearest, there is a bias.
    let without_headroom = MxSpecs {
        headroom_bp: Default::default(),
        ..MxSpecs::mxfp4_backward()
    };
    assert_eq!(of(&without_headroom), [Verdict::Biased; 2]);
    for name in [
        "mxfp8_pretraining",
        "mxfp6_training",
        "nvfp4_pretraining",
        "quartet",
    ] {
        let specs = MxSpecs::preset(name).expect("it is a preset");
        assert_eq!(of(&specs), [Verdict::Biased; 2], "{name}");
    }
}
