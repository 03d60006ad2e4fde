//! A run that is resumed from a record equals a run without a stop.

use burn_core::{
    module::Module,
    record::{BinBytesRecorder, FullPrecisionSettings, Recorder},
};
use burn_mx_optim::{AdamW, OptimizerStates, PackedAdaptor};
use burn_optim::{AdamWConfig, Optimizer, adaptor::OptimizerAdaptor};
use microscaling::Rounding;

use crate::{B, DEVICE, Net, all_bits, gradients, net};

type Bytes = BinBytesRecorder<FullPrecisionSettings>;

fn optimizer(states: &OptimizerStates) -> PackedAdaptor<AdamW, Net<B>, B> {
    let config = AdamWConfig::new().with_amsgrad(true).with_weight_decay(0.1);
    states.adamw(&config).unwrap()
}

fn steps(
    optimizer: &mut impl Optimizer<Net<B>, B>,
    mut net: Net<B>,
    range: core::ops::Range<u64>,
) -> Net<B> {
    for step in range {
        let of_net = gradients(&net, step);
        net = optimizer.step(1e-2, net, of_net);
    }
    net
}

/// A run of Burn's AdamW goes on in one pass, with the same bits.
#[test]
fn a_record_of_burns_adamw_loads() {
    let config = AdamWConfig::new().with_weight_decay(0.1);
    let (start, mut burns) = (net(), config.init());
    let five = steps(&mut burns, start, 0..5);
    let recorder = Bytes::new();
    let saved = Recorder::<B>::record(&recorder, burns.to_record(), ()).unwrap();
    let ten = steps(&mut burns, five.clone(), 5..10);
    let own = OptimizerAdaptor::from(AdamW::new(&config));
    let mut own = own.load_record(recorder.load(saved, &DEVICE).unwrap());
    assert!(all_bits(&ten) == all_bits(&steps(&mut own, five, 5..10)));
}

#[test]
fn five_steps_and_five_are_ten() {
    let mut all: Vec<_> = OptimizerStates::PRESETS
        .into_iter()
        .filter(|name| !crate::ONLY_MUON.contains(name))
        .map(|name| OptimizerStates::preset(name).unwrap())
        .collect();
    all.push(OptimizerStates {
        first_moment: Some("nvfp4(tensor_scale=true)".into()),
        first_moment_rounding: Rounding::Stochastic,
        second_moment: Some("mx(element=fp8_e5m2,block_size=16,square=true)".into()),
        master: Some("mxfp8_e4m3".into()),
        master_rounding: Rounding::Stochastic,
        seed: 3,
        ..OptimizerStates::default()
    });
    for states in all {
        let start = net();
        let mut whole = optimizer(&states);
        let ten = steps(&mut whole, start.clone(), 0..10);
        let mut first = optimizer(&states);
        let five = steps(&mut first, start, 0..5);
        let recorder = Bytes::new();
        let saved = Recorder::<B>::record(&recorder, first.to_record(), ()).unwrap();
        let weights = Recorder::<B>::record(&recorder, five.clone().into_record(), ()).unwrap();
        let five = five.load_record(recorder.load(weights, &DEVICE).unwrap());
        let mut second = optimizer(&states).load_record(recorder.load(saved, &DEVICE).unwrap());
        let resumed = steps(&mut second, five, 5..10);
        assert!(all_bits(&ten) == all_bits(&resumed), "{states:?}");
    }
}

#[test]
fn the_seed_alone_changes_stochastic_rounding() {
    let states = OptimizerStates::preset("bfloat16_stochastic").unwrap();
    let run = |states: &OptimizerStates| all_bits(&steps(&mut optimizer(states), net(), 0..3));
    assert_eq!(run(&states), run(&states));
    let other = OptimizerStates {
        seed: 1,
        ..states.clone()
    };
    assert_ne!(run(&states), run(&other));
}

/// A record of float32 states is smaller than one of packed ones.
#[test]
fn records_hold_packed_states() {
    let length = |name: &str| {
        let mut optimizer = optimizer(&OptimizerStates::preset(name).unwrap());
        steps(&mut optimizer, net(), 0..1);
        Recorder::<B>::record(&Bytes::new(), optimizer.to_record(), ())
            .unwrap()
            .len()
    };
    let [float, eight, four] = ["float32", "bitsandbytes", "adam4"].map(length);
    assert!(
        eight < float * 3 / 10 && four < float * 2 / 10,
        "{float} {eight} {four}"
    );
}
