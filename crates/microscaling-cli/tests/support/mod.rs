//! Runs the program, and writes safetensors files byte by byte, in types that no library knows.

#![allow(dead_code, reason = "each test uses a part")]

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The exit status, and what the program said.
pub(crate) fn run(folder: &Path, line: &str) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_microscaling"))
        .args(line.split_whitespace())
        .current_dir(folder)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap(),
        String::from_utf8(said).unwrap(),
    )
}

pub(crate) fn succeed(folder: &Path, line: &str) -> String {
    let (status, said) = run(folder, line);
    assert_eq!(status, 0, "{line}: {said}");
    said
}

/// Fails with status 2 and a message that has these parts.
pub(crate) fn refuse(folder: &Path, line: &str, parts: &[&str]) {
    let (status, said) = run(folder, line);
    assert_eq!(status, 2, "{line}: {said}");
    for part in parts {
        assert!(said.contains(part), "{line}: no `{part}` in {said}");
    }
}

/// The names in a folder, in order.
pub(crate) fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// A tensor of a file: name, type, shape, bytes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) dtype: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

impl Tensor {
    pub(crate) fn new(name: &str, dtype: &str, shape: &[usize], bytes: Vec<u8>) -> Self {
        Self {
            name: name.to_owned(),
            dtype: dtype.to_owned(),
            shape: shape.to_vec(),
            bytes,
        }
    }

    pub(crate) fn f32(name: &str, shape: &[usize], numbers: &[f32]) -> Self {
        let bytes = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        Self::new(name, "F32", shape, bytes)
    }

    pub(crate) fn bf16(name: &str, shape: &[usize], numbers: &[f32]) -> Self {
        let bits = numbers.iter().map(|x| (x.to_bits() >> 16) as u16);
        let bytes = bits.flat_map(u16::to_le_bytes).collect();
        Self::new(name, "BF16", shape, bytes)
    }
}

pub(crate) fn write(path: &Path, tensors: &[Tensor]) {
    let mut header = serde_json::Map::new();
    header.insert("__metadata__".into(), serde_json::json!({"format": "pt"}));
    let mut data = Vec::new();
    for tensor in tensors {
        let start = data.len();
        data.extend(&tensor.bytes);
        let offsets = [start, data.len()];
        let described = serde_json::json!({"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": offsets});
        header.insert(tensor.name.clone(), described);
    }
    let header = serde_json::to_vec(&header).unwrap();
    let file = [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat();
    fs::write(path, file).unwrap();
}

/// The tensors of a file, by name.
pub(crate) fn read(path: &Path) -> Vec<Tensor> {
    let file = fs::read(path).unwrap();
    let length = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let header: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(&file[8..8 + length]).unwrap();
    let tensors = header.iter().filter(|(name, _)| *name != "__metadata__");
    let tensors = tensors.map(|(name, tensor)| {
        let numbers = |key: &str| -> Vec<usize> {
            let numbers = tensor[key].as_array().unwrap().iter();
            numbers.map(|x| x.as_u64().unwrap() as usize).collect()
        };
        let offsets = numbers("data_offsets");
        let bytes = file[8 + length..][offsets[0]..offsets[1]].to_vec();
        let dtype = tensor["dtype"].as_str().unwrap();
        Tensor::new(name, dtype, &numbers("shape"), bytes)
    });
    tensors.collect()
}

/// Numbers between −1 and 1.
pub(crate) fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let number = |i: usize| ((i as u32 + 1).wrapping_mul(2_654_435_761 ^ seed) >> 8) as f32;
    (0..count)
        .map(|i| number(i) / 2.0_f32.powi(23) - 1.0)
        .collect()
}

/// The checkpoints that other tools wrote.
pub(crate) fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/checkpoints")
}

/// The tensors of a folder's files, by name.
pub(crate) fn tensors(folder: &Path) -> BTreeMap<String, Tensor> {
    let names = files(folder).into_iter();
    let names = names.filter(|name| name.ends_with(".safetensors"));
    let tensors = names.flat_map(|name| read(&folder.join(name)));
    tensors
        .map(|tensor| (tensor.name.clone(), tensor))
        .collect()
}

/// The `quantization_config` that the program wrote.
pub(crate) fn config(folder: &Path) -> Value {
    let text = fs::read_to_string(folder.join("model.config.json")).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    config["quantization_config"].clone()
}

/// A folder with these tensors, and a config.json of this quantization.
pub(crate) fn checkpoint(folder: &Path, tensors: &[Tensor], config: &Value) {
    fs::create_dir(folder).unwrap();
    write(&folder.join("model.safetensors"), tensors);
    if !config.is_null() {
        let text = json!({"quantization_config": config}).to_string();
        fs::write(folder.join("config.json"), text).unwrap();
    }
}
