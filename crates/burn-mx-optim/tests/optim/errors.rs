//! Settings that no optimizer can use are errors before the first step. The message names the field, the value and the allowed values.

use burn_mx_optim::{GradientAccumulator, OptimizerStates, StatesError};
use burn_optim::{AdamWConfig, MuonConfig, SgdConfig, momentum::MomentumConfig};
use microscaling::Rounding;

use crate::{B, Net};

fn refused(states: OptimizerStates, start: &str) {
    let error = states.check().unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with(start) && text.contains("; allowed: "),
        "{text}"
    );
    assert_eq!(format!("{error:?}"), text);
    assert!(states.adamw::<B, Net<B>>(&AdamWConfig::new()).is_err());
    assert!(GradientAccumulator::<B, Net<B>>::new(&states).is_err());
}

#[test]
fn wrong_fields_are_named() {
    let default = OptimizerStates::default;
    let some = |text: &str| Some(text.to_owned());
    refused(
        OptimizerStates {
            first_moment: some("mxfp9"),
            ..default()
        },
        "`first_moment` is mxfp9; allowed: ",
    );
    refused(
        OptimizerStates {
            first_moment: some(""),
            ..default()
        },
        "`first_moment` is ; allowed: ",
    );
    let negative = "block(element=e2m1,scale=float32,block_size=-4)";
    refused(
        OptimizerStates {
            second_moment: some(negative),
            ..default()
        },
        &format!("`second_moment` is {negative}; allowed: "),
    );
    refused(
        OptimizerStates {
            second_moment: some("dynamic8(block_size=-256)"),
            ..default()
        },
        "`second_moment` is dynamic8(block_size=-256); allowed: dynamic8, or dynamic8(block_size=N)",
    );
    let table = "block(element=table(0 0.25 1),scale=float32)";
    for unsigned in ["linear4", "dynamic8_unsigned", "logarithmic2", table] {
        refused(
            OptimizerStates {
                first_moment: some(unsigned),
                ..default()
            },
            &format!("`first_moment` is {unsigned}; allowed: a format with negative numbers"),
        );
    }
    for table in ["dynamic8", "nf4", "coat"] {
        refused(
            OptimizerStates {
                master: some(table),
                ..default()
            },
            &format!(
                "`master` is {table}; allowed: a format whose elements are floats or integers"
            ),
        );
    }
    for float in ["fp8", "fp16"] {
        refused(
            OptimizerStates {
                gradient_accumulation: some(float),
                ..default()
            },
            &format!(
                "`gradient_accumulation` is {float}; allowed: bfloat10 to bfloat16, or a format with a scale"
            ),
        );
    }
}

#[test]
fn roundings_that_a_format_does_not_have_are_named() {
    let default = OptimizerStates::default;
    let some = |text: &str| Some(text.to_owned());
    refused(
        OptimizerStates {
            second_moment: some("linear4"),
            second_moment_rounding: Rounding::TowardZero,
            ..default()
        },
        "`second_moment` is linear4 with rounding floor; allowed: rounding even or stochastic",
    );
    refused(
        OptimizerStates {
            first_moment: some(
                "block(element=e2m1,scale=ue4m3,block_size=16,tensor_scale=true,eden=true)",
            ),
            first_moment_rounding: Rounding::Stochastic,
            ..default()
        },
        "`first_moment` is block(",
    );
}

#[test]
fn kahan_needs_an_elementwise_master() {
    for (master, rounding) in [
        (None, Rounding::NearestEven),
        (Some("mxfp8_e4m3"), Rounding::NearestEven),
        (Some("bfloat16"), Rounding::Stochastic),
    ] {
        let states = OptimizerStates {
            master: master.map(str::to_owned),
            master_rounding: rounding,
            kahan: true,
            ..OptimizerStates::default()
        };
        refused(states, "`kahan` is true with `master` ");
    }
}

#[test]
fn logarithms_need_numbers_up_to_1() {
    let default = OptimizerStates::default;
    let companded = || Some("int4_companded".to_owned());
    refused(
        OptimizerStates {
            first_moment: companded(),
            ..default()
        },
        "`first_moment` is int4_companded; allowed: a format without a logarithm, unless `normalized_momentum` is true",
    );
    for (field, states) in [
        (
            "second_moment",
            OptimizerStates {
                second_moment: companded(),
                ..default()
            },
        ),
        (
            "newton_schulz",
            OptimizerStates {
                newton_schulz: companded(),
                ..default()
            },
        ),
        (
            "gradient_accumulation",
            OptimizerStates {
                gradient_accumulation: companded(),
                ..default()
            },
        ),
    ] {
        refused(states, &format!("`{field}` is int4_companded; allowed: "));
    }
    refused(
        OptimizerStates {
            low_rank_divisor: 16,
            ..default()
        },
        "`low_rank_divisor` is 16; allowed: 0, unless `first_moment` has a format",
    );
    refused(
        OptimizerStates {
            first_moment: Some("int4_symmetric".into()),
            first_moment_rounding: Rounding::TowardZero,
            ..default()
        },
        "`first_moment` is int4_symmetric with rounding floor; allowed: rounding even or stochastic",
    );
}

#[test]
fn a_field_without_an_effect_is_refused() {
    let both = OptimizerStates::preset("bitsandbytes").unwrap();
    let field = |error: StatesError| error.field;
    let momentum = SgdConfig::new().with_momentum(Some(MomentumConfig::new()));
    let sgd = both.sgd::<B, Net<B>>(&momentum).map(|_| ());
    assert_eq!(sgd.map_err(field), Err("second_moment"));
    let muon = both.muon::<B, Net<B>>(&MuonConfig::new()).map(|_| ());
    assert_eq!(muon.map_err(field), Err("second_moment"));
    let one = OptimizerStates::preset("muon8").unwrap();
    assert!(one.sgd::<B, Net<B>>(&momentum).is_ok());
    let sgd = one.sgd::<B, Net<B>>(&SgdConfig::new()).map(|_| ());
    assert_eq!(sgd.map_err(field), Err("first_moment"));
    let iteration = OptimizerStates {
        newton_schulz: Some("bfloat16".into()),
        ..OptimizerStates::default()
    };
    let adamw = iteration
        .adamw::<B, Net<B>>(&AdamWConfig::new())
        .map(|_| ());
    assert_eq!(adamw.map_err(field), Err("newton_schulz"));
    for name in crate::ONLY_MUON {
        let states = OptimizerStates::preset(name).unwrap();
        let sgd = states.sgd::<B, Net<B>>(&momentum).map(|_| ());
        assert_eq!(sgd.map_err(field), Err("newton_schulz"));
        assert!(states.muon::<B, Net<B>>(&MuonConfig::new()).is_ok());
    }
    let normalized = OptimizerStates {
        normalized_momentum: true,
        ..OptimizerStates::default()
    };
    let adamw = normalized.adamw::<B, Net<B>>(&AdamWConfig::new());
    assert_eq!(adamw.map(|_| ()).map_err(field), Err("normalized_momentum"));
    let split = OptimizerStates {
        low_rank_divisor: 16,
        ..one.clone()
    };
    let sgd = split.sgd::<B, Net<B>>(&momentum).map(|_| ());
    assert_eq!(sgd.map_err(field), Err("low_rank_divisor"));
    let further = |number| OptimizerStates {
        newton_schulz_further: vec![[2.0, number, 0.5]],
        ..OptimizerStates::default()
    };
    let adamw = further(-1.5)
        .adamw::<B, Net<B>>(&AdamWConfig::new())
        .map(|_| ());
    assert_eq!(adamw.map_err(field), Err("newton_schulz_further"));
    assert!(further(-1.5).muon::<B, Net<B>>(&MuonConfig::new()).is_ok());
    assert!(further(f32::NAN).check().is_err());
}

#[test]
fn presets_are_their_json() {
    for name in OptimizerStates::PRESETS {
        let states = OptimizerStates::preset(name).unwrap();
        states.check().unwrap();
        let json = serde_json::to_string(&states).unwrap();
        assert_eq!(
            serde_json::from_str::<OptimizerStates>(&json).unwrap(),
            states
        );
    }
    let error = OptimizerStates::preset("adam2").unwrap_err().to_string();
    assert!(
        error.starts_with("`preset` is adam2; allowed: float32, bitsandbytes, "),
        "{error}"
    );
    assert!(serde_json::from_str::<OptimizerStates>(r#"{"first_momnt": "coat"}"#).is_err());
}
