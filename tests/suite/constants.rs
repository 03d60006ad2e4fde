//! Constants, that is what neither an input nor a parameter has taken part in: computed in full precision, and operands like any
//! other where they meet one of those.
//!
//! The independent source is Burn alone.

use burn::backend::Flex;
use burn::backend::flex::FlexDevice;
use burn::module::{Initializer, Module};
use burn::nn::{Linear, LinearConfig, RotaryEncoding, RotaryEncodingConfig};
use burn::prelude::*;
use burn::tensor::{DType, Distribution, FloatDType, activation, module::conv1d, ops::ConvOptions};
use burn_mx::module::{emulated, set_specs};
use burn_mx::{MxBackend, MxSpecs};

use crate::support::*;

type Inference = MxBackend<Flex>;

fn rotary<B: Backend>(device: &B::Device) -> RotaryEncoding<B> {
    RotaryEncodingConfig::new(2048, 32).init(device)
}

#[test]
fn a_rotary_table_is_float32s() {
    let table = rotary::<Flex>(&FlexDevice).freq_complex;
    let expected = values(table);
    for preset in ["mxfp8_e4m3", "mxfp4", "mxfp4_sr_rht"] {
        let device = mx_device(&MxSpecs::preset(preset).expect("it is one"));
        let trained = values(rotary::<Mx>(&device).freq_complex);
        assert_same_bits(&trained, &expected, preset);
        let inferred = values(rotary::<Inference>(&device).freq_complex);
        assert_same_bits(&inferred, &expected, preset);
    }
}

#[test]
fn a_table_that_is_shifted_later_is_float32s() {
    let shifted = |mut rotary: RotaryEncoding<Plain>| {
        rotary.shift(100);
        values(rotary.freq_complex)
    };
    let expected = shifted(rotary(&FlexDevice));
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let mut got = rotary::<Mx>(&device);
    got.shift(100);
    assert_same_bits(&values(got.freq_complex), &expected, "shifted");
}

#[test]
fn orthogonal_weights_are_orthogonal() {
    let device = mx_device(&MxSpecs::mxfp4());
    Mx::seed(&device, 3);
    let initializer = Initializer::Orthogonal { gain: 1.0 };
    let w = initializer.init::<Mx, 2, _>([24, 24], &device).val();
    let w = Tensor::<Flex, 2>::from_data(w.into_data(), &FlexDevice);
    let identity = Tensor::<Flex, 2>::eye(24, &FlexDevice);
    let error = (w.clone().matmul(w.transpose()) - identity).abs().max();
    assert!(error.clone().into_scalar() < 1e-5, "{error}");
}

/// Constants of every op that creates one, and results of constants alone.
fn constants<B: Backend>(device: &B::Device) -> Vec<(&'static str, Tensor<B, 2>)> {
    let positions = Tensor::<B, 1, Int>::arange(1..13, device).reshape([3, 4]);
    let thirds = |tensor: Tensor<B, 2>| tensor / 3.0;
    let mask = positions.clone().greater_elem(5);
    let float = positions.clone().float();
    vec![
        ("zeros", (Tensor::zeros([3, 4], device) + 0.3).exp()),
        ("ones", thirds(Tensor::ones([3, 4], device))),
        ("full", thirds(Tensor::full([3, 4], 1.1, device))),
        ("int", thirds(float.clone())),
        ("bool", thirds(mask.float())),
        ("eye", thirds(Tensor::eye(4, device))),
        ("mean", thirds(float.clone().mean_dim(1).expand([3, 4]))),
        ("softmax", activation::softmax(float.clone(), 1)),
        ("log_softmax", activation::log_softmax(float.clone(), 1)),
        ("gelu", activation::gelu(thirds(float.clone()))),
        ("power", thirds(float.clone()).powf(thirds(float.clone()))),
        (
            "views",
            thirds(float.clone().transpose().narrow(0, 1, 2).flip([0])),
        ),
        (
            "concatenation",
            thirds(Tensor::cat(vec![float.clone(), float.clone()], 0)),
        ),
        ("move", thirds(float.clone().to_device(device))),
        (
            "casts",
            thirds(float.cast(FloatDType::F64).cast(DType::F32)),
        ),
    ]
}

#[test]
fn what_is_computed_of_constants_alone_is_full_precision() {
    let device = mx_device(&MxSpecs::mxfp4());
    let expected = constants::<Flex>(&FlexDevice);
    let inferred = constants::<Inference>(&device);
    let trained = constants::<Mx>(&device);
    for (((what, expected), (_, inferred)), (_, trained)) in
        expected.into_iter().zip(inferred).zip(trained)
    {
        let expected = values(expected);
        assert!(!expected.iter().all(|x| is_bfloat16(*x)), "{what}");
        assert_same_bits(&values(inferred), &expected, what);
        assert_same_bits(&values(trained), &expected, what);
    }
    let random = Tensor::<Mx, 1>::random([64], Distribution::Normal(0.0, 1.0), &device) * 1.1;
    assert!(!values(random).iter().any(|x| is_bfloat16(*x)));
}

#[test]
fn what_a_constant_meets_is_emulated_from_there_on() {
    let device = mx_device(&everywhere(MxSpecs::mxfp8_e4m3()));
    let all_rounded = |what: &str, tensor: Tensor<Mx, 2>| {
        let values = values(tensor);
        assert!(values.iter().all(|x| is_bfloat16(*x)), "{what}: {values:?}");
    };
    let table = || Tensor::<Mx, 2>::full([3, 4], 1.0, &device) / 3.0;
    let input = Tensor::<Mx, 2>::from_data([[1.0; 4]; 3], &device);
    all_rounded("input", table() * input.clone());
    all_rounded("after an input", (table() * input) * 1.1);
    let parameter = Tensor::<Mx, 2>::ones([3, 4], &device).require_grad();
    all_rounded("parameter", parameter.clone() / 3.0);
    all_rounded("beside a parameter", parameter * table());
    all_rounded("of an input", emulated(table()) * 1.1);
    let tokens = Tensor::<Mx, 2, Int>::from_data([[1, 2, 3, 4]; 3], &device);
    all_rounded("integers of an input", tokens.float() / 3.0);
    // Two constants are two activations in a product, if they are as they were created: synthetic inputs.
    let ones = Tensor::<Mx, 2>::ones([3, 4], &device);
    all_rounded("product", ones.clone().matmul(ones.transpose()) * 1.1);
    let computed = table().matmul(table().transpose()) * 1.1;
    assert!(values(computed).iter().all(|x| !is_bfloat16(*x)));
}

/// `activation · factor` and the gradient of the activation, in MX formats without an elementwise one.
fn product<B: Exact>(
    factor: impl FnOnce(&Tensor<B, 2>) -> Tensor<B, 2>,
    device: &B::Device,
) -> Vec<Vec<f32>> {
    let leaf = noise_tensor::<B, 2>([6, 40], 1, device);
    let leaf = Tensor::from_primitive(burn::tensor::TensorPrimitive::Float(B::input(
        leaf.require_grad().into_primitive().tensor(),
    )));
    let factor = factor(&leaf);
    let out = leaf.clone().matmul(factor);
    let gradient = noise_tensor(out.dims(), 2, device);
    let grads = B::loss_with_gradient(out.clone(), gradient).backward();
    vec![values(out), values(leaf.grad(&grads).expect("a leaf"))]
}

/// A constant `[40, 8]`.
fn constant_factor<B: Backend>(device: &B::Device) -> Tensor<B, 2> {
    let positions = Tensor::<B, 1, Int>::arange(0..320, device).float();
    (positions * 0.37).sin().reshape([40, 8])
}

#[test]
fn a_product_with_a_constant_has_no_blocks_unless_the_specs_say_so() {
    let constant = |leaf: &Tensor<Plain, 2>| constant_factor::<Plain>(&leaf.device());
    let expected = product::<Plain>(constant, &FlexDevice);
    let factor = constant_factor::<Flex>(&FlexDevice).into_data();

    let device = mx_device(&mx_only(MxSpecs::mxfp4()));
    let got = product::<Mx>(|leaf| constant_factor::<Mx>(&leaf.device()), &device);
    assert_all_same_bits(&got, &expected, "a constant");
    let made = product::<Mx>(
        |leaf| Tensor::from_data(factor.clone(), &leaf.device()),
        &device,
    );
    assert_all_same_bits(&made, &expected, "numbers of the model's own");

    let input = product::<Mx>(|_| Tensor::from_data(factor.clone(), &device), &device);
    assert_ne!(input[0], expected[0], "an input has blocks");
    assert_ne!(input[1], expected[1], "an input has blocks");
    let device = mx_device(&MxSpecs {
        quantize_constants: true,
        ..mx_only(MxSpecs::mxfp4())
    });
    let asked = product::<Mx>(|leaf| constant_factor::<Mx>(&leaf.device()), &device);
    assert_all_same_bits(&asked, &input, "quantize_constants");
}

#[test]
fn rotations_have_no_blocks() {
    let rotated = |x: Tensor<Plain, 3>| rotary::<Plain>(&x.device()).forward(x);
    let expected = values(rotated(noise_tensor([2, 9, 32], 4, &FlexDevice)));
    let device = mx_device(&mx_only(MxSpecs::mxfp4()));
    let x = noise_tensor::<Mx, 3>([2, 9, 32], 4, &device);
    let got = rotary::<Mx>(&device).forward(x.clone());
    assert_same_bits(&values(got), &expected, "rotated");
    let asked = MxSpecs {
        quantize_constants: true,
        ..mx_only(MxSpecs::mxfp4())
    };
    let device = mx_device(&asked);
    let x = noise_tensor::<Mx, 3>([2, 9, 32], 4, &device);
    assert_ne!(values(rotary::<Mx>(&device).forward(x)), expected);
}

/// By its place in a layer the second operand is a weight, with any origin.
#[test]
fn beside_a_weight_a_constant_is_an_activation() {
    let device = mx_device(&mx_only(MxSpecs::mxfp4()));
    let linear = with_noise_weights::<Mx, Linear<Mx>>(
        LinearConfig::new(40, 6).with_bias(false).init(&device),
        3,
    );
    let numbers = constant_factor::<Flex>(&FlexDevice).transpose().into_data();
    let constant = constant_factor::<Mx>(&device).transpose();
    let input = Tensor::<Mx, 2>::from_data(numbers, &device);
    let expected = values(linear.forward(input.clone()));
    assert_same_bits(
        &values(linear.forward(constant.clone())),
        &expected,
        "linear",
    );
    let weight = linear.weight.val();
    assert_same_bits(
        &values(constant.clone().matmul(weight)),
        &expected,
        "matmul",
    );
    let none = set_specs(linear, &MxSpecs::none().resolve().expect("sound"));
    assert_ne!(values(none.forward(constant)), expected, "exempt");

    let x = noise_tensor::<Mx, 3>([2, 40, 9], 5, &device);
    let kernel = |kernel: Tensor<Mx, 2>| kernel.transpose().reshape([8, 40, 1]);
    let options = || ConvOptions::new([1], [0], [1], 1);
    let blurred = |w| values(conv1d(x.clone(), w, None, options()));
    let by_constant = blurred(kernel(constant_factor(&device)));
    let data = constant_factor::<Flex>(&FlexDevice).into_data();
    let by_input = blurred(kernel(Tensor::from_data(data, &device)));
    assert_same_bits(&by_constant, &by_input, "convolution");
}

#[test]
fn an_operand_of_attention_is_an_activation() {
    let specs = mx_only(MxSpecs::mxfp4());
    let device = mx_device(&specs);
    let query = || noise_tensor::<Mx, 4>([1, 1, 6, 40], 7, &device);
    let attend = |value: Tensor<Mx, 4>| {
        let options = burn::tensor::ops::AttentionModuleOptions::default();
        values(burn::tensor::module::attention(
            query(),
            query(),
            value,
            None,
            None,
            options,
        ))
    };
    let constant = |rows: Tensor<Mx, 2>| rows.narrow(0, 0, 6).reshape([1, 1, 6, 8]);
    let data = constant_factor::<Flex>(&FlexDevice).into_data();
    let expected = attend(constant(Tensor::from_data(data, &device)));
    assert_same_bits(
        &attend(constant(constant_factor(&device))),
        &expected,
        "attention",
    );
}

/// Records do not hold the constants of modules, so a loaded model keeps its constants.
#[test]
fn a_constant_of_a_module_stays_one_through_a_record() {
    #[derive(Module, Debug)]
    struct Encoder<B: Backend> {
        rotary: RotaryEncoding<B>,
        linear: Linear<B>,
    }
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let encoder = || Encoder::<Mx> {
        rotary: rotary(&device),
        linear: LinearConfig::new(32, 4).init(&device),
    };
    let record = encoder().into_record();
    let loaded = encoder().load_record(record).fork(&device);
    let doubled = values(loaded.rotary.theta.exp() / 3.0);
    let expected = values(rotary::<Flex>(&FlexDevice).theta.exp() / 3.0);
    assert_same_bits(&doubled, &expected, "loaded");
}
