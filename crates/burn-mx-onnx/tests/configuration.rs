//! Quark's attributes as configurations.

use burn_mx_onnx::Configuration;
use microscaling::Rounding;

#[test]
fn attributes_of_quarks_documentation() {
    let microscaling = r#"{"MXAttributes": {"element_dtype": "int8", "axis": 1, "block_size": 8, "rounding_mode": 2}}"#;
    let microexponents = r#"{
        "BFPAttributes": {"bfp_method": "to_bfp_prime", "axis": 1, "bit_width": 16, "block_size": 16,
            "sub_block_size": 2, "sub_block_shift_bits": 1, "rounding_mode": 2},
        "FastFinetune": {"DataSize": 100, "OptimAlgorithm": "adaquant"}
    }"#;
    let away = r#"{"BFPAttributes": {"bit_width": 12, "rounding_mode": 0}}"#;
    let mxint8 = r#"{"MXAttributes": {}}"#;
    use Rounding::{NearestAway, NearestEven};
    for (json, format, rounding, is_tuned) in [
        (
            microscaling,
            "mx(element=int8,block_size=8)",
            NearestEven,
            false,
        ),
        (microexponents, "MX9", NearestEven, true),
        (away, "bfp(bit_width=12,block_size=8)", NearestAway, false),
        (mxint8, "MXINT8", NearestEven, false),
    ] {
        let read = Configuration::from_json(json).unwrap();
        assert_eq!(read.format, format.parse().unwrap(), "{json}");
        assert_eq!(
            (read.rounding, read.is_tuned),
            (rounding, is_tuned),
            "{json}"
        );
    }
}

#[test]
fn attributes_without_a_meaning() {
    for (json, texts) in [
        ("[]", ["`config` is", "JSON"]),
        ("{}", ["without attributes", "`MXAttributes`"]),
        (
            r#"{"MXAttributes": {}, "BFPAttributes": {}}"#,
            ["MXAttributes", "`MXAttributes` or"],
        ),
        (r#"{"Attributes": {}}"#, ["Attributes", "`MXAttributes` or"]),
        (
            r#"{"MXAttributes": {"axis": 0}}"#,
            ["`axis` is 0", "allowed: 1"],
        ),
        (
            r#"{"MXAttributes": {"rounding_mode": 1}}"#,
            ["`rounding_mode` is 1", "2 (ties to even)"],
        ),
        (
            r#"{"MXAttributes": {"element_dtype": "fp3"}}"#,
            ["fp3", "fp4_e2m1"],
        ),
        (
            r#"{"MXAttributes": {"element": "int8"}}"#,
            ["`element` is", "element_dtype"],
        ),
        (
            r#"{"MXAttributes": {"block_size": -1}}"#,
            ["`block_size` is -1", "0 or more"],
        ),
        (
            r#"{"BFPAttributes": {"sub_block_size": 2}}"#,
            ["`sub_block_size` is 2", "to_bfp_prime"],
        ),
        (
            r#"{"BFPAttributes": {"bfp_method": "to_mx"}}"#,
            ["`bfp_method` is to_mx", "to_bfp_prime"],
        ),
        (
            r#"{"BFPAttributes": {"bit_width": 99}}"#,
            ["99", "expected"],
        ),
    ] {
        let error = Configuration::from_json(json).unwrap_err().to_string();
        for text in texts {
            assert!(error.contains(text), "{json}: {error}");
        }
    }
}
