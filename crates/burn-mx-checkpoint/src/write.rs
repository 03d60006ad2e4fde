//! Writes files completely or not at all.

mod bytes;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use burn_mx_files::{NewFile, folder_of};

use crate::archive::{Index, index_of, io as io_error};
use crate::error::CheckpointError;
use crate::file;
pub(super) use bytes::{Bytes, EntrySource, Named, StoredEntry};

fn new_file(path: &Path) -> Result<NewFile, CheckpointError> {
    file::new_at(path).map_err(|source| io_error(folder_of(path), source))
}

fn put(file: NewFile) -> Result<(), CheckpointError> {
    let path = file.path().to_owned();
    file::put(file).map_err(|source| io_error(&path, source))
}

/// Writes a text completely or not at all.
pub(super) fn write_text(path: &Path, text: &str) -> Result<(), CheckpointError> {
    let mut file = new_file(path)?;
    file.write_all(text.as_bytes())
        .map_err(|source| io_error(path, source))?;
    put(file)
}

/// Writes all entries to one file, which replaces the old one. At any interruption, the path and the folder each hold either
/// the old checkpoint or the new one.
pub(super) fn one_file(
    path: &Path,
    bytes: &Bytes<'_>,
    entries: &[StoredEntry],
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<PathBuf>, CheckpointError> {
    let entries: Vec<&StoredEntry> = entries.iter().collect();
    let file = bytes.write(&entries, metadata, path)?;
    let index = index_of(path);
    let is_indexed = index.exists();
    if is_indexed {
        give_up_name(path)?;
    }
    let old = old_shards(path);
    put(file)?;
    let new = vec![path.to_owned()];
    if is_indexed {
        // A folder is what its index says, as long as there is one.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut whole = Index::new(bytes.all);
        whole.add(&entries, &name);
        whole.write(&index)?;
        remove(&old, &new);
        file::remove(&index).map_err(|source| io_error(&index, source))?;
    }
    Ok(new)
}

/// Writes shards of about this many bytes under new names, then the index, and removes the shards of the old index. `metadata`
/// returns the metadata of a shard with the given weights. At any interruption, the path and the folder each hold either the
/// old checkpoint or the new one.
pub(super) fn shards(
    path: &Path,
    shard_bytes: u64,
    bytes: &Bytes<'_>,
    entries: &[StoredEntry],
    metadata: impl Fn(&[usize]) -> Result<BTreeMap<String, String>, CheckpointError>,
) -> Result<Vec<PathBuf>, CheckpointError> {
    let folder = folder_of(path);
    let old = old_shards(path);
    let groups = grouped(entries, shard_bytes);
    let names = new_names(path, groups.len());
    let mut index = Index::new(bytes.all);
    let mut files = Vec::new();
    for (group, name) in groups.iter().zip(&names) {
        let weights: Vec<usize> = group.iter().filter_map(|entry| weight_of(entry)).collect();
        files.push(bytes.write(group, &metadata(&weights)?, &folder.join(name))?);
        index.add(group, name);
    }
    let mut paths = Vec::new();
    for file in files {
        paths.push(file.path().to_owned());
        put(file)?;
    }
    let index_path = index_of(path);
    index.write(&index_path)?;
    remove(&old, &paths);
    if path.exists() {
        file::remove(path).map_err(|source| io_error(path, source))?;
    }
    paths.push(index_path);
    Ok(paths)
}

impl Index {
    fn new(total_size: u64) -> Self {
        Self {
            metadata: [("total_size".to_owned(), total_size.into())].into(),
            weight_map: BTreeMap::new(),
        }
    }

    /// Notes that the file of this name holds these tensors.
    fn add(&mut self, entries: &[&StoredEntry], file: &str) {
        let entries = entries.iter();
        self.weight_map
            .extend(entries.map(|entry| (entry.name.clone(), file.to_owned())));
    }

    fn write(&self, path: &Path) -> Result<(), CheckpointError> {
        let text = serde_json::to_string_pretty(self).expect("texts and a number are JSON");
        write_text(path, &text)
    }
}

fn weight_of(entry: &StoredEntry) -> Option<usize> {
    match entry.source {
        EntrySource::Part { weight, .. } => Some(weight),
        EntrySource::Tensor(_) => None,
    }
}

/// Groups entries in order. A group has at most this many bytes, unless a single weight has more.
fn grouped(entries: &[StoredEntry], shard_bytes: u64) -> Vec<Vec<&StoredEntry>> {
    let same =
        |a: &StoredEntry, b: &StoredEntry| weight_of(a).is_some() && weight_of(a) == weight_of(b);
    let mut groups: Vec<Vec<&StoredEntry>> = vec![Vec::new()];
    let mut size = 0;
    for whole in entries.chunk_by(same) {
        let bytes: u64 = whole.iter().map(|entry| entry.bytes as u64).sum();
        if size > 0 && size + bytes > shard_bytes {
            groups.push(Vec::new());
            size = 0;
        }
        size += bytes;
        groups.last_mut().expect("there is one").extend(whole);
    }
    groups
}

/// Names for `count` shards that no file has yet.
fn new_names(path: &Path, count: usize) -> Vec<String> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let names = |version: &str| -> Vec<String> {
        let name = |shard| format!("{stem}{version}-{shard:05}-of-{count:05}.safetensors");
        (1..=count).map(name).collect()
    };
    let versions = (2..).map(|version| format!("-v{version}"));
    let mut versions = std::iter::once(String::new()).chain(versions);
    versions
        .find_map(|version| {
            let names = names(&version);
            let is_free = |name: &String| !folder_of(path).join(name).exists();
            names.iter().all(is_free).then_some(names)
        })
        .expect("numbers do not end")
}

/// The shards of the old index, if there is one: safetensors files in its folder that no other index there names.
fn old_shards(path: &Path) -> Vec<PathBuf> {
    let (folder, own) = (folder_of(path), index_of(path));
    let named = |index: &Path| -> Vec<String> {
        let index = Index::read(index);
        index.map_or_else(
            |_| Vec::new(),
            |index| index.files().map(str::to_owned).collect(),
        )
    };
    let mut shards = named(&own);
    shards.retain(|name| {
        let name = Path::new(name);
        let is_here = Some(name.as_os_str()) == name.file_name();
        is_here
            && name
                .extension()
                .is_some_and(|extension| extension == "safetensors")
    });
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_index = entry.file_name().to_string_lossy().ends_with(".index.json");
        if is_index && Some(entry.file_name().as_os_str()) != own.file_name() {
            let others = named(&entry.path());
            shards.retain(|name| !others.contains(name));
        }
    }
    shards.into_iter().map(|name| folder.join(name)).collect()
}

/// Whether both paths lead to the same file.
fn is_same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

/// The file at the path may be one that the index there names. This function copies it to another name, and the files that the
/// index names remain a checkpoint.
fn give_up_name(path: &Path) -> Result<(), CheckpointError> {
    let index_path = index_of(path);
    let Ok(mut index) = Index::read(&index_path) else {
        return Ok(());
    };
    let folder = folder_of(path);
    let own = index
        .files()
        .filter(|name| is_same(&folder.join(name), path));
    let own: Vec<&str> = own.collect();
    if own.is_empty() {
        return Ok(());
    }
    let own: Vec<String> = own.into_iter().map(str::to_owned).collect();
    let [name] = new_names(path, 1).try_into().expect("one was asked for");
    let mut copy = new_file(&folder.join(&name))?;
    File::open(path)
        .and_then(|mut file| io::copy(&mut file, &mut copy))
        .map_err(|source| io_error(path, source))?;
    put(copy)?;
    for file in index.weight_map.values_mut() {
        if own.contains(file) {
            file.clone_from(&name);
        }
    }
    index.write(&index_path)
}

/// Removes the files of an old checkpoint. A failure is ignored, because old files do no harm.
fn remove(old: &[PathBuf], new: &[PathBuf]) {
    for path in old {
        if !path.exists() || new.iter().any(|new| is_same(new, path)) {
            continue;
        }
        if let Err(error) = file::remove(path) {
            log::warn!(
                "burn-mx: {}: the old file was not removed: {error}",
                path.display()
            );
        }
    }
}

#[cfg(test)]
mod tests;
