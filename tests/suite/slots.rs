//! Which format and which rounding acts where: each field changes exactly the results that it should.
//!
//! The gradient of the output is fed exactly and does not depend on the output, so what a field changes, it
//! changes by itself. The source of the tables is the section "Products" of `docs/src/semantics.md`.

use burn::tensor::Tensor;
use burn::tensor::activation;
use burn::tensor::module::{conv2d, linear};
use burn::tensor::ops::ConvOptions;
use burn_mx::MxSpecs;
use burn_mx::module::as_activation;
use burn_mx::{ElementFormat, Rounding};

use crate::support::*;

/// Output and gradients by name: `out`, `dx`, `dw`, `db`.
type Results = Vec<(&'static str, Vec<f32>)>;

fn leaf<B: Exact, const D: usize>(
    shape: [usize; D],
    seed: u64,
    device: &B::Device,
) -> Tensor<B, D> {
    noise_tensor(shape, seed, device).require_grad()
}

/// `out` and the gradients of `inputs`, for a fixed gradient of `out`.
macro_rules! results {
    ($backend:ty, $device:expr, $out:expr, $($name:literal: $input:expr),*) => {{
        let out = $out;
        let grad = noise_tensor(out.dims(), 9, $device);
        let grads = <$backend>::loss_with_gradient(out.clone(), grad).backward();
        vec![("out", values(out)), $(($name, values($input.grad(&grads).expect("it is a leaf")))),*]
    }};
}

fn linear_layer<B: Exact>(device: &B::Device) -> Results {
    let x = leaf::<B, 3>([2, 34, 40], 1, device);
    let w = leaf::<B, 2>([40, 37], 2, device);
    let b = leaf::<B, 1>([37], 3, device);
    let out = linear(x.clone(), w.clone(), Some(b.clone()));
    results!(B, device, out, "dx": x, "dw": w, "db": b)
}

fn convolution<B: Exact>(device: &B::Device) -> Results {
    let x = leaf::<B, 4>([5, 34, 4, 4], 1, device);
    let w = leaf::<B, 4>([36, 34, 3, 3], 2, device);
    let b = leaf::<B, 1>([36], 3, device);
    let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
    let out = conv2d(x.clone(), w.clone(), Some(b.clone()), options);
    results!(B, device, out, "dx": x, "dw": w, "db": b)
}

fn product_of_activations(device: &<Mx as burn::tensor::backend::BackendTypes>::Device) -> Results {
    let a = leaf::<Mx, 3>([2, 34, 40], 1, device);
    let b = leaf::<Mx, 3>([2, 40, 37], 2, device);
    let out = as_activation(a.clone()).matmul(as_activation(b.clone()));
    results!(Mx, device, out, "dx": a, "dw": b)
}

fn product_with_a_weight(device: &<Mx as burn::tensor::backend::BackendTypes>::Device) -> Results {
    let a = leaf::<Mx, 2>([34, 40], 1, device);
    let b = leaf::<Mx, 2>([40, 37], 2, device);
    let out = as_activation(a.clone()).matmul(b.clone());
    results!(Mx, device, out, "dx": a, "dw": b)
}

/// All six slots said, so that none follows another.
fn six_slots() -> MxSpecs {
    let format = Some(ElementFormat::FP8_E4M3.into());
    MxSpecs {
        w_elem_format: format,
        a_elem_format: format,
        w_elem_format_bp: format,
        a_elem_format_bp: format,
        a_elem_format_bp_ex: format,
        a_elem_format_bp_os: format,
        ..MxSpecs::mx()
    }
}

/// All roundings said, with products and elementwise emulation.
fn all_roundings() -> MxSpecs {
    let even = Some(Rounding::NearestEven);
    MxSpecs {
        bfloat: 16,
        round: Rounding::NearestEven,
        round_weight: even,
        round_output: even,
        round_grad_weight: even,
        round_grad_input: even,
        round_mx_output: even,
        round_mx_input_grad_input: even,
        round_mx_weight_grad_input: even,
        round_mx_grad_output_grad_input: even,
        round_mx_input_grad_weight: even,
        round_mx_grad_output_grad_weight: even,
        ..six_slots()
    }
}

/// Runs `compute` with `base` and with each field of the table changed; asserts which results differ.
macro_rules! assert_table {
    ($compute:expr, $base:expr, $value:expr; $($field:ident: $changed:expr;)*) => {{
        let compute = $compute;
        let base: Results = compute(&mx_device(&$base));
        $(
            let specs = MxSpecs { $field: $value, ..$base };
            let changed: Vec<&str> = compute(&mx_device(&specs))
                .into_iter()
                .zip(&base)
                .filter(|((_, got), (_, base))| got != base)
                .map(|((name, _), _)| name)
                .collect();
            let expected: &[&str] = &$changed;
            assert_eq!(changed, expected, "results changed by {}", stringify!($field));
        )*
    }};
}

#[test]
fn each_slot_of_a_linear_layer_changes_its_own_results_only() {
    assert_table! { linear_layer::<Mx>, six_slots(), Some(ElementFormat::FP4_E2M1.into());
        w_elem_format: ["out"];
        a_elem_format: ["out"];
        w_elem_format_bp: ["dx"];
        a_elem_format_bp: ["dw"];
        a_elem_format_bp_ex: ["dw"];
        a_elem_format_bp_os: ["dx"];
    }
}

#[test]
fn each_slot_of_a_convolution_changes_its_own_results_only() {
    assert_table! { convolution::<Mx>, six_slots(), Some(ElementFormat::FP4_E2M1.into());
        w_elem_format: ["out"];
        a_elem_format: ["out"];
        w_elem_format_bp: ["dx"];
        a_elem_format_bp: ["dw"];
        a_elem_format_bp_ex: ["dw"];
        a_elem_format_bp_os: ["dx"];
    }
}

#[test]
fn each_slot_of_a_product_of_activations_changes_its_own_results_only() {
    assert_table! { product_of_activations, six_slots(), Some(ElementFormat::FP4_E2M1.into());
        w_elem_format: [];
        a_elem_format: ["out"];
        w_elem_format_bp: [];
        a_elem_format_bp: ["dx", "dw"];
        a_elem_format_bp_ex: [];
        a_elem_format_bp_os: ["dx", "dw"];
    }
}

#[test]
fn each_slot_of_a_product_with_a_weight_changes_its_own_results_only() {
    assert_table! { product_with_a_weight, six_slots(), Some(ElementFormat::FP4_E2M1.into());
        w_elem_format: ["out"];
        a_elem_format: ["out"];
        w_elem_format_bp: ["dx"];
        a_elem_format_bp: ["dw"];
        a_elem_format_bp_ex: [];
        a_elem_format_bp_os: ["dx", "dw"];
    }
}

#[test]
fn each_rounding_of_a_linear_layer_changes_its_own_results_only() {
    assert_table! { linear_layer::<Mx>, all_roundings(), Some(Rounding::TowardZero);
        round_weight: ["out", "dx"];
        round_output: ["out", "dw"];
        round_grad_weight: ["dw", "db"];
        round_grad_input: ["dx", "dw", "db"];
        round_mx_output: ["out"];
        round_mx_input_grad_input: [];
        round_mx_weight_grad_input: ["dx"];
        round_mx_grad_output_grad_input: ["dx"];
        round_mx_input_grad_weight: ["dw"];
        round_mx_grad_output_grad_weight: ["dw"];
    }
}

#[test]
fn each_rounding_of_a_convolution_changes_its_own_results_only() {
    assert_table! { convolution::<Mx>, all_roundings(), Some(Rounding::TowardZero);
        round_weight: ["out", "dx"];
        round_output: ["out", "dw"];
        round_grad_weight: ["dw", "db"];
        round_grad_input: ["dx", "dw", "db"];
        round_mx_output: ["out"];
        round_mx_input_grad_input: [];
        round_mx_weight_grad_input: ["dx"];
        round_mx_grad_output_grad_input: ["dx"];
        round_mx_input_grad_weight: ["dw"];
        round_mx_grad_output_grad_weight: ["dw"];
    }
}

#[test]
fn each_rounding_of_a_product_of_activations_changes_its_own_results_only() {
    assert_table! { product_of_activations, all_roundings(), Some(Rounding::TowardZero);
        round_weight: [];
        round_output: ["out", "dx", "dw"];
        round_grad_weight: [];
        round_grad_input: ["dx", "dw"];
        round_mx_output: ["out"];
        round_mx_input_grad_input: ["dx", "dw"];
        round_mx_weight_grad_input: [];
        round_mx_grad_output_grad_input: ["dx", "dw"];
        round_mx_input_grad_weight: [];
        round_mx_grad_output_grad_weight: [];
    }
}

/// Without `quantize_backprop` the gradients are Burn's for the unrounded inputs, while the output is emulated.
fn assert_exact_gradients(got: Results, expected: Results) {
    for ((name, got), (_, expected)) in got.iter().zip(&expected) {
        match *name {
            "out" => assert_ne!(got, expected, "the output is emulated"),
            name => assert_same_bits(got, expected, name),
        }
    }
}

#[test]
fn without_quantize_backprop_gradients_are_those_of_the_unrounded_inputs() {
    for specs in [MxSpecs::mxfp4(), mx_only(MxSpecs::mxfp4()), bfloat16_only()] {
        let specs = MxSpecs {
            quantize_backprop: false,
            ..specs
        };
        let device = mx_device(&specs);
        assert_exact_gradients(
            linear_layer::<Mx>(&device),
            linear_layer::<Plain>(&TestDevice::default()),
        );
        assert_exact_gradients(
            convolution::<Mx>(&device),
            convolution::<Plain>(&TestDevice::default()),
        );
        let plain_product = || {
            let device = &TestDevice::default();
            let a = leaf::<Plain, 2>([34, 40], 1, device);
            let b = leaf::<Plain, 2>([40, 37], 2, device);
            results!(Plain, device, a.clone().matmul(b.clone()), "dx": a, "dw": b)
        };
        assert_exact_gradients(product_with_a_weight(&device), plain_product());
    }
}

/// Gradients of functions whose gradient Burn and the emulation write the same way.
fn elementwise_gradients<B: Exact>(device: &B::Device) -> Vec<(&'static str, Vec<f32>)> {
    type Function<B> = fn(Tensor<B, 2>, Tensor<B, 2>) -> Tensor<B, 2>;
    let functions: [(&str, Function<B>); 7] = [
        ("add", |x, y| x + y),
        ("sub", |x, y| x - y),
        ("mul", |x, y| x * y),
        ("scalar", |x, _| x * 1.3),
        ("sum_dim", |x, y| x.sum_dim(1) + y.sum_dim(0).sum_dim(1)),
        ("relu", |x, y| activation::relu(x) - activation::relu(y)),
        ("cat", |x, y| Tensor::cat(vec![x, y], 0).flip([0])),
    ];
    let gradients = functions.into_iter().flat_map(|(name, function)| {
        let x = leaf::<B, 2>([6, 7], 1, device);
        let y = leaf::<B, 2>([6, 7], 2, device);
        let out = function(x.clone(), y.clone());
        let grad = noise_tensor(out.dims(), 9, device);
        let grads = B::loss_with_gradient(out, grad).backward();
        [x, y].map(|input| (name, input.grad(&grads).map_or_else(Vec::new, values)))
    });
    gradients.collect()
}

#[test]
fn without_quantize_backprop_elementwise_gradients_are_those_of_burn_alone() {
    let specs = MxSpecs {
        quantize_backprop: false,
        ..bfloat16_only()
    };
    let got = elementwise_gradients::<Mx>(&mx_device(&specs));
    let expected = elementwise_gradients::<Plain>(&TestDevice::default());
    for ((name, got), (_, expected)) in got.iter().zip(&expected) {
        assert_same_bits(got, expected, name);
    }
    let emulated = elementwise_gradients::<Mx>(&mx_device(&bfloat16_only()));
    assert_ne!(emulated, got);
}
