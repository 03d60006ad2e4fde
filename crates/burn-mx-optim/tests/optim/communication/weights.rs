//! Weights that every rank gathers.

use burn_core::module::{AutodiffModule, Module, Param};
use burn_core::tensor::Tensor;
use burn_flex::Flex;
use burn_mx_core::{MxAutodiff, MxDevice, MxSpecs};
use burn_mx_module::{label_of, set_specs_at, specs_of};
use burn_mx_optim::communication::{Communication, CommunicationState};
use burn_optim::{GradientsParams, Optimizer, SgdConfig};

use super::{floats, normal};
use crate::{B, Net, all_bits, net, tensor};

/// ZeRO++'s weights of one rank's part: 8 bits, a scale for at most 8,000 numbers.
fn qwz(part: &[f32]) -> Vec<f32> {
    let of_block = |block: &[f32]| -> Vec<f32> {
        let half: Vec<f32> = block
            .iter()
            .map(|x| half::f16::from_f32(*x).to_f32())
            .collect();
        let step = half.iter().fold(0.0f32, |a, b| a.max(b.abs())) / 128.0;
        let code = |x: f32| (x / step).round_ties_even().clamp(-128.0, 127.0);
        half.iter().map(|x| code(*x) * step).collect()
    };
    part.chunks(8000).flat_map(of_block).collect()
}

#[test]
fn each_rank_sends_its_part_of_each_parameter() {
    let net = net();
    let wire = Communication::preset("qwz").unwrap();
    let state = &mut CommunicationState::default();
    for ranks in [2, 3, 16] {
        let gathered = wire
            .gather_weights::<B, _>(net.clone(), ranks, state)
            .unwrap();
        let check = |got: Vec<f32>, from: Vec<f32>| {
            let length = from.len().div_ceil(ranks);
            let expected: Vec<f32> = from.chunks(length).flat_map(qwz).collect();
            assert_eq!(got, expected, "{ranks} ranks");
        };
        check(
            floats(gathered.vector.val().inner()),
            floats(net.vector.val().inner()),
        );
        check(
            floats(gathered.matrix.val().inner()),
            floats(net.matrix.val().inner()),
        );
        check(
            floats(gathered.volume.val().inner()),
            floats(net.volume.val().inner()),
        );
        check(
            floats(gathered.kernels.val().inner()),
            floats(net.kernels.val().inner()),
        );
        assert_eq!(gathered.matrix.id, net.matrix.id);
        assert!(gathered.matrix.is_require_grad());
    }
}

#[test]
fn one_rank_and_no_format_change_no_weight() {
    let net = net();
    let state = &mut CommunicationState::default();
    for (preset, ranks) in [("qwz", 1), ("sdp4bit_weights", 1), ("float32", 8)] {
        let wire = Communication::preset(preset).unwrap();
        let gathered = wire
            .gather_weights::<B, _>(net.clone(), ranks, state)
            .unwrap();
        assert_eq!(all_bits(&gathered), all_bits(&net));
    }
    // A parameter without a gradient is not gathered.
    let frozen = net.clone().no_grad();
    let wire = Communication::preset("qwz").unwrap();
    let gathered = wire.gather_weights::<B, _>(frozen, 8, state).unwrap();
    assert_eq!(all_bits(&gathered), all_bits(&net));
}

/// Differences carry the errors of differences before, so weights stay close for many steps.
#[test]
fn sent_differences_do_not_drift() {
    let wire = Communication::preset("sdp4bit_weights").unwrap();
    let mut weights = net();
    let state = &mut CommunicationState::default();
    let mut error = 0.0;
    for step in 0..30 {
        let gathered = wire
            .gather_weights::<B, _>(weights.clone(), 4, state)
            .unwrap();
        let differences = gathered.matrix.val() - weights.matrix.val();
        error = differences.abs().max().into_scalar();
        if step == 0 {
            assert_eq!(error, 0.0, "the first value is sent unrounded");
        }
        weights.matrix = weights.matrix.map(|x| {
            let step = tensor::<B, 2>(x.dims(), 60 + step) * 1e-3;
            (x + step).detach().require_grad()
        });
    }
    // A difference is 5e-3 at most and has 7 steps to each side; an error adds to the next difference.
    assert!(error > 0.0 && error < 2e-3, "{error}");
}

#[test]
fn masters_train_with_gathered_weights() {
    let wire = Communication::preset("qwz").unwrap();
    let state = &mut CommunicationState::default();
    let target = tensor::<B, 2>([6, 40], 1);
    let mut model = Param::from_tensor(tensor::<B, 2>([6, 40], 2));
    let mut optimizer = SgdConfig::new().init::<B, Param<Tensor<B, 2>>>();
    let mut losses = Vec::new();
    for _ in 0..60 {
        let weights = wire.gather_weights(model.clone(), 4, state).unwrap();
        let loss = (weights.val() - target.clone()).powf_scalar(2.0).sum();
        losses.push(loss.clone().into_scalar());
        let gradients = GradientsParams::from_grads(loss.backward(), &weights);
        model = optimizer.step(0.05, model, gradients);
    }
    assert!(losses[59] < 1e-4 * losses[0], "{losses:?}");
}

#[test]
fn specs_and_names_of_parameters_stay() {
    type Mx = MxAutodiff<Flex>;
    let device = MxDevice::new(burn_flex::FlexDevice, "mxfp8_e4m3").unwrap();
    let model = vec![Param::from_tensor(Tensor::<Mx, 1>::from_floats(
        normal(64, 1).as_slice(),
        &device,
    ))];
    let specs = MxSpecs::mxfp4().resolve().unwrap();
    let model = set_specs_at(model, "0", &specs).unwrap();
    let wire = Communication::preset("qwz").unwrap();
    let gathered = wire
        .gather_weights::<Mx, _>(model.clone(), 4, &mut CommunicationState::default())
        .unwrap();
    let value = gathered[0].val();
    assert_eq!(specs_of(&value), Some(specs));
    assert_eq!(label_of(&value), Some("0"));
    let got: Vec<f32> = value.into_data().into_vec().unwrap();
    let expected: Vec<f32> = normal(64, 1).chunks(16).flat_map(qwz).collect();
    assert_eq!(got, expected);
    let _: Vec<Param<Tensor<burn_mx_core::MxBackend<Flex>, 1>>> = gathered.valid();
}

#[test]
fn a_net_of_another_shape_is_refused_before_any_work() {
    let wire = Communication::preset("sdp4bit_weights").unwrap();
    let state = &mut CommunicationState::default();
    wire.gather_weights::<B, Net<B>>(net(), 4, state).unwrap();
    let before = state.clone();
    let error = wire
        .gather_weights::<B, Net<B>>(net(), 5, state)
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("`state` is of ranks with [1250, 1250"),
        "{error}"
    );
    assert_eq!(*state, before);
}
