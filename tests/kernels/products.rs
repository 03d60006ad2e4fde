//! Products whose strategy is fixed: right, and the same again.

use burn::backend::Flex;
use burn_backend::ops::{ConvOptions, ConvTransposeOptions, FloatTensorOps, ModuleOps};
use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, FloatDType, TensorMetadata};
use burn_mx::MxKernels;
use burn_mx::process::reproducible_products;
use burn_mx::{
    BlockFormat, FloatFormat, OperandQuantization, ProductPath, RandomHadamard, RandomStream,
    Rounding,
};
use burn_mx_kernels::internal::{
    Convolution, ConvolutionProduct, Operand, OperandForm, OperandLayout,
};

use super::slices::for_each_layout;
use super::support::*;
use crate::backend::TestBackend;

/// The product of two operands in blocks, or in float32 as they are.
fn product<B: MxKernels>(
    [lhs, rhs]: [&[f32]; 2],
    shapes: [&[usize]; 2],
    places: [OperandLayout; 2],
    blocks: Option<(BlockFormat, Rounding)>,
) -> Vec<f32> {
    let form = |place| OperandForm {
        place,
        quantization: OperandQuantization {
            blocks,
            ..OperandQuantization::default()
        },
        significant_bits: blocks.map_or(24, |(format, _)| format.significant_bits()),
        tensor_scale: None,
    };
    let lhs = B::kernels().product_operand(tensor::<B>(lhs, shapes[0]), form(places[0]));
    let rhs = B::kernels().product_operand(tensor::<B>(rhs, shapes[1]), form(places[1]));
    values::<B>(B::kernels().product(lhs, rhs))
}

/// Formats with a tensor scale.
const SCALED: [&str; 8] = [
    "nvfp4(tensor_scale=true)",
    "nvfp4(tensor_scale=true,square=true)",
    "nvfp4(tensor_scale=true,four_over_six=true)",
    "nvfp4(tensor_scale=true,headroom=17/16)",
    "if4",
    "razer",
    "block(element=fp4_e2m1,scale=ue4m3,tensor_scale=true,block_size=16,eden=true)",
    "block(element=fp4_e2m1,scale=ue4m3,tensor_scale=true,block_size=16,sign_scales=true)",
];

/// An operand in blocks of a format, with random numbers if the rounding is stochastic.
fn scaled_form(format: BlockFormat, rounding: Rounding, place: OperandLayout) -> OperandForm {
    OperandForm {
        place,
        quantization: OperandQuantization {
            blocks: Some((format, rounding)),
            stream: RandomStream::new(5, 6),
            ..OperandQuantization::default()
        },
        significant_bits: format.significant_bits(),
        tensor_scale: None,
    }
}

/// Whether this backend has tensor scales beside the elements, and not in them.
fn has_tensor_scales() -> bool {
    let format = SCALED[0].parse().expect("the format is sound");
    let form = scaled_form(format, Rounding::NearestEven, OperandLayout::LHS);
    let (_, has_tensor_scale) = TestBackend::kernels().operand_dtype(&Default::default(), form);
    has_tensor_scale
}

/// A gradient's operands of its two products, which devices make in one reading where the tensor is of whole tiles.
#[test]
fn operands_along_both_axes() {
    let pairs = [
        ["mxfp8_e4m3", "mxfp8_e4m3"],
        ["mx9", "nvfp4(tensor_scale=true)"],
        ["nvfp4(tensor_scale=true)", "nvfp4(tensor_scale=true)"],
        ["nvfp4", "mxint8"],
        [
            "mx(element=fp6_e2m3,block_size=8)",
            "block(element=table(nf4),scale=bfloat16,block_size=32)",
        ],
        ["bfp16", "mxfp4"],
    ];
    let bfloat16 = FloatFormat::bfloat(16).expect("16 bits are allowed");
    for (i, formats) in pairs.into_iter().enumerate() {
        for shape in [vec![64, 96], vec![2, 32, 64], vec![3, 33, 40], vec![0, 32]] {
            let rank = shape.len();
            let places = [OperandLayout::RHS.flat(), OperandLayout::LHS.flat()];
            let forms = [0, 1].map(|which| {
                let format: BlockFormat = formats[which].parse().expect("the format is sound");
                let form = scaled_form(format, Rounding::NearestEven, places[which]);
                let elementwise = (i % 2 == 0).then_some((bfloat16, Rounding::NearestEven));
                OperandForm {
                    quantization: OperandQuantization {
                        elementwise,
                        ..form.quantization
                    },
                    ..form
                }
            });
            let x = noise(shape.iter().product(), 5 + i as u64);
            let check = |tensor: FloatTensor<TestBackend>, layout: &str| {
                let kernels = TestBackend::kernels();
                let pair = kernels.operand_pair(tensor.clone(), forms);
                for (form, got) in forms.into_iter().zip(pair) {
                    let expected = kernels.product_operand(tensor.clone(), form);
                    let what = format!("{formats:?}, {shape:?}, {layout}, {form:?}");
                    let [got, expected] = [got, expected].map(numbers_of::<TestBackend>);
                    assert_same(&got, &expected, &what);
                }
            };
            for_each_layout::<TestBackend>(&x, &shape, check);
            if let [heads, rows, columns] = shape[..] {
                let turned = tensor::<TestBackend>(&x, &[rows, heads, columns]);
                check(TestBackend::float_swap_dims(turned, 0, 1), "heads of rows");
            }
            if cfg!(not(any(
                test_backend = "flex",
                test_backend = "ndarray",
                test_backend = "tch"
            ))) {
                let has_kernel = (TestBackend::kernels()).has_operand_pair(
                    &Default::default(),
                    &shape.clone().into(),
                    forms,
                );
                let is_of_tiles = shape[rank - 2].is_multiple_of(32) && !x.is_empty();
                assert_eq!(has_kernel, is_of_tiles, "{formats:?}, {shape:?}");
            }
        }
    }
}

/// The numbers of an operand, and its tensor scale.
fn numbers_of<B: MxKernels>(operand: Operand<FloatTensor<B>>) -> Vec<f32> {
    match operand {
        Operand::Tensor {
            values,
            tensor_scale,
            ..
        } => {
            let in_float32 = |tensor| self::values::<B>(B::float_cast(tensor, FloatDType::F32));
            let scale = tensor_scale.map(in_float32).unwrap_or_default();
            in_float32(values).into_iter().chain(scale).collect()
        }
        Operand::Panels { panels, .. } => {
            let mut values = vec![0.0; panels.matrices() * panels.free() * panels.summed()];
            let matrix = panels.free() * panels.summed();
            for (i, values) in values.chunks_exact_mut(matrix.max(1)).enumerate() {
                panels.read(i, values);
            }
            values
        }
        _ => unreachable!("no operand is accumulated here"),
    }
}

#[test]
fn elements_in_units_of_their_tensor_scale() {
    if !has_tensor_scales() {
        return;
    }
    let shape = [37, 50];
    let numbers = noise(shape.iter().product(), 11).into_iter();
    let numbers: Vec<f32> = numbers
        .map(|x| if x.abs() < 4.0 { x } else { 0.75 })
        .collect();
    for text in SCALED {
        let format: BlockFormat = text.parse().expect("the format is sound");
        for rounding in [Rounding::NearestEven, Rounding::Stochastic] {
            for (place, exponent) in [OperandLayout::LHS, OperandLayout::RHS]
                .into_iter()
                .flat_map(|place| [0, -60, -105, -125, -140, -160].map(|i| (place, i)))
            {
                let values: Vec<f32> = (numbers.iter())
                    .map(|x| (f64::from(*x) * 2.0_f64.powi(exponent)) as f32)
                    .collect();
                let form = scaled_form(format, rounding, place);
                let what = format!("{form:?}, 2^{exponent}");
                let axis = place.block_axis(2, &format);
                let rounder = rounding.with(form.quantization.stream);
                let mut in_units = values.clone();
                let scale =
                    format.quantize_without_tensor_scale(&mut in_units, &shape, axis, rounder);
                let scale = scale.expect("the axis is the shape's");

                let operand = TestBackend::kernels()
                    .product_operand(tensor::<TestBackend>(&values, &shape), form);
                let Operand::Tensor {
                    values: got,
                    tensor_scale: Some(got_scale),
                    ..
                } = operand
                else {
                    panic!("{what}: no tensor scale");
                };
                let got_scale = self::values::<TestBackend>(got_scale)[0];
                // By matrix units they are bfloat16.
                let got = TestBackend::float_cast(got, FloatDType::F32);
                let got = self::values::<TestBackend>(got);
                if let Some(scale) = scale {
                    assert_same(&[got_scale], &[scale], &what);
                    assert_same(&got, &in_units, &what);
                    continue;
                }
                // If all numbers are very small, the slices have none of these elements.
                let mut whole = values.clone();
                let quantized = format.quantize(&mut whole, &shape, axis, rounder);
                quantized.expect("the axis is the shape's");
                for (got, whole) in got.iter().zip(&whole) {
                    let got = f64::from(*got) * f64::from(got_scale);
                    let error = (got - f64::from(*whole)).abs();
                    // The scale t · c of a block may be subnormal, and an element is 6 times it at most.
                    let bound = got.abs() * 2.0_f64.powi(-23) + 3.5 * 2.0_f64.powi(-149);
                    assert!(error <= bound, "{what}: {got:e} {whole:e}");
                }
            }
        }
    }
}

#[test]
fn operands_are_transformed_before_their_blocks() {
    let shape = [40, 100];
    let numbers = noise(shape.iter().product(), 3);
    let transform = RandomHadamard { block_size: 32 };
    let signs = RandomStream::new(2, 9);
    let bfloat16 = FloatFormat::bfloat(16).expect("a width of bfloat");
    let format: BlockFormat = "mxfp8_e4m3".parse().expect("the format is sound");
    let even = Rounding::NearestEven;
    let places = [OperandLayout::LHS, OperandLayout::RHS].into_iter();
    for (place, rounding) in
        places.flat_map(|place| [even, Rounding::Stochastic].map(|rounding| (place, rounding)))
    {
        let plain = scaled_form(format, rounding, place);
        let form = OperandForm {
            quantization: OperandQuantization {
                elementwise: Some((bfloat16, even)),
                hadamard: Some((transform, signs.into())),
                factor: Some(0.75),
                ..plain.quantization
            },
            ..plain
        };
        let operand = tensor::<TestBackend>(&numbers, &shape);
        let operand = TestBackend::kernels().product_operand(operand, form);
        let Operand::Tensor { values: got, .. } = operand else {
            panic!("an operand on a device is a tensor");
        };
        let got = TestBackend::float_cast(got, FloatDType::F32);
        let (axis, stream) = (place.summed_axis(2), form.quantization.stream);
        let mut expected = numbers.clone();
        bfloat16.round_slice(&mut expected, even.with(stream));
        let transformed = transform.transform(&mut expected, &shape, axis, signs);
        transformed.expect("the axis is the shape's");
        expected.iter_mut().for_each(|x| *x *= 0.75);
        let quantized = format.quantize(&mut expected, &shape, axis, rounding.with(stream));
        quantized.expect("the axis is the shape's");
        assert_same(&values::<TestBackend>(got), &expected, &format!("{form:?}"));
    }
}

#[test]
fn an_operand_that_holds_no_number_is_no_number() {
    let mut values = whole_numbers(&[20, 20], 3);
    values[77] = f32::NAN;
    let operands = [&values[..], &whole_numbers(&[20, 20], 4)];
    let nvfp4 = SCALED[0].parse().expect("the format is sound");
    let shapes = [&[20, 20][..]; 2];
    let places = [OperandLayout::LHS, OperandLayout::RHS];
    let got = product::<TestBackend>(
        operands,
        shapes,
        places,
        Some((nvfp4, Rounding::NearestEven)),
    );
    assert!(got.iter().all(|x| x.is_nan()), "{got:?}");
    let zeros = [&[0.0; 400][..], operands[1]];
    let got = product::<TestBackend>(zeros, shapes, places, Some((nvfp4, Rounding::NearestEven)));
    assert!(got.iter().all(|x| *x == 0.0), "{got:?}");
}

/// Sums that are exact in any order, multiplied by two tensor scales: Flex's bits.
#[test]
fn products_of_tensor_scales_are_those_of_processors() {
    let [lhs, rhs] = [OperandLayout::LHS, OperandLayout::RHS];
    for (left, right, places) in [
        (vec![5, 70], vec![70, 9], [lhs, rhs]),
        (
            vec![70, 5],
            vec![9, 70],
            [lhs.transposed(), rhs.transposed()],
        ),
        (vec![2, 3, 5, 64], vec![1, 3, 64, 4], [lhs, rhs]),
        (vec![4, 6, 40], vec![40, 8], [lhs.flat(), rhs]),
    ] {
        // All of one binade, so that the scales of their blocks are close to each other.
        let numbers = |shape: &[usize], seed| -> Vec<f32> {
            let stream = RandomStream::new(seed, 9);
            let number = |i| f32::from_bits(stream.draw(i) & 0x807f_ffff | 0x3f00_0000);
            (0..shape.iter().product::<usize>() as u64)
                .map(number)
                .collect()
        };
        let operands = [numbers(&left, 1), numbers(&right, 2)];
        let formats = SCALED.map(|text| text.parse::<BlockFormat>().expect("the format is sound"));
        // Sums of longer significands depend on their order.
        let formats = formats
            .into_iter()
            .filter(|format| format.significant_bits() <= 8);
        let roundings = [Rounding::NearestEven, Rounding::Stochastic];
        for (format, rounding) in
            formats.flat_map(|format| roundings.map(|rounding| (format, rounding)))
        {
            fn multiply<B: MxKernels>(
                operands: &[Vec<f32>; 2],
                shapes: [&[usize]; 2],
                forms: [OperandForm; 2],
            ) -> Vec<f32> {
                let operand = |i: usize| {
                    let tensor = tensor::<B>(&operands[i], shapes[i]);
                    B::kernels().product_operand(tensor, forms[i])
                };
                values::<B>(B::kernels().product(operand(0), operand(1)))
            }
            let forms = places.map(|place| scaled_form(format, rounding, place));
            let shapes = [&left[..], &right];
            let got = multiply::<TestBackend>(&operands, shapes, forms);
            let expected = multiply::<Flex>(&operands, shapes, forms);
            let what = format!("{left:?} {right:?} {forms:?}");
            match has_tensor_scales() && ProductPath::current().is_some() {
                true => assert_same(&got, &expected, &what),
                false => {
                    for (got, expected) in got.iter().zip(&expected) {
                        let error = (got - expected).abs();
                        assert!(error <= 1e-5, "{what}: {got} {expected}");
                    }
                }
            }
        }
    }
}

/// A product is multiplied by two tensor scales in float64.
#[test]
fn a_product_is_rounded_once_by_its_tensor_scales() {
    if !has_tensor_scales() {
        return;
    }
    let numbers: Vec<f32> = noise(5000, 12)
        .into_iter()
        // The formats that a device's product leaves unchanged.
        .filter(|x| x.is_normal() || *x == 0.0)
        .collect();
    let ordinary = noise(300, 13).into_iter().map(f32::abs);
    let ordinary: Vec<f32> = ordinary.filter(|x| x.is_finite()).collect();
    for scales in ordinary.chunks_exact(2).take(40) {
        let operand = |values: &[f32], shape: [usize; 2], scale: f32| Operand::Tensor {
            values: tensor::<TestBackend>(values, &shape),
            transposed: false,
            tensor_scale: Some(tensor::<TestBackend>(&[scale], &[1])),
        };
        let lhs = operand(&numbers, [numbers.len(), 1], scales[0]);
        let rhs = operand(&[1.0], [1, 1], scales[1]);
        let got = values::<TestBackend>(TestBackend::kernels().product(lhs, rhs));
        let factor = f64::from(scales[0]) * f64::from(scales[1]);
        let expected: Vec<f32> = (numbers.iter())
            .map(|x| (f64::from(*x) * factor) as f32)
            .collect();
        assert_same(&got, &expected, &format!("{scales:?}"));
    }
}

#[test]
fn fixed_strategies_multiply_any_shape() {
    reproducible_products(true);
    let [lhs, rhs] = [OperandLayout::LHS, OperandLayout::RHS];
    let even = |format: &str| {
        let format: BlockFormat = format.parse().expect("the format is sound");
        Some((format, Rounding::NearestEven))
    };
    let formats = [
        None,
        even("mxfp8_e4m3"),
        even("mx(element=fp8_e4m3,block_size=32,square=true)"),
    ];
    for (left, right, places) in [
        (vec![5, 70], vec![70, 9], [lhs, rhs]),
        (vec![70, 5], vec![70, 9], [lhs.transposed(), rhs]),
        (vec![5, 70], vec![9, 70], [lhs, rhs.transposed()]),
        (vec![1, 33], vec![33, 1], [lhs, rhs]),
        (vec![2, 3, 5, 64], vec![1, 3, 64, 4], [lhs, rhs]),
        (vec![130, 257], vec![257, 131], [lhs, rhs]),
        (vec![4, 6, 40], vec![40, 8], [lhs.flat(), rhs]),
    ] {
        let numbers = |shape: &[usize], seed| -> Vec<f32> {
            let numbers = noise(shape.iter().product(), seed).into_iter();
            numbers
                .map(|x| if x.abs() < 1.0 { x } else { 0.5 })
                .collect()
        };
        let operands = [numbers(&left, 1), numbers(&right, 2)];
        let operands = [&operands[0][..], &operands[1][..]];
        for blocks in formats {
            let run = || product::<TestBackend>(operands, [&left, &right], places, blocks);
            let got = run();
            let expected = product::<Flex>(operands, [&left, &right], places, blocks);
            let what = format!("{left:?} {right:?} {blocks:?}");
            assert_eq!(got.len(), expected.len(), "{what}");
            for (got, expected) in got.iter().zip(&expected) {
                assert!((got - expected).abs() <= 2e-5, "{what}: {got} {expected}");
            }
            assert_same(&run(), &got, &what);
        }
    }
}

fn whole<B: Backend>(shape: &[usize], seed: usize) -> FloatTensor<B> {
    tensor::<B>(&whole_numbers(shape, seed), shape)
}

/// Stride, padding and dilation along each axis, and the groups.
type Way = (usize, usize, usize, usize);

/// The three products of a convolution of this number of dimensions and the transposed one, against Flex's own.
macro_rules! convolutions {
    ($name:ident, $n:literal, $plane:expr, $window:expr, $conv:ident, $x_backward:ident, $weight_backward:ident,
        $transposed:ident, $transposed_x:ident, $transposed_weight:ident) => {
        fn $name((stride, padding, dilation, groups): Way) {
            let way = [[stride; $n], [padding; $n], [dilation; $n]];
            let [x_shape, weight_shape] = [([2, 3 * groups], $plane), ([2 * groups, 3], $window)]
                .map(|(channels, lengths)| -> Vec<usize> {
                    channels.into_iter().chain(lengths).collect()
                });
            let options = || ConvOptions::new(way[0], way[1], way[2], groups);
            let convolution = Convolution {
                stride: way[0].to_vec(),
                padding: way[1].to_vec(),
                dilation: way[2].to_vec(),
                groups,
            };
            let check = |product: ConvolutionProduct,
                         [first, second]: [(&[usize], usize); 2],
                         bias: Option<&[usize]>,
                         expected: FloatTensor<Flex>| {
                let what = format!("{product:?} of {convolution:?}");
                let operands =
                    [first, second].map(|(shape, seed)| whole::<TestBackend>(shape, seed));
                let bias = bias.map(|shape| whole::<TestBackend>(shape, 4));
                let got = TestBackend::kernels().convolution_product(
                    &convolution,
                    &product,
                    operands.each_ref(),
                    bias.as_ref(),
                    24,
                );
                let got = got.expect("a strategy is fixed");
                assert_eq!(got.shape(), expected.shape(), "{what}");
                assert_eq!(
                    values::<TestBackend>(got),
                    values::<Flex>(expected),
                    "{what}"
                );
            };
            let (x, weight) = (whole::<Flex>(&x_shape, 1), whole::<Flex>(&weight_shape, 2));
            let output = [2 * groups];
            let bias = whole::<Flex>(&output, 4);
            let expected = Flex::$conv(x.clone(), weight.clone(), Some(bias), options());
            let out_shape = expected.shape().to_vec();
            let operands = [(&x_shape[..], 1), (&weight_shape[..], 2)];
            let product = ConvolutionProduct::Output(out_shape.clone());
            check(product, operands, Some(&output), expected);

            let grad = whole::<Flex>(&out_shape, 3);
            let expected = Flex::$x_backward(x.clone(), weight.clone(), grad.clone(), options());
            let operands = [(&out_shape[..], 3), (&weight_shape[..], 2)];
            let product = ConvolutionProduct::InputGradient(x_shape.clone());
            check(product, operands, None, expected);

            let expected = Flex::$weight_backward(x, weight.clone(), grad.clone(), options());
            let operands = [(&x_shape[..], 1), (&out_shape[..], 3)];
            let product = ConvolutionProduct::WeightGradient(weight_shape.clone());
            check(product, operands, None, expected);

            // Its channels are the other way round, and zeros follow its output.
            let padding_out = stride.max(dilation) - 1;
            let bias = [3 * groups];
            let options =
                || ConvTransposeOptions::new(way[0], way[1], [padding_out; $n], way[2], groups);
            let of_bias = Some(whole::<Flex>(&bias, 4));
            let expected = Flex::$transposed(grad.clone(), weight.clone(), of_bias, options());
            let long = expected.shape().to_vec();
            let product = ConvolutionProduct::InputGradient(long.clone());
            let operands = [(&out_shape[..], 3), (&weight_shape[..], 2)];
            check(product, operands, Some(&bias), expected);

            // Its own gradients: windows of the longer tensor, no more than the shorter one has elements.
            let gradient = whole::<Flex>(&long, 5);
            let expected = Flex::$transposed_x(weight.clone(), gradient.clone(), options());
            let product = ConvolutionProduct::Output(out_shape.clone());
            check(
                product,
                [(&long[..], 5), (&weight_shape[..], 2)],
                None,
                expected,
            );
            let expected = Flex::$transposed_weight(grad, weight, gradient, options());
            let product = ConvolutionProduct::WeightGradient(weight_shape.clone());
            check(
                product,
                [(&long[..], 5), (&out_shape[..], 3)],
                None,
                expected,
            );
        }
    };
}

convolutions!(
    conv1d,
    1,
    [11],
    [3],
    conv1d,
    conv1d_x_backward,
    conv1d_weight_backward,
    conv_transpose1d,
    conv_transpose1d_x_backward,
    conv_transpose1d_weight_backward
);
convolutions!(
    conv2d,
    2,
    [9, 7],
    [3, 2],
    conv2d,
    conv2d_x_backward,
    conv2d_weight_backward,
    conv_transpose2d,
    conv_transpose2d_x_backward,
    conv_transpose2d_weight_backward
);
convolutions!(
    conv3d,
    3,
    [6, 5, 7],
    [2, 1, 3],
    conv3d,
    conv3d_x_backward,
    conv3d_weight_backward,
    conv_transpose3d,
    conv_transpose3d_x_backward,
    conv_transpose3d_weight_backward
);

#[test]
fn convolutions_of_a_fixed_strategy() {
    reproducible_products(true);
    for way in [(1, 0, 1, 1), (2, 1, 1, 2), (1, 1, 2, 1), (3, 2, 1, 1)] {
        conv1d(way);
        conv2d(way);
        conv3d(way);
    }
}
