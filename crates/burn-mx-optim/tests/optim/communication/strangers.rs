//! Unusual tensors.

use burn_core::tensor::{DType, Tensor};
use burn_flex::Flex;
use burn_mx_optim::communication::{Communication, TensorState};

use super::floats;
use crate::tensor;

fn presets() -> impl Iterator<Item = (&'static str, Communication)> {
    let preset = |name| (name, Communication::preset(name).unwrap());
    let presets = Communication::PRESETS.into_iter().map(preset);
    presets.filter(|(_, wire)| !wire.difference)
}

fn sum<const D: usize>(wire: &Communication, operands: Vec<Tensor<Flex, D>>) -> Tensor<Flex, D> {
    wire.all_reduce(operands, &mut TensorState::default())
        .unwrap()
}

#[test]
fn tensors_of_other_float_types_keep_their_type() {
    for (name, wire) in presets() {
        for dtype in [DType::BF16, DType::F16, DType::F64] {
            let operands = || {
                vec![
                    tensor::<Flex, 2>([20, 30], 1).cast(dtype),
                    tensor([20, 30], 2).cast(dtype),
                ]
            };
            let reduced = sum(&wire, operands());
            assert_eq!(
                (reduced.dtype(), reduced.dims()),
                (dtype, [20, 30]),
                "{name}"
            );
            let parts = wire
                .reduce_scatter(operands(), &mut TensorState::default())
                .unwrap();
            assert!(parts.iter().all(|part| part.dtype() == dtype), "{name}");
            // The same as of the numbers in float32, rounded at the end.
            let widened = operands().into_iter().map(|x| x.cast(DType::F32)).collect();
            let expected = sum(&wire, widened).cast(dtype);
            reduced.into_data().assert_eq(&expected.into_data(), true);
        }
    }
}

#[test]
fn gathers_without_a_format_keep_float64() {
    let x = tensor::<Flex, 2>([20, 30], 1).cast(DType::F64) / 3.0;
    let wire = Communication::default();
    let halves = vec![x.clone().narrow(0, 0, 7), x.clone().narrow(0, 7, 13)];
    let joined = wire
        .all_gather(halves, 0, &mut TensorState::default())
        .unwrap();
    joined.into_data().assert_eq(&x.into_data(), true);
}

#[test]
fn views_are_like_copies() {
    for (name, wire) in presets() {
        let view = |seed| tensor::<Flex, 2>([30, 20], seed).transpose();
        let copy = |seed| Tensor::<Flex, 2>::from_data(view(seed).into_data(), &crate::DEVICE);
        let of_views = sum(&wire, vec![view(1), view(2), view(3)]);
        let of_copies = sum(&wire, vec![copy(1), copy(2), copy(3)]);
        assert_eq!(floats(of_views), floats(of_copies), "{name}");
    }
}

#[test]
fn empty_tensors_and_more_ranks_than_numbers() {
    for (name, wire) in presets() {
        for shape in [[0, 4], [1, 1], [1, 3]] {
            let operands = || {
                (0..8)
                    .map(|seed| tensor::<Flex, 2>(shape, seed))
                    .collect::<Vec<_>>()
            };
            assert_eq!(sum(&wire, operands()).dims(), shape, "{name}");
            let parts = wire
                .reduce_scatter(operands(), &mut TensorState::default())
                .unwrap();
            assert_eq!(parts.len(), 8);
            let count: usize = parts.iter().map(|part| part.dims()[0]).sum();
            assert_eq!(count, shape.iter().product::<usize>(), "{name}");
        }
    }
}
