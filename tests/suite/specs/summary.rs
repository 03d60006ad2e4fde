//! Specs in one line.

use burn_mx::MxSpecs;

#[test]
fn partial_json_loads_and_resolves() {
    for (json, summary) in [
        (
            r#"{ "w_elem_format": "fp8_e4m3", "a_elem_format": "fp8_e5m2", "block_size": 32,
                "scale_bits": 8, "bfloat": 16 }"#,
            "w fp8_e4m3, a fp8_e5m2, block 32, bfloat16 everywhere",
        ),
        (
            r#"{ "w_elem_format": "fp6_e3m2", "a_elem_format": "fp6_e3m2", "block_size": 32,
                "scale_bits": 8, "bfloat": 16, "round": "even", "quantize_backprop": false }"#,
            "w fp6_e3m2, a fp6_e3m2, block 32, bfloat16 everywhere, round even, forward only",
        ),
        (
            r#"{ "w_elem_format": "fp4_e2m1", "a_elem_format": "fp6_e2m3",
                "w_elem_format_bp": "fp6_e3m2", "a_elem_format_bp": "int8",
                "a_elem_format_bp_ex": "fp8_e5m2", "a_elem_format_bp_os": "fp8_e4m3",
                "block_size": 16, "scale_bits": 8, "fp": 16, "round": "floor" }"#,
            "w fp4_e2m1, a fp6_e2m3, w_bp fp6_e3m2, a_bp int8, a_bp_ex fp8_e5m2, \
             a_bp_os fp8_e4m3, block 16, fp16 everywhere, round floor",
        ),
        (
            r#"{ "w_elem_format": "int8", "a_elem_format": "int8", "block_size": 32 }"#,
            "w int8, a int8, block 32",
        ),
        (
            r#"{ "bfloat": 12, "round": "nearest", "bfloat_subnorms": false }"#,
            "bfloat12 everywhere, no bfloat_subnorms",
        ),
        (
            r#"{ "w_elem_format": "int8", "block_size": 32, "mx_flush_fp32_subnorms": true, "bfloat": 16,
                "softmax_exp2": true, "vec_use_exp2": true, "vec_use_recip": true }"#,
            "w int8, block 32, bfloat16 everywhere, mx_flush_fp32_subnorms, softmax_exp2, vec_use_exp2, vec_use_recip",
        ),
        (
            // No effect without an elementwise format.
            r#"{ "w_elem_format": "int8", "block_size": 32, "bfloat_subnorms": false, "softmax_exp2": true }"#,
            "w int8, block 32",
        ),
        (
            r#"{ "w_elem_format": "int8", "block_size": 32, "round": "even", "round_weight": "floor",
                "round_output": "even", "round_mx_output": "nearest", "round_grad_weight": "floor",
                "round_grad_input": "dither", "round_mx_input_grad_weight": "even", "seed": 7 }"#,
            "w int8, block 32, round even, round_weight floor, round_mx_output nearest, round_grad_weight floor, \
             round_grad_input stochastic, round_mx_input_grad_weight even, seed 7",
        ),
        (
            r#"{ "w_elem_format": "int8", "block_size": 32, "round_grad_input": "floor", "quantize_backprop": false }"#,
            "w int8, block 32, forward only",
        ),
        ("{}", "no emulation"),
    ] {
        let specs = MxSpecs::from_json(json).unwrap();
        assert_eq!(specs.resolve().unwrap().to_string(), summary, "{json}");
    }
}
