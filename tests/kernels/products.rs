//! Products whose strategy is fixed: right, and the same again.

use burn::backend::Flex;
use burn_mx::microscaling::{BlockFormat, OperandQuantization, Rounding};
use burn_mx::{MxKernels, OperandForm, Place, reproducible_products};

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
