//! The blocks that share a scale: config.json tells their size, and the tensors agree or are refused.

mod support;

use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use support::{Tensor, read, refuse, run, succeed, write};

/// A folder with `a.weight`, whose codes are all 1 in FP8 E4M3, and with scales 1, 2, 3, … of this shape.
fn fp8(folder: &Path, end: &str, shape: [usize; 2], scales: [usize; 2], config: &Value) {
    fs::create_dir_all(folder).unwrap();
    let numbers: Vec<f32> = (1..=scales[0] * scales[1]).map(|i| i as f32).collect();
    let codes = vec![0x38; shape[0] * shape[1]];
    write(
        &folder.join("model.safetensors"),
        &[
            Tensor::new("a.weight", "F8_E4M3", &shape, codes),
            Tensor::f32(&format!("a.weight{end}"), &scales, &numbers),
        ],
    );
    let config = json!({"quantization_config": config});
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
}

/// The same in int4 of compressed-tensors.
fn int4(folder: &Path, shape: [usize; 2], groups: usize, config: &Value) {
    fs::create_dir_all(folder).unwrap();
    let words = shape[1] / 8;
    let numbers: Vec<f32> = (1..=shape[0] * groups).map(|i| i as f32).collect();
    write(
        &folder.join("model.safetensors"),
        &[
            // Code 9 is 1: the codes begin at −8.
            Tensor::new(
                "a.weight_packed",
                "I32",
                &[shape[0], words],
                vec![0x99; shape[0] * words * 4],
            ),
            Tensor::f32("a.weight_scale", &[shape[0], groups], &numbers),
            Tensor::new(
                "a.weight_shape",
                "I64",
                &[2],
                shape.map(|x| (x as u64).to_le_bytes()).concat(),
            ),
        ],
    );
    let config = json!({"quantization_config": config});
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
}

fn deepseek(block: &Value) -> Value {
    json!({"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": block})
}

fn compressed(weights: Value) -> Value {
    let group = json!({"targets": ["Linear"], "weights": weights, "input_activations": null});
    json!({"quant_method": "compressed-tensors", "config_groups": {"group_0": group}})
}

fn block_structure(block: &Value) -> Value {
    compressed(
        json!({"num_bits": 8, "type": "float", "strategy": "block", "block_structure": block}),
    )
}

fn group_size(size: &Value) -> Value {
    compressed(json!({"num_bits": 4, "type": "int", "strategy": "group", "group_size": size}))
}

/// The values of `a.weight`, which are the number of each element's block, from 1 on.
fn check_blocks(folder: &Path, shape: [usize; 2], block: [usize; 2]) {
    succeed(folder, "unpack m --out out.safetensors --force");
    let out = read(&folder.join("out.safetensors"));
    assert_eq!((out.len(), &out[0].shape[..]), (1, &shape[..]));
    let values = out[0]
        .bytes
        .chunks(4)
        .map(|x| f32::from_le_bytes(x.try_into().unwrap()));
    let in_row = shape[1].div_ceil(block[1]);
    for (i, value) in values.enumerate() {
        let (row, column) = (i / shape[1], i % shape[1]);
        let number = row / block[0] * in_row + column / block[1] + 1;
        assert_eq!(
            value, number as f32,
            "{shape:?} {block:?}: [{row}, {column}]"
        );
    }
}

#[test]
fn config_tells_the_block() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (shape, block) in [
        ([300, 300], [160, 160]),
        ([200, 200], [100, 100]),
        ([320, 320], [192, 192]),
        ([96, 192], [96, 96]),
        ([100, 100], [64, 64]),
        ([64, 256], [1, 128]),
        // A weight shorter than a block.
        ([64, 300], [128, 128]),
    ] {
        let scales = [0, 1].map(|axis: usize| usize::div_ceil(shape[axis], block[axis]));
        fp8(
            &folder.join("m"),
            "_scale_inv",
            shape,
            scales,
            &deepseek(&json!(block)),
        );
        check_blocks(folder, shape, block);
        if block[0] > 1 {
            // The size goes on to the other tool's config.
            succeed(folder, "convert m ct --to compressed-tensors --force");
            let config = fs::read(folder.join("ct/model.config.json")).unwrap();
            let config: Value = serde_json::from_slice(&config).unwrap();
            let group = &config["quantization_config"]["config_groups"]["group_0"];
            assert_eq!(group["weights"]["block_structure"], json!(block));
        }
        fp8(
            &folder.join("m"),
            "_scale",
            shape,
            scales,
            &block_structure(&json!(block)),
        );
        check_blocks(folder, shape, block);
    }
    // Without a size, 128 × 128 where the scales fit; the other sizes are open.
    fp8(
        &folder.join("m"),
        "_scale_inv",
        [200, 300],
        [2, 3],
        &deepseek(&Value::Null),
    );
    check_blocks(folder, [200, 300], [128, 128]);
    fp8(
        &folder.join("m"),
        "_scale_inv",
        [100, 100],
        [2, 2],
        &deepseek(&Value::Null),
    );
    refuse(
        folder,
        "unpack m --out never",
        &[
            "`a.weight_scale_inv` has shape [2, 2]",
            "`weight_block_size`",
        ],
    );
}

#[test]
fn blocks_that_contradict_the_scales() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (block, parts) in [
        (
            json!([64, 64]),
            [
                "weight_block_size [64,64]",
                "[2, 2] scales",
                "would give [4, 4]",
            ],
        ),
        (
            json!([256, 256]),
            [
                "weight_block_size [256,256]",
                "[2, 2] scales",
                "would give [1, 1]",
            ],
        ),
        (
            json!([0, 128]),
            [
                "weight_block_size [0,128]",
                "two positive numbers",
                "config.json",
            ],
        ),
        (
            json!([128]),
            [
                "weight_block_size [128]",
                "two positive numbers",
                "config.json",
            ],
        ),
        (
            json!("big"),
            [
                "weight_block_size \"big\"",
                "two positive numbers",
                "config.json",
            ],
        ),
    ] {
        fp8(
            &folder.join("m"),
            "_scale_inv",
            [256, 256],
            [2, 2],
            &deepseek(&block),
        );
        refuse(folder, "unpack m --out never", &parts);
        refuse(folder, "convert m never --to compressed-tensors", &parts);
    }
    fp8(
        &folder.join("m"),
        "_scale",
        [256, 256],
        [2, 2],
        &block_structure(&json!([64, 64])),
    );
    refuse(folder, "unpack m --out never", &["block_structure [64,64]"]);
    assert!(!folder.join("never").exists());
}

#[test]
fn groups_of_integers() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (columns, size) in [(96, 48), (80, 40), (96, 64), (80, 32), (128, 32)] {
        let groups = usize::div_ceil(columns, size);
        int4(
            &folder.join("m"),
            [8, columns],
            groups,
            &group_size(&json!(size)),
        );
        check_blocks(folder, [8, columns], [1, size]);
    }
    // Without a config, equal groups.
    int4(&folder.join("m"), [8, 96], 2, &Value::Null);
    check_blocks(folder, [8, 96], [1, 48]);
    int4(&folder.join("m"), [8, 96], 2, &group_size(&json!(32)));
    refuse(
        folder,
        "unpack m --out never",
        &["group_size 32 in `group_0`", "have 48"],
    );
}

/// `strategy`, `symmetric` and `num_bits` are compared with the tensors.
#[test]
fn words_that_contradict_the_tensors() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (field, value, part) in [
        (
            "strategy",
            json!("banana"),
            "allowed: tensor, channel, group, block, token, tensor_group",
        ),
        (
            "strategy",
            json!("tensor"),
            "strategy \"tensor\" in `group_0`; the tensors have [8, 3] scales",
        ),
        (
            "strategy",
            json!("channel"),
            "strategy \"channel\" in `group_0`; the tensors have [8, 3] scales",
        ),
        (
            "symmetric",
            json!(false),
            "symmetric false in `group_0`; the tensors have no zero points",
        ),
        (
            "num_bits",
            json!("4"),
            "num_bits \"4\" in `group_0`; the tensors have the number 4",
        ),
    ] {
        let mut config = group_size(&json!(32));
        config["config_groups"]["group_0"]["weights"][field] = value;
        int4(&folder.join("m"), [8, 96], 3, &config);
        refuse(folder, "unpack m --out never", &[part]);
    }
    // GPTQ says the size of its groups in another place.
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/checkpoints/gptq");
    for file in fs::read_dir(data).unwrap().map(Result::unwrap) {
        fs::copy(file.path(), folder.join("m").join(file.file_name())).unwrap();
    }
    let path = folder.join("m/config.json");
    let config = fs::read_to_string(&path).unwrap();
    let config: Value = serde_json::from_str(&config).unwrap();
    let mut changed = config.clone();
    changed["quantization_config"]["group_size"] = 64.into();
    fs::write(&path, changed.to_string()).unwrap();
    refuse(
        folder,
        "unpack m --out never",
        &["group_size 64 in `gptq`", "have 16"],
    );
}

/// A scale whose codes are missing: the weight does not disappear.
#[test]
fn scales_without_codes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fp8(&folder.join("m"), "_scale", [64, 64], [1, 1], &Value::Null);
    let path = folder.join("m/model.safetensors");
    let whole = read(&path);
    for (part, codes) in [
        ("b.weight_scale", "`b.weight` or `b.weight_packed`"),
        ("b.weight_scale_inv", "`b.weight` or `b.weight_packed`"),
        ("b.weight_zero_point", "`b.weight` or `b.weight_packed`"),
        ("b.qzeros", "`b.qweight`"),
    ] {
        let lost = Tensor::f32(part, &[1, 1], &[1.0]);
        write(&path, &[&whole[..], &[lost]].concat());
        let parts = [
            "`b.weight`",
            &format!("`{part}` has no codes: there is no tensor {codes}"),
        ];
        for line in [
            "unpack m --out never",
            "convert m never --to compressed-tensors",
        ] {
            refuse(folder, line, &parts);
        }
        assert_eq!(run(folder, "inspect m").0, 2, "{part}");
    }
}
