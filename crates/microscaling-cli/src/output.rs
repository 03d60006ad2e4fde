//! Writing a checkpoint: all of its files, or none.

use crate::checkpoint::Checkpoint;
use crate::error::Error;
use crate::files::{check_targets, json_file, new_file};
use crate::npy;
use crate::target::{NewLayout, Retold};
use burn_mx_files::{input_at, put_all};
use microscaling::Packed;
use microscaling::safetensors::{
    self, CheckpointLayout, DESCRIPTION_KEY, HeaderEntry, METADATA_KEY, PackedFiles,
    RepackedTensor, header,
};
use microscaling_checkpoint::INDEX_END;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A packed weight.
pub(crate) enum PackedWeight {
    /// In blocks, and the divisor that compressed-tensors stores in place of its tensor scale, where the divisor is known.
    Blocks(Packed, Option<f32>),
    /// The tensors that the file has.
    Tensors(Vec<RepackedTensor>),
}

/// A weight that is to be packed: its name, the place of the input's file whose place it takes, and the input's tensors that it
/// stands for.
pub(crate) struct Planned {
    pub(crate) name: String,
    pub(crate) file: usize,
    pub(crate) replaces: Vec<String>,
    /// The layout of a weight that is packed; `None` of a weight whose bytes are all under `retold`.
    pub(crate) layout: Option<NewLayout>,
    /// Tensors of the input's that the output has under other names.
    pub(crate) retold: Vec<Retold>,
}

/// A checkpoint like another one, but for its packed weights.
pub(crate) struct Output<'a> {
    pub(crate) input: &'a Checkpoint,
    pub(crate) read: &'a PackedFiles<'a>,
    pub(crate) path: &'a Path,
    pub(crate) layout: CheckpointLayout,
    /// The `quantization_config`, if it is not the one of `layout` alone.
    pub(crate) config: Option<Value>,
    /// Whether files that exist are replaced.
    pub(crate) force: bool,
}

/// A tensor as a file has it.
struct Stored<'a> {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    bytes: Cow<'a, [u8]>,
}

/// Refuses a target for safetensors that is named as NumPy's files are, other than an input.
pub(crate) fn refuse_npy(targets: &[PathBuf], inputs: &[PathBuf]) -> Result<(), Error> {
    let is_npy = |target: &&PathBuf| target.extension().is_some_and(|end| end == npy::ENDING);
    let mut targets = targets.iter().filter(is_npy);
    match targets.find(|target| input_at(target, inputs).is_none()) {
        None => Ok(()),
        Some(target) => Err(Error::Arguments(format!(
            "the output is `{}`; allowed: another ending, because safetensors files are written",
            target.display()
        ))),
    }
}

impl Output<'_> {
    /// Writes the checkpoint, with one file for each of the input's, and gives the files and the bytes of all tensors. `pack` makes
    /// a planned weight. One file is written at a time, of which the packed weights are in memory.
    pub(crate) fn write(
        &self,
        planned: &[Planned],
        mut pack: impl FnMut(&str) -> Result<PackedWeight, Error>,
    ) -> Result<(Vec<PathBuf>, u64), Error> {
        let replaced = planned.iter().flat_map(|weight| &weight.replaces);
        let replaced: BTreeSet<&str> = replaced.map(String::as_str).collect();
        let targets = self.targets(&replaced);
        refuse_npy(&targets, &self.input.paths())?;
        check_targets(&targets, &self.input.paths(), self.force)?;
        self.check_folder(&targets)?;
        let mut files = Vec::new();
        let mut weight_map = BTreeMap::new();
        let mut bytes = 0;
        for number in 0..self.input.files.len() {
            let weights = planned.iter().filter(|weight| weight.file == number);
            let mut tensors: Vec<Stored<'_>> = weights
                .clone()
                .flat_map(|x| &x.retold)
                .filter_map(|x| self.retold(x))
                .collect();
            let weights = weights.filter_map(|weight| Some((weight.name.as_str(), weight.layout?)));
            let weights = weights.map(|(name, layout)| Ok((name, layout, pack(name)?)));
            let weights: Vec<_> = weights.collect::<Result<_, Error>>()?;
            let metadata = self.metadata(number, &weights)?;
            for (name, layout, weight) in weights {
                tensors.extend(self.stored(name, layout, weight)?);
            }
            tensors.extend(self.others(number, &replaced));
            let to = self.path_of(number);
            let name = to.file_name().unwrap_or_default().to_string_lossy();
            for tensor in &tensors {
                bytes += tensor.bytes.len() as u64;
                let before = weight_map.insert(tensor.name.clone(), name.to_string());
                if before.is_some() {
                    return Err(Error::SameName {
                        path: self.path.to_owned(),
                        name: tensor.name.clone(),
                    });
                }
            }
            files.push(new_file(&to, |file| write_file(file, tensors, metadata))?);
        }
        if let Some(index) = &self.input.index {
            let text = json!({"metadata": {"total_size": bytes}, "weight_map": weight_map});
            files.push(json_file(&self.path.join(index), &text)?);
        }
        for (path, config) in self.configs(&replaced) {
            files.push(json_file(&path, &config)?);
        }
        let files = put_all(files, self.force).map_err(Error::put)?;
        Ok((files, bytes))
    }

    /// Checks that the output's folder has no file of another checkpoint that would be read beside the new ones, or in their place.
    fn check_folder(&self, targets: &[PathBuf]) -> Result<(), Error> {
        let is_of_checkpoint = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")
        };
        let Ok(entries) = fs::read_dir(self.path) else {
            // A file, or no folder yet.
            return Ok(());
        };
        let mut others = entries.filter_map(|entry| Some(entry.ok()?.path()));
        match others.find(|path| is_of_checkpoint(path) && !targets.contains(path)) {
            Some(path) => Err(Error::OtherCheckpoint { path }),
            None => Ok(()),
        }
    }

    /// The files to write.
    fn targets(&self, replaced: &BTreeSet<&str>) -> Vec<PathBuf> {
        let files = (0..self.input.files.len()).map(|number| self.path_of(number));
        let index = self.input.index.iter().map(|name| self.path.join(name));
        let configs = self.configs(replaced).into_iter().map(|(path, _)| path);
        files.chain(index).chain(configs).collect()
    }

    /// The tensors that a packed weight becomes.
    fn stored(
        &self,
        name: &str,
        layout: NewLayout,
        weight: PackedWeight,
    ) -> Result<Vec<Stored<'static>>, Error> {
        let (packed, divisor) = match weight {
            PackedWeight::Blocks(packed, divisor) => (packed, divisor),
            PackedWeight::Tensors(tensors) => {
                let stored = tensors.into_iter().map(|tensor| Stored {
                    name: tensor.name,
                    dtype: tensor.dtype,
                    shape: tensor.shape,
                    bytes: tensor.bytes.into(),
                });
                return Ok(stored.collect());
            }
        };
        let stored = match layout {
            NewLayout::Packed(CheckpointLayout::Weights(layout)) => {
                layout.store(name, &packed.view(), divisor)
            }
            _ => Ok(safetensors::store(name, &packed.view())),
        };
        let stored = stored.map_err(|source| Error::Layout {
            path: self.input.path.clone(),
            source: Box::new(source),
        })?;
        let stored = stored.into_iter().map(|tensor| Stored {
            name: tensor.name,
            dtype: tensor.dtype.name().to_owned(),
            shape: tensor.shape,
            bytes: tensor.bytes.into(),
        });
        Ok(stored.collect())
    }

    /// A tensor of the input under its new name.
    fn retold(&self, retold: &Retold) -> Option<Stored<'_>> {
        let tensor = self.read.tensor(&retold.from)?;
        let (dtype, bytes) = match retold.number {
            Some(number) => ("F32".to_owned(), number.to_le_bytes().to_vec().into()),
            None => (tensor.dtype, tensor.bytes.into()),
        };
        Some(Stored {
            name: retold.to.clone(),
            dtype,
            shape: retold.shape.clone(),
            bytes,
        })
    }

    /// The tensors of a file of the input's that stay as they are.
    fn others(&self, number: usize, replaced: &BTreeSet<&str>) -> Vec<Stored<'_>> {
        let file = &self.read.files()[number];
        // A tensor that the index has in another file is left of something else.
        let names = file.names().into_iter();
        let names = names.filter(|name| self.read.file_of(name) == Some(number));
        let names = names.filter(|name| !replaced.contains(name));
        let others = names.filter_map(|name| {
            let tensor = file.tensor(name)?;
            Some(Stored {
                name: name.to_owned(),
                dtype: tensor.dtype,
                shape: tensor.shape,
                bytes: tensor.bytes.into(),
            })
        });
        others.collect()
    }

    /// The file's metadata: the input's metadata without the description of its packed weights.
    fn metadata(
        &self,
        number: usize,
        weights: &[(&str, NewLayout, PackedWeight)],
    ) -> Result<BTreeMap<String, String>, Error> {
        let file = &self.read.files()[number];
        let keys = file.metadata_keys().into_iter();
        let keys = keys.filter(|key| ![METADATA_KEY, DESCRIPTION_KEY].contains(key));
        let mut metadata: BTreeMap<String, String> = keys
            .filter_map(|key| Some((key.to_owned(), file.metadata(key)?.to_owned())))
            .collect();
        // Without packed weights the input's metadata say nothing of those that are written.
        if let Some(text) = file.metadata(DESCRIPTION_KEY)
            && !self.read.weights().is_empty()
        {
            let text = self.layout.describe(text);
            let text = text.map_err(|source| Error::file(&self.input.files[number], source))?;
            metadata.insert(DESCRIPTION_KEY.to_owned(), text);
        }
        if self.layout == CheckpointLayout::Microscaling {
            let described = weights.iter().filter_map(|(name, _, weight)| match weight {
                PackedWeight::Blocks(packed, _) => {
                    Some((*name, packed.format(), packed.shape(), packed.axis()))
                }
                PackedWeight::Tensors(_) => None,
            });
            let text = safetensors::metadata(described);
            let text = text.map_err(|source| Error::file(self.path, source))?;
            metadata.insert(METADATA_KEY.to_owned(), text);
        } else {
            // Whose tensors these are, which the readers of these layouts look for.
            metadata.entry("format".into()).or_insert("pt".into());
        }
        Ok(metadata)
    }

    /// The `quantization_config` of a model's `config.json`, where the layout has one: in a file beside, and in the model's own config if the
    /// output is a folder.
    fn configs(&self, replaced: &BTreeSet<&str>) -> Vec<(PathBuf, Value)> {
        let of_layout = || match self.layout {
            CheckpointLayout::Weights(layout) => {
                let ignored = ignored(self.read, replaced);
                layout.quantization_config(&ignored)
            }
            CheckpointLayout::Microscaling => None,
        };
        let Some(config) = self.config.clone().or_else(of_layout) else {
            return Vec::new();
        };
        let path = match &self.input.index {
            None => self.path_of(0).with_extension("config.json"),
            Some(index) => {
                let stem = index.strip_suffix(INDEX_END).unwrap_or(index);
                self.path.join(format!("{stem}.config.json"))
            }
        };
        let model = self.model_config(&config);
        let model = model.map(|fields| (self.path.join("config.json"), fields));
        let beside = (path, json!({ "quantization_config": config }));
        [Some(beside), model].into_iter().flatten().collect()
    }

    /// The model's config with another quantization, if the input has one and the output is a folder.
    fn model_config(&self, quantization: &Value) -> Option<Value> {
        let has_config = self.is_folder() && self.input.config.path.is_file();
        let mut fields = has_config.then(|| self.input.config.fields.clone())?;
        // Models of text and images have another config for the text, and older versions of compressed-tensors another name.
        for place in ["/text_config", ""] {
            if let Some(Value::Object(fields)) = fields.pointer_mut(place) {
                fields.remove("quantization_config");
                fields.remove("compression_config");
            }
        }
        fields["quantization_config"] = quantization.clone();
        Some(fields)
    }

    fn path_of(&self, number: usize) -> PathBuf {
        let input = &self.input.files[number];
        match self.is_folder() {
            true if input.extension().is_some_and(|end| end == npy::ENDING) => {
                let name = input.with_extension("safetensors");
                self.path.join(name.file_name().unwrap_or_default())
            }
            true => self.path.join(input.file_name().unwrap_or_default()),
            false => self.path.to_owned(),
        }
    }

    /// Whether the output is a folder: of several files, of an input that is a folder, or one that exists. A folder's only
    /// file may also become a file, by a name that ends as safetensors files do.
    fn is_folder(&self) -> bool {
        let is_file = self
            .path
            .extension()
            .is_some_and(|end| end == "safetensors");
        self.input.index.is_some() || self.path.is_dir() || self.input.path.is_dir() && !is_file
    }
}

/// The modules of the matrices that are not replaced. The file does not say which of them belong to linear layers. Names of other
/// layers do no harm. A head that is tied to the embeddings has no tensor, and is a linear layer of the model all the same.
pub(crate) fn ignored<'a>(read: &'a PackedFiles<'_>, replaced: &BTreeSet<&str>) -> Vec<&'a str> {
    let ignored = read.others().iter().filter(|name| {
        let is_matrix = |name| read.tensor(name).is_some_and(|x| x.shape.len() == 2);
        is_matrix(name) && !replaced.contains(name.as_str())
    });
    let names = ignored.filter_map(|name| name.strip_suffix(".weight"));
    let has = |part: &str| read.names().any(|name| name.contains(part));
    let tied = (has("embed_tokens.weight") && !has("lm_head")).then_some("lm_head");
    names.chain(tied).collect()
}

/// Writes a safetensors file.
fn write_file(
    file: &mut impl Write,
    mut tensors: Vec<Stored<'_>>,
    metadata: BTreeMap<String, String>,
) -> io::Result<()> {
    // Tensors of wide elements first: each begins at a multiple of its element's size.
    let width = |tensor: &Stored<'_>| {
        let elements = tensor.shape.iter().product::<usize>();
        tensor.bytes.len().checked_div(elements)
    };
    tensors.sort_by(|a, b| (Reverse(width(a)), &a.name).cmp(&(Reverse(width(b)), &b.name)));
    let entries = tensors.iter().map(|tensor| HeaderEntry {
        name: &tensor.name,
        dtype: &tensor.dtype,
        shape: &tensor.shape,
        bytes: tensor.bytes.len(),
    });
    let header = header(entries, &metadata).map_err(io::Error::other)?;
    file.write_all(&header)?;
    tensors
        .iter()
        .try_for_each(|tensor| file.write_all(&tensor.bytes))
}
