//! Specs in one line.

use burn_mx::MxSpecs;

#[test]
fn partial_json_loads_and_resolves() {
    for (json, summary) in [
        (
            r#"{ "w_elem_format": "fp8_e4m3", "a_elem_format": "fp8_e5m2", "block_size": 32,
                "scale_bits": 8, "bfloat": 16 }"#,
            "w fp8_e4m3, a fp8_e5m2, block 32, bfloat16",
        ),
        (
            r#"{ "w_elem_format": "fp6_e3m2", "a_elem_format": "fp6_e3m2", "block_size": 32,
                "scale_bits": 8, "bfloat": 16, "round": "even", "quantize_backprop": false }"#,
            "w fp6_e3m2, a fp6_e3m2, block 32, bfloat16, forward only",
        ),
        (
            r#"{ "w_elem_format": "fp4_e2m1", "a_elem_format": "fp6_e2m3",
                "w_elem_format_bp": "fp6_e3m2", "a_elem_format_bp": "int8",
                "a_elem_format_bp_ex": "fp8_e5m2", "a_elem_format_bp_os": "fp8_e4m3",
                "block_size": 16, "scale_bits": 8, "fp": 16, "round": "floor" }"#,
            "w fp4_e2m1, a fp6_e2m3, w_bp fp6_e3m2, a_bp int8, a_bp_ex fp8_e5m2, \
             a_bp_os fp8_e4m3, block 16, fp16",
        ),
        (
            r#"{ "w_elem_format": "int8", "a_elem_format": "int8", "block_size": 32 }"#,
            "w int8, a int8, block 32",
        ),
        (
            r#"{ "bfloat": 12, "round": "nearest", "bfloat_subnorms": false }"#,
            "bfloat12",
        ),
        ("{}", "no emulation"),
    ] {
        let specs = MxSpecs::from_json(json).unwrap();
        assert_eq!(specs.resolve().unwrap().to_string(), summary, "{json}");
    }
}
