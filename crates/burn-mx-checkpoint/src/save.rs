//! Saves checkpoints.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use burn_core::module::Module;
use burn_store::{BurnToPyTorchAdapter, ModuleAdapter, ModuleSnapshot, TensorSnapshot};
use microscaling::{BlockFormat, StoredTensor, StoredType};
use safetensors::tensor::Dtype;
use serde_json::Value;

use crate::archive::{KEY, Written, file_error, io};
use crate::checkpoint::Checkpoint;
use crate::columns::in_rows;
use crate::error::CheckpointError;
use crate::fused::share;
use crate::types;
use crate::weights::{InFile, Layers, Weight, alike, weights};
use crate::write::{Bytes, EntrySource, Named, StoredEntry, one_file, shards, write_text};
use burn_mx_core::internal::warn;
use burn_mx_core::{MxSpecs, MxTensorOps, Slot};
use burn_mx_files::folder_of;
use burn_mx_module::{PathError, Pattern, initialize, nearest};
use microscaling::safetensors::CheckpointLayout;

/// The result of saving.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Saved {
    /// The files. If there are several, the index comes last.
    pub files: Vec<PathBuf>,
    /// Bytes of all tensors.
    pub bytes: u64,
    /// The packed weights.
    pub packed: Vec<PackedWeight>,
    /// The `quantization_config` for the model's `config.json`, if the layout has one. The file `NAME.config.json` beside the
    /// checkpoint has it, too.
    pub quantization_config: Option<Value>,
}

/// A packed weight.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PackedWeight {
    /// Its name in the file.
    pub name: String,
    /// Its format.
    pub format: BlockFormat,
    /// The shape in the file. For a linear layer: `[out, in]`.
    pub shape: Vec<usize>,
    /// Bytes of its codes and scales.
    pub bytes: u64,
}

impl Checkpoint {
    /// Saves the model. All checks come before the first byte is written. The folder is created if it is missing. The new file replaces the old one when it is
    /// complete, even if the process is killed. The save removes the shards of the old index, and no other file. Saving
    /// needs memory for one tensor beside the model.
    ///
    /// # Errors
    ///
    /// See [`CheckpointError`].
    pub fn save<B: MxTensorOps, M: Module<B>>(&self, model: &M) -> Result<Saved, CheckpointError> {
        self.save_with_progress(model, |_, _| ())
    }

    /// Like [`save`](Self::save). Calls `progress(done, all)` with the number of bytes.
    ///
    /// # Errors
    ///
    /// See [`CheckpointError`].
    pub fn save_with_progress<B: MxTensorOps, M: Module<B>>(
        &self,
        model: &M,
        progress: impl Fn(u64, u64),
    ) -> Result<Saved, CheckpointError> {
        if let Some(bytes) = self.shard_bytes.filter(|bytes| *bytes == 0) {
            return Err(CheckpointError::Shards { bytes });
        }
        let path = &self.path;
        if path.is_dir() {
            let path = path.clone();
            return Err(CheckpointError::Folder { path });
        }
        let layout = self.layout.unwrap_or(CheckpointLayout::Microscaling);
        let Tensors { mut named, others } = tensors::<B, M>(self, layout, model)?;
        share(self, layout, &mut named, &others)?;
        let mut bytes = Bytes::new(&named, layout, self.dialect, &progress);
        let (entries, packed) = describe(&bytes, others)?;
        bytes.all = entries.iter().map(|entry| entry.bytes as u64).sum();

        let ignore = unquantized(&named, &entries);
        let config = match layout {
            CheckpointLayout::Weights(layout) => layout.quantization_config(&ignore),
            CheckpointLayout::Microscaling => None,
        };
        if config.is_some() && !self.describes_inputs {
            warn_of_activations(path, layout, &named);
        }
        let folder = folder_of(path);
        fs::create_dir_all(folder).map_err(|source| io(folder, source))?;
        let metadata =
            |weights: &[usize]| metadata(path, layout, weights.iter().map(|i| &named[*i]));
        let mut files = match self.shard_bytes {
            None => {
                let all: Vec<usize> = (0..named.len()).collect();
                one_file(path, &bytes, &entries, &metadata(&all)?)?
            }
            Some(shard_bytes) => shards(path, shard_bytes, &bytes, &entries, metadata)?,
        };
        if let Some(config) = &config {
            let fragment = serde_json::json!({ "quantization_config": config });
            let text = serde_json::to_string_pretty(&fragment).expect("it is JSON");
            let path = path.with_extension("config.json");
            write_text(&path, &text)?;
            files.insert(files.len() - 1, path);
        }
        Ok(Saved {
            files,
            bytes: bytes.all,
            packed,
            quantization_config: config,
        })
    }
}

/// Saves a model with packed weights in one file. [`Checkpoint`] has more options.
///
/// # Errors
///
/// See [`CheckpointError`].
pub fn save_checkpoint<B: MxTensorOps, M: Module<B>>(
    model: &M,
    path: impl Into<PathBuf>,
    layout: CheckpointLayout,
) -> Result<Saved, CheckpointError> {
    Checkpoint::new(path).layout(layout).save(model)
}

/// Warns if the layers compute with quantized activations, and the config that is written has none.
fn warn_of_activations(path: &Path, layout: CheckpointLayout, named: &[Named]) {
    let format = |named: &Named| named.weight.specs.block_format(Slot::A);
    if let Some(format) = named.iter().find_map(format) {
        warn(format_args!(
            "burn-mx: {}: the model quantizes activations to {format}, but the `quantization_config` of {layout} describes \
             weights alone, and an engine leaves activations unquantized. Specs with `a_elem_format: None` compute as the engine does.",
            path.display()
        ));
    }
}

/// The tensors of a model.
struct Tensors {
    named: Vec<Named>,
    /// The unpacked tensors, with their names in the file.
    others: Vec<(String, TensorSnapshot)>,
}

fn tensors<B: MxTensorOps, M: Module<B>>(
    checkpoint: &Checkpoint,
    layout: CheckpointLayout,
    model: &M,
) -> Result<Tensors, CheckpointError> {
    let foreign = layout != CheckpointLayout::Microscaling;
    let own = || foreign.then(|| Box::new(BurnToPyTorchAdapter) as Box<dyn ModuleAdapter>);
    let adapter = checkpoint.adapter.clone().or_else(own);
    initialize::<B, M>(model);
    let (straight, _) = in_rows::<B, M>(model.clone());
    let snapshots = straight.collect(checkpoint.filter.clone(), None, foreign);
    let patterns = checkpoint.unpacked.iter();
    let patterns: Vec<Pattern> = patterns
        .map(|text| Pattern::new(text))
        .collect::<Result<_, _>>()?;
    let paths: Vec<String> = snapshots.iter().map(TensorSnapshot::full_path).collect();
    let axes = checkpoint.axes.iter().map(|(pattern, _)| pattern);
    for text in checkpoint.unpacked.iter().chain(axes) {
        let pattern = Pattern::new(text)?;
        if !paths.iter().any(|path| pattern.matches(path)) {
            let paths = nearest(text, paths.iter().map(String::as_str));
            let pattern = text.clone();
            return Err(PathError::NoMatch { pattern, paths }.into());
        }
    }
    let is_wanted = |path: &str| !patterns.iter().any(|pattern| pattern.matches(path));
    let layers = Layers::of(checkpoint)?;
    let mut weights = weights::<B, M>(model, foreign, &layers, is_wanted)?;
    // burn-store's adapter takes a layer called `Linear` for Burn's.
    let alike = match checkpoint.adapter {
        None => alike::<B, M>(model, foreign),
        Some(_) => Vec::new(),
    };

    let adapted = paths
        .iter()
        .zip(&snapshots)
        .map(|(path, snapshot)| match &adapter {
            Some(adapter) if !alike.contains(path) => adapter.adapt(snapshot),
            _ => snapshot.clone(),
        });
    let adapted: Vec<TensorSnapshot> = adapted.collect();
    checkpoint.check_renames(adapted.iter().map(TensorSnapshot::full_path))?;
    let (adapted, _) = checkpoint.renames.remap(adapted);
    let mut named = Vec::new();
    let mut others = Vec::new();
    for (path, snapshot) in paths.iter().zip(adapted) {
        let name = snapshot.full_path();
        match weights.remove(path) {
            Some(weight) => named.push(Named {
                name,
                weight,
                largest: None,
            }),
            None => others.push((name, snapshot)),
        }
    }
    Ok(Tensors { named, others })
}

/// Lists all stored tensors. Packs every weight once, so that errors appear before anything is written.
fn describe(
    bytes: &Bytes<'_>,
    others: Vec<(String, TensorSnapshot)>,
) -> Result<(Vec<StoredEntry>, Vec<PackedWeight>), CheckpointError> {
    let mut entries = Vec::new();
    let mut packed = Vec::new();
    for (number, Named { name, weight, .. }) in bytes.weights.iter().enumerate() {
        let mut size = 0;
        for (part, stored) in bytes.stored(number)?.into_iter().enumerate() {
            let StoredTensor {
                name, dtype, shape, ..
            } = stored;
            let dtype = match dtype {
                StoredType::U8 => Dtype::U8,
                StoredType::F8E4M3 => Dtype::F8_E4M3,
                StoredType::F8E8M0 => Dtype::F8_E8M0,
                StoredType::F32 => Dtype::F32,
                _ => unreachable!("{dtype:?} is no type of a layout that is written here"),
            };
            size += stored.bytes.len();
            entries.push(StoredEntry {
                name,
                dtype,
                shape,
                bytes: stored.bytes.len(),
                source: EntrySource::Part {
                    weight: number,
                    part,
                },
            });
        }
        packed.push(PackedWeight {
            name: name.clone(),
            format: weight.format(),
            shape: weight.shape.clone(),
            bytes: size as u64,
        });
    }
    for (name, snapshot) in others {
        let dtype = types::stored_as(snapshot.dtype).ok_or_else(|| CheckpointError::Type {
            tensor: name.clone(),
            dtype: format!("{:?}", snapshot.dtype),
        })?;
        entries.push(StoredEntry {
            dtype,
            shape: snapshot.shape.to_vec(),
            bytes: snapshot.data_len(),
            source: EntrySource::Tensor(snapshot),
            name,
        });
    }
    let mut names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(CheckpointError::SameName {
            name: pair[0].to_owned(),
        }),
        None => Ok((entries, packed)),
    }
}

/// The linear layers that are not packed, which a `quantization_config` names.
fn unquantized<'a>(named: &[Named], entries: &'a [StoredEntry]) -> Vec<&'a str> {
    if named.is_empty() {
        return Vec::new();
    }
    let layers = entries.iter().filter_map(|entry| match &entry.source {
        EntrySource::Tensor(snapshot) => {
            let is_linear = snapshot.container_type() == "Struct:Linear";
            entry.name.strip_suffix(".weight").filter(|_| is_linear)
        }
        EntrySource::Part { .. } => None,
    });
    layers.collect()
}

/// The metadata of a file with these weights.
fn metadata<'a>(
    path: &Path,
    layout: CheckpointLayout,
    weights: impl Iterator<Item = &'a Named>,
) -> Result<BTreeMap<String, String>, CheckpointError> {
    let mut written = Written {
        layout: layout.to_string(),
        ..Written::default()
    };
    let mut described: BTreeMap<&str, &Weight> = BTreeMap::new();
    for Named { name, weight, .. } in weights {
        let specs: &MxSpecs = weight.specs.specs();
        let number = written.specs.iter().position(|known| known == specs);
        let number = number.unwrap_or_else(|| {
            written.specs.push(specs.clone());
            written.specs.len() - 1
        });
        written.weights.insert(name.clone(), number);
        let input = weight.specs.static_input();
        written
            .inputs
            .extend(input.map(|input| (name.clone(), input.clone())));
        described.insert(name, weight);
    }
    let text = serde_json::to_string(&written).expect("specs are JSON");
    let mut metadata = BTreeMap::from([(KEY.to_owned(), text)]);
    match layout {
        // Whose tensors these are, which the readers of these layouts look for.
        CheckpointLayout::Weights(_) => {
            metadata.insert("format".to_owned(), "pt".to_owned());
        }
        CheckpointLayout::Microscaling => {
            let described = described.iter().map(|(name, weight)| {
                let axis = weight.layer.stored_axis(weight.format());
                (*name, weight.format(), &weight.shape[..], axis)
            });
            let text = microscaling::safetensors::metadata(described);
            let text = text.map_err(|source| file_error(path, source))?;
            metadata.insert(microscaling::safetensors::METADATA_KEY.to_owned(), text);
        }
    }
    Ok(metadata)
}
