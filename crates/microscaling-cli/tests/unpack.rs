//! `unpack`: the float model of checkpoints that other tools quantized.

#![allow(clippy::too_many_lines, reason = "tests list their cases")]

mod support;

use half::bf16;
use std::fs;
use std::path::Path;
use support::{Tensor, data, files, numbers, read, refuse, run, succeed, write};

/// Copies a folder of the data, to change it.
fn copy(name: &str, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in files(&data().join(name)) {
        fs::copy(data().join(name).join(&file), to.join(&file)).unwrap();
    }
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    let words = tensor.bytes.chunks(4);
    words
        .map(|x| f32::from_le_bytes(x.try_into().unwrap()))
        .collect()
}

fn find<'a>(tensors: &'a [Tensor], name: &str) -> &'a Tensor {
    let found = tensors.iter().find(|tensor| tensor.name == name);
    found.unwrap_or_else(|| panic!("{name} is missing"))
}

/// Every weight has the values that the tool's own function gives, to the bit (Model Optimizer takes FP4's −0 for 0), the shape of the
/// float model, and no part is left.
#[test]
fn values_are_those_of_the_tools() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (name, weights) in [
        ("ct-mixed", 2),
        ("ct-int4", 1),
        ("ct-fp8-block", 1),
        ("ct-nvfp4", 1),
        ("ct-mxfp4", 3),
        ("fp8-scale-inv", 2),
        ("gpt-oss", 1),
        ("modelopt-mixed", 2),
        ("gptq", 4),
        ("awq", 1),
    ] {
        let input = data().join(name);
        let line = |dtype: &str| {
            format!(
                "unpack {} --out {name}-{dtype} --dtype {dtype}",
                input.display()
            )
        };
        succeed(folder, &line("float32"));
        succeed(folder, &line("bfloat16"));
        let unpacked = read(&folder.join(format!("{name}-float32")));
        let rounded = read(&folder.join(format!("{name}-bfloat16")));
        let expected = read(&data().join(format!("{name}.expected.safetensors")));
        assert_eq!(expected.len(), weights, "{name}");
        for expected in &expected {
            let got = find(&unpacked, &expected.name);
            assert_eq!((&got.dtype, &got.shape), (&expected.dtype, &expected.shape));
            // Zeros of either sign are equal.
            assert!(floats(got) == floats(expected), "{name}: {}", expected.name);
            let got = &find(&rounded, &expected.name).bytes;
            let rounded: Vec<bf16> = floats(expected).into_iter().map(bf16::from_f32).collect();
            let got = got
                .chunks(2)
                .map(|x| bf16::from_le_bytes(x.try_into().unwrap()));
            assert!(
                got.collect::<Vec<_>>() == rounded,
                "{name}: {}",
                expected.name
            );
        }
        // The other tensors are the float model's: a norm, or a router.
        let others = unpacked
            .iter()
            .filter(|x| !expected.iter().any(|y| y.name == x.name));
        let others: Vec<&str> = others.map(|tensor| tensor.name.as_str()).collect();
        let is_float = |name: &&str| {
            ["norm.weight", "router.weight", "router.bias", "_proj_bias"]
                .iter()
                .any(|end| name.ends_with(end))
        };
        assert!(others.iter().all(is_float), "{name}: {others:?}");
        assert!(unpacked.iter().all(|tensor| tensor.dtype == "F32"));
    }
}

/// int8 in bytes, and integers of other widths with zero points, by hand.
#[test]
fn integers() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let scales = |name: &str, shape: &[usize], numbers: &[f32]| Tensor::f32(name, shape, numbers);
    let bytes = [-128_i8, -1, 0, 1, 2, 127].map(|x| x as u8).to_vec();
    // 3 bits: the codes 0 to 7 four times are 32 integers in 3 words, from −4 on, and a zero point of −4 and 3 for the two rows.
    let bits = |codes: &[u32], bits: usize| -> Vec<u8> {
        let stream: Vec<bool> = codes
            .iter()
            .flat_map(|code| (0..bits).map(move |bit| code >> bit & 1 == 1))
            .collect();
        let words = stream.chunks(32);
        let words =
            words.map(|bits| (0..bits.len()).fold(0_u32, |word, i| word | u32::from(bits[i]) << i));
        words.flat_map(u32::to_le_bytes).collect()
    };
    let codes: Vec<u32> = (0..32).map(|i| i % 8).collect();
    write(
        &folder.join("m"),
        &[
            Tensor::new("a.weight", "I8", &[2, 3], bytes),
            scales("a.weight_scale", &[2, 1], &[0.5, 3.0]),
            Tensor::new(
                "b.weight_packed",
                "I32",
                &[2, 3],
                [bits(&codes, 3), bits(&codes, 3)].concat(),
            ),
            scales("b.weight_scale", &[2, 1], &[1.0, 0.25]),
            Tensor::new(
                "b.weight_shape",
                "I64",
                &[2],
                [2_u64, 32].map(u64::to_le_bytes).concat(),
            ),
            Tensor::new("b.weight_zero_point", "I32", &[1, 1], bits(&[0, 7], 3)),
        ],
    );
    succeed(folder, "unpack m --out out");
    let out = read(&folder.join("out"));
    assert_eq!(
        floats(find(&out, "a.weight")),
        [-64.0, -0.5, 0.0, 3.0, 6.0, 381.0]
    );
    let row = |zero: f32, scale: f32| (0..32).map(move |i| ((i % 8) as f32 - 4.0 - zero) * scale);
    let expected: Vec<f32> = row(-4.0, 1.0).chain(row(3.0, 0.25)).collect();
    assert_eq!(floats(find(&out, "b.weight")), expected);
    assert_eq!(out.len(), 2);
    // Three words for 7 integers of at most 8 bits.
    write(
        &folder.join("odd"),
        &[
            Tensor::new("b.weight_packed", "I32", &[1, 3], bits(&codes, 3)),
            scales("b.weight_scale", &[1, 1], &[1.0]),
            Tensor::new(
                "b.weight_shape",
                "I64",
                &[2],
                [1_u64, 7].map(u64::to_le_bytes).concat(),
            ),
        ],
    );
    refuse(
        folder,
        "unpack odd --out never",
        &[
            "`b.weight` is quantized and cannot be read",
            "`b.weight_shape` is [1, 7]; expected [1, in]",
        ],
    );
}

/// The program refuses odd inputs before it writes a file, and leaves the input alone.
#[test]
fn strangers() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // A shard is missing.
    copy("fp8-scale-inv", &folder.join("shards"));
    fs::remove_file(folder.join("shards/model-00002-of-00002.safetensors")).unwrap();
    refuse(
        folder,
        "unpack shards --out never",
        &["model-00002-of-00002.safetensors"],
    );
    // A truncated file.
    copy("ct-mxfp4", &folder.join("short"));
    let path = folder.join("short/model.safetensors");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 100]).unwrap();
    refuse(folder, "unpack short --out never", &["does not lie within"]);
    // A method that nobody knows.
    fs::create_dir(folder.join("method")).unwrap();
    write(
        &folder.join("method/model.safetensors"),
        &[Tensor::new("a.w", "U8", &[4, 8], vec![1; 32])],
    );
    let config = r#"{"quantization_config": {"quant_method": "quip"}}"#;
    fs::write(folder.join("method/config.json"), config).unwrap();
    refuse(
        folder,
        "unpack method --out never",
        &["`a.w` is quantized", "quip"],
    );
    // No quantized weight at all.
    write(
        &folder.join("floats"),
        &[Tensor::f32("a.weight", &[2, 2], &numbers(4, 1))],
    );
    refuse(
        folder,
        "unpack floats --out never",
        &["no quantized weight"],
    );
    // The config says otherwise: a layer in `ignore`, other bits, another size of groups, a pattern that is none.
    for (from, to, parts) in [
        (
            "\"lm_head\"",
            "\"re:.*k_proj$\"",
            ["k_proj.weight", "`re:.*k_proj$`"],
        ),
        (
            "\"num_bits\": 4",
            "\"num_bits\": 8",
            ["num_bits 8 in `group_0`", "have 4"],
        ),
        (
            "\"group_size\": 32",
            "\"group_size\": 64",
            ["group_size 64", "have 32"],
        ),
        (
            "\"type\": \"int\"",
            "\"type\": \"float\"",
            ["type float", "have int"],
        ),
        ("\"Linear\"", "\"re:(\"", ["targets: `re:(`", "config.json"]),
    ] {
        copy("ct-int4", &folder.join("config"));
        let path = folder.join("config/config.json");
        let config = fs::read_to_string(&path).unwrap();
        assert!(config.contains(from), "{config}");
        fs::write(&path, config.replace(from, to)).unwrap();
        refuse(folder, "unpack config --out never", &parts);
    }
    let path = folder.join("config/config.json");
    fs::write(&path, r#"{"quantization_config": "int4"}"#).unwrap();
    refuse(
        folder,
        "unpack config --out never",
        &["quantization_config is \"int4\"; allowed: an object"],
    );
    copy("ct-int4", &folder.join("config"));
    // A group whose pattern has other layers alone says nothing of this one.
    let path = folder.join("config/config.json");
    let config = fs::read_to_string(&path).unwrap();
    let config = config
        .replace("\"Linear\"", "\"re:.*mlp.*\"")
        .replace("\"num_bits\": 4", "\"num_bits\": 8");
    fs::write(&path, config).unwrap();
    succeed(folder, "unpack config --out other-group");
    assert!(!folder.join("never").exists());
}

/// `unpack` never writes over an input, and replaces another file with `--force` alone.
#[test]
fn outputs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    copy("ct-mxfp4", &folder.join("in"));
    let before = fs::read(folder.join("in/model.safetensors")).unwrap();
    for force in ["", " --force"] {
        let line = format!("unpack in --out in/model.safetensors{force}");
        refuse(folder, &line, &["which is read"]);
    }
    assert_eq!(
        fs::read(folder.join("in/model.safetensors")).unwrap(),
        before
    );
    succeed(folder, "unpack in --out new/out.safetensors");
    refuse(
        folder,
        "unpack in --out new/out.safetensors",
        &["exists; `--force`"],
    );
    succeed(folder, "unpack in --out new/out.safetensors --force");
    assert_eq!(files(&folder.join("new")), ["out.safetensors"]);
    refuse(
        folder,
        "unpack in --out out.npy",
        &["allowed: another ending"],
    );
    refuse(folder, "unpack in --out out --dtype float16", &["bfloat16"]);
    // The float model equals the checkpoint by value, in any layout.
    let (status, said) = run(folder, "diff in new/out.safetensors");
    assert_eq!(status, 0, "{said}");
}
