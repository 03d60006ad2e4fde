//! Block formats in the slots, and the random Hadamard transform of gradient products.

use burn::backend::{Autodiff, Flex, NdArray, flex::FlexDevice, ndarray::NdArrayDevice};
use burn::tensor::backend::Backend;
use burn::tensor::module::{conv_transpose2d, conv2d, linear};
use burn::tensor::ops::{ConvOptions, ConvTransposeOptions};
use burn::tensor::{Tensor, TensorData};
use burn_mx::{BlockFormat, RandomHadamard, Rounder, Rounding};
use burn_mx::{MxAutodiff, MxDevice, MxSpecs, SlotFormat};

use crate::support::*;

/// The gradients of two operands.
type Pair = [Vec<f32>; 2];

/// Specs with one format in all slots.
fn all_slots(format: &str, hadamard_block_size: usize) -> MxSpecs {
    let format = Some(format.parse::<SlotFormat>().expect("it is a format"));
    MxSpecs {
        w_elem_format: format,
        a_elem_format: format,
        round: Rounding::NearestEven,
        hadamard_block_size,
        ..MxSpecs::default()
    }
}

fn quantized<B: Backend>(format: BlockFormat, tensor: Tensor<B, 2>, axis: usize) -> Tensor<B, 2> {
    let (shape, device) = (tensor.dims(), tensor.device());
    let mut data = values(tensor);
    format
        .quantize(&mut data, &shape, axis, Rounder::NearestEven)
        .expect("the format is valid");
    Tensor::from_data(TensorData::new(data, shape), &device)
}

/// `x · w` and its gradients for the output's gradient `g`.
fn layer<B: Exact>(x: Tensor<B, 2>, w: Tensor<B, 2>, g: Tensor<B, 2>) -> (Vec<f32>, Pair) {
    let (x, w) = (x.require_grad(), w.require_grad());
    let out = linear(x.clone(), w.clone(), None);
    let grads = B::loss_with_gradient(out.clone(), g).backward();
    let gradient = |leaf: Tensor<B, 2>| values(leaf.grad(&grads).expect("it is a leaf"));
    (values(out), [gradient(x), gradient(w)])
}

#[test]
fn every_block_format_quantizes_the_operands_of_all_three_products() {
    let own = [
        "mx(element=int4,block_size=8,scale_mode=even)",
        "bfp(bit_width=12,block_size=20)",
        "microexponent(bit_width=12,block_size=6,sub_block_size=3,shift_bits=2)",
        "nvfp4(tensor_scale=true)",
        "nvfp4(outer_size=0)",
        "block(element=e2m1,scale=ue5m3,block_size=8,outer_size=24,outer_scale=bfloat16)",
    ];
    for name in BlockFormat::NAMES.into_iter().chain(own) {
        let format: BlockFormat = name.parse().expect("it is a format");
        let device = mx_device(&all_slots(name, 0));
        let operands = |device| {
            (
                noise_tensor::<Mx, 2>([33, 41], 1, device),
                noise_tensor::<Mx, 2>([41, 35], 2, device),
                noise_tensor::<Mx, 2>([33, 35], 3, device),
            )
        };
        let (x, w, g) = operands(&device);
        let (out, [dx, dw]) = layer(x, w, g);

        let exact = |shape, seed| noise_tensor::<Flex, 2>(shape, seed, &FlexDevice);
        let (x, w, g) = (exact([33, 41], 1), exact([41, 35], 2), exact([33, 35], 3));
        let q = |tensor: &Tensor<Flex, 2>, axis| quantized(format, tensor.clone(), axis);
        let expected = [
            q(&x, 1).matmul(q(&w, 0)),
            q(&g, 1).matmul(q(&w, 1).transpose()),
            q(&x, 0).transpose().matmul(q(&g, 0)),
        ];
        for ((got, expected), what) in [out, dx, dw].iter().zip(expected).zip(["out", "dx", "dw"]) {
            let (expected, what) = (values(expected), format!("{name}: {what}"));
            if !format.tensor_scale {
                assert_same_bits(got, &expected, &what);
                continue;
            }
            // A tensor scale may multiply the sum instead of each element.
            for (got, expected) in got.iter().zip(&expected) {
                let error = (got - expected).abs();
                assert!(error <= 1e-5, "{what}: got {got}, expected {expected}");
            }
        }
    }
}

/// A product and the gradients of its operands.
type Product<B> = fn(&<B as burn::tensor::backend::BackendTypes>::Device) -> (Vec<f32>, Pair);

macro_rules! product {
    ($backend:ty, $x:expr, $w:expr, |$a:ident, $b:ident| $out:expr) => {
        |device| {
            let $a = noise_tensor::<$backend, { $x.len() }>($x, 1, device).require_grad();
            let $b = noise_tensor::<$backend, { $w.len() }>($w, 2, device).require_grad();
            let (x, w) = ($a.clone(), $b.clone());
            let out = $out;
            let g = noise_tensor(out.dims(), 3, device);
            let grads = <$backend>::loss_with_gradient(out.clone(), g).backward();
            let gradients = [
                values(x.grad(&grads).expect("it is a leaf")),
                values(w.grad(&grads).expect("it is a leaf")),
            ];
            (values(out), gradients)
        }
    };
}

/// Every kind of product, with sums that are not whole blocks, and in groups.
fn products<B: Exact>() -> [(&'static str, Product<B>); 5] {
    [
        (
            "linear",
            product!(B, [2, 50, 40], [40, 37], |x, w| linear(x, w, None)),
        ),
        (
            "matmul",
            product!(B, [3, 50, 40], [3, 40, 37], |a, b| a.matmul(b)),
        ),
        (
            "matmul, broadcast",
            product!(B, [3, 50, 40], [1, 40, 37], |a, b| a.matmul(b)),
        ),
        (
            "conv2d",
            product!(B, [20, 6, 5, 5], [40, 3, 3, 3], |x, w| conv2d(
                x,
                w,
                None,
                ConvOptions::new([2, 1], [1, 1], [1, 1], 2)
            )),
        ),
        (
            "conv_transpose2d",
            product!(B, [20, 6, 4, 4], [6, 20, 3, 3], |x, w| conv_transpose2d(
                x,
                w,
                None,
                ConvTransposeOptions::new([2, 1], [1, 1], [1, 0], [1, 1], 2)
            )),
        ),
    ]
}

/// Largest difference over the largest magnitude.
fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let largest =
        |values: &mut dyn Iterator<Item = f32>| values.fold(0.0_f32, |m, x| m.max(x.abs()));
    largest(&mut a.iter().zip(b).map(|(a, b)| a - b)) / largest(&mut b.iter().copied())
}

/// Formats so fine that nearly all the difference is the transform's own.
const FINE: &str = "bfp(bit_width=32,block_size=8)";

#[test]
fn a_hadamard_transform_leaves_every_gradient_product_as_it_is() {
    for block_size in RandomHadamard::BLOCK_SIZES {
        let with = mx_device(&all_slots(FINE, block_size));
        let without = mx_device(&all_slots(FINE, 0));
        for (name, product) in products::<Mx>() {
            let (out, gradients) = product(&with);
            let (expected_out, expected) = product(&without);
            assert_same_bits(&out, &expected_out, name);
            for (got, expected) in gradients.iter().zip(&expected) {
                assert_ne!(got, expected, "{name}: the operands are transformed");
                let distance = distance(got, expected);
                assert!(distance < 4e-6, "{name} {block_size}: {distance:e}");
            }
        }
    }
}

#[test]
fn a_hadamard_transform_makes_quantization_of_outliers_err_less() {
    let gradients = |specs: &MxSpecs| {
        let device = mx_device(specs);
        let mut g = noise(64 * 64, 3);
        // One channel in 32 is a hundred times larger.
        g.iter_mut().step_by(32).for_each(|g| *g *= 100.0);
        let g = Tensor::<Mx, 2>::from_data(TensorData::new(g, [64, 64]), &device);
        let x = noise_tensor::<Mx, 2>([64, 32], 1, &device);
        let w = noise_tensor::<Mx, 2>([32, 64], 2, &device);
        layer(x, w, g).1
    };
    let only_gradients = |hadamard_block_size| MxSpecs {
        w_elem_format: Some(FINE.parse().expect("it is a format")),
        ..all_slots("mxfp4", hadamard_block_size)
    };
    let [exact, plain, transformed] = [MxSpecs::none(), only_gradients(0), only_gradients(64)]
        .map(|specs| gradients(&specs)[0].clone());
    let mean_error = |got: &[f32]| -> f32 {
        let errors = got
            .iter()
            .zip(&exact)
            .map(|(got, exact)| (got - exact).abs());
        errors.sum::<f32>() / exact.len() as f32
    };
    let (plain, transformed) = (mean_error(&plain), mean_error(&transformed));
    assert!(transformed < 0.9 * plain, "{transformed} against {plain}");
}

#[test]
fn every_preset_repeats_bit_for_bit_on_every_backend() {
    for name in MxSpecs::PRESETS {
        // The transform's and the products' sums differ between backends; the operands must not.
        let specs = MxSpecs {
            bfloat: 0,
            // Specs that no other test draws random numbers of.
            seed: 31,
            ..MxSpecs::preset(name).expect("it is a preset")
        };
        let specs = specs.resolve().expect("the specs are sound");
        // The same products of one term, so that no order of additions matters.
        fn outer<B: Exact>(device: &B::Device) -> (Vec<f32>, Pair) {
            B::seed(device, 5);
            let x = noise_tensor::<B, 2>([48, 1], 1, device);
            let w = noise_tensor::<B, 2>([1, 1], 2, device);
            let g = noise_tensor::<B, 2>([48, 1], 3, device);
            let (out, [dx, _]) = layer(x, w, g);
            let (_, [_, dw]) = layer(
                noise_tensor::<B, 2>([1, 48], 1, device),
                noise_tensor::<B, 2>([48, 40], 2, device),
                noise_tensor::<B, 2>([1, 40], 3, device),
            );
            // A product's sum may start at +0 or at its first term: a zero's sign is the backend's.
            let unsigned_zeros = |values: Vec<f32>| values.iter().map(|x| x + 0.0).collect();
            (unsigned_zeros(out), [dx, dw].map(unsigned_zeros))
        }
        let flex = || {
            outer::<MxAutodiff<Flex>>(&MxDevice::new(FlexDevice, &specs).expect("resolved specs"))
        };
        let ndarray = MxDevice::new(NdArrayDevice::Cpu, &specs).expect("resolved specs");
        let (out, gradients) = flex();
        for (again_out, again) in [flex(), outer::<MxAutodiff<NdArray>>(&ndarray)] {
            assert_same_bits(&out, &again_out, name);
            assert_all_same_bits(&again, &gradients, name);
        }
    }
}

#[test]
fn stochastic_gradients_differ_within_a_run_and_follow_the_seed() {
    let gradients = |seed, device: &_| {
        Mx::seed(device, seed);
        let draw = || {
            layer(
                noise_tensor::<Mx, 2>([33, 41], 1, device),
                noise_tensor::<Mx, 2>([41, 35], 2, device),
                noise_tensor::<Mx, 2>([33, 35], 3, device),
            )
        };
        [draw(), draw()]
    };
    let device = mx_device(&MxSpecs::mxfp4_sr_rht());
    let [(first_out, first), (second_out, second)] = gradients(1, &device);
    assert_same_bits(
        &first_out,
        &second_out,
        "the forward pass is not stochastic",
    );
    assert!(first[0] != second[0] && first[1] != second[1]);
    assert_eq!(gradients(1, &device)[1].1, second, "the same seed");
    assert_ne!(gradients(2, &device)[0].1, first, "another seed");
}

/// Stochastic rounding has no bias: over many draws the gradients equal exact products' gradients.
#[test]
fn gradients_of_mxfp4_sr_rht_are_right_on_average() {
    let specs = MxSpecs {
        // Backward products of the unquantized forward operands.
        bfloat: 0,
        ..MxSpecs::mxfp4_sr_rht()
    };
    let device = mx_device(&specs);
    Mx::seed(&device, 0);
    const DRAWS: usize = 4000;
    let draw = |device: &_| {
        layer(
            noise_tensor::<Mx, 2>([8, 64], 1, device),
            noise_tensor::<Mx, 2>([64, 8], 2, device),
            noise_tensor::<Mx, 2>([8, 8], 3, device),
        )
        .1
    };
    let (x, w, g) = (
        noise_tensor::<Autodiff<Flex>, 2>([8, 64], 1, &FlexDevice),
        noise_tensor::<Autodiff<Flex>, 2>([64, 8], 2, &FlexDevice),
        noise_tensor::<Autodiff<Flex>, 2>([8, 8], 3, &FlexDevice),
    );
    let exact = layer(x, w, g).1;
    let single = draw(&device);
    let mut mean = single.clone().map(|gradient| vec![0.0; gradient.len()]);
    for _ in 0..DRAWS {
        for (mean, gradient) in mean.iter_mut().zip(draw(&device)) {
            let share = gradient.iter().map(|g| g / DRAWS as f32);
            mean.iter_mut().zip(share).for_each(|(mean, g)| *mean += g);
        }
    }
    for ((single, mean), exact) in single.iter().zip(&mean).zip(&exact) {
        let (single, mean) = (distance(single, exact), distance(mean, exact));
        assert!(
            single > 0.05 && mean < 0.01,
            "one draw {single}, the mean {mean}"
        );
    }
}
