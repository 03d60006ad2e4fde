//! Which values the fields may have.

use burn_mx::{BlockFormat, MxSpecs, Shifts, SpecsError};

#[test]
fn numbers_out_of_range() {
    type Set = fn(&mut MxSpecs, u32);
    let scale_bits: Set = |specs, value| specs.scale_bits = value;
    let bfloat: Set = |specs, value| specs.bfloat = value;
    let fp: Set = |specs, value| specs.fp = value;
    for (field, set, allowed, max, text) in [
        ("scale_bits", scale_bits, 1..=8, 8, "0 (8) or 1 to 8"),
        ("bfloat", bfloat, 10..=32, 32, "0 (off) or 10 to 32"),
        ("fp", fp, 7..=29, 29, "0 (off) or 7 to 29"),
    ] {
        for value in (0..=max + 3).chain([u32::MAX]) {
            let mut specs = MxSpecs::default();
            set(&mut specs, value);
            let resolved = specs.resolve();
            if value == 0 || allowed.contains(&value) {
                assert!(resolved.is_ok(), "{field} {value}");
                continue;
            }
            let message = resolved.unwrap_err().to_string();
            assert_eq!(message, format!("`{field}` is {value}; allowed: {text}"));
        }
    }
}

#[test]
fn sizes_of_the_hadamard_transform() {
    for size in 0..=256 {
        let specs = MxSpecs {
            hadamard_block_size: size,
            ..MxSpecs::mxfp4()
        };
        match specs.resolve() {
            Ok(specs) => {
                assert!([0, 16, 32, 64, 128].contains(&size));
                assert_eq!(
                    specs.hadamard_input_grad().map(|h| h.block_size),
                    (size > 0).then_some(size)
                );
            }
            Err(error) => assert_eq!(
                error.to_string(),
                format!("`hadamard_block_size` is {size}; allowed: 0 (off), 16, 32, 64, 128")
            ),
        }
    }
}

#[test]
fn bfloat_and_fp_exclude_each_other() {
    let specs = MxSpecs {
        fp: 12,
        ..MxSpecs::mxfp4()
    };
    let error = specs.resolve().unwrap_err();
    assert_eq!(error, SpecsError::BfloatAndFp { bfloat: 16, fp: 12 });
    let message = "`bfloat` is 16 and `fp` is 12; allowed: one of them, the other 0";
    assert_eq!(error.to_string(), message);
}

#[test]
fn parameters_of_a_format_out_of_range() {
    let format = BlockFormat {
        block_size: 10,
        shifts: Some(Shifts {
            block_size: 11,
            bits: 1,
        }),
        ..BlockFormat::MX6
    };
    let specs = MxSpecs {
        a_elem_format_bp: Some(format.into()),
        ..MxSpecs::mxfp4()
    };
    assert_eq!(
        specs.resolve().unwrap_err().to_string(),
        "`a_elem_format_bp` is microexponent(bit_width=13,block_size=10,sub_block_size=11,shift_bits=1); \
         microexponent: sub_block_size is 11, expected 1 to 10"
    );
    for (json, parts) in [
        (
            r#"{ "w_elem_format": "bfp(bit_width=40)" }"#,
            ["`w_elem_format`", "40", "10 to 32"],
        ),
        (
            r#"{ "w_elem_format": "mx(element=int7)" }"#,
            ["`w_elem_format`", "int7", "int4"],
        ),
        (
            r#"{ "w_elem_format": "fp8_e4m3", "scale_mode": "rms" }"#,
            ["`w_elem_format`", "fp8_e4m3", "fp4_e2m1"],
        ),
    ] {
        let specs = MxSpecs::from_json(json).and_then(|specs| specs.resolve());
        let error = specs.unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "{error}: no {part}");
        }
    }
}

#[test]
fn what_shapes_mx_blocks_needs_some() {
    for (field, value, allowed) in [
        ("block_size", "32", "0 or 16"),
        ("scale_bits", "4", "0 or 8"),
        ("scale_mode", "rceil", "floor"),
        ("shared_exp_method", "none", "max"),
        ("mx_flush_fp32_subnorms", "true", "false"),
    ] {
        let json_value = match value.parse::<u32>() {
            Ok(_) => value.to_string(),
            Err(_) if value == "true" => value.to_string(),
            Err(_) => format!("\"{value}\""),
        };
        let specs = |slots: &str| {
            let json = format!(r#"{{ {slots}, "{field}": {json_value} }}"#);
            MxSpecs::from_json(&json).unwrap().resolve()
        };
        let error = specs(r#""a_elem_format": "mx9", "w_elem_format_bp": "nvfp4""#).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "`{field}` is {value}, but applies only to slots that name an element, and \
                 `a_elem_format` is mx9; allowed: {allowed}"
            )
        );
        for good in [
            r#""w_elem_format": "mx9", "a_elem_format": "int8""#,
            r#""bfloat": 16"#,
        ] {
            assert!(specs(good).is_ok(), "{field} with {good}");
        }
    }
    let whole_axis = r#"{ "w_elem_format": "mx(element=int8,block_size=0)", "block_size": 32 }"#;
    let error = MxSpecs::from_json(whole_axis).unwrap().resolve();
    let error = error.unwrap_err().to_string();
    assert!(error.ends_with("allowed: 0"), "{error}");
    let fits = MxSpecs {
        block_size: 16,
        scale_bits: 8,
        ..MxSpecs::preset("nvfp4").unwrap()
    };
    assert!(fits.resolve().is_ok());
}
