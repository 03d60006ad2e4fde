//! The chain of defaults.

use burn_mx::{
    BlockFormat, ElementFormat, MxSpecs, ResolvedSpecs, Rounding, ScaleFormat, ScaleMode, Slot,
};

#[test]
fn a_slot_takes_any_block_format() {
    let specs = MxSpecs::from_json(
        r#"{ "w_elem_format": "mx6", "a_elem_format": "nvfp4", "w_elem_format_bp": "BFP16",
            "a_elem_format_bp": "mx(element=int4,block_size=8,scale_mode=even)",
            "a_elem_format_bp_os": "fp8_e5m2", "block_size": 64, "scale_bits": 5 }"#,
    )
    .unwrap();
    let resolved = specs.resolve().unwrap();
    let own = BlockFormat {
        scale_mode: ScaleMode::Even,
        ..BlockFormat::mx(ElementFormat::INT4, 8)
    };
    let shared = BlockFormat {
        scale: ScaleFormat::exponent(5).unwrap(),
        ..BlockFormat::mx(ElementFormat::FP8_E5M2, 64)
    };
    let nvfp4 = BlockFormat::NVFP4;
    assert_eq!(
        Slot::ALL.map(|slot| resolved.block_format(slot).unwrap()),
        [
            BlockFormat::MX6,
            nvfp4,
            BlockFormat::BFP16,
            own,
            nvfp4,
            shared,
        ]
    );
    assert_eq!(
        resolved.to_string(),
        "w mx6, a nvfp4, w_bp bfp16, a_bp mx(element=int4,block_size=8,scale_mode=even), a_bp_os fp8_e5m2, \
         block 64, 5 scale bits"
    );
    assert_eq!(MxSpecs::from_json(&specs.to_json()), Ok(specs));
}

#[test]
fn formats_and_scale_bits_default() {
    let specs = MxSpecs {
        w_elem_format: Some(ElementFormat::INT8.into()),
        a_elem_format: Some(ElementFormat::FP8_E5M2.into()),
        a_elem_format_bp_ex: Some(ElementFormat::FP6_E2M3.into()),
        ..MxSpecs::default()
    };
    let resolved = specs.resolve().unwrap();
    let specs = MxSpecs {
        scale_bits: 8,
        w_elem_format_bp: Some(ElementFormat::INT8.into()),
        a_elem_format_bp: Some(ElementFormat::FP8_E5M2.into()),
        a_elem_format_bp_os: Some(ElementFormat::FP8_E5M2.into()),
        ..specs
    };
    for slot in Slot::ALL {
        let format = resolved.specs().slot_format(slot);
        assert_eq!(format, specs.slot_format(slot), "{slot:?}");
        let whole_axis = BlockFormat::mx(ElementFormat::INT8, 0);
        assert_eq!(
            resolved.block_format(slot),
            format.and_then(|format| format.block_format(&whole_axis)),
            "{slot:?}"
        );
    }
    // A second time changes nothing.
    assert_eq!(resolved.specs().resolve(), Ok(resolved.clone()));
}

#[test]
fn roundings_default() {
    use Rounding::{NearestAway, NearestEven, Stochastic, TowardZero};
    let elementwise = |specs: &ResolvedSpecs| {
        [
            specs.round(),
            specs.round_weight(),
            specs.round_output(),
            specs.round_grad_weight(),
            specs.round_grad_input(),
            specs.round_mx_output(),
        ]
    };
    let backward = |specs: &ResolvedSpecs| {
        [
            specs.round_mx_input_grad_input(),
            specs.round_mx_weight_grad_input(),
            specs.round_mx_grad_output_grad_input(),
            specs.round_mx_input_grad_weight(),
            specs.round_mx_grad_output_grad_weight(),
        ]
    };

    let unset = MxSpecs::default().resolve().unwrap();
    assert_eq!(elementwise(&unset), [NearestAway; 6]);
    assert_eq!(backward(&unset), [NearestAway; 5]);

    let round = MxSpecs {
        round: Stochastic,
        ..MxSpecs::default()
    };
    let resolved = round.resolve().unwrap();
    assert_eq!(elementwise(&resolved), [Stochastic; 6]);
    assert_eq!(backward(&resolved), [Stochastic; 5]);

    let some = MxSpecs {
        round_output: Some(NearestAway),
        round_grad_input: Some(TowardZero),
        round_mx_input_grad_weight: Some(NearestAway),
        round: NearestEven,
        ..MxSpecs::default()
    };
    let resolved = some.resolve().unwrap();
    assert_eq!(
        elementwise(&resolved),
        [
            NearestEven,
            NearestEven,
            NearestAway,
            NearestEven,
            TowardZero,
            NearestEven
        ]
    );
    assert_eq!(
        backward(&resolved),
        [TowardZero, TowardZero, TowardZero, NearestAway, TowardZero]
    );
    // Filled in means filled in: no null is left in the JSON but for the formats.
    assert_eq!(
        resolved.specs().to_json().matches("null").count(),
        Slot::ALL.len()
    );
}
