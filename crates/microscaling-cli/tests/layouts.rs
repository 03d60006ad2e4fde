//! The index of several files, tensors with equal values, and what a layout's tensors are called.

mod support;

use std::fs;
use support::{Tensor, numbers, read, refuse, run, succeed, write};

/// The index says which copy of a tensor counts, and a file that it does not name is nobody's.
#[test]
fn the_index_decides() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let input = folder.join("in");
    fs::create_dir(&input).unwrap();
    let weight = |seed| Tensor::f32("w", &[4, 32], &numbers(128, seed));
    let (own, copy) = (weight(1), weight(2));
    let norm = Tensor::f32("norm", &[4], &[1.0; 4]);
    write(&input.join("a.safetensors"), &[copy.clone(), norm.clone()]);
    write(
        &input.join("b.safetensors"),
        &[own.clone(), Tensor::f32("unnamed", &[1], &[1.0])],
    );
    write(&input.join("stale.safetensors"), &[copy]);
    let index = |map: serde_json::Value| {
        let text = serde_json::json!({"metadata": {"total_size": 1}, "weight_map": map});
        fs::write(input.join("model.safetensors.index.json"), text.to_string()).unwrap();
    };
    index(serde_json::json!({"w": "b.safetensors", "norm": "a.safetensors"}));
    write(&folder.join("alone"), &[own, norm.clone()]);
    assert_eq!(
        succeed(folder, "diff in alone").trim(),
        "0 of 2 tensors differ"
    );
    succeed(folder, "quantize in out --format mxfp8_e4m3");
    succeed(folder, "quantize alone packed --format mxfp8_e4m3");
    assert_eq!(
        succeed(folder, "diff out packed").trim(),
        "0 of 2 tensors differ"
    );
    assert_eq!(read(&folder.join("out/a.safetensors")), [norm]);
    // Packed twice, by another program: the description of the other copy does not count.
    fs::copy(folder.join("packed"), input.join("a.safetensors")).unwrap();
    fs::copy(folder.join("packed"), input.join("b.safetensors")).unwrap();
    let b = "b.safetensors";
    index(serde_json::json!({"w.scales": b, "w.elements": b, "norm": "a.safetensors"}));
    assert_eq!(
        succeed(folder, "diff in packed").trim(),
        "0 of 2 tensors differ"
    );

    index(serde_json::json!({"w.scales": b, "nothing": b}));
    refuse(
        folder,
        "inspect in",
        &["the index says that `nothing` is in `b.safetensors`"],
    );
    index(serde_json::json!({}));
    refuse(folder, "inspect in", &["it names no file"]);
    fs::remove_file(input.join("model.safetensors.index.json")).unwrap();
    refuse(folder, "inspect in", &["0 indices and 3 safetensors files"]);
}

/// `diff` accepts equal values in other types. Packed weights with other bytes differ, and the row names the bytes.
#[test]
fn equal_values() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let numbers: Vec<f32> = (0..64).map(|i| i as f32).collect();
    write(&folder.join("f32"), &[Tensor::f32("w", &[2, 32], &numbers)]);
    write(
        &folder.join("bf16"),
        &[Tensor::bf16("w", &[2, 32], &numbers)],
    );
    let said = succeed(folder, "diff f32 bf16");
    assert_eq!(
        said.trim(),
        "0 of 1 tensors differ; 1 have equal values in other types"
    );
    // FP4 holds these numbers.
    let numbers: Vec<f32> = (0..64).map(|i| [0.0, 1.0, -3.0, 6.0][i % 4]).collect();
    write(&folder.join("f32"), &[Tensor::f32("w", &[2, 32], &numbers)]);
    succeed(folder, "quantize f32 mxfp4 --format mxfp4");
    succeed(folder, "diff f32 mxfp4");
    // Zeros, with any scale.
    let zeros = |scale: u8| {
        [
            Tensor::new("w_blocks", "U8", &[2, 1, 16], vec![0; 32]),
            Tensor::new("w_scales", "U8", &[2, 1], vec![127, scale]),
        ]
    };
    write(&folder.join("one"), &zeros(127));
    write(&folder.join("other"), &zeros(3));
    let (status, said) = run(folder, "diff one other");
    assert_eq!(status, 1);
    for part in ["1 of 2 ", "0 of 64 ", "1 of 1 tensors differ"] {
        assert!(said.contains(part), "{said}");
    }
    // Integers, and a scalar.
    let codes = |byte| Tensor::new("codes", "I32", &[3], [0, 0, 0, byte].repeat(3));
    write(
        &folder.join("one"),
        &[codes(0), Tensor::f32("scalar", &[], &[1.0])],
    );
    write(
        &folder.join("other"),
        &[codes(1), Tensor::f32("scalar", &[], &[2.0])],
    );
    let (status, said) = run(folder, "diff one other");
    assert_eq!(status, 1, "{said}");
    for part in ["3 of 3", "1 of 1", "2 of 2 tensors differ"] {
        assert!(said.contains(part), "{said}");
    }
}

/// Model Optimizer turns a tensor of zeros into NaN. The program copies such a tensor unchanged and packs the others.
#[test]
fn zeros_in_the_dialect_of_model_optimizer() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let zeros = Tensor::f32("zeros.weight", &[2, 32], &[0.0; 64]);
    let weight = Tensor::f32("w.weight", &[2, 32], &numbers(64, 3));
    write(&folder.join("in"), &[weight, zeros.clone()]);
    let said = succeed(
        folder,
        "quantize in out --layout modelopt-nvfp4 --dialect modelopt",
    );
    assert!(
        said.contains("Unchanged, because modelopt makes NaN of zeros: zeros.weight"),
        "{said}"
    );
    let out = read(&folder.join("out"));
    assert!(out.contains(&zeros) && out.len() == 4, "{out:?}");
    let config = fs::read_to_string(folder.join("out.config.json")).unwrap();
    assert!(config.contains("\"zeros\""), "{config}");
    refuse(
        folder,
        "quantize in never --layout modelopt-nvfp4 --dialect modelopt --only z*",
        &["there is no tensor to pack", "zeros.weight"],
    );
}

/// The scale of a layer's input has the name and the direction of the new layout.
#[test]
fn scales_of_inputs_follow_the_layout() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let codes = Tensor::new("a.weight", "U8", &[2, 16], vec![0x21; 32]);
    let scales = Tensor::new("a.weight_scale", "F8_E4M3", &[2, 2], vec![0x38; 4]);
    let input = Tensor::f32("a.input_scale", &[], &[0.25]);
    let other = Tensor::f32("b.input_scale", &[], &[0.25]);
    let tensors = [
        codes,
        scales,
        Tensor::f32("a.weight_scale_2", &[], &[0.5]),
        input,
        other.clone(),
    ];
    write(&folder.join("modelopt"), &tensors);
    succeed(folder, "convert modelopt ct --to nvfp4-pack-quantized");
    let ct = read(&folder.join("ct"));
    assert!(
        ct.contains(&Tensor::f32("a.input_global_scale", &[1], &[4.0])),
        "{ct:?}"
    );
    assert!(
        ct.contains(&Tensor::f32("a.weight_global_scale", &[1], &[2.0])),
        "{ct:?}"
    );
    assert!(ct.contains(&other) && ct.len() == 5, "{ct:?}");
    succeed(folder, "convert ct back --to modelopt-nvfp4");
    let sorted = |mut tensors: Vec<Tensor>| {
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        tensors
    };
    assert_eq!(sorted(read(&folder.join("back"))), sorted(tensors.to_vec()));
}

/// compressed-tensors divides by its global scale; the number survives this project's layout.
#[test]
fn the_divisor_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let tensors = [
        Tensor::new("w_packed", "U8", &[1, 8], vec![0x21; 8]),
        Tensor::new("w_scale", "F8_E4M3", &[1, 1], vec![0x3a]),
        Tensor::f32("w_global_scale", &[1], &[2.99]),
    ];
    write(&folder.join("ct"), &tensors);
    // 0x3a is 1.25, and codes 1 and 2 are 0.5 and 1.
    let scale = 1.25_f32 / 2.99;
    assert_ne!(scale, 1.25 * (1.0 / 2.99_f32), "the two ways differ");
    let values: Vec<f32> = (0..16).map(|i| [0.5, 1.0][i % 2] * scale).collect();
    write(
        &folder.join("values"),
        &[Tensor::f32("w", &[1, 16], &values)],
    );
    succeed(folder, "diff values ct");
    succeed(folder, "convert ct own --to microscaling");
    succeed(folder, "diff values own");
    succeed(folder, "convert own again --to nvfp4-pack-quantized");
    let sorted = |name: &str| {
        let mut tensors = read(&folder.join(name));
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        tensors
    };
    assert_eq!(sorted("again"), sorted("ct"));
}
