//! A save that is interrupted at any step leaves a checkpoint, the old one or the new one.

use std::cell::RefCell;
use std::rc::Rc;

use burn_backend::TensorData;
use burn_core::module::ParamId;
use burn_store::TensorSnapshot;
use safetensors::tensor::Dtype;
use tempfile::{TempDir, tempdir};

use super::super::archive::{Archive, files};
use super::*;
use crate::file::stops;
use microscaling::safetensors::CheckpointLayout;

/// The bytes of a checkpoint's tensors, by name; `None` if it cannot be loaded.
type Contents = Option<BTreeMap<String, Vec<u8>>>;

fn contents(path: &Path) -> Contents {
    let mapped = files(path).ok()?;
    let archive = Archive::read(&mapped, None).ok()?;
    let of = |name: &str| {
        (
            name.to_owned(),
            archive.tensor(name).unwrap().bytes.to_vec(),
        )
    };
    Some(archive.names().map(of).collect())
}

/// The three ways of loading: by the file, the folder, the index.
fn ways(folder: &Path) -> [Contents; 3] {
    let path = folder.join("model.safetensors");
    [path.clone(), folder.to_owned(), index_of(&path)].map(|path| contents(&path))
}

fn entries(names: &[&str], value: f32) -> Vec<StoredEntry> {
    let entry = |name: &&str| {
        let data = TensorData::new(vec![value; 8], [8]);
        let path = vec![(*name).to_owned()];
        StoredEntry {
            name: (*name).to_owned(),
            dtype: Dtype::F32,
            shape: vec![8],
            bytes: 32,
            source: EntrySource::Tensor(TensorSnapshot::from_data(
                data,
                path,
                Vec::new(),
                ParamId::new(),
            )),
        }
    };
    names.iter().map(entry).collect()
}

/// Saves tensors of 32 bytes, in shards of this many bytes if a number is given.
fn save(folder: &Path, file: &str, names: &[&str], value: f32, shard_bytes: Option<u64>) {
    let entries = entries(names, value);
    let mut bytes = Bytes::new(&[], CheckpointLayout::Microscaling, None, &|_, _| ());
    bytes.all = 32 * names.len() as u64;
    let path = folder.join(file);
    match shard_bytes {
        None => one_file(&path, &bytes, &entries, &BTreeMap::new()),
        Some(shard_bytes) => shards(
            &path,
            shard_bytes,
            &bytes,
            &entries,
            |_| Ok(BTreeMap::new()),
        ),
    }
    .unwrap();
}

fn write_index(folder: &Path, of: &str, files: &[(&str, &str)]) {
    let mut index = Index::new(0);
    for (tensor, file) in files {
        index
            .weight_map
            .insert((*tensor).to_owned(), (*file).to_owned());
    }
    index.write(&index_of(&folder.join(of))).unwrap();
}

/// Possible contents of a folder before a save.
const BEFORE: [&str; 9] = [
    "nothing",
    "one file",
    "shards",
    "one shard",
    "an index of the file itself",
    "an index of the file and others",
    "an index of others",
    "an index that is none",
    "shards without an index",
];

fn before(kind: &str, folder: &Path) {
    let one = |file: &str, names: &[&str]| save(folder, file, names, 1.0, None);
    match kind {
        "nothing" => {}
        "one file" => one("model.safetensors", &["a", "b", "c"]),
        "shards" => save(folder, "model.safetensors", &["a", "b", "c"], 1.0, Some(32)),
        "one shard" => save(folder, "model.safetensors", &["a", "b", "c"], 1.0, Some(99)),
        "an index of the file itself" => {
            one("model.safetensors", &["a", "b"]);
            let files = ["a", "b"].map(|name| (name, "model.safetensors"));
            write_index(folder, "model.safetensors", &files);
        }
        "an index of the file and others" => {
            one("model.safetensors", &["a"]);
            one("part.safetensors", &["b", "c"]);
            let files = [("a", "model.safetensors"), ("b", "part.safetensors")];
            write_index(folder, "model.safetensors", &files);
        }
        "an index of others" => {
            one("first.safetensors", &["a"]);
            one("second.safetensors", &["b"]);
            let files = [
                ("a", "first.safetensors"),
                ("b", "second.safetensors"),
                ("c", "../up.safetensors"),
                ("d", "tokenizer.json"),
                ("e", "shared.safetensors"),
            ];
            write_index(folder, "model.safetensors", &files);
            write_index(folder, "other.safetensors", &[("e", "shared.safetensors")]);
        }
        "an index that is none" => {
            one("model.safetensors", &["a"]);
            fs::write(folder.join("model.safetensors.index.json"), "{").unwrap();
        }
        "shards without an index" => {
            one("model.safetensors", &["a", "b"]);
            one("model-00001-of-00002.safetensors", &["x"]);
        }
        _ => unreachable!(),
    }
}

/// Files that no save may touch.
const FOREIGN: [&str; 3] = ["tokenizer.json", "shared.safetensors", "notes"];

fn copy_of(folder: &Path) -> TempDir {
    let copy = tempdir().unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_save_that_is_stopped_anywhere_leaves_a_whole_checkpoint() {
    let ways_to_save = [None, Some(32), Some(64), Some(1000)];
    for (kind, shard_bytes) in BEFORE
        .iter()
        .flat_map(|kind| ways_to_save.map(|way| (*kind, way)))
    {
        let folder = tempdir().unwrap();
        let root = folder.path().to_owned();
        before(kind, &root);
        // A folder without an index finds the safetensors files of others, and another index.
        let alone = kind != "an index of others";
        for name in FOREIGN {
            if !(alone && name.ends_with(".safetensors")) {
                fs::write(root.join(name), name).unwrap();
            }
        }
        let old = ways(&root);
        let again = |folder: &Path| {
            save(
                folder,
                "model.safetensors",
                &["a", "b", "d"],
                2.0,
                shard_bytes,
            );
        };

        let stopped = Rc::new(RefCell::new(vec![]));
        let look = {
            let (stopped, root) = (Rc::clone(&stopped), root.clone());
            move || stopped.borrow_mut().push(copy_of(&root))
        };
        stops::at_each(look, || again(&root));

        let new = ways(&root);
        let wanted = ["a", "b", "d"].map(|name| (name.to_owned(), 2f32.to_le_bytes().repeat(8)));
        assert_eq!(new[0], Some(wanted.into()), "{kind}, {shard_bytes:?}");
        let stopped = stopped.take();
        assert!(stopped.len() >= 2, "{kind}, {shard_bytes:?}");
        for (step, folder) in stopped.iter().enumerate() {
            let what = format!(
                "{kind}, {shard_bytes:?}, step {step}: {:?}",
                names_in(folder.path())
            );
            for (way, found) in ways(folder.path()).into_iter().enumerate() {
                // An index that will be removed says the new one before.
                let wanted = [&old[way], &new[way], &new[0]];
                assert!(wanted.contains(&&found), "{what}, way {way}");
            }
            // And the next save makes it good.
            again(folder.path());
            assert_eq!(ways(folder.path())[0], new[0], "{what}, saved again");
        }

        // Nothing of others is touched, and nothing of the old one is left.
        for name in FOREIGN {
            let there = fs::read_to_string(root.join(name));
            if !(alone && name.ends_with(".safetensors")) {
                assert_eq!(there.unwrap(), name, "{kind}, {shard_bytes:?}");
            }
        }
        let names = names_in(&root);
        let is_own =
            |name: &&String| name.starts_with("model.safetensors") || name.contains("-of-");
        let is_known = |name: &str| FOREIGN.contains(&name) || name.starts_with("other.");
        let strange = names.iter().find(|name| !is_own(name) && !is_known(name));
        assert_eq!(strange, None, "{kind}, {shard_bytes:?}: {names:?}");
        let own = names.iter().filter(is_own).count();
        let expected = match shard_bytes {
            None => 1,
            Some(32) => 4,
            Some(64) => 3,
            Some(_) => 2,
        };
        let left = usize::from(kind == "shards without an index");
        assert_eq!(own, expected + left, "{kind}, {shard_bytes:?}: {names:?}");
    }
}
