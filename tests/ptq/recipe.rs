//! A trained model is quantized by a recipe: formats layer by layer.

use burn::module::{Module, Param};
use burn::tensor::module::linear;
use burn::tensor::{Tensor, backend::Backend};
use burn_mx::module::set_specs_at;
use burn_mx::ptq::{PtqError, QuantConfig, Quantized, Quantizer};
use burn_mx::{MxBackend, MxSpecs, Recipe};

use crate::support::*;

type B = MxBackend<TestBackend>;

#[derive(Module, Debug)]
struct Linear<B: Backend> {
    weight: Param<Tensor<B, 2>>,
}

#[derive(Module, Debug)]
struct Net<B: Backend> {
    up: Linear<B>,
    down: Linear<B>,
}

impl<B: Backend> Net<B> {
    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let hidden = linear(x, self.up.weight.val(), None);
        linear(hidden, self.down.weight.val(), None)
    }
}

fn noise_of(shape: [usize; 2], seed: u64) -> Tensor<B, 2> {
    noise_tensor(shape, seed, &mx_device(&MxSpecs::none()))
}

fn net() -> Net<B> {
    let layer = |shape, seed| Linear {
        weight: Param::from_tensor(noise_of(shape, seed)),
    };
    Net {
        up: layer([64, 96], 1),
        down: layer([96, 32], 2),
    }
}

fn recipe(json: &str) -> Recipe {
    serde_json::from_str(json).unwrap()
}

/// Formats for both operands of all products, in the specs of a training.
const RECIPE: &str = r#"{
    "specs": {"w_elem_format": "mxfp8_e4m3", "a_elem_format": "mxfp8_e4m3", "bfloat": 16},
    "layers": {"up.weight": {"w_elem_format": "mxfp4", "a_elem_format": "mxfp6_e2m3",
                             "a_elem_format_bp_ex": "mxfp4", "bfloat": 16}}
}"#;

fn quantize(config: QuantConfig, net: Net<B>) -> Result<Quantized<Net<B>>, PtqError> {
    let data = [noise_of([256, 64], 3)];
    Quantizer::new(config)?.quantize(net, &data, |net, x| net.forward(x.clone()))
}

#[test]
fn layers_have_the_formats_of_the_recipe() {
    let net = net();
    let x = noise_of([8, 64], 4);
    for weights_only in [false, true] {
        let mut config = QuantConfig::from_recipe(recipe(RECIPE)).unwrap();
        if weights_only {
            config = config.weights_only();
        }
        let quantized = quantize(config, net.clone()).unwrap();
        let specs = |weight: &str, input: &str| {
            let specs = MxSpecs {
                w_elem_format: Some(weight.parse().unwrap()),
                a_elem_format: (!weights_only).then(|| input.parse().unwrap()),
                ..MxSpecs::none()
            };
            specs.resolve().unwrap()
        };
        let by_hand = set_specs_at(net.clone(), "up", &specs("mxfp4", "mxfp6_e2m3")).unwrap();
        let by_hand = set_specs_at(by_hand, "down", &specs("mxfp8_e4m3", "mxfp8_e4m3")).unwrap();
        let outputs = [&quantized.model, &by_hand].map(|net| net.forward(x.clone()).into_data());
        assert_eq!(outputs[0], outputs[1]);
        // 6144 weights of 4.25 bits, and 3072 of 8.25.
        assert!((quantized.weight_bits() - (4.25 * 2.0 + 8.25) / 3.0).abs() < 1e-12);
        let layers = quantized.layers.iter();
        let layers: Vec<_> = layers
            .map(|layer| {
                (
                    &*layer.layer,
                    layer.format.unwrap().to_string(),
                    layer.elements,
                )
            })
            .collect();
        let expected = [("up", "mxfp4", 6144), ("down", "mxfp8_e4m3", 3072)];
        let expected = expected.map(|(layer, format, elements)| (layer, format.into(), elements));
        assert_eq!(layers, expected);
    }
}

#[test]
fn a_method_rounds_every_layer_in_its_own_format() {
    for method in ["_GPTQ", "_MRGPTQ"] {
        let config = QuantConfig::from_recipe(recipe(RECIPE)).unwrap();
        let config = config.weights_only().with_method(method).unwrap();
        let transforms = [&config.specs, &config.layers["up.weight"]];
        let transforms = transforms.map(|specs| specs.hadamard_forward.map(|of| of.block_size));
        let block_size = (method == "_MRGPTQ").then_some(32);
        assert_eq!(transforms, [block_size; 2]);
        let quantized = quantize(config, net()).unwrap();
        assert_eq!(quantized.layers[0].format.unwrap().to_string(), "mxfp4");
        assert_eq!(quantized.gptq.len(), 2);
        for layer in quantized.gptq {
            assert!(layer.error < layer.error_nearest, "{method}: {layer:?}");
        }
    }
    let config = || QuantConfig::from_recipe(recipe(RECIPE)).unwrap();
    let unknown = config().with_method("_QUAROT").unwrap_err().to_string();
    assert!(
        unknown.contains("`_QUAROT`") && unknown.contains("_MRGPTQ"),
        "{unknown}"
    );
}

#[test]
fn a_recipe_of_another_model_is_refused() {
    let other = recipe(
        r#"{"specs": {"w_elem_format": "mxfp4"}, "layers": {"head.weight": {"w_elem_format": "mxfp8_e4m3"}}}"#,
    );
    let error = quantize(QuantConfig::from_recipe(other).unwrap(), net());
    let error = error.map(drop).unwrap_err().to_string();
    assert!(
        error.contains("`head.weight`") && error.contains("down"),
        "{error}"
    );
    let exempt = Recipe::preset("nvfp4_pretraining").unwrap();
    let error = QuantConfig::from_recipe(exempt).unwrap_err().to_string();
    assert!(error.contains("`exemptions`"), "{error}");
}
