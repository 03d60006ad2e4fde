//! The safetensors files of one checkpoint, and the packed weights in them, in any layout.

use super::{
    CheckpointLayout, DESCRIPTION_KEY, FileError, FileTensor, IntegerLayout, IntegerWeight,
    PackedFile, ScaledWeight,
};
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
    /// The FP8 weights with scales of higher precision.
    scaled: BTreeMap<String, ScaledWeight>,
    /// The weights of integers with scales.
    integers: BTreeMap<String, IntegerWeight>,
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
        Ok(Self::of(files, tensors, layout))
    }

    /// These tensors of the files, each in the file of this number, which has it.
    pub(super) fn of(
        files: Vec<PackedFile<'a>>,
        tensors: BTreeMap<String, usize>,
        layout: Option<CheckpointLayout>,
    ) -> Self {
        let mut read = Self {
            files,
            tensors,
            weights: BTreeMap::new(),
            scaled: BTreeMap::new(),
            integers: BTreeMap::new(),
            others: Vec::new(),
        };
        read.find_weights(layout);
        read
    }

    fn find_weights(&mut self, layout: Option<CheckpointLayout>) {
        let layouts = match layout {
            Some(CheckpointLayout::Weights(layout)) => Vec::from([layout]),
            Some(CheckpointLayout::Microscaling) => Vec::new(),
            None => FOUND_BY_NAMES.to_vec(),
        };
        let mut parts = BTreeSet::new();
        for (number, file) in self.files.iter().enumerate() {
            for name in file.packed() {
                let own = file.parts_of(name);
                if !self.count(number, &own) {
                    continue;
                }
                parts.extend(own);
                self.weights
                    .insert(name.to_owned(), CheckpointLayout::Microscaling);
            }
        }
        let find = |name: &String| {
            let (tensor, find) = (self.tensor(name)?, |name: &str| self.tensor(name));
            Some((name.clone(), ScaledWeight::find(name, &tensor, find)?))
        };
        let scaled = self.tensors.keys().filter(|name| !parts.contains(*name));
        let mut scaled: BTreeMap<_, _> = scaled.filter_map(find).collect();
        for layout in layouts {
            let stored = layout.stored_as("");
            let suffix = stored[0].0.as_str();
            for name in self.tensors.keys() {
                let Some(base) = name.strip_suffix(suffix) else {
                    continue;
                };
                let taken = self.weights.contains_key(base) || parts.contains(name);
                let of_weight = layout.stored_as(base);
                let is_typed = of_weight.iter().enumerate().all(|(i, (part, dtype))| {
                    let tensor = self.tensor(part);
                    let stored = tensor.and_then(|tensor| tensor.stored_type());
                    // Files have the scales of MX as numbers or as bytes.
                    let also = (i > 0 && *dtype == StoredType::U8).then_some(StoredType::F8E8M0);
                    stored.is_some_and(|stored| stored == *dtype || Some(stored) == also)
                });
                if base.is_empty()
                    || taken
                    || !is_typed
                    || scaled.contains_key(base)
                    || layout == WeightLayout::Mxfp6PackQuantized && !self.is_mxfp6(&of_weight)
                {
                    continue;
                }
                parts.extend(of_weight.into_iter().map(|(part, _)| part));
                self.weights.insert(base.to_owned(), layout.into());
            }
        }
        scaled.retain(|name, _| !parts.contains(name));
        self.scaled = scaled;
        let is_other = |name: &&String| !parts.contains(*name);
        self.others = self.tensors.keys().filter(is_other).cloned().collect();
        let find = |name: &String| IntegerWeight::find(name, |name| self.tensor(name));
        self.integers = self.others.iter().filter_map(find).collect();
    }

    /// The files, in the given order.
    pub fn files(&self) -> &[PackedFile<'a>] {
        &self.files
    }

    /// The packed weights and their layouts, by name.
    pub const fn weights(&self) -> &BTreeMap<String, CheckpointLayout> {
        &self.weights
    }

    /// The FP8 weights with scales of higher precision, by name. Their codes and scales are [others](Self::others), too.
    pub const fn scaled(&self) -> &BTreeMap<String, ScaledWeight> {
        &self.scaled
    }

    /// The values of one of the [scaled](Self::scaled) weights: each code times its scale, rounded to float32, in row-major
    /// order. `None` if there is none of this name.
    pub fn scaled_values(&self, name: &str) -> Option<Vec<f32>> {
        let weight = self.scaled.get(name)?;
        let (codes, scales) = (self.tensor(name)?, self.tensor(&weight.scales)?);
        Some(weight.values(&codes, &scales))
    }

    /// The weights of integers with scales, by name. Their parts are [others](Self::others), too.
    pub const fn integers(&self) -> &BTreeMap<String, IntegerWeight> {
        &self.integers
    }

    /// Says how long a block with one scale is along the axes of a [scaled](Self::scaled) weight or of a weight of
    /// [integers](Self::integers). The checkpoint's config has the lengths, because several may give as many scales. The
    /// result is `false`, and nothing changes, if no weight has this name or these lengths contradict the number of its scales.
    pub fn set_block(&mut self, weight: &str, block: &[usize]) -> bool {
        let count = |length: &usize, block: &usize| length.div_ceil((*block).max(1));
        let fits = |shape: &[usize], known: &[usize]| {
            block.len() == shape.len()
                && !block.contains(&0)
                && (shape.iter().zip(block).zip(known))
                    .all(|((length, block), known)| count(length, block) == count(length, known))
        };
        let shape = self.tensor(weight).map(|tensor| tensor.shape);
        if let (Some(found), Some(shape)) = (self.scaled.get(weight), shape) {
            let scales = self.tensor(&found.scales);
            let is_whole = scales.is_some_and(|scales| scales.shape.len() < shape.len());
            let fits = fits(&shape, &found.block);
            if let (Some(found), true, false) = (self.scaled.get_mut(weight), fits, is_whole) {
                (found.block, found.is_block_known) = (block.to_vec(), true);
            }
            return fits;
        }
        let Some(found) = self.integers.get_mut(weight) else {
            return false;
        };
        let is_fixed = found.layout.is_of_layer();
        let is_same = found.block[1] >= found.shape[1] || block == found.block;
        if !fits(&found.shape, &found.block) || is_fixed && !is_same {
            return false;
        }
        if let (false, Ok(block)) = (is_fixed, block.try_into()) {
            (found.block, found.is_block_known) = (block, true);
        }
        true
    }

    /// Says that the zero points of GPTQ weights are stored as they are: the checkpoint's config has `checkpoint_format: gptq_v2`.
    pub fn set_gptq_v2(&mut self) {
        for weight in self.integers.values_mut() {
            if weight.layout == IntegerLayout::Gptq {
                weight.layout = IntegerLayout::GptqV2;
            }
        }
    }

    /// The values of a weight that is packed, [scaled](Self::scaled) or of [integers](Self::integers), in float32 and row-major order.
    /// `None` if there is none of this name.
    pub fn values(&self, weight: &str) -> Option<Result<Vec<f32>, FileError>> {
        if let Some(packed) = self.packed(weight) {
            return Some(packed.map(|packed| packed.decode()));
        }
        let of_integers = || {
            let weight = self.integers.get(weight)?;
            weight.values(|name| self.tensor(name))
        };
        self.scaled_values(weight).or_else(of_integers).map(Ok)
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

    /// The names of the tensors that store a packed weight, or one of the other quantized weights; one of the first two has its
    /// elements. Empty for an unknown weight.
    pub fn parts_of(&self, weight: &str) -> Vec<String> {
        match self.weights.get(weight) {
            None => {
                let scaled = self.scaled.get(weight);
                let scaled = scaled.map(|x| Vec::from([weight.to_owned(), x.scales.clone()]));
                let integers = || Some(self.integers.get(weight)?.parts());
                scaled.or_else(integers).unwrap_or_default()
            }
            Some(CheckpointLayout::Weights(layout)) => parts_in(*layout, weight).collect(),
            Some(CheckpointLayout::Microscaling) => {
                let file = self.own_file_of(weight);
                file.map_or_else(Vec::new, |file| file.parts_of(weight))
            }
        }
    }

    /// Whether these codes and scales are of MXFP6. MXFP4 of compressed-tensors has the same names and types, and other bytes for a scale.
    fn is_mxfp6(&self, parts: &[(String, StoredType)]) -> bool {
        let lengths = parts
            .iter()
            .map(|(part, _)| self.tensor(part)?.shape.last().copied());
        let lengths: Option<Vec<usize>> = lengths.collect();
        lengths.is_some_and(|x| x[0] > 0 && x[1].checked_mul(24) == Some(x[0]))
    }

    /// Whether the parts of a weight that a file has are those that count. Otherwise they are left of another weight.
    fn count(&self, file: usize, parts: &[String]) -> bool {
        let has = |part: &&String| self.files[file].tensor(part).is_some();
        let mut stored = parts.iter().filter(has);
        stored.all(|part| self.file_of(part) == Some(file))
    }

    /// The file with a weight in this project's layout.
    fn own_file_of(&self, weight: &str) -> Option<&PackedFile<'a>> {
        let has = |(number, file): &(usize, &PackedFile<'a>)| {
            let parts = file.parts_of(weight);
            !parts.is_empty() && self.count(*number, &parts)
        };
        let file = self.files.iter().enumerate().find(has);
        file.map(|(_, file)| file)
    }

    /// A packed weight; `None` if there is none of this name. Where compressed-tensors divides by a number, the weight has this
    /// [divisor](Packed::divisor). Files of burn-mx have none: burn-mx multiplies.
    pub fn packed(&self, weight: &str) -> Option<Result<Packed, FileError>> {
        let CheckpointLayout::Weights(layout) = *self.weights.get(weight)? else {
            return self.own_file_of(weight)?.get(weight);
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
        let by_us = |file: usize| self.files[file].metadata(DESCRIPTION_KEY).is_some();
        let divisor = parts.last().filter(|(part, _)| {
            layout == WeightLayout::Nvfp4PackQuantized && !self.file_of(part).is_some_and(by_us)
        });
        let divisor =
            divisor.and_then(|(_, tensor)| Some(f32::from_le_bytes(tensor.bytes.try_into().ok()?)));
        let packed = packed.map(|packed| match divisor {
            Some(divisor) => packed.with_divisor(divisor),
            None => packed,
        });
        Some(packed.map_err(|error| FileError::Layout(Box::new(error))))
    }
}

/// The names of the tensors of a weight.
fn parts_in(layout: WeightLayout, weight: &str) -> impl Iterator<Item = String> {
    let parts = layout.stored_as(weight).into_iter();
    parts.map(|(part, _)| part)
}

/// The layouts that names and types tell apart, those with more tensors first.
const FOUND_BY_NAMES: [WeightLayout; 6] = [
    WeightLayout::Nvfp4PackQuantized,
    WeightLayout::ModelOptNvfp4,
    WeightLayout::Mxfp6PackQuantized,
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
