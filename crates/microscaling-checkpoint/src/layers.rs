//! The quantized weights of a checkpoint in every layout.

mod doubt;
mod why;

use crate::config::{ConfigError, ModelConfig};
use crate::models::summed_axis;
use crate::parts::{called, is_low_bit, quantized, without_codes};
use crate::scheme::{RefusedField, Schemes};
use microscaling::safetensors::{CheckpointLayout, FileError, PackedFiles};
use microscaling::{BlockFormat, ElementFormat, WeightLayout};
use std::collections::{BTreeMap, BTreeSet};
use why::why;

/// The parts of a quantized weight.
#[derive(Debug, Clone, PartialEq)]
pub enum WeightKind {
    /// Codes and scales of a block format.
    Packed(BlockFormat),
    /// FP8 codes with scales of higher precision.
    Scaled {
        /// The name of the tensor of scales.
        scales: String,
        /// The lengths of a block that shares a scale, along the weight's axes.
        block: Vec<usize>,
        /// Whether the codes are E4M3.
        is_e4m3: bool,
    },
    /// Integers with scales.
    Integers {
        /// The lengths of a block that shares a scale, along the weight's axes.
        block: [usize; 2],
        /// Whether the weight lacks zero points.
        is_symmetric: bool,
    },
}

/// A quantized weight.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct QuantizedLayer {
    /// The parts of the weight.
    pub kind: WeightKind,
    /// The name in the float model.
    pub name: String,
    /// The name of the layout, as the tool's configs have it.
    pub layout: &'static str,
    /// Elements and scales, in words.
    pub format: String,
    /// The shape in the checkpoint, [out, in] for a matrix.
    pub shape: Vec<usize>,
    /// The axis of the blocks of a packed weight.
    pub axis: Option<usize>,
    /// The tensors that store the weight.
    pub parts: Vec<String>,
    /// The bits of an element.
    pub bits: u32,
    /// Whether the elements are integers.
    pub is_integer: bool,
    /// The elements along the last axis that share a scale, where config.json may name their number.
    pub group: Option<usize>,
    /// Whether the float model has the last two axes in the other order.
    pub is_turned: bool,
}

impl QuantizedLayer {
    /// The name of the module whose weight this is.
    pub fn module(&self) -> &str {
        self.name.strip_suffix(".weight").unwrap_or(&self.name)
    }

    /// The lengths of a block that shares a scale, for FP8 and integers.
    pub fn block(&self) -> Option<&[usize]> {
        match &self.kind {
            WeightKind::Scaled { block, .. } => Some(block),
            WeightKind::Integers { block, .. } => Some(block),
            _ => None,
        }
    }

    /// The shape in the float model.
    pub fn float_shape(&self) -> Vec<usize> {
        let mut shape = self.shape.clone();
        if let (true, rank @ 2..) = (self.is_turned, shape.len()) {
            shape.swap(rank - 2, rank - 1);
        }
        shape
    }

    /// The values as the float model has them.
    ///
    /// # Errors
    /// [`FileError`]: a part of the weight has another type or shape than the layout says.
    ///
    /// # Panics
    /// If the weight is not of these files.
    pub fn values(&self, read: &PackedFiles<'_>) -> Result<Vec<f32>, FileError> {
        let values = read.values(&self.name).expect("it is one of the weights")?;
        Ok(match self.is_turned {
            true => turned(&values, &self.shape),
            false => values,
        })
    }
}

/// The values with the last two axes in the other order, where `shape` is the given order. Fewer than two axes stay as they are.
pub fn turned(values: &[f32], shape: &[usize]) -> Vec<f32> {
    let [.., rows, width] = *shape else {
        return values.to_vec();
    };
    let mut turned = Vec::with_capacity(values.len());
    for matrix in values.chunks((rows * width).max(1)) {
        let of = |i: usize| matrix[i % rows * width + i / rows];
        turned.extend((0..matrix.len()).map(of));
    }
    turned
}

/// Why a quantized weight is not read.
#[derive(Clone, thiserror::Error)]
#[error("`{weight}` is quantized and cannot be read: {reason}")]
#[non_exhaustive]
pub struct UnreadWeight {
    /// The name of the weight.
    pub weight: String,
    /// The part of the weight or the field of config.json at fault, and the allowed values.
    pub reason: String,
}

microscaling::debug_is_display!(UnreadWeight);

impl UnreadWeight {
    fn new(weight: &str, reason: &str) -> Self {
        Self {
            weight: weight.to_owned(),
            reason: reason.to_owned(),
        }
    }
}

/// The quantized weights that are read, by name, and why others are not.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct QuantizedLayers {
    /// The weights that are read, by name.
    pub known: BTreeMap<String, QuantizedLayer>,
    /// The name of each weight that is not read, the tensor with its codes, and the reason.
    pub unread: BTreeMap<String, (String, String)>,
    /// The contradictions of config.json to a layer, by name.
    pub doubts: BTreeMap<String, String>,
    /// The fields of config.json with which no weight is read.
    pub refused: Vec<RefusedField>,
    /// The weights without codes, which are not read.
    without_codes: BTreeSet<String>,
}

impl QuantizedLayers {
    /// The weights of a checkpoint with this config.
    ///
    /// # Errors
    /// See [`Schemes::of`].
    pub fn of(model: &ModelConfig, read: &PackedFiles<'_>) -> Result<Self, ConfigError> {
        let mut layers = Self::default();
        let schemes = Schemes::of(model)?;
        layers.add_packed(model, read);
        layers.add_scaled(read);
        layers.add_integers(read);
        layers.add_without_codes(read);
        layers.add_unread(model, read);
        for layer in layers.known.values() {
            let doubt = schemes.doubt(layer).or_else(|| unknown_block(read, layer));
            let doubt = doubt.map(|doubt| (layer.name.clone(), doubt));
            layers.doubts.extend(doubt);
        }
        layers.refused = schemes.refused;
        Ok(layers)
    }

    fn add_packed(&mut self, model: &ModelConfig, read: &PackedFiles<'_>) {
        for (name, layout) in read.weights() {
            let packed = match read.packed(name).expect("it is one of the weights") {
                Ok(packed) => packed,
                Err(error) => {
                    let mut codes = read.parts_of(name).into_iter();
                    let codes = codes.rfind(|part| read.file_of(part).is_some());
                    let codes = codes.unwrap_or_else(|| name.clone());
                    self.unread.insert(name.clone(), (codes, error.to_string()));
                    continue;
                }
            };
            let (format, shape) = (packed.format(), packed.shape().to_vec());
            self.add(QuantizedLayer {
                kind: WeightKind::Packed(format),
                layout: layout.name(),
                format: format.to_string(),
                parts: read.parts_of(name),
                bits: format.element_bits(),
                is_integer: false,
                group: Some(format.block_size),
                axis: Some(packed.axis()),
                is_turned: is_turned(model, *layout, name, shape.len(), packed.axis()),
                name: name.clone(),
                shape,
            });
        }
    }

    fn add_scaled(&mut self, read: &PackedFiles<'_>) {
        for (name, weight) in read.scaled() {
            let tensor = |name: &str| read.tensor(name).expect("the weight has it");
            let scales = tensor(&weight.scales);
            let (element, shape) = (weight.element, tensor(name).shape);
            let block = weight.block.clone();
            let is_inverse = weight.scales.ends_with("_inv");
            self.add(QuantizedLayer {
                kind: WeightKind::Scaled {
                    scales: weight.scales.clone(),
                    block: block.clone(),
                    is_e4m3: element == ElementFormat::FP8_E4M3,
                },
                name: name.clone(),
                layout: if is_inverse {
                    "fp8-scale-inv"
                } else {
                    "float-quantized"
                },
                format: format!(
                    "{element}, a scale in {} {}",
                    scales.dtype,
                    of_block(&block, &shape, scales.shape.len())
                ),
                parts: read.parts_of(name),
                bits: 8,
                is_integer: false,
                group: None,
                axis: None,
                is_turned: false,
                shape,
            });
        }
    }

    fn add_integers(&mut self, read: &PackedFiles<'_>) {
        for (name, weight) in read.integers() {
            let scales = read.tensor(&weight.scales).expect("the weight has it");
            let [outputs, inputs] = weight.shape;
            let zeros = weight.zero_points.as_ref().map_or("", |_| ", zero points");
            let order = weight.groups.as_ref().map_or("", |_| ", groups by g_idx");
            let whole = weight.block[1] >= inputs;
            self.add(QuantizedLayer {
                kind: WeightKind::Integers {
                    block: weight.block,
                    is_symmetric: weight.zero_points.is_none(),
                },
                name: name.clone(),
                layout: weight.layout.name(),
                format: format!(
                    "int{}, a scale in {} {}{zeros}{order}",
                    weight.bits,
                    scales.dtype,
                    of_block(&weight.block, &weight.shape, scales.shape.len())
                ),
                shape: vec![outputs, inputs],
                parts: weight.parts(),
                bits: weight.bits,
                is_integer: true,
                group: (!whole && weight.block[0] == 1).then_some(weight.block[1]),
                axis: None,
                is_turned: false,
            });
        }
    }

    fn add(&mut self, layer: QuantizedLayer) {
        self.known.insert(layer.name.clone(), layer);
    }

    /// Adds the weights whose scales or other parts are there and whose codes are not.
    fn add_without_codes(&mut self, read: &PackedFiles<'_>) {
        let found = without_codes(read);
        self.without_codes = found.keys().cloned().collect();
        self.unread.extend(found);
    }

    /// Adds the weights that are quantized in a way that nobody here knows.
    fn add_unread(&mut self, model: &ModelConfig, read: &PackedFiles<'_>) {
        let parts: BTreeSet<&String> = self.known.values().flat_map(|x| &x.parts).collect();
        let mut unknown: BTreeMap<String, String> = quantized(read)
            .into_iter()
            .filter(|(name, codes)| !self.known.contains_key(name) && !parts.contains(codes))
            .collect();
        // Names that nobody knows: config.json alone says that they are quantized.
        if model.quantization().is_some() {
            let of_unknown: BTreeSet<&String> = unknown.values().collect();
            let codes = read.others().iter();
            let codes = codes.filter(|name| {
                is_low_bit(read, name) && !parts.contains(name) && !of_unknown.contains(name)
            });
            let codes: Vec<String> = codes.cloned().collect();
            unknown.extend(codes.into_iter().map(|codes| (codes.clone(), codes)));
        }
        let of_others: BTreeSet<String> =
            self.unread.values().map(|(part, _)| part.clone()).collect();
        for (name, codes) in unknown {
            if of_others.contains(&codes) {
                continue;
            }
            let called = called(&model.fields, &name);
            let called = called.map(|called| format!("; config.json: {called}"));
            let why = why(read, &codes).unwrap_or_else(|| "unknown layout".to_owned());
            let reason = why + &called.unwrap_or_default();
            self.unread.insert(name, (codes, reason));
        }
    }

    /// Checks that every packed weight is whole, and that no weight lacks its codes.
    ///
    /// # Errors
    /// [`UnreadWeight`] names the first weight at fault.
    pub fn check_packed(&self, read: &PackedFiles<'_>) -> Result<(), UnreadWeight> {
        let is_packed = |(name, _): &(&String, &(String, String))| {
            read.weights().contains_key(*name) || self.without_codes.contains(*name)
        };
        match self.unread.iter().find(is_packed) {
            Some((weight, (_, reason))) => Err(UnreadWeight::new(weight, reason)),
            None => Ok(()),
        }
    }

    /// Checks that config.json has no field with which no weight is read. `is_named`: the user has named the layout.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] names the field.
    pub fn check_config(&self, model: &ModelConfig, is_named: bool) -> Result<(), ConfigError> {
        let counts = |field: &&RefusedField| !(is_named && field.is_layout);
        match self.refused.iter().find(counts) {
            Some(RefusedField { field, reason, .. }) => {
                Err(model.invalid(format_args!(": {field} is {reason}")))
            }
            None => Ok(()),
        }
    }

    /// Checks that every quantized weight is read, and that config.json says nothing against one.
    ///
    /// # Errors
    /// [`UnreadWeight`] names the first weight at fault.
    pub fn check(&self) -> Result<(), UnreadWeight> {
        let unread = self.unread.iter().map(|(name, (_, reason))| (name, reason));
        let Some((weight, reason)) = unread.chain(&self.doubts).next() else {
            return Ok(());
        };
        Err(UnreadWeight::new(weight, reason))
    }
}

/// Whether the float model has the last two axes of a packed weight in the other order. In transformers, the experts of gpt-oss are
/// [expert, in, out], and their codes are [expert, out, in].
fn is_turned(
    model: &ModelConfig,
    layout: CheckpointLayout,
    name: &str,
    rank: usize,
    axis: usize,
) -> bool {
    if rank < 3 || axis + 1 != rank {
        return false;
    }
    match summed_axis(&model.fields, name, rank) {
        Some(summed) => summed + 2 == rank,
        None => layout == CheckpointLayout::Weights(WeightLayout::GptOss),
    }
}

/// Why the tensors and config.json do not tell the blocks of a weight; `None` if they do.
fn unknown_block(read: &PackedFiles<'_>, layer: &QuantizedLayer) -> Option<String> {
    let scaled = read.scaled().get(&layer.name);
    let scaled = scaled.map(|weight| (weight.is_block_known, &weight.scales));
    let integers = || {
        let weight = read.integers().get(&layer.name)?;
        Some((weight.is_block_known, &weight.scales))
    };
    let (is_known, scales) = scaled.or_else(integers)?;
    let shape = read.tensor(scales)?.shape;
    (!is_known).then(|| {
        format!(
            "`{scales}` has shape {shape:?}, which does not tell how many of the weight's {:?} elements share a scale; allowed: \
             `weight_block_size`, `block_structure` or `group_size` in config.json",
            layer.shape
        )
    })
}

/// The elements that share a scale, in words, where the scales have as many axes.
fn of_block(block: &[usize], shape: &[usize], axes: usize) -> String {
    let whole = |axis: usize| block.get(axis) >= shape.get(axis);
    match *block {
        [rows, columns] => match (whole(0), whole(1)) {
            (true, true) if axes < 2 => "for the tensor".to_owned(),
            (false, true) if rows == 1 => "for each row".to_owned(),
            _ => format!("for each {rows} × {columns}"),
        },
        _ => format!("for each {block:?}"),
    }
}
