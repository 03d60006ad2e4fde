//! Specs as JSON, the reference's and our own.

use burn_mx::{
    ElementFormat, GradientOperands, MxSpecs, Rounding, ScaleMode, SharedExpMethod, SpecsError,
};
use serde_json::{Map, Value};

/// Every key as the reference dumps it: numbers, booleans, names and nulls.
const REFERENCE: &str = r#"{
    "scale_bits": 8, "w_elem_format": "fp8_e4m3", "a_elem_format": "fp4",
    "w_elem_format_bp": null, "a_elem_format_bp": null, "a_elem_format_bp_ex": "int8",
    "a_elem_format_bp_os": null, "mx_flush_fp32_subnorms": false, "shared_exp_method": "max",
    "block_size": 32, "bfloat": 16, "fp": 0, "bfloat_subnorms": true,
    "quantize_backprop": true, "round": "even", "round_m": "nearest", "round_weight": null,
    "round_output": "", "round_grad_weight": "nearest", "round_grad_input": "floor",
    "round_mx_output": null, "round_mx_input_grad_input": null,
    "round_mx_weight_grad_input": "dither", "round_mx_grad_output_grad_input": null,
    "round_mx_input_grad_weight": null, "round_mx_grad_output_grad_weight": null,
    "softmax_exp2": false, "vec_use_exp2": false, "vec_use_recip": true, "custom_cuda": true
}"#;

#[test]
fn json_of_the_reference_loads() {
    let expected = MxSpecs {
        scale_bits: 8,
        w_elem_format: Some(ElementFormat::FP8_E4M3.into()),
        a_elem_format: Some(ElementFormat::FP4_E2M1.into()),
        a_elem_format_bp_ex: Some(ElementFormat::INT8.into()),
        block_size: 32,
        bfloat: 16,
        round: Rounding::NearestEven,
        round_grad_weight: Some(Rounding::NearestAway),
        round_grad_input: Some(Rounding::TowardZero),
        round_mx_weight_grad_input: Some(Rounding::Stochastic),
        vec_use_recip: true,
        ..MxSpecs::default()
    };
    assert_eq!(MxSpecs::from_json(REFERENCE), Ok(expected));
}

#[test]
fn fields_without_effect_are_read_and_dropped() {
    let reference: MxSpecs = serde_json::from_str(REFERENCE).unwrap();
    let mut fields: Map<String, Value> = serde_json::from_str(REFERENCE).unwrap();
    for field in ["round_m", "custom_cuda"] {
        assert!(fields.remove(field).is_some(), "{field}");
        assert!(
            !reference.to_json().contains(&format!("\"{field}\"")),
            "{field}"
        );
    }
    assert_eq!(
        MxSpecs::from_json(&Value::from(fields).to_string()),
        Ok(reference)
    );
    let wrong = r#"{ "round_m": "even", "custom_cuda": true, "fp": "wide" }"#;
    let error = MxSpecs::from_json(wrong).unwrap_err();
    assert!(error.to_string().contains("`fp`"), "{error}");
}

#[test]
fn null_is_the_default_and_defaults_beyond_the_reference_are_not_written() {
    let json = MxSpecs::default().to_json();
    assert!(
        [
            "scale_mode",
            "hadamard",
            "headroom",
            "operands",
            "mask",
            "matmul",
            "constants",
            "loss",
            "seed"
        ]
        .iter()
        .all(|field| !json.contains(field)),
        "{json}"
    );

    let mut fields: Map<String, Value> = serde_json::from_str(&json).unwrap();
    fields.retain(|_, value| !value.is_boolean());
    fields.insert("scale_mode".into(), Value::Null);
    fields.insert("hadamard_block_size".into(), Value::Null);
    fields.values_mut().for_each(|value| *value = Value::Null);
    let nulls = Value::from(fields).to_string();
    assert_eq!(MxSpecs::from_json(&nulls), Ok(MxSpecs::default()));
    assert_eq!(MxSpecs::from_json("{}"), Ok(MxSpecs::default()));
}

#[test]
fn json_round_trip() {
    let full = MxSpecs {
        scale_mode: ScaleMode::Rceil,
        shared_exp_method: SharedExpMethod::None,
        bfloat_subnorms: false,
        hadamard_block_size: 128,
        hadamard_weight_grad: Some("16:0xd7e8".parse().unwrap()),
        headroom_bp: "4/3".parse().unwrap(),
        gradient_operands: GradientOperands::Forward,
        mask_clipped: true,
        quantize_matmul: false,
        quantize_constants: true,
        quantize_loss: true,
        seed: u64::MAX,
        ..MxSpecs::from_json(REFERENCE).unwrap()
    };
    let resolved = full.resolve().unwrap().specs().clone();
    let presets = MxSpecs::PRESETS
        .iter()
        .map(|name| MxSpecs::preset(name).unwrap());
    for specs in [MxSpecs::default(), full, resolved]
        .into_iter()
        .chain(presets)
    {
        assert_eq!(MxSpecs::from_json(&specs.to_json()), Ok(specs));
    }
}

#[test]
fn json_errors_name_field_value_and_what_is_allowed() {
    for (json, parts) in [
        (r#"{ "wbits": 8 }"#, ["`wbits`", "8", "`w_elem_format`"]),
        (
            r#"{ "w_elem_fromat": "int8" }"#,
            ["`w_elem_fromat`", "\"int8\"", "nearest: w_elem_format,"],
        ),
        (
            r#"{ "fp": 0, "a_elem_format": "fp5" }"#,
            ["`a_elem_format`", "\"fp5\"", "fp6_e3m2"],
        ),
        (
            r#"{ "w_elem_format": 8 }"#,
            ["`w_elem_format`", "8", "string"],
        ),
        (r#"{ "round": "up" }"#, ["`round`", "\"up\"", "dither"]),
        (
            r#"{ "round_output": "up" }"#,
            ["`round_output`", "\"up\"", "stochastic"],
        ),
        (
            r#"{ "scale_mode": "up" }"#,
            ["`scale_mode`", "\"up\"", "rceil"],
        ),
        (
            r#"{ "shared_exp_method": "sum" }"#,
            ["`shared_exp_method`", "\"sum\"", "max"],
        ),
        (
            r#"{ "hadamard_forward": "48" }"#,
            ["`hadamard_forward`", "\"48\"", "128"],
        ),
        (
            r#"{ "gradient_operands": "both" }"#,
            ["`gradient_operands`", "\"both\"", "original"],
        ),
        (
            r#"{ "headroom_bp": "2" }"#,
            ["`headroom_bp`", "\"2\"", "4/3"],
        ),
        (r#"{ "bfloat": -16 }"#, ["`bfloat`", "-16", "u32"]),
        (r#"{ "block_size": 1.5 }"#, ["`block_size`", "1.5", "usize"]),
        (
            r#"{ "quantize_backprop": 0 }"#,
            ["`quantize_backprop`", "0", "boolean"],
        ),
    ] {
        let error = MxSpecs::from_json(json).unwrap_err();
        assert!(matches!(error, SpecsError::JsonField { .. }), "{error:?}");
        let message = error.to_string();
        for part in parts {
            assert!(message.contains(part), "{message}: no {part}");
        }
    }
    for json in ["", "{", "[]", "32", "null", r#"{ "fp": 8, "fp": 9 }"#] {
        let error = MxSpecs::from_json(json).unwrap_err();
        assert!(
            matches!(error, SpecsError::Json { .. }),
            "{json}: {error:?}"
        );
    }
}

#[test]
fn a_dictionary_of_python_is_told_the_way_to_json() {
    let error = MxSpecs::from_json("{'w_elem_format': 'int8', 'custom_cuda': True}").unwrap_err();
    assert!(matches!(error, SpecsError::Json { .. }), "{error}");
    assert!(error.to_string().contains("json.dumps"), "{error}");
    let error = MxSpecs::from_json("[]").unwrap_err().to_string();
    assert!(!error.contains("json.dumps"), "{error}");
}
