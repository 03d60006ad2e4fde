//! Odd and bad input has a defined result or a clear error.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::backend::Flex;
use burn::backend::flex::FlexDevice;
use burn::nn::LinearConfig;
use burn::tensor::Tensor;
use burn::tensor::activation;
use burn::tensor::backend::Backend;
use burn::tensor::module::linear;
use burn_mx::ElementFormat;
use burn_mx::module::{MxTensorOps, as_activation, label_parameters};
use burn_mx::{MxBackend, MxSpecs};

use crate::support::*;

/// Output, dx, dw and db of a linear layer on these inputs; the gradient of the output is fed exactly.
fn linear_results<B: Exact, const D: usize>(
    x: (Vec<f32>, [usize; D]),
    columns: usize,
    device: &B::Device,
) -> [Vec<f32>; 4] {
    let features = x.1[D - 1];
    let x =
        Tensor::<B, D>::from_data(burn::tensor::TensorData::new(x.0, x.1), device).require_grad();
    let w = noise_tensor::<B, 2>([features, columns], 2, device).require_grad();
    let b = noise_tensor::<B, 1>([columns], 3, device).require_grad();
    let out = linear(x.clone(), w.clone(), Some(b.clone()));
    let grad = noise_tensor::<B, D>(out.dims(), 4, device);
    let grads = B::loss_with_gradient(out.clone(), grad).backward();
    let leaf = "it is a leaf";
    [
        values(out),
        values(x.grad(&grads).expect(leaf)),
        values(w.grad(&grads).expect(leaf)),
        values(b.grad(&grads).expect(leaf)),
    ]
}

fn noise_of<const D: usize>(shape: [usize; D]) -> (Vec<f32>, [usize; D]) {
    (noise(shape.iter().product(), 1), shape)
}

#[test]
fn a_block_larger_than_the_axis_is_the_axis() {
    let results = |block_size| {
        let specs = MxSpecs {
            block_size,
            ..MxSpecs::mxfp4()
        };
        linear_results::<Mx, 2>(noise_of([5, 6]), 7, &mx_device(&specs))
    };
    let whole_axis = results(0);
    assert_eq!(results(7), whole_axis);
    assert_eq!(results(32), whole_axis);
    assert_eq!(results(usize::MAX), whole_axis);
    assert_ne!(results(2), whole_axis);
}

#[test]
fn layers_without_rows_have_the_results_of_burn_alone() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let got = linear_results::<Mx, 2>(noise_of([0, 8]), 7, &device);
    let expected = linear_results::<Plain, 2>(noise_of([0, 8]), 7, &FlexDevice);
    assert_eq!(got, expected);
    assert_eq!(
        got[2],
        [0.0; 8 * 7],
        "nothing was seen, so the weight's gradient is zero"
    );
    let got = linear_results::<Mx, 3>(noise_of([2, 0, 8]), 7, &device);
    assert_eq!(
        got,
        linear_results::<Plain, 3>(noise_of([2, 0, 8]), 7, &FlexDevice)
    );
    // Flex itself crashes on a batch without entries.
    let [out, dx, dw, db] = linear_results::<Mx, 3>(noise_of([0, 3, 8]), 7, &device);
    assert!(out.is_empty() && dx.is_empty());
    assert_eq!((dw, db), (vec![0.0; 8 * 7], vec![0.0; 7]));
}

#[test]
fn layers_without_features_give_the_bias() {
    let device = mx_device(&everywhere(MxSpecs::mxfp8_e4m3()));
    let [out, dx, dw, _] = linear_results::<Mx, 2>(noise_of([4, 0]), 3, &device);
    let bias = values(noise_tensor::<MxBackend<Flex>, 1>([3], 3, &device) * 1.0);
    assert_same_bits(&out, &bias.repeat(4), "output");
    assert!(dx.is_empty() && dw.is_empty());
}

#[test]
fn products_and_functions_of_empty_tensors_are_those_of_burn_alone() {
    fn results<B: Exact>(device: &B::Device) -> Vec<Vec<f32>> {
        let mut all = Vec::new();
        for shape in [[0, 8], [4, 0]] {
            let x = noise_tensor::<B, 2>(shape, 1, device).require_grad();
            let [rows, columns] = shape;
            let y = noise_tensor::<B, 2>([columns, 3], 2, device);
            let product = x.clone().matmul(y);
            assert_eq!(product.dims(), [rows, 3]);
            let loss = product.clone().sum();
            all.push(values(x.grad(&loss.backward()).expect("it is a leaf")));
            all.push(values(product));
            all.push(values(activation::gelu(x.clone())));
            all.push(values(activation::relu(x.clone() * 2.0).exp()));
            all.push(values((x.clone() + x.clone()).sum()));
            all.push(values(x.sum_dim(1)));
        }
        all
    }
    let got = results::<Mx>(&mx_device(&MxSpecs::mxfp8_e4m3()));
    assert_eq!(got, results::<Plain>(&FlexDevice));
}

#[test]
fn a_linear_layer_takes_a_vector_as_one_row() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let layer = with_noise_weights(LinearConfig::new(40, 5).init::<Mx>(&device), 1);
    let x = noise_tensor::<Mx, 1>([40], 2, &device);
    let row = layer.forward(x.clone().reshape([1, 40]));
    assert_same_bits(&values(layer.forward(x)), &values(row), "output");
}

#[test]
fn functions_of_vectors_and_of_single_values_are_those_of_matrices() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    for length in [1, 6] {
        let x = noise_tensor::<Mx, 1>([length], 2, &device);
        let row = x.clone().reshape([1, length]);
        let of_vector = activation::softmax(activation::gelu(x) * 1.3, 0);
        let of_matrix = activation::softmax(activation::gelu(row) * 1.3, 1);
        assert_same_bits(&values(of_vector), &values(of_matrix), "value");
    }
}

#[test]
fn a_nan_or_an_infinity_spoils_its_block_and_nothing_else() {
    let shape = [40, 70];
    let clean = noise(40 * 70, 1);
    for specs in [
        MxSpecs::mxfp8_e4m3(),
        mx_only(MxSpecs::mxfp4()),
        MxSpecs::mxint8(),
    ] {
        let device = mx_device(&specs);
        let expected = linear_results::<Mx, 2>((clean.clone(), shape), 5, &device);
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = clean.clone();
            x[3 * 70 + 33] = bad;
            let [out, dx, dw, db] = linear_results::<Mx, 2>((x, shape), 5, &device);
            for (i, (got, expected)) in out.iter().zip(&expected[0]).enumerate() {
                // The block of row 3 is NaN, so is the whole sum over it.
                let expected = if i / 5 == 3 { f32::NAN } else { *expected };
                assert_same_bits(
                    &[*got],
                    &[expected],
                    &format!("{bad}: out[{}, {}]", i / 5, i % 5),
                );
            }
            for (i, (got, expected)) in dw.iter().zip(&expected[2]).enumerate() {
                // In dw blocks run along the rows: the block of column 33 is NaN.
                let expected = if i / 5 == 33 { f32::NAN } else { *expected };
                assert_same_bits(
                    &[*got],
                    &[expected],
                    &format!("{bad}: dw[{}, {}]", i / 5, i % 5),
                );
            }
            assert_same_bits(&dx, &expected[1], &format!("{bad}: dx"));
            assert_same_bits(&db, &expected[3], &format!("{bad}: db"));
        }
    }
}

#[test]
fn a_nan_block_leaves_the_other_blocks_of_its_row_alone() {
    let device = mx_device(&mx_only(MxSpecs::mxfp4()));
    let mut x = noise(70, 1);
    let quantized = |x: &[f32]| {
        let x = Tensor::<Mx, 1>::from_floats(x, &device).reshape([1, 70]);
        // Along the row; columns of one element are blocks of their own.
        values(
            as_activation(x)
                .swap_dims(0, 1)
                .matmul(Tensor::ones([1, 1], &device)),
        )
    };
    let expected = quantized(&x);
    x[40] = f32::NAN;
    let got = quantized(&x);
    for i in 0..70 {
        let expected = if i == 40 { f32::NAN } else { expected[i] };
        assert_same_bits(&[got[i]], &[expected], "value");
    }
}

#[test]
fn nan_and_infinity_pass_elementwise_functions() {
    let device = mx_device(&everywhere(MxSpecs::mxfp8_e4m3()));
    let x = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, -0.0];
    let x = Tensor::<Mx, 1>::from_floats(x, &device);
    let infinity = f32::INFINITY;
    // f32::MAX lies beyond the largest bfloat16.
    let expected = [f32::NAN, infinity, -infinity, infinity, -0.0];
    assert_same_bits(&values(x.clone() * 1.0), &expected, "product");
    let relu = values(activation::relu(x));
    assert!(relu[0].is_nan() || relu[0] == 0.0, "{relu:?}");
    assert_eq!(relu[1..], [infinity, 0.0, infinity, 0.0]);
}

#[test]
fn unknown_names_are_errors_that_name_field_value_and_what_is_allowed() {
    let error = MxSpecs::preset("mxfp9")
        .expect_err("there is none")
        .to_string();
    assert!(
        error.contains("`mxfp9`") && error.contains("mxfp8_e4m3"),
        "{error}"
    );
    for (json, named) in [
        (
            r#"{"w_elem_format": "fp8_e4m4"}"#,
            ["w_elem_format", "fp8_e4m4", "fp8_e4m3"],
        ),
        (r#"{"round": "up"}"#, ["round", "up", "nearest"]),
        (
            r#"{"w_elem_fmt": "fp8_e4m3"}"#,
            ["w_elem_fmt", "fp8_e4m3", "w_elem_format"],
        ),
        (
            r#"{"shared_exp_method": "min"}"#,
            ["shared_exp_method", "min", "max"],
        ),
        (r#"{"bfloat": "sixteen"}"#, ["bfloat", "sixteen", "u32"]),
    ] {
        let error = MxSpecs::from_json(json).expect_err(json).to_string();
        for named in named {
            assert!(error.contains(named), "{error}: names {named}");
        }
    }
    let error = "fp8_e4m4"
        .parse::<ElementFormat>()
        .expect_err("there is none")
        .to_string();
    assert!(
        error.contains("fp8_e4m4") && error.contains("fp8_e4m3"),
        "{error}"
    );
}

#[test]
fn contradictory_specs_are_errors_that_name_field_value_and_what_is_allowed() {
    let base = MxSpecs::mxfp8_e4m3;
    for (specs, named) in [
        (MxSpecs { fp: 16, ..base() }, ["bfloat", "16", "fp"]),
        (
            MxSpecs {
                bfloat: 9,
                ..base()
            },
            ["bfloat", "9", "10 to 32"],
        ),
        (
            MxSpecs {
                bfloat: 33,
                ..base()
            },
            ["bfloat", "33", "10 to 32"],
        ),
        (
            MxSpecs {
                bfloat: 0,
                fp: 6,
                ..base()
            },
            ["fp", "6", "7 to"],
        ),
        (
            MxSpecs {
                scale_bits: 9,
                ..base()
            },
            ["scale_bits", "9", "1 to 8"],
        ),
    ] {
        let error = specs
            .resolve()
            .expect_err("the specs are not sound")
            .to_string();
        for named in named {
            assert!(error.contains(named), "{error}: names {named}");
        }
    }
}

/// The message of the panic of `work`.
fn panic_of<R>(work: impl FnOnce() -> R) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| drop(work())));
    let panic = panic.expect_err("the work panics");
    panic
        .downcast_ref::<String>()
        .expect("a formatted message")
        .clone()
}

#[test]
fn an_input_of_another_width_is_refused_with_the_name_of_the_layer() {
    fn check<B: Backend + MxTensorOps>(device: &B::Device) {
        let head = LinearConfig::new(64, 10).init::<B>(device);
        let x = Tensor::<B, 3>::ones([2, 4, 65], device);
        let shapes = "the input is [2, 4, 65], the weight [64, 10]; the last axis of the input has 65 elements, allowed: 64";
        assert_eq!(
            panic_of(|| head.forward(x.clone())),
            format!("linear: {shapes}")
        );
        let model = label_parameters(vec![head]);
        assert_eq!(
            panic_of(|| model[0].forward(x.clone())),
            format!("linear `0.weight`: {shapes}")
        );
        // `Tensor::matmul` has a check of Burn's.
        let primitive = |tensor: Tensor<B, 2>| tensor.into_primitive().tensor();
        let x = primitive(Tensor::ones([4, 65], device));
        let weight = primitive(model[0].weight.val());
        assert_eq!(
            panic_of(|| B::float_matmul(x, weight)),
            "matmul `0.weight`: the left operand is [4, 65], the right operand [64, 10]; the last axis of the left operand has \
             65 elements, allowed: 64"
        );
    }
    for device in [mx_device(&MxSpecs::mxfp4()), mx_device(&MxSpecs::none())] {
        check::<MxBackend<TestBackend>>(&device);
        check::<Mx>(&device);
    }
}
