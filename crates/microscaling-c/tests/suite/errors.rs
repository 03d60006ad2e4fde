//! Descriptions without C.

use microscaling_c::{Reference, Subject};

#[test]
fn parts_without_c_are_named() {
    for (format, message) in [
        ("nf4", "element is table(nf4)"),
        ("razer", "element is table("),
        ("hif4", "sub_scales is 8/4"),
        ("amxfp4", "sign_scales is true"),
        ("nvfp4(four_over_six=true)", "four_over_six is true"),
        (
            "block(element=e2m1,scale=ue4m3,block_size=16,tensor_scale=true,eden=true)",
            "eden is true",
        ),
        (
            "block(element=e2m1,scale=ue4m3,block_size=16,outer_size=128)",
            "outer_size is 128",
        ),
        (
            "mx(element=fp4_e2m1,block_size=65537)",
            "block_size is 65537",
        ),
        ("table(0 1 2)", "element is table("),
    ] {
        let subject: Subject = format.parse().unwrap();
        let error = Reference::new(subject).unwrap_err().to_string();
        assert!(error.contains(message), "{format}: {error}");
        assert!(error.contains("expected"), "{format}: {error}");
    }
}

#[test]
fn accumulators_that_do_not_fit_are_named() {
    for (format, accumulator, message) in [
        ("mxfp4", "hopper", "hopper"),
        ("mx9", "blackwell", "accumulator is blackwell"),
        ("binary8p4se", "blackwell", "accumulator is blackwell"),
        ("mxfp4", "accumulator(order=integer,bits=24)", "integer"),
    ] {
        let reference = Reference::new(format.parse().unwrap()).unwrap();
        let error = reference
            .with_accumulator(accumulator.parse().unwrap())
            .unwrap_err();
        let error = error.to_string();
        assert!(error.contains(message), "{format}: {error}");
    }
}

#[test]
fn prefixes_and_formats_that_are_none_are_named() {
    let reference = Reference::new("mxfp4".parse().unwrap()).unwrap();
    for prefix in ["", "4x", "a-b", "é", "a b", "_x"] {
        let error = reference
            .clone()
            .with_prefix(prefix)
            .unwrap_err()
            .to_string();
        assert!(error.contains(&format!("`{prefix}`")), "{error}");
    }
    for (text, message) in [
        ("mxfp5", "mxfp5"),
        ("binary8p9se", "precision is 9"),
        ("binaryx", "binaryx"),
        (
            "float(exponent_bits=9,mantissa_bits=1)",
            "exponent_bits is 9",
        ),
    ] {
        let error = text.parse::<Subject>().unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

/// A prefix may look like the templates' own.
#[test]
fn any_prefix_is_kept() {
    for prefix in ["mx_a", "MX_A", "mx_MX_mx_", "x"] {
        let reference = Reference::new("mxfp4".parse().unwrap()).unwrap();
        let reference = reference.with_prefix(prefix).unwrap();
        let [header, model] = [reference.header(), reference.systemverilog().unwrap()];
        let upper = prefix.to_uppercase();
        assert!(
            header.contains(&format!(" {prefix}_quantize_block(")),
            "{header}"
        );
        assert!(
            header.contains(&format!("#define {upper}_NAN ")),
            "{header}"
        );
        assert!(header.contains(&format!("--prefix {prefix}`")), "{header}");
        assert!(model.contains(&format!("package {prefix}_pkg;")), "{model}");
        assert!(
            model.contains(&format!("{prefix}_pkg::BLOCK_SIZE")),
            "{model}"
        );
    }
}

/// No type but whole numbers of up to 64 bits, no header but `<stdint.h>`, and no function of a library.
#[test]
fn headers_have_integers_alone() {
    let accumulators = [None, Some("blackwell")];
    for (format, accumulator) in ["nvfp4", "mxfp8_e4m3", "mx9", "binary8p4se"]
        .into_iter()
        .zip(accumulators.into_iter().cycle())
    {
        let mut reference = Reference::new(format.parse().unwrap()).unwrap();
        if let Some(accumulator) = accumulator.filter(|_| format == "mxfp8_e4m3") {
            reference = reference
                .with_accumulator(accumulator.parse().unwrap())
                .unwrap();
        }
        let header = reference.header();
        let mut code = String::new();
        for part in header.split("/*") {
            code += part.split_once("*/").map_or(part, |(_, code)| code);
        }
        for word in [
            "float ", "double", "int128", "long", "memcpy", "mx_", "{{", "{%",
        ] {
            assert!(
                !code.contains(word) || (word == "mx_" && code.contains("_mx_")),
                "{format}: {word}"
            );
        }
        assert_eq!(code.matches("#include").count(), 1);
        assert_eq!(reference.header(), header);
    }
}
