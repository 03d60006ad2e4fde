//! Which fields of training recipes go together.

use burn_mx::MxSpecs;

#[test]
fn what_a_recipe_says_needs_what_it_speaks_of() {
    for (json, message) in [
        (
            r#"{ "hadamard_forward": "32:none", "a_elem_format_bp": "mxfp4" }"#,
            "`hadamard_forward` is 32:none, but no operand of these products has a format; allowed: none",
        ),
        (
            r#"{ "hadamard_weight_grad": "16", "bfloat": 16 }"#,
            "`hadamard_weight_grad` is 16, but no operand of these products has a format; allowed: none",
        ),
        (
            r#"{ "a_elem_format": "nvfp4(tensor_scale=true,square=true)" }"#,
            "`a_elem_format` is nvfp4(tensor_scale=true,square=true), but square blocks are for weights; \
             allowed: a format without square=true",
        ),
        (
            r#"{ "headroom_bp": "4/3", "bfloat": 16 }"#,
            "`headroom_bp` is 4/3, but it is for MX formats without a headroom of their own, in every backward slot; \
             allowed: 1",
        ),
        (
            r#"{ "headroom_bp": "3/4", "a_elem_format": "mxfp4" }"#,
            "`headroom_bp` is 3/4, but MX formats allow no headroom below 1; allowed: at least 1",
        ),
        (
            r#"{ "headroom_bp": "4/3", "a_elem_format": "nvfp4" }"#,
            "`headroom_bp` is 4/3, but it is for MX formats without a headroom of their own, in every backward slot; \
             allowed: 1",
        ),
        (
            r#"{ "gradient_operands": "forward", "a_elem_format_bp": "mxfp4" }"#,
            "`gradient_operands` is forward, but no operand of a forward product has a format; allowed: original",
        ),
        (
            r#"{ "gradient_operands": "forward", "a_elem_format": "mxfp4", "round_mx_output": "stochastic" }"#,
            "`gradient_operands` is forward, but the forward product's operands are rounded at random, and are not kept; \
             allowed: original",
        ),
        (
            r#"{ "mask_clipped": true, "a_elem_format": "mxfp4", "hadamard_forward": "32:product" }"#,
            "`mask_clipped` is true, but the drawn signs of hadamard_forward are not kept; allowed: false",
        ),
    ] {
        let specs = MxSpecs::from_json(json).unwrap();
        assert_eq!(specs.resolve().unwrap_err().to_string(), message);
    }
    let invalid = MxSpecs {
        hadamard_input_grad: Some(burn_mx::Hadamard::new(20)),
        ..MxSpecs::mxfp4()
    };
    assert_eq!(
        invalid.resolve().unwrap_err().to_string(),
        "`hadamard_input_grad` is 20, but this is not a transform of one block; allowed: a block size of 16, 32, 64 or 128 \
         and signs of one block"
    );
}

/// Backward formats and gradient roundings are ignored there, as in the reference.
#[test]
fn without_quantize_backprop_fields_of_gradient_products_are_refused() {
    let needs = "quantize_backprop is false, so gradient products are plain float32";
    for (json, field, value, allowed) in [
        (r#""headroom_bp": "4/3""#, "headroom_bp", "4/3", "1"),
        (
            r#""hadamard_block_size": 32"#,
            "hadamard_block_size",
            "32",
            "0",
        ),
        (
            r#""hadamard_input_grad": "32:step""#,
            "hadamard_input_grad",
            "32:step",
            "none",
        ),
        (
            r#""hadamard_weight_grad": "16""#,
            "hadamard_weight_grad",
            "16",
            "none",
        ),
        (
            r#""accumulator_input_grad": "hopper""#,
            "accumulator_input_grad",
            "hopper",
            "none",
        ),
        (
            r#""accumulator_weight_grad": "volta""#,
            "accumulator_weight_grad",
            "volta",
            "none",
        ),
    ] {
        let json = format!(
            r#"{{ "w_elem_format": "mxfp4", "a_elem_format": "mxfp4", "quantize_backprop": false, {json} }}"#
        );
        let error = MxSpecs::from_json(&json).unwrap().resolve().unwrap_err();
        let expected = format!("`{field}` is {value}, but {needs}; allowed: {allowed}");
        assert_eq!(error.to_string(), expected);
    }
    for name in MxSpecs::PRESETS {
        let specs = MxSpecs {
            quantize_backprop: false,
            headroom_bp: Default::default(),
            hadamard_block_size: 0,
            hadamard_input_grad: None,
            hadamard_weight_grad: None,
            ..MxSpecs::preset(name).unwrap()
        };
        assert!(specs.resolve().is_ok(), "{name}");
    }
}

#[test]
fn resolved_specs_resolve_again() {
    for name in MxSpecs::PRESETS {
        let resolved = MxSpecs::preset(name).unwrap().resolve().unwrap();
        assert_eq!(resolved.specs().resolve(), Ok(resolved.clone()), "{name}");
    }
    let without_formats = MxSpecs {
        hadamard_block_size: 32,
        ..MxSpecs::none()
    };
    let resolved = without_formats.resolve().unwrap();
    assert_eq!(resolved.specs().resolve(), Ok(resolved.clone()));
}
