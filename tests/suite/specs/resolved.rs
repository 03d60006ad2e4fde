//! The operands by resolved specs.

use burn_mx::{
    BlockFormat, ElementFormat, FloatFormat, Hadamard, MxSpecs, ScaleFormat, ScaleMode,
    SharedExpMethod, Slot, Subnormals,
};

#[test]
fn an_mx_format_has_all_that_shapes_it() {
    let specs = MxSpecs {
        a_elem_format: Some(ElementFormat::FP6_E2M3.into()),
        scale_bits: 5,
        block_size: 0,
        scale_mode: ScaleMode::Ceil,
        shared_exp_method: SharedExpMethod::None,
        mx_flush_fp32_subnorms: true,
        ..MxSpecs::default()
    };
    let resolved = specs.resolve().unwrap();
    let format = BlockFormat {
        scale: ScaleFormat::exponent(5).unwrap(),
        scale_mode: ScaleMode::Ceil,
        shared_exp_method: SharedExpMethod::None,
        subnormals: Subnormals::FlushBlocks,
        ..BlockFormat::mx(ElementFormat::FP6_E2M3, 0)
    };
    assert_eq!(resolved.block_format(Slot::ABpOs), Some(format));
    assert_eq!(resolved.block_format(Slot::W), None);
    assert!(resolved.has_mx() && !resolved.is_none());
    let summary =
        "a fp6_e2m3, one scale an element, 5 scale bits, scale mode ceil, mx_flush_fp32_subnorms";
    assert_eq!(resolved.to_string(), summary);
}

#[test]
fn backward_slots_are_off_without_quantize_backprop() {
    let specs = MxSpecs {
        w_elem_format_bp: Some(ElementFormat::INT4.into()),
        quantize_backprop: false,
        ..MxSpecs::mxint8()
    };
    let resolved = specs.resolve().unwrap();
    assert!(!resolved.quantize_backprop());
    for slot in Slot::ALL {
        let forward = matches!(slot, Slot::W | Slot::A);
        assert_eq!(resolved.block_format(slot).is_some(), forward, "{slot:?}");
    }

    // With backward formats alone nothing is left to emulate.
    let mut specs = specs;
    (specs.w_elem_format, specs.a_elem_format, specs.bfloat) = (None, None, 0);
    assert!(specs.resolve().unwrap().is_none());
    specs.quantize_backprop = true;
    assert_eq!(
        specs.resolve().unwrap().to_string(),
        "w_bp int4, block 32, round even"
    );
}

#[test]
fn a_hadamard_transform_needs_a_backward_format() {
    let mut specs = MxSpecs {
        w_elem_format_bp: Some(ElementFormat::FP4_E2M1.into()),
        hadamard_block_size: 32,
        ..MxSpecs::mx()
    };
    let resolved = specs.resolve().unwrap();
    assert_eq!(resolved.hadamard_input_grad(), Some(Hadamard::new(32)));
    assert_eq!(resolved.hadamard_weight_grad(), Some(Hadamard::new(32)));
    assert_eq!(resolved.hadamard_forward(), None);
    assert_eq!(resolved.to_string(), "w_bp fp4_e2m1, block 32, Hadamard 32");
    specs.w_elem_format_bp = None;
    let without = specs.resolve().unwrap();
    assert_eq!(without.hadamard_input_grad(), None);
    assert_eq!(without.hadamard_weight_grad(), None);
}

#[test]
fn float_formats() {
    let float_format = |bfloat, fp, bfloat_subnorms| {
        let specs = MxSpecs {
            bfloat,
            fp,
            bfloat_subnorms,
            ..MxSpecs::default()
        };
        let resolved = specs.resolve().unwrap();
        assert_eq!(resolved.is_none(), resolved.float_format().is_none());
        resolved.float_format()
    };
    for subnormals in [true, false] {
        assert_eq!(float_format(0, 0, subnormals), None);
        assert_eq!(float_format(32, 0, subnormals), None);
        for bits in 10..32 {
            let format = FloatFormat::bfloat(bits).unwrap();
            let format = format.with_subnormals(subnormals);
            assert_eq!(float_format(bits, 0, subnormals), Some(format));
        }
        for bits in 7..=29 {
            let format = FloatFormat::fp(bits).unwrap();
            let format = format.with_subnormals(subnormals);
            assert_eq!(float_format(0, bits, subnormals), Some(format));
        }
    }
}

#[test]
fn the_widths_allowed_are_those_of_the_formats() {
    for bits in 1..40 {
        let specs = |bfloat, fp| MxSpecs {
            bfloat,
            fp,
            ..MxSpecs::default()
        };
        let (bfloat, fp) = (specs(bits, 0).resolve(), specs(0, bits).resolve());
        assert_eq!(bfloat.is_ok(), FloatFormat::bfloat(bits).is_ok());
        assert_eq!(fp.is_ok(), FloatFormat::fp(bits).is_ok());
    }
}

#[test]
fn slots_index_their_place() {
    for (i, slot) in Slot::ALL.into_iter().enumerate() {
        assert_eq!(slot as usize, i);
    }
}

#[test]
fn whole_axis_and_seed() {
    let specs = MxSpecs {
        block_size: 0,
        seed: 7,
        ..MxSpecs::mxfp4()
    };
    let resolved = specs.resolve().unwrap();
    assert_eq!(resolved.seed(), 7);
    let summary = "w fp4_e2m1, a fp4_e2m1, one block an axis, bfloat16, round even";
    assert_eq!(resolved.to_string(), summary);
}
