//! Weights that a model multiplies with itself, and not as a layer: adapters, tied heads, products of two weights.

use burn::module::Param;
use burn::prelude::*;
use burn::tensor::backend::AutodiffBackend;
use burn_mx::module::{label_parameters, set_recipe_layers, set_specs};
use burn_mx::record::{Budget, Pass, Recorder, RecorderConfig, Report, Score, Search, products};
use burn_mx::{MxSpecs, Recipe};

use super::records;
use crate::support::*;

#[derive(Module, Debug)]
struct Adapted<B: Backend> {
    down: Param<Tensor<B, 2>>,
    up: Param<Tensor<B, 2>>,
    left: Param<Tensor<B, 2>>,
    right: Param<Tensor<B, 2>>,
}

impl<B: Backend> Adapted<B> {
    fn new(device: &B::Device) -> Self {
        let weight = |shape, seed| {
            let values = noise_tensor::<B, 2>(shape, seed, device);
            Param::from_tensor(values.require_grad())
        };
        Self {
            down: weight([64, 32], 1),
            up: weight([32, 96], 2),
            left: weight([64, 32], 3),
            right: weight([32, 96], 4),
        }
    }

    /// x · down · up + x · (left · right)
    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let low_rank = x.clone().matmul(self.down.val()).matmul(self.up.val());
        low_rank + x.matmul(self.left.val().matmul(self.right.val()))
    }
}

/// A training step. Some rows of the input and of the gradient are large, so that formats fit one axis better than the other.
fn step<B: AutodiffBackend>(model: &Adapted<B>, device: &B::Device) {
    let large = Tensor::<B, 2>::from_data([[1.0], [300.0], [1.0], [7.0], [1e-3], [1.0]], device);
    let input = noise_tensor::<B, 2>([6, 64], 5, device) * large.clone();
    let output = model.forward(input);
    let wanted = noise_tensor::<B, 2>([6, 96], 6, device) * large;
    (output * wanted).sum().backward();
}

/// The report of a step.
fn recorded(model: &Adapted<Mx>, what_if: &[&str]) -> Report {
    let device = model.devices().remove(0);
    let folder = tempfile::tempdir().unwrap();
    let config = RecorderConfig {
        what_if: what_if.iter().map(|name| (*name).to_owned()).collect(),
        ..RecorderConfig::default()
    };
    let recorder = Recorder::new(config).on_this_thread();
    let recording = recorder.start(folder.path()).unwrap();
    step(model, &device);
    recording.finish().unwrap();
    Report::read([folder.path()]).unwrap()
}

/// Mean bits of the operands that a step with the recipe computes with.
fn bits_in_use(recipe: &Recipe) -> f64 {
    let device = mx_device(&recipe.specs);
    let model = label_parameters(Adapted::<Mx>::new(&device));
    let model = set_specs(model, &recipe.specs.resolve().unwrap());
    let model = set_recipe_layers(model, recipe).unwrap();
    let report = recorded(&model, &[]);
    let with_weight: Vec<_> = report.steps().flat_map(|step| &step.products).collect();
    let operands = with_weight
        .iter()
        .filter(|product| !product.layer.contains("matmul"))
        .flat_map(|product| &product.operands);
    let (mut bits, mut elements) = (0.0, 0.0);
    for operand in operands {
        let format: burn_mx::BlockFormat = operand.format.as_ref().unwrap().parse().unwrap();
        let count = operand.figures.elements as f64;
        bits += format.bits_per_element() * count;
        elements += count;
    }
    bits / elements
}

#[test]
fn a_recipe_has_the_bits_that_the_search_reports() {
    let names = ["mxfp4", "mxfp6_e2m3", "mxfp8_e4m3"];
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let model = label_parameters(Adapted::<Mx>::new(&device));
    let report = recorded(&model, &names);
    for bits in [4.6, 5.0, 5.5, 6.25, 7.0] {
        let search = Search {
            formats: names.map(str::to_owned).to_vec(),
            ..records::search(bits)
        };
        let found = search.find(&report).unwrap();
        let random = search
            .random(report.sensitivities(Score::Noise).unwrap(), 3)
            .unwrap();
        for found in [found, random] {
            let used = bits_in_use(&found.recipe);
            assert!(
                used <= bits + 1e-9,
                "{used} for a budget of {bits}: {}",
                found.table()
            );
            assert!(
                (used - found.total.bits).abs() < 1e-9,
                "{used}, and the search says {}",
                found.total.bits
            );
        }
    }
}

/// The two weights of a product are two operands in one slot.
#[test]
fn a_product_of_two_weights_has_a_cost() {
    let specs = MxSpecs::mxfp8_e4m3();
    let device = mx_device(&specs);
    let model = label_parameters(Adapted::<Mx>::new(&device));
    let report = recorded(&model, &["mxfp4", "mxfp8_e4m3"]);
    let places = report.sensitivities(Score::Noise).unwrap();
    let of_left = places
        .iter()
        .filter(|place| place.layer == "left" && place.slot == burn_mx::Slot::W);
    let elements: Vec<f64> = of_left.map(|place| place.elements).collect();
    assert_eq!(elements, [64.0 * 32.0, 32.0 * 96.0]);
    let tables = burn_mx::cost::Tables::default();
    let search = Search {
        budget: Budget::Energy {
            picojoules: f64::INFINITY,
            operations: tables.operations.clone(),
        },
        ..records::search(0.0)
    };
    let found = search.find(&report).unwrap();
    // The step's energy by the records, without the product that has no weight.
    let step = report.steps().next().unwrap();
    let mut counted = step.cost_products();
    counted.retain(|product| !product.layer.contains("matmul"));
    let macs: f64 = counted.iter().map(|product| product.macs).sum();
    let picojoules = tables.cost(&counted).picojoules;
    // Two products of down, as the input has no gradient, three of up, and three of left · right.
    let (down, up) = (6.0 * 64.0 * 32.0, 6.0 * 32.0 * 96.0);
    assert_eq!(macs, 2.0 * down + 3.0 * up + 3.0 * 64.0 * 32.0 * 96.0);
    let wide = &found.uniform[1];
    assert_eq!(wide.0, "mxfp8_e4m3");
    assert!((wide.1.cost - picojoules / macs).abs() < 1e-9 * wide.1.cost);
}

/// A matrix product has one slot for its output gradient.
#[test]
fn the_cost_of_a_weight_in_a_matrix_product_is_of_the_formats_in_use() {
    let specs = MxSpecs {
        a_elem_format_bp_ex: "mxfp4".parse().ok(),
        ..MxSpecs::mxfp8_e4m3()
    };
    let device = mx_device(&specs);
    let model = label_parameters(Adapted::<Mx>::new(&device));
    let recorded = recorded(&model, &[]);
    let recorded = recorded.steps().next().unwrap().cost_products();
    let seen = products(Pass::Training, || {
        drop(model.forward(noise_tensor([6, 64], 5, &device)));
    });
    // The input of `down` has no gradient in the step.
    for layer in ["up", "left"] {
        let bits = |products: &[burn_mx::cost::Product]| -> f64 {
            let own = products.iter().filter(|product| product.layer == layer);
            own.map(burn_mx::cost::Product::operand_bits).sum()
        };
        assert_eq!(bits(&seen), bits(&recorded), "{layer}");
    }
}
