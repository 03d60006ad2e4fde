//! Products whose strategy is fixed: right, and the same again.

use burn::backend::Flex;
use burn_backend::ops::{ConvOptions, ConvTransposeOptions, ModuleOps};
use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, TensorMetadata};
use burn_mx::microscaling::{BlockFormat, OperandQuantization, Rounding};
use burn_mx::{
    Convolution, ConvolutionProduct, MxKernels, OperandForm, Place, reproducible_products,
};

use super::support::*;
use crate::backend::TestBackend;

/// The product of two operands in blocks, or in float32 as they are.
fn product<B: MxKernels>(
    [lhs, rhs]: [&[f32]; 2],
    shapes: [&[usize]; 2],
    places: [Place; 2],
    blocks: Option<(BlockFormat, Rounding)>,
) -> Vec<f32> {
    let form = |place| OperandForm {
        place,
        quantization: OperandQuantization {
            elementwise: None,
            blocks,
        },
        significant_bits: blocks.map_or(24, |(format, _)| format.significant_bits()),
        tensor_scale: None,
    };
    let lhs = B::product_operand(tensor::<B>(lhs, shapes[0]), form(places[0]));
    let rhs = B::product_operand(tensor::<B>(rhs, shapes[1]), form(places[1]));
    values::<B>(B::product(lhs, rhs))
}

#[test]
fn fixed_strategies_multiply_any_shape() {
    reproducible_products(true);
    let [lhs, rhs] = [Place::LHS, Place::RHS];
    let even = |format: &str| {
        let format: BlockFormat = format.parse().expect("the format is sound");
        Some((format, Rounding::Even))
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

/// Whole numbers from -4 to 4: sums of their products are exact, in whatever order.
fn whole_numbers(shape: &[usize], seed: usize) -> Vec<f32> {
    let number = |i: usize| ((i * 7919 + seed * 104_729) % 9) as f32 - 4.0;
    (0..shape.iter().product()).map(number).collect()
}

fn whole<B: Backend>(shape: &[usize], seed: usize) -> FloatTensor<B> {
    tensor::<B>(&whole_numbers(shape, seed), shape)
}

/// Stride, padding and dilation along each axis, and the groups.
type Way = (usize, usize, usize, usize);

/// The three products of a convolution of so many dimensions and the transposed one, against Flex's own.
macro_rules! convolutions {
    ($name:ident, $n:literal, $plane:expr, $window:expr, $conv:ident, $x_backward:ident, $weight_backward:ident,
        $transposed:ident) => {
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
                let got = TestBackend::convolution_product(
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
            check(
                ConvolutionProduct::Output,
                operands,
                Some(&output),
                expected,
            );

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
            let padding_out = usize::from(stride > 1 || dilation > 1);
            let bias = [3 * groups];
            let options =
                ConvTransposeOptions::new(way[0], way[1], [padding_out; $n], way[2], groups);
            let expected = Flex::$transposed(grad, weight, Some(whole::<Flex>(&bias, 4)), options);
            let product = ConvolutionProduct::InputGradient(expected.shape().to_vec());
            let operands = [(&out_shape[..], 3), (&weight_shape[..], 2)];
            check(product, operands, Some(&bias), expected);
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
    conv_transpose1d
);
convolutions!(
    conv2d,
    2,
    [9, 7],
    [3, 2],
    conv2d,
    conv2d_x_backward,
    conv2d_weight_backward,
    conv_transpose2d
);
convolutions!(
    conv3d,
    3,
    [6, 5, 7],
    [2, 1, 3],
    conv3d,
    conv3d_x_backward,
    conv3d_weight_backward,
    conv_transpose3d
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
