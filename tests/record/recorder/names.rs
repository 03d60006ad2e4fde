//! Every product has a name.

use burn::module::Module;
use burn::nn::attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Linear, LinearConfig};
use burn::prelude::{Backend, Tensor};
use burn::tensor::module::linear;
use burn_mx::MxSpecs;
use burn_mx::module::{label_parameters, scope};
use burn_mx::record::{ProductKind, RecorderConfig};

use super::{folder, product, record_here, steps};
use crate::support::{Mx, mx_device, noise_tensor, with_noise_weights};

/// Attention, grouped convolution, a weight that two layers share.
#[derive(Module, Debug)]
struct Zoo<B: Backend> {
    conv: Conv2d<B>,
    attention: MultiHeadAttention<B>,
    tied: Linear<B>,
}

impl<B: Backend> Zoo<B> {
    fn new(device: &B::Device) -> Self {
        let zoo = Self {
            conv: Conv2dConfig::new([4, 4], [3, 3])
                .with_groups(2)
                .init(device),
            attention: MultiHeadAttentionConfig::new(16, 2)
                .with_dropout(0.0)
                .init(device),
            tied: LinearConfig::new(16, 16).with_bias(false).init(device),
        };
        with_noise_weights(zoo, 9)
    }

    fn outputs(&self, device: &B::Device, scoped: bool) -> Tensor<B, 2> {
        let x = self
            .conv
            .forward(noise_tensor::<B, 4>([2, 4, 6, 6], 3, device));
        let x = x.reshape([2, 4, 16]);
        let attend = || {
            self.attention
                .forward(MhaInput::self_attn(x.clone()))
                .context
        };
        let x = match scoped {
            true => scope("block", || scope("attention", attend)),
            false => attend(),
        };
        let x = self.tied.forward(x.flatten::<2>(0, 1));
        // The same weight, the other way.
        linear(x, self.tied.weight.val().transpose(), None)
    }
}

#[test]
fn every_product_has_a_name() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let of = |label: bool, scoped: bool| {
        let folder = folder();
        let recording = record_here(RecorderConfig::default(), &folder);
        let mut zoo = Zoo::<Mx>::new(&device);
        if label {
            zoo = label_parameters(zoo);
        }
        zoo.outputs(&device, scoped).sum().backward();
        let report = recording.finish().expect("the records are whole");
        let mut layers: Vec<String> = Vec::new();
        for product in &steps(&report)[0].products {
            if !layers.contains(&product.layer) {
                layers.push(product.layer.clone());
            }
        }
        (layers, steps(&report)[0].clone())
    };
    let (layers, step) = of(true, true);
    assert_eq!(
        layers,
        [
            "conv.weight",
            "attention.query.weight",
            "attention.key.weight",
            "attention.value.weight",
            "block.attention.matmul 0",
            "block.attention.matmul 1",
            "attention.output.weight",
            "tied.weight",
        ]
    );
    assert_eq!(product(&step, "tied.weight", ProductKind::Forward).uses, 2);
    // For two activations: the gradients of both, each with its own operands.
    let gradients = product(
        &step,
        "block.attention.matmul 0",
        ProductKind::InputGradient,
    );
    let mut operands: Vec<_> = gradients
        .operands
        .iter()
        .map(|x| x.operand.as_str())
        .collect();
    operands.sort_unstable();
    assert_eq!(
        operands,
        ["lhs", "output gradient", "output gradient for rhs", "rhs"]
    );
    assert_eq!(gradients.uses, 2);

    let (layers, _) = of(true, false);
    let after = |count: usize| format!("attention.value.weight > matmul {count}");
    assert_eq!(layers[4..6], [after(0), after(1)]);

    // Without labels, by kind and order; gradients know the names of their forward products.
    let (layers, step) = of(false, false);
    let names = [
        "convolution 0",
        "linear 0",
        "linear 1",
        "linear 2",
        "matmul 0",
        "matmul 1",
        "linear 3",
        "linear 4",
        "linear 5",
    ];
    assert_eq!(layers, names);
    for name in names {
        let kinds = step.products.iter().filter(|product| product.layer == name);
        assert!(kinds.count() >= 2, "{name}: {:?}", super::names(&step));
    }
}
