//! Writes files completely or not at all.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use burn_store::TensorSnapshot;
use microscaling::{Dialect, StoredTensor};
use safetensors::tensor::{Dtype, View};
use tempfile::NamedTempFile;

use super::archive::{Index, file_error, index_of, io as io_error};
use super::weights::Weight;
use super::{CheckpointError, CheckpointLayout};
use crate::file;

/// The source of a stored tensor.
pub(super) enum Source {
    /// Part of a packed weight: the number of the weight, and of the part.
    Part { weight: usize, part: usize },
    /// An unpacked tensor.
    Tensor(TensorSnapshot),
}

/// A tensor that is stored.
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    pub(super) bytes: usize,
    pub(super) source: Source,
}

/// A packed weight with its name in the file.
pub(super) struct Named {
    pub(super) name: String,
    pub(super) weight: Weight,
}

/// Produces the bytes of entries, with one weight in memory at a time.
pub(super) struct Bytes<'a> {
    pub(super) weights: &'a [Named],
    pub(super) layout: CheckpointLayout,
    pub(super) dialect: Option<Dialect>,
    /// Called with the number of finished bytes, and of all bytes.
    pub(super) progress: &'a dyn Fn(u64, u64),
    pub(super) all: u64,
    done: Cell<u64>,
    /// The tensors of the last requested weight.
    last: RefCell<Option<(usize, Vec<StoredTensor>)>>,
    error: RefCell<Option<CheckpointError>>,
}

impl<'a> Bytes<'a> {
    pub(super) fn new(
        weights: &'a [Named],
        layout: CheckpointLayout,
        dialect: Option<Dialect>,
        progress: &'a dyn Fn(u64, u64),
    ) -> Self {
        Self {
            weights,
            layout,
            dialect,
            progress,
            all: 0,
            done: Cell::new(0),
            last: RefCell::new(None),
            error: RefCell::new(None),
        }
    }

    /// The stored tensors of a packed weight.
    pub(super) fn stored(&self, weight: usize) -> Result<Vec<StoredTensor>, CheckpointError> {
        let Named { name, weight } = &self.weights[weight];
        let (packed, divisor) = weight.pack(self.dialect)?;
        Ok(match self.layout {
            CheckpointLayout::Microscaling => {
                microscaling::safetensors::store(name, &packed.view())
            }
            CheckpointLayout::Weights(layout) => layout.store(name, &packed.view(), divisor)?,
        })
    }

    fn of(&self, source: &Source) -> Result<Vec<u8>, CheckpointError> {
        match source {
            Source::Part { weight, part } => {
                let mut last = self.last.borrow_mut();
                if last.as_ref().is_none_or(|(number, _)| number != weight) {
                    // Before the next one is made.
                    *last = None;
                    *last = Some((*weight, self.stored(*weight)?));
                }
                let (_, stored) = last.as_mut().expect("it was just set");
                Ok(stored[*part].bytes.clone())
            }
            Source::Tensor(snapshot) => {
                let data = snapshot.to_data();
                let data = data.map_err(|error| CheckpointError::Tensor {
                    tensor: snapshot.full_path(),
                    reason: error.to_string(),
                })?;
                Ok(data.as_bytes().to_vec())
            }
        }
    }

    /// Writes a new file in a folder.
    fn write(
        &self,
        entries: &[&Entry],
        metadata: HashMap<String, String>,
        folder: &Path,
    ) -> Result<NamedTempFile, CheckpointError> {
        let file = new_file(folder)?;
        let views = entries.iter().map(|entry| {
            let view = Lazy { entry, bytes: self };
            (entry.name.as_str(), view)
        });
        let written = safetensors::serialize_to_file(views, Some(metadata), file.path());
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        written.map_err(|error| match error {
            safetensors::SafeTensorError::IoError(source) => io_error(folder, source),
            error => file_error(folder, error.into()),
        })?;
        sort_header(file.as_file()).map_err(|source| io_error(folder, source))?;
        Ok(file)
    }
}

/// Sorts the header's entries. The crate safetensors writes metadata in a random order, and the same model must give the same
/// bytes.
fn sort_header(mut file: &File) -> io::Result<()> {
    let mut length = [0; 8];
    file.rewind()?;
    file.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    let mut header = Vec::new();
    file.take(length).read_to_end(&mut header)?;
    let sorted: BTreeMap<String, serde_json::Value> = serde_json::from_slice(&header)?;
    let sorted = serde_json::to_vec(&sorted)?;
    debug_assert!(sorted.len() <= header.len());
    header.fill(b' ');
    header[..sorted.len()].copy_from_slice(&sorted);
    file.seek(SeekFrom::Start(8))?;
    file.write_all(&header)
}

/// An entry whose bytes are produced when they are written.
struct Lazy<'a> {
    entry: &'a Entry,
    bytes: &'a Bytes<'a>,
}

impl View for Lazy<'_> {
    fn dtype(&self) -> Dtype {
        self.entry.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.entry.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let Lazy { entry, bytes } = self;
        // An error cannot be handed over here; the file is not kept.
        let data = match bytes.error.borrow().is_some() {
            true => Ok(Vec::new()),
            false => bytes.of(&entry.source),
        };
        let data = data.unwrap_or_else(|error| {
            bytes.error.borrow_mut().get_or_insert(error);
            Vec::new()
        });
        let done = bytes.done.get() + data.len() as u64;
        bytes.done.set(done);
        (bytes.progress)(done, bytes.all);
        data.into()
    }

    fn data_len(&self) -> usize {
        self.entry.bytes
    }
}

fn new_file(folder: &Path) -> Result<NamedTempFile, CheckpointError> {
    file::new_in(folder).map_err(|source| io_error(folder, source))
}

fn name_it(file: NamedTempFile, path: &Path) -> Result<(), CheckpointError> {
    file::put(file, path).map_err(|source| io_error(path, source))
}

pub(super) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// Writes a text completely or not at all.
pub(super) fn write_text(path: &Path, text: &str) -> Result<(), CheckpointError> {
    let file = new_file(folder_of(path))?;
    fs::write(file.path(), text).map_err(|source| io_error(path, source))?;
    name_it(file, path)
}

/// Writes all entries to one file, which replaces the old one. At any interruption, the path and the folder each hold either
/// the old checkpoint or the new one.
pub(super) fn one_file(
    path: &Path,
    bytes: &Bytes<'_>,
    entries: &[Entry],
    metadata: HashMap<String, String>,
) -> Result<Vec<PathBuf>, CheckpointError> {
    let entries: Vec<&Entry> = entries.iter().collect();
    let file = bytes.write(&entries, metadata, folder_of(path))?;
    let index = index_of(path);
    let is_indexed = index.exists();
    if is_indexed {
        give_up_name(path)?;
    }
    let old = old_shards(path);
    name_it(file, path)?;
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
    entries: &[Entry],
    metadata: impl Fn(&[usize]) -> Result<HashMap<String, String>, CheckpointError>,
) -> Result<Vec<PathBuf>, CheckpointError> {
    let folder = folder_of(path);
    let old = old_shards(path);
    let groups = grouped(entries, shard_bytes);
    let names = new_names(path, groups.len());
    let mut index = Index::new(bytes.all);
    let mut files = Vec::new();
    for (group, name) in groups.iter().zip(&names) {
        let weights: Vec<usize> = group.iter().filter_map(|entry| weight_of(entry)).collect();
        files.push(bytes.write(group, metadata(&weights)?, folder)?);
        index.add(group, name);
    }
    let mut paths = Vec::new();
    for (file, name) in files.into_iter().zip(&names) {
        let path = folder.join(name);
        name_it(file, &path)?;
        paths.push(path);
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
    fn add(&mut self, entries: &[&Entry], file: &str) {
        let entries = entries.iter();
        self.weight_map
            .extend(entries.map(|entry| (entry.name.clone(), file.to_owned())));
    }

    fn write(&self, path: &Path) -> Result<(), CheckpointError> {
        let text = serde_json::to_string_pretty(self).expect("texts and a number are JSON");
        write_text(path, &text)
    }
}

fn weight_of(entry: &Entry) -> Option<usize> {
    match entry.source {
        Source::Part { weight, .. } => Some(weight),
        Source::Tensor(_) => None,
    }
}

/// Groups entries in order. A group has at most this many bytes, unless a single weight has more.
fn grouped(entries: &[Entry], shard_bytes: u64) -> Vec<Vec<&Entry>> {
    let same = |a: &Entry, b: &Entry| weight_of(a).is_some() && weight_of(a) == weight_of(b);
    let mut groups: Vec<Vec<&Entry>> = vec![Vec::new()];
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

/// The file at the path may be a shard that the index there names. This function copies it to another name, and the shards
/// remain a checkpoint.
fn give_up_name(path: &Path) -> Result<(), CheckpointError> {
    let index_path = index_of(path);
    let Ok(mut index) = Index::read(&index_path) else {
        return Ok(());
    };
    let folder = folder_of(path);
    let (own, others): (Vec<&str>, Vec<&str>) = index
        .files()
        .partition(|name| is_same(&folder.join(name), path));
    if own.is_empty() || others.is_empty() {
        return Ok(());
    }
    let own: Vec<String> = own.into_iter().map(str::to_owned).collect();
    let [name] = new_names(path, 1).try_into().expect("one was asked for");
    let copy = new_file(folder)?;
    fs::copy(path, copy.path()).map_err(|source| io_error(path, source))?;
    name_it(copy, &folder.join(&name))?;
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
