//! Gradients of ranks, and products whose summed axis is divided.

use burn_core::{module::Param, tensor::Tensor};
use burn_flex::Flex;
use burn_mx_optim::communication::{Communication, CommunicationState, TensorState, micro_batches};
use burn_optim::GradientsParams;

use super::{all_reduce, assert_same, floats};
use crate::{B, Net, gradients, net, tensor};

/// The gradients of a net, in the order of its parameters.
fn all(net: &Net<B>, gradients: &GradientsParams) -> [Vec<f32>; 4] {
    [
        floats(gradients.get::<Flex, 1>(net.vector.id).unwrap()),
        floats(gradients.get::<Flex, 2>(net.matrix.id).unwrap()),
        floats(gradients.get::<Flex, 3>(net.volume.id).unwrap()),
        floats(gradients.get::<Flex, 4>(net.kernels.id).unwrap()),
    ]
}

fn of_ranks(net: &Net<B>, ranks: u64) -> Vec<GradientsParams> {
    (0..ranks).map(|rank| gradients(net, rank)).collect()
}

#[test]
fn a_parameter_is_reduced_as_its_numbers_are() {
    let net = net();
    for preset in ["float32", "bfloat16", "qgz", "sdp4bit_gradients", "ms_amp"] {
        let wire = Communication {
            mean: true,
            ..Communication::preset(preset).unwrap()
        };
        let reduced = wire.reduce_gradients::<B, _>(
            &net,
            of_ranks(&net, 4),
            &mut CommunicationState::default(),
        );
        let reduced = all(&net, &reduced.unwrap());
        let operands: Vec<_> = of_ranks(&net, 4).iter().map(|own| all(&net, own)).collect();
        let plain = Communication {
            mean: true,
            ..Communication::default()
        };
        for (number, reduced) in reduced.iter().enumerate() {
            let of_parameter: Vec<_> = operands.iter().map(|own| own[number].clone()).collect();
            let wire = match (preset, number) {
                // Vectors are not rounded; blocks follow the shape.
                ("qgz", 0) => Communication {
                    route: wire.route,
                    order: wire.order,
                    ..plain.clone()
                },
                ("qgz", _) => {
                    let size = [
                        0,
                        5040_usize.div_ceil(72),
                        4440_usize.div_ceil(40),
                        432_usize.div_ceil(16),
                    ][number];
                    Communication {
                        blocks_by_shape: false,
                        vectors: true,
                        format: Some(format!("int4_clipped(block_size={size})")),
                        ..wire.clone()
                    }
                }
                _ => wire.clone(),
            };
            let expected = all_reduce(&wire, &of_parameter, &mut TensorState::new(number as u64));
            assert_same(reduced, &expected, &format!("{preset}, parameter {number}"));
        }
    }
}

#[test]
fn patterns_choose_parameters_and_missing_gradients_are_zeros() {
    let net = net();
    let wire = Communication {
        format: Some("mxfp4".into()),
        tensors: vec!["matrix".into(), "vol*".into()],
        ..Communication::default()
    };
    let mut of_ranks = of_ranks(&net, 3);
    of_ranks[1].remove::<Flex, 2>(net.matrix.id);
    of_ranks
        .iter_mut()
        .for_each(|own| _ = own.remove::<Flex, 4>(net.kernels.id));
    let mut operands: Vec<[Vec<f32>; 4]> = self::of_ranks(&net, 3)
        .iter()
        .map(|own| all(&net, own))
        .collect();
    operands[1][1].iter_mut().for_each(|x| *x = 0.0);
    let state = &mut CommunicationState::default();
    let reduced = wire
        .reduce_gradients::<B, _>(&net, of_ranks, state)
        .unwrap();
    assert_eq!(reduced.len(), 3);
    assert_eq!(state.get("matrix").unwrap().calls(), 1);
    let got = [
        floats(reduced.get::<Flex, 1>(net.vector.id).unwrap()),
        floats(reduced.get::<Flex, 2>(net.matrix.id).unwrap()),
        floats(reduced.get::<Flex, 3>(net.volume.id).unwrap()),
    ];
    let plain = Communication::default();
    let rounded = Communication {
        tensors: vec![],
        ..wire
    };
    for (number, wire) in [plain, rounded.clone(), rounded].into_iter().enumerate() {
        let operands: Vec<_> = operands.iter().map(|own| own[number].clone()).collect();
        let expected = all_reduce(&wire, &operands, &mut TensorState::default());
        assert_same(&got[number], &expected, &format!("parameter {number}"));
    }
}

/// The parts of a batch give the gradients of the whole batch.
#[test]
fn micro_batches_give_the_gradient_of_the_batch() {
    let model = Param::from_tensor(tensor::<B, 2>([8, 3], 1));
    let loss = |x: Tensor<B, 2>| {
        let y = x.matmul(model.val());
        (y.clone() * y).mean()
    };
    let batch = tensor::<B, 2>([24, 8], 2);
    let whole = GradientsParams::from_grads(loss(batch.clone()).backward(), &model);
    let whole = floats(whole.get::<Flex, 2>(model.id).unwrap());
    for ranks in [1, 2, 3, 8] {
        let parts = micro_batches(batch.clone(), ranks).unwrap();
        let of_rank = |part| GradientsParams::from_grads(loss(part).backward(), &model);
        let of_ranks: Vec<_> = parts.into_iter().map(of_rank).collect();
        let wire = Communication {
            mean: true,
            ..Communication::default()
        };
        let state = &mut CommunicationState::default();
        let reduced = wire
            .reduce_gradients::<B, _>(&model, of_ranks, state)
            .unwrap();
        let reduced = floats(reduced.get::<Flex, 2>(model.id).unwrap());
        for (reduced, whole) in reduced.iter().zip(&whole) {
            assert!((reduced - whole).abs() < 1e-6, "{ranks}: {reduced} {whole}");
        }
    }
}

#[test]
fn a_divided_product_is_the_all_reduce_of_its_parts() {
    let (x, w) = (
        tensor::<B, 2>([5, 12], 1).require_grad(),
        tensor::<B, 2>([12, 7], 2).require_grad(),
    );
    for name in ["float32", "bfloat16", "quick_reduce_int4"] {
        let wire = Communication::preset(name).unwrap();
        for ranks in [1, 2, 3, 12] {
            let y = wire
                .summed_product(x.clone(), w.clone(), ranks, &mut TensorState::default())
                .unwrap();
            let length = 12 / ranks;
            let parts = (0..ranks).map(|rank| {
                let x = x.clone().inner().narrow(1, rank * length, length);
                x.matmul(w.clone().inner().narrow(0, rank * length, length))
            });
            let parts: Vec<_> = parts.collect();
            let expected = wire.all_reduce(parts, &mut TensorState::default()).unwrap();
            let expected = floats(expected);
            assert_same(&floats(y.clone().inner()), &expected, name);
            // Without autodiff, the same.
            let plain = wire.summed_product(
                x.clone().inner(),
                w.clone().inner(),
                ranks,
                &mut TensorState::default(),
            );
            assert_same(&floats(plain.unwrap()), &expected, name);

            // The gradients equal the plain product's.
            let factor = tensor::<B, 2>([5, 7], 3);
            let gradients = |y: Tensor<B, 2>| {
                let gradients = (y * factor.clone()).sum().backward();
                [
                    floats(x.grad(&gradients).unwrap()),
                    floats(w.grad(&gradients).unwrap()),
                ]
            };
            let (got, expected) = (gradients(y), gradients(x.clone().matmul(w.clone())));
            for (got, expected) in got.iter().flatten().zip(expected.iter().flatten()) {
                assert!((got - expected).abs() < 1e-5, "{got} {expected}");
            }
        }
    }
}

/// Sums are float32, also on a decorator that emulates bfloat16, and an optimizer's arithmetic on them is untouched.
#[test]
fn sums_of_the_decorators_gradients_are_an_optimizers() {
    use burn_mx_core::{MxAutodiff, MxBackend, MxDevice, MxSpecs};
    type Mx = MxAutodiff<Flex>;
    let specs = MxSpecs {
        bfloat: 16,
        ..MxSpecs::none()
    };
    let device = MxDevice::new(crate::DEVICE, specs.resolve().unwrap()).unwrap();
    let weight = Param::from_tensor(Tensor::<Mx, 1>::from_floats([2.0, 2.0], &device));
    // One step of bfloat16 above 1.
    let step = 0.0078125;
    let of_rank = |x: [f32; 2]| {
        let x = Tensor::<Mx, 1>::from_floats(x, &device);
        GradientsParams::from_grads((weight.val() * x).sum().backward(), &weight)
    };
    let of_ranks = vec![of_rank([1.0, 3.0]), of_rank([1.0 + step, 5.0])];
    let wire = Communication {
        mean: true,
        ..Communication::default()
    };
    let state = &mut CommunicationState::default();
    let reduced = wire.reduce_gradients::<Mx, _>(&weight, of_ranks, state);
    let reduced = reduced.unwrap();
    let gradient = reduced.get::<MxBackend<Flex>, 1>(weight.id).unwrap() * 1.0;
    let gradient: Vec<f32> = gradient.into_data().into_vec().unwrap();
    assert_eq!(gradient, [1.0 + step / 2.0, 4.0]);
}
