//! Random folders of checkpoints: shards and an index, files and copies of tensors that the index does not name, weights of
//! several tools with their companions. A model knows what each verb has to do.

#![allow(clippy::too_many_lines, reason = "a case checks all verbs")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use support::{Tensor, numbers, read, run, write};

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        // Knuth's MMIX.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// Codes of FP8 that are numbers.
    fn codes(&mut self, count: usize) -> Vec<u8> {
        (0..count)
            .map(|_| self.below(0x7f) as u8 | (self.below(2) as u8) << 7)
            .collect()
    }

    fn floats(&mut self, count: usize) -> Vec<f32> {
        numbers(count, self.below(1 << 20) as u32)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// A matrix of floats: the only weights that `quantize` packs.
    Float,
    /// Tensors that the program copies unchanged.
    Stays,
    /// In a layout that the program packs.
    Packed,
    /// FP8 with scales for rows, blocks or the tensor.
    Scaled,
    /// In a layout that the program does not read.
    Unread,
}

/// The tensors of a random weight, and the name of the weight.
fn weight(random: &mut Random, layer: &str) -> (Kind, String, Vec<Tensor>) {
    let (rows, width) = (1 + random.below(40), 32 * (1 + random.below(3)));
    let name = format!("{layer}.weight");
    let named = |end: &str| format!("{name}{end}");
    let bytes = |name: &str, shape: &[usize], bytes: Vec<u8>| Tensor::new(name, "U8", shape, bytes);
    match random.below(8) {
        0 => {
            let floats = random.floats(rows * width);
            let tensor = match random.one_in(2) {
                true => Tensor::f32(&name, &[rows, width], &floats),
                false => Tensor::bf16(&name, &[rows, width], &floats),
            };
            (Kind::Float, name, vec![tensor])
        }
        1 => (
            Kind::Stays,
            name.clone(),
            vec![Tensor::f32(&name, &[rows], &random.floats(rows))],
        ),
        2 => {
            let name = format!("{layer}.proj_bias");
            let tensor = Tensor::bf16(&name, &[rows, width], &random.floats(rows * width));
            (Kind::Stays, name, vec![tensor])
        }
        3 => {
            let parts = vec![
                bytes(
                    &named("_packed"),
                    &[rows, width / 2],
                    random.codes(rows * width / 2),
                ),
                bytes(
                    &named("_scale"),
                    &[rows, width / 32],
                    vec![120; rows * width / 32],
                ),
            ];
            (Kind::Packed, name, parts)
        }
        4 => {
            let parts = vec![
                bytes(
                    &named("_blocks"),
                    &[2, rows, width / 32, 16],
                    random.codes(rows * width),
                ),
                bytes(
                    &named("_scales"),
                    &[2, rows, width / 32],
                    vec![120; rows * width / 16],
                ),
            ];
            (Kind::Packed, name, parts)
        }
        5 => {
            let parts = vec![
                Tensor::new(
                    &named("_packed"),
                    "I32",
                    &[rows, width / 8],
                    random.codes(rows * width / 2),
                ),
                Tensor::bf16(
                    &named("_scale"),
                    &[rows, width / 32],
                    &random.floats(rows * width / 32),
                ),
                Tensor::new(&named("_shape"), "I64", &[2], vec![0; 16]),
            ];
            (Kind::Unread, name, parts)
        }
        _ => {
            // The block that needs no config.
            let block = 128;
            let shape = match random.below(4) {
                0 => vec![],
                1 => vec![1],
                2 => vec![rows, 1],
                _ => vec![rows.div_ceil(block), width.div_ceil(block)],
            };
            let scales = random.floats(shape.iter().product());
            let end = ["_scale", "_scale_inv"][random.below(2)];
            let scales = match random.one_in(2) {
                true => Tensor::f32(&named(end), &shape, &scales),
                false => Tensor::bf16(&named(end), &shape, &scales),
            };
            let codes = Tensor::new(&name, "F8_E4M3", &[rows, width], random.codes(rows * width));
            let input = Tensor::f32(&format!("{layer}.input_scale"), &[], &[0.5]);
            let mut parts = vec![codes, scales];
            parts.extend(random.one_in(2).then_some(input));
            (Kind::Scaled, name, parts)
        }
    }
}

fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(folder).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read(entry.path()).unwrap())
    });
    files.collect()
}

/// Writes the tensors to a folder, with an index or without, and with what another program left there.
fn fill(random: &mut Random, folder: &Path, tensors: &[Tensor]) {
    fs::create_dir(folder).unwrap();
    fs::write(folder.join("tokenizer.json"), "{}").unwrap();
    if random.one_in(2) {
        fs::write(folder.join("config.json"), r#"{"model_type": "llama"}"#).unwrap();
    }
    if random.one_in(3) {
        write(&folder.join("model.safetensors"), tensors);
        return;
    }
    let count = 1 + random.below(3);
    let mut shards = vec![Vec::new(); count];
    let mut map = serde_json::Map::new();
    let file = |number: usize| format!("model-{number:05}.safetensors");
    for tensor in tensors {
        let own = random.below(count);
        shards[own].push(tensor.clone());
        map.insert(tensor.name.clone(), file(own).into());
        // A copy with other bytes.
        let other = random.below(count);
        if other != own && random.one_in(3) {
            let mut copy = tensor.clone();
            copy.bytes.fill(0x11);
            shards[other].push(copy);
        }
    }
    for (number, shard) in shards.iter().enumerate() {
        write(&folder.join(file(number)), shard);
    }
    if random.one_in(2) {
        write(&folder.join("consolidated.safetensors"), &shards[0]);
    }
    let index = serde_json::json!({"metadata": {}, "weight_map": map});
    fs::write(
        folder.join("model.safetensors.index.json"),
        index.to_string(),
    )
    .unwrap();
}

/// The names in a column of a table.
fn column(said: &serde_json::Value, table: &str, column: &str) -> BTreeSet<String> {
    let rows = said[table].as_array().unwrap().iter();
    rows.map(|row| row[column].as_str().unwrap().to_owned())
        .collect()
}

/// The tensors of a checkpoint's files, each in one of them.
fn tensors_in(folder: &Path) -> BTreeMap<String, Tensor> {
    let mut found = BTreeMap::new();
    for name in contents(folder)
        .into_keys()
        .filter(|name| name.ends_with(".safetensors"))
    {
        for tensor in read(&folder.join(name)) {
            let before = found.insert(tensor.name.clone(), tensor);
            assert_eq!(before, None);
        }
    }
    found
}

#[test]
fn random_folders() {
    for seed in 0..60 {
        let random = &mut Random(seed);
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        // Now and then nothing is quantized.
        let plain = random.one_in(3);
        let mut weights = Vec::new();
        while weights.len() < 1 + random.below(6) {
            let weight = weight(random, &format!("layers.{}", weights.len()));
            if !plain || [Kind::Float, Kind::Stays].contains(&weight.0) {
                weights.push(weight);
            }
        }
        let tensors: Vec<Tensor> = weights
            .iter()
            .flat_map(|(_, _, parts)| parts.clone())
            .collect();
        fill(random, &root.join("in"), &tensors);
        let before = contents(&root.join("in"));
        let named = |kinds: &[Kind]| -> BTreeSet<String> {
            let of = weights.iter().filter(|(kind, ..)| kinds.contains(kind));
            of.map(|(_, name, _)| name.clone()).collect()
        };
        let has = |kind| !named(&[kind]).is_empty();
        let json = |line: &str, status: i32| -> serde_json::Value {
            let (got, said) = run(root, line);
            assert_eq!(got, status, "seed {seed}: {line}: {said}");
            serde_json::from_str(&said).unwrap_or_default()
        };

        let said = json("inspect in --json", if has(Kind::Unread) { 2 } else { 0 });
        let read = column(&said, "weights", "packed_weight");
        assert_eq!(read, named(&[Kind::Packed, Kind::Scaled]), "seed {seed}");
        let unread = column(&said, "unread", "weight_that_is_not_read");
        assert_eq!(unread, named(&[Kind::Unread]), "seed {seed}");
        json("diff in in --json", 0);

        let is_quantized = [Kind::Packed, Kind::Scaled, Kind::Unread]
            .into_iter()
            .any(has);
        match is_quantized || !has(Kind::Float) {
            true => {
                json("quantize in out.safetensors --format mxfp4", 2);
                assert!(!root.join("out.safetensors").exists(), "seed {seed}");
            }
            false => {
                let out = if before.contains_key("model.safetensors") {
                    "out/model.safetensors"
                } else {
                    "out"
                };
                let said = json(&format!("quantize in {out} --format mxfp6_e2m3 --json"), 0);
                assert_eq!(
                    column(&said, "weights", "weight"),
                    named(&[Kind::Float]),
                    "seed {seed}"
                );
                let written = tensors_in(&root.join("out"));
                let stays = tensors
                    .iter()
                    .filter(|tensor| !named(&[Kind::Float]).contains(&tensor.name));
                for tensor in stays.clone() {
                    assert_eq!(written.get(&tensor.name), Some(tensor), "seed {seed}");
                }
                assert_eq!(
                    written.len(),
                    stays.count() + 2 * named(&[Kind::Float]).len(),
                    "seed {seed}"
                );
                let said = json("diff in out --json", 1);
                assert_eq!(
                    column(&said, "differences", "tensor"),
                    named(&[Kind::Float]),
                    "seed {seed}"
                );
            }
        }

        let out = if before.contains_key("model.safetensors") {
            "own/model.safetensors"
        } else {
            "own"
        };
        let line = format!("convert in {out} --to microscaling --json");
        match has(Kind::Packed) {
            true => {
                let said = json(&line, 0);
                let copied: BTreeSet<_> = said["copied"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|name| name.as_str().unwrap())
                    .collect();
                let expected = named(&[Kind::Scaled, Kind::Unread]);
                assert_eq!(
                    copied,
                    expected.iter().map(String::as_str).collect(),
                    "seed {seed}"
                );
                json("diff in own --json", 0);
            }
            false => {
                json(&line, 2);
            }
        }
        assert_eq!(contents(&root.join("in")), before, "seed {seed}");
    }
}
