//! The safetensors files of one checkpoint, and the packed weights in them, in any layout.

use super::{CheckpointLayout, FileError, FileTensor, PackedFile};
use crate::pack::{Packed, StoredType, StoredView, WeightLayout};
use alloc::{
    borrow::ToOwned,
    boxed::Box,
    collections::{BTreeMap, BTreeSet},
    string::String,
    vec::Vec,
};

/// The safetensors files of one checkpoint, whose bytes are borrowed: the packed weights in them, in this project's layout and in
/// other tools' layouts, and all other tensors. The parts of one weight may be in several files.
#[derive(Debug)]
pub struct PackedFiles<'a> {
    files: Vec<PackedFile<'a>>,
    /// The file of each stored tensor.
    tensors: BTreeMap<String, usize>,
    /// The layout of each packed weight, by its name.
    weights: BTreeMap<String, CheckpointLayout>,
    /// Names of the tensors outside of packed weights.
    others: Vec<String>,
}

impl<'a> PackedFiles<'a> {
    /// The tensors of these files. `layout` is the layout of the weights of other tools, if it is known. Otherwise names and types
    /// tell it, except for `gguf-mxfp4`, whose tensors look like any others. Weights in this project's layout are found by
    /// the files' metadata in either case.
    ///
    /// # Errors
    /// [`FileError::SameName`]: two files have a tensor of one name.
    pub fn new(
        files: Vec<PackedFile<'a>>,
        layout: Option<CheckpointLayout>,
    ) -> Result<Self, FileError> {
        let mut tensors = BTreeMap::new();
        for (number, file) in files.iter().enumerate() {
            for name in file.names() {
                if tensors.insert(name.to_owned(), number).is_some() {
                    let name = name.to_owned();
                    return Err(FileError::SameName { name });
                }
            }
        }
        let mut read = Self {
            files,
            tensors,
            weights: BTreeMap::new(),
            others: Vec::new(),
        };
        read.find_weights(layout);
        Ok(read)
    }

    fn find_weights(&mut self, layout: Option<CheckpointLayout>) {
        let layouts = match layout {
            Some(CheckpointLayout::Weights(layout)) => Vec::from([layout]),
            Some(CheckpointLayout::Microscaling) => Vec::new(),
            None => FOUND_BY_NAMES.to_vec(),
        };
        let mut parts = BTreeSet::new();
        for file in &self.files {
            for name in file.packed() {
                parts.extend(file.parts_of(name));
                self.weights
                    .insert(name.to_owned(), CheckpointLayout::Microscaling);
            }
        }
        for layout in layouts {
            let stored = layout.stored_as("");
            let (suffix, dtype) = &stored[0];
            for name in self.tensors.keys() {
                let Some(base) = name.strip_suffix(suffix.as_str()) else {
                    continue;
                };
                let taken = self.weights.contains_key(base) || parts.contains(name);
                let has = |part: &String| self.tensors.contains_key(part);
                let of_weight: Vec<String> = parts_in(layout, base).collect();
                let is_whole = of_weight.iter().all(has);
                let is_typed = self.tensor(name).and_then(|tensor| tensor.stored_type());
                if base.is_empty() || taken || !is_whole || is_typed != Some(*dtype) {
                    continue;
                }
                parts.extend(of_weight);
                self.weights.insert(base.to_owned(), layout.into());
            }
        }
        let is_other = |name: &&String| !parts.contains(*name);
        self.others = self.tensors.keys().filter(is_other).cloned().collect();
    }

    /// The files, in the given order.
    pub fn files(&self) -> &[PackedFile<'a>] {
        &self.files
    }

    /// The packed weights and their layouts, by name.
    pub const fn weights(&self) -> &BTreeMap<String, CheckpointLayout> {
        &self.weights
    }

    /// The names of the tensors outside of packed weights, in order.
    pub fn others(&self) -> &[String] {
        &self.others
    }

    /// The names of all stored tensors, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// A stored tensor; `None` if there is none of this name.
    pub fn tensor(&self, name: &str) -> Option<FileTensor<'a>> {
        self.files[self.file_of(name)?].tensor(name)
    }

    /// The index in [`files`](Self::files) of the file with this stored tensor; `None` for an unknown name.
    pub fn file_of(&self, name: &str) -> Option<usize> {
        self.tensors.get(name).copied()
    }

    /// The names of the tensors that store a packed weight; one of the first two has its elements. Empty for an unknown weight.
    pub fn parts_of(&self, weight: &str) -> Vec<String> {
        match self.weights.get(weight) {
            None => Vec::new(),
            Some(CheckpointLayout::Weights(layout)) => parts_in(*layout, weight).collect(),
            Some(CheckpointLayout::Microscaling) => {
                let parts = self.files.iter().map(|file| file.parts_of(weight));
                parts.flatten().collect()
            }
        }
    }

    /// A packed weight; `None` if there is none of this name.
    pub fn packed(&self, weight: &str) -> Option<Result<Packed, FileError>> {
        let CheckpointLayout::Weights(layout) = *self.weights.get(weight)? else {
            return self.files.iter().find_map(|file| file.get(weight));
        };
        let parts: Vec<(String, FileTensor<'a>)> = parts_in(layout, weight)
            .filter_map(|part| {
                let tensor = self.tensor(&part)?;
                Some((part, tensor))
            })
            .collect();
        let find = |part: &str| {
            let (_, tensor) = parts.iter().find(|(name, _)| name == part)?;
            Some(StoredView {
                dtype: tensor.stored_type()?,
                shape: &tensor.shape,
                bytes: tensor.bytes,
            })
        };
        let packed = layout.load(weight, find);
        Some(packed.map_err(|error| FileError::Layout(Box::new(error))))
    }
}

/// The names of the tensors of a weight.
fn parts_in(layout: WeightLayout, weight: &str) -> impl Iterator<Item = String> {
    let parts = layout.stored_as(weight).into_iter();
    parts.map(|(part, _)| part)
}

/// The layouts that names and types tell apart, those with more tensors first.
const FOUND_BY_NAMES: [WeightLayout; 5] = [
    WeightLayout::Nvfp4PackQuantized,
    WeightLayout::ModelOptNvfp4,
    WeightLayout::Mxfp4PackQuantized,
    WeightLayout::Mxfp8Quantized,
    WeightLayout::GptOss,
];

impl FileTensor<'_> {
    /// The type, where weights have such parts.
    pub fn stored_type(&self) -> Option<StoredType> {
        Some(match self.dtype.as_str() {
            "U8" => StoredType::U8,
            "F8_E8M0" => StoredType::F8E8M0,
            "F8_E4M3" => StoredType::F8E4M3,
            "F32" => StoredType::F32,
            _ => return None,
        })
    }
}
