//! Matrix products: which operands are multiplied in bfloat16, and that it is the same product.

use burn::backend::{Flex, NdArray};
use burn::nn::LinearConfig;
use burn::prelude::*;
use burn::tensor::ops::FloatTensor;
use burn_mx::{BlockFormat, FloatFormat, OperandQuantization, ProductPath, Rounding};
use burn_mx::{MxAutodiff, MxBackend, MxDevice, MxKernels, MxSpecs, Portable};
use burn_mx_kernels::internal::{Operand, OperandForm, OperandLayout};

use crate::support::*;

fn primitive<B: Backend, const D: usize>(shape: [usize; D], seed: u64) -> FloatTensor<B> {
    let tensor = noise_tensor::<B, D>(shape, seed, &B::Device::default());
    tensor.into_primitive().tensor()
}

/// The steps that an untransformed operand of a product goes through.
fn blocks(text: &str) -> OperandForm {
    let format: BlockFormat = text.parse().expect("it is a format");
    OperandForm {
        place: OperandLayout::LHS,
        quantization: OperandQuantization {
            blocks: Some((format, Rounding::NearestEven)),
            ..OperandQuantization::default()
        },
        tensor_scale: None,
        significant_bits: format.significant_bits(),
    }
}

/// The same by random numbers.
fn stochastic(form: OperandForm) -> OperandForm {
    let (format, _) = form.quantization.blocks.expect("it has blocks");
    OperandForm {
        quantization: OperandQuantization {
            blocks: Some((format, Rounding::Stochastic)),
            ..OperandQuantization::default()
        },
        ..form
    }
}

fn elementwise(format: FloatFormat) -> OperandForm {
    OperandForm {
        place: OperandLayout::LHS,
        quantization: OperandQuantization {
            elementwise: Some((format, Rounding::NearestEven)),
            ..OperandQuantization::default()
        },
        tensor_scale: None,
        significant_bits: format.mantissa_bits() + 1,
    }
}

/// Every place of an operand.
fn places() -> impl Iterator<Item = OperandLayout> {
    let sides = [OperandLayout::LHS, OperandLayout::RHS];
    let places = sides
        .into_iter()
        .flat_map(|place| [place, place.transposed()]);
    places.flat_map(|place| [place, place.flat()])
}

fn in_panels<P>(operand: &Operand<P>) -> bool {
    matches!(operand, Operand::Panels { .. })
}

/// Whether some operand becomes panels.
fn forms_panels<B: MxKernels>(form: OperandForm) -> bool {
    in_panels(&B::kernels().product_operand(primitive::<B, 3>([2, 5, 70], 1), form))
}

/// Whether this process multiplies in bfloat16 at all.
fn has_path() -> bool {
    ProductPath::current().is_some()
}

#[test]
fn formats_of_eight_significant_bits_are_multiplied_in_bfloat16() {
    let fits = |name: &&str| {
        let format: BlockFormat = name.parse().expect("it is a format");
        format.significant_bits() <= 8
    };
    let names = BlockFormat::NAMES.into_iter().filter(fits);
    let mut forms: Vec<OperandForm> = names.map(blocks).collect();
    // All but the formats of tables whose numbers have many bits.
    assert_eq!(forms.len(), BlockFormat::NAMES.len() - 2);
    forms.push(blocks("nvfp4(tensor_scale=true)"));
    forms.push(blocks("nvfp4(square=true)"));
    forms.push(blocks("nvfp4(tensor_scale=true,square=true)"));
    forms.push(stochastic(blocks("mx9")));
    forms.push(stochastic(blocks("nvfp4(tensor_scale=true)")));
    forms.push(blocks("mx(element=fp8_e4m3,square=true)"));
    forms.push(blocks("bfp(bit_width=17)"));
    forms.push(blocks("mx(element=bfloat16)"));
    forms.push(elementwise(FloatFormat::bfloat(16).unwrap()));
    forms.push(elementwise(FloatFormat::fp(13).unwrap()));
    for form in forms {
        for place in places() {
            let form = OperandForm { place, ..form };
            for in_panels in [forms_panels::<Flex>(form), forms_panels::<NdArray>(form)] {
                assert_eq!(in_panels, has_path(), "{form:?}");
            }
        }
    }
}

#[test]
fn wider_formats_and_finer_subnormals_are_multiplied_in_float32() {
    let operand = |form, scale: f32| {
        let device = Default::default();
        let x = noise_tensor::<Flex, 2>([5, 70], 2, &device) * scale;
        in_panels(&Flex::kernels().product_operand(x.into_primitive().tensor(), form))
    };
    for form in [
        blocks("bfp(bit_width=18)"),
        blocks("mx(element=float16)"),
        elementwise(FloatFormat::bfloat(17).unwrap()),
        elementwise(FloatFormat::fp(16).unwrap()),
    ] {
        assert!(!operand(form, 1.0), "{form:?}");
    }
    // Blocks whose elements are below 2^-133 do not fit in bfloat16; blocks just above fit.
    let mxfp8 = blocks("mxfp8_e4m3");
    assert_eq!(operand(mxfp8, 2.0_f32.powi(-110)), has_path());
    assert!(!operand(mxfp8, 2.0_f32.powi(-127)));
}

/// The values of a product.
fn product<B: MxKernels>(lhs: Operand<FloatTensor<B>>, rhs: Operand<FloatTensor<B>>) -> Vec<f32> {
    let data = burn::tensor::read_sync(B::float_into_data(B::kernels().product(lhs, rhs)));
    data.expect("it can be read").into_vec().expect("it is f32")
}

#[track_caller]
fn assert_close(got: &[f32], expected: &[f32], summed: usize, what: &str) {
    // Noise is below 2.
    let bound = 4.0 * summed as f32 * summed as f32 * f32::EPSILON;
    assert_eq!(got.len(), expected.len(), "{what}");
    for (got, expected) in got.iter().zip(expected) {
        assert!((got - expected).abs() <= bound, "{what}: {got}, {expected}");
    }
}

/// Transposed or not, flat or not, with leading axes that broadcast, and with one operand in float32: the product is the
/// portable kernels', which is in float32.
#[test]
fn products_are_those_of_tensors_in_every_place() {
    let [m, k, n] = [6, 75, 21];
    let shape = |leading: usize, rows: usize, columns: usize, transposed: bool| match transposed {
        true => [leading, columns, rows],
        false => [leading, rows, columns],
    };
    for operand in [
        blocks("mxfp4"),
        blocks("mx9"),
        blocks("nvfp4(tensor_scale=true)"),
        blocks("nvfp4(tensor_scale=true,square=true)"),
        blocks("mx(element=int8,block_size=32,square=true)"),
        stochastic(blocks("mxfp6_e2m3")),
        stochastic(blocks("nvfp4(tensor_scale=true)")),
    ] {
        for (left, right) in [(3, 3), (1, 4), (4, 1)] {
            for (lhs_transposed, rhs_transposed) in
                [(false, false), (true, false), (false, true), (true, true)]
            {
                let lhs = primitive::<Flex, 3>(shape(left, m, k, lhs_transposed), 3);
                let rhs = primitive::<Flex, 3>(shape(right, k, n, rhs_transposed), 4);
                let form = |place: OperandLayout, transposed| OperandForm {
                    place: if transposed {
                        place.transposed()
                    } else {
                        place
                    },
                    ..operand
                };
                let lhs_form = form(OperandLayout::LHS, lhs_transposed);
                let rhs_form = form(OperandLayout::RHS, rhs_transposed);
                let what = format!("{lhs_form:?} {rhs_form:?}");
                let own = [
                    Flex::kernels().product_operand(lhs.clone(), lhs_form),
                    Flex::kernels().product_operand(rhs.clone(), rhs_form),
                ];
                let portable = [
                    Portable::<Flex>::kernels().product_operand(lhs, lhs_form),
                    Portable::<Flex>::kernels().product_operand(rhs, rhs_form),
                ];
                let [expected_lhs, expected_rhs] = portable.clone();
                let expected = product::<Portable<Flex>>(expected_lhs, expected_rhs);
                let [own_lhs, own_rhs] = own.clone();
                assert_close(&product::<Flex>(own_lhs, own_rhs), &expected, k, &what);
                // As where the values of one of them are too fine.
                let ([own_lhs, own_rhs], [portable_lhs, portable_rhs]) = (own, portable);
                assert_close(&product::<Flex>(own_lhs, portable_rhs), &expected, k, &what);
                assert_close(&product::<Flex>(portable_lhs, own_rhs), &expected, k, &what);
            }
        }
    }
}

/// Leading axes that are rows, in a product that keeps them as rows and in one that sums over them.
#[test]
fn leading_axes_that_are_rows() {
    let [batch, m, k, n] = [3, 20, 33, 7];
    for format in [
        "mxfp8_e5m2",
        "mx(element=int4,block_size=0)",
        "bfp16",
        "mx(element=fp4_e2m1,block_size=16,square=true)",
        "nvfp4(tensor_scale=true,square=true)",
    ] {
        let x = primitive::<Flex, 3>([batch, m, k], 5);
        let y = primitive::<Flex, 3>([batch, m, n], 6);
        let weight = primitive::<Flex, 2>([k, n], 7);
        let form = |place| OperandForm {
            place,
            ..blocks(format)
        };
        let products = [
            (
                x.clone(),
                OperandLayout::LHS.flat(),
                weight,
                OperandLayout::RHS,
                k,
            ),
            (
                x,
                OperandLayout::LHS.transposed().flat(),
                y,
                OperandLayout::RHS.flat(),
                batch * m,
            ),
        ];
        for (lhs, lhs_place, rhs, rhs_place, summed) in products {
            let own = product::<Flex>(
                Flex::kernels().product_operand(lhs.clone(), form(lhs_place)),
                Flex::kernels().product_operand(rhs.clone(), form(rhs_place)),
            );
            let expected = product::<Portable<Flex>>(
                Portable::<Flex>::kernels().product_operand(lhs, form(lhs_place)),
                Portable::<Flex>::kernels().product_operand(rhs, form(rhs_place)),
            );
            assert_close(&own, &expected, summed, format);
        }
    }
}

/// However a tensor lies in memory, its product has the same bits, and so it has on NdArray.
fn permuted<B: MxKernels>() -> Vec<Vec<f32>> {
    let device = MxDevice::new(
        B::Device::default(),
        MxSpecs::mxfp6_e3m2().resolve().unwrap(),
    )
    .expect("resolved specs");
    let x = noise_tensor::<MxBackend<B>, 4>([2, 9, 3, 40], 8, &device);
    let y = noise_tensor::<MxBackend<B>, 4>([2, 5, 3, 40], 9, &device);
    // As attention has its heads.
    let [x, y] = [x, y].map(|tensor| tensor.swap_dims(1, 2));
    let dense = |tensor: &Tensor<MxBackend<B>, 4>| Tensor::from_data(tensor.to_data(), &device);
    let (dense_x, dense_y) = (dense(&x), dense(&y.clone().transpose()));
    let flipped = x.clone().flip([3]).flip([3]);
    let sliced = Tensor::cat(vec![x.clone(), x.clone()], 3).slice([0..2, 0..3, 0..9, 40..80]);
    let rhs = y.transpose();
    [x, dense_x.clone(), flipped, sliced]
        .into_iter()
        .map(|x| values(x.matmul(rhs.clone())))
        .chain([values(dense_x.matmul(dense_y))])
        .collect()
}

#[test]
fn a_product_does_not_depend_on_how_its_operands_lie_in_memory() {
    let [flex, ndarray] = [permuted::<Flex>(), permuted::<NdArray>()];
    for product in flex.iter().chain(&ndarray) {
        match has_path() {
            true => assert_same_bits(product, &flex[0], "product"),
            false => assert_close(product, &flex[0], 40, "product"),
        }
    }
}

/// Output and gradients of a linear layer.
fn layer(threads: usize) -> Vec<Vec<f32>> {
    type B = MxAutodiff<Flex>;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.expect("threads can be started").install(|| {
        let device = mx_device(&MxSpecs::mxfp8_e4m3());
        let linear = with_noise_weights(LinearConfig::new(300, 500).init::<B>(&device), 10);
        let x = noise_tensor::<B, 3>([4, 50, 300], 11, &device).require_grad();
        let y = linear.forward(x.clone());
        let grads = y.clone().powi_scalar(2).sum().backward();
        let weight = linear.weight.val().grad(&grads).expect("it is a parameter");
        let x = x.grad(&grads).expect("it requires one");
        vec![values(y), values(weight), values(x)]
    })
}

#[test]
fn threads_change_no_bit() {
    if !has_path() {
        return;
    }
    let one = layer(1);
    for threads in [2, 3, 7] {
        for (got, expected) in layer(threads).iter().zip(&one) {
            assert_same_bits(got, expected, &format!("{threads} threads"));
        }
    }
}
