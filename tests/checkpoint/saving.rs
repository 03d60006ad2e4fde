//! The folder after a save has the new checkpoint and every foreign file. After a killed save it has the old checkpoint or the
//! new one.

use std::collections::BTreeMap;
use std::env::{current_exe, var_os};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use burn::nn::{Linear, LinearConfig};
use burn_mx::checkpoint::{Checkpoint, CheckpointLayout};
use burn_mx::module::{load_checkpoint, save_checkpoint};
use burn_mx::{MxBackend, MxDevice, MxSpecs};
use proptest::prelude::*;

use crate::support::*;

type B = MxBackend<TestBackend>;

fn device() -> MxDevice<TestDevice> {
    mx_device(&MxSpecs::mxfp4())
}

fn layer(seed: u64) -> Linear<B> {
    with_noise_weights(LinearConfig::new(64, 32).init(&device()), seed)
}

/// The outputs of a layer: which one it is.
fn outputs(layer: &Linear<B>) -> Vec<f32> {
    values(layer.forward(noise_tensor([2, 64], 130, &device())))
}

fn loaded(path: &Path) -> Vec<f32> {
    outputs(&load_checkpoint(layer(131), path).unwrap_or_else(|error| panic!("{error}")))
}

fn write_index(path: &Path, files: &[&str]) {
    let tensors = files.iter().enumerate();
    let map: BTreeMap<String, &str> = tensors.map(|(i, file)| (format!("t{i}"), *file)).collect();
    let index = serde_json::json!({ "metadata": {}, "weight_map": map });
    fs::write(path, index.to_string()).unwrap();
}

/// As Hugging Face's tools leave it: an index beside a single file, which it names. Saving returned `Ok` and the file was gone.
#[test]
fn an_index_that_names_the_file_itself_or_what_is_no_shard_costs_nothing() {
    for shard_bytes in [None, Some(1 << 30)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let tokenizer = folder.path().join("tokenizer.json");
        fs::write(&tokenizer, "{}").unwrap();
        save_checkpoint(&layer(132), &path, CheckpointLayout::Microscaling).unwrap();
        let index = folder.path().join("model.safetensors.index.json");
        write_index(&index, &["model.safetensors", "tokenizer.json"]);

        let checkpoint = Checkpoint::new(&path);
        let checkpoint = match shard_bytes {
            None => checkpoint,
            Some(bytes) => checkpoint.shards(bytes),
        };
        let saved = checkpoint.save(&layer(133)).unwrap();
        for file in &saved.files {
            assert!(file.exists(), "{} was saved", file.display());
        }
        assert_eq!(fs::read_to_string(&tokenizer).unwrap(), "{}");
        for path in [path.as_path(), folder.path()] {
            assert_same_bits(&loaded(path), &outputs(&layer(133)), "the new one");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Saves of any kinds after one another: the folder then has the last one, and foreign files are untouched.
    #[test]
    fn the_last_save_is_what_is_there(
        saves in proptest::collection::vec(proptest::option::of(1..6000_u64), 1..6),
        indexed in proptest::collection::vec(
            (0..6_usize, proptest::sample::subsequence(
                vec!["model.safetensors", "old.safetensors", "tokenizer.json", "../model.safetensors", "none.safetensors"], 0..5)),
            0..3),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let others = ["tokenizer.json", "notes.txt", "weights.bin"];
        for name in others {
            fs::write(folder.path().join(name), name).unwrap();
        }
        for (number, shard_bytes) in saves.into_iter().enumerate() {
            for (at, files) in &indexed {
                if *at == number {
                    write_index(&folder.path().join("model.safetensors.index.json"), files);
                }
            }
            let model = layer(134 + number as u64);
            let checkpoint = Checkpoint::new(&path);
            let checkpoint = match shard_bytes {
                None => checkpoint,
                Some(bytes) => checkpoint.shards(bytes),
            };
            let saved = checkpoint.save(&model).unwrap();
            prop_assert!(saved.files.iter().all(|file| file.exists()));
            assert_same_bits(&loaded(&path), &outputs(&model), "the last one");
            for name in others {
                prop_assert_eq!(fs::read_to_string(folder.path().join(name)).unwrap(), name);
            }
        }
    }
}

const FOLDER: &str = "BURN_MX_TEST_SAVE_UNTIL_KILLED";

/// The child of the test below: saves two models by turns, in one file and in shards.
#[test]
fn saves_until_it_is_killed() {
    let Some(folder) = var_os(FOLDER) else { return };
    let path = Path::new(&folder).join("model.safetensors");
    let models = [layer(140), layer(141)];
    for turn in 0.. {
        let checkpoint = Checkpoint::new(&path);
        let checkpoint = match turn % 3 {
            0 => checkpoint,
            _ => checkpoint.shards(600),
        };
        checkpoint.save(&models[turn % 2]).unwrap();
        fs::write(Path::new(&folder).join("started"), "").unwrap();
    }
}

/// Kills come when they come; each step by itself is stopped in the tests of burn-mx's `checkpoint::write`.
#[test]
fn a_killed_save_leaves_a_whole_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let started = folder.path().join("started");
    let wanted = [layer(140), layer(141)].map(|layer| outputs(&layer));
    save_checkpoint(&layer(140), &path, CheckpointLayout::Microscaling).unwrap();
    for round in 0..12 {
        let _ = fs::remove_file(&started);
        let mut child = Command::new(current_exe().unwrap())
            .args(["--exact", "checkpoint::saving::saves_until_it_is_killed"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while !started.exists() {
            assert_eq!(child.try_wait().unwrap(), None, "the child saves on");
            sleep(Duration::from_millis(1));
        }
        sleep(Duration::from_micros(700 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        for path in [path.as_path(), folder.path()] {
            let got = loaded(path);
            assert!(wanted.contains(&got), "round {round}, {}", path.display());
        }
    }
}
