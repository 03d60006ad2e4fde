//! The sizes of recorded products, which models of cost take.

use burn::nn::conv::{Conv2d, Conv2dConfig, ConvTranspose2d, ConvTranspose2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::prelude::*;
use burn::tensor::backend::AutodiffBackend;
use burn_mx::cost::Product;
use burn_mx::module::label_parameters;
use burn_mx::record::{Pass, ProductKind, RecorderConfig, Report, products};
use burn_mx::{MxAutodiff, MxDevice, MxSpecs};

use super::{folder, product, record_here, steps};
use crate::support::{TestBackend, TestDevice, noise_tensor};

#[derive(Module, Debug)]
struct Model<B: Backend> {
    down: Conv2d<B>,
    up: ConvTranspose2d<B>,
    head: Linear<B>,
}

impl<B: Backend> Model<B> {
    fn new(device: &B::Device) -> Self {
        Self {
            down: Conv2dConfig::new([4, 6], [3, 3])
                .with_stride([2, 2])
                .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
                .with_groups(2)
                .init(device),
            up: ConvTranspose2dConfig::new([6, 4], [2, 2])
                .with_stride([2, 2])
                .with_groups(2)
                .init(device),
            head: LinearConfig::new(64, 3).init(device),
        }
    }

    /// Products of [2, 4, 8, 8] with every kind of layer, then one of two activations.
    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 3> {
        let x = self.up.forward(self.down.forward(x));
        let x = self.head.forward(x.reshape([2, 4, 64]));
        x.clone().matmul(x.transpose())
    }
}

/// A training step of the model.
fn step<B: AutodiffBackend>(model: &Model<B>, device: &B::Device) {
    let x = noise_tensor::<B, 4>([2, 4, 8, 8], 1, device).require_grad();
    model.forward(x).sum().backward();
}

/// The products in an order that depends on nothing but them.
fn sorted(mut products: Vec<Product>) -> Vec<Product> {
    products.sort_by_key(|product| format!("{product:?}"));
    products
}

#[test]
fn recorded_products_have_their_sizes() {
    let specs = MxSpecs {
        w_elem_format: "mxfp4".parse().ok(),
        a_elem_format: "mxfp8_e4m3".parse().ok(),
        a_elem_format_bp_ex: "mxfp6_e3m2".parse().ok(),
        bfloat: 16,
        ..MxSpecs::default()
    };
    type B = MxAutodiff<TestBackend>;
    let device = MxDevice::new(TestDevice::default(), &specs).unwrap();
    let model = label_parameters(Model::<B>::new(&device));
    let folder = folder();
    let recording = record_here(RecorderConfig::default(), &folder);
    step(&model, &device);
    recording.finish().unwrap();
    let report = Report::read([folder.path()]).unwrap();
    let recorded = steps(&report)[0];
    let matmul = recorded
        .products
        .iter()
        .find(|product| product.op.to_string() == "matmul");
    let matmul = matmul.unwrap().layer.as_str();
    for (layer, macs, results) in [
        ("down.weight", 2 * 6 * 4 * 4 * 18, [192, 512, 108]),
        ("up.weight", 2 * 6 * 4 * 4 * 8, [512, 192, 48]),
        ("head.weight", 8 * 64 * 3, [24, 512, 192]),
    ] {
        let kinds = [
            ProductKind::Forward,
            ProductKind::InputGradient,
            ProductKind::WeightGradient,
        ];
        for (kind, elements) in kinds.into_iter().zip(results) {
            let product = product(recorded, layer, kind);
            assert_eq!(
                (product.macs, product.result_elements),
                (macs, elements),
                "{kind} of {layer}"
            );
        }
    }
    let forward = product(recorded, matmul, ProductKind::Forward);
    assert_eq!((forward.macs, forward.result_elements), (96, 32));
    let gradients = product(recorded, matmul, ProductKind::InputGradient);
    assert_eq!((gradients.macs, gradients.result_elements), (192, 48));

    // The models of cost for a forward pass alone.
    let seen = products(Pass::Training, || {
        let x = noise_tensor::<B, 4>([2, 4, 8, 8], 1, &device);
        drop(model.forward(x));
    });
    let [recorded, seen] = [recorded.cost_products(), seen].map(|products| {
        // The order of operands, and the names of products without a weight, are the recorder's own.
        let unnamed = products.into_iter().map(|mut product| {
            product.layer.clear();
            if product.lhs.elements < product.rhs.elements {
                std::mem::swap(&mut product.lhs, &mut product.rhs);
            }
            product
        });
        sorted(unnamed.collect())
    });
    assert_eq!(recorded.len(), 12);
    assert_eq!(recorded, seen);
    assert!(report.html().contains("\"microjoules\":"));
}
