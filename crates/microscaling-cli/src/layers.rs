//! The quantized weights of a checkpoint in every layout, for `inspect`, `unpack`, `convert` and `diff`.

use crate::checkpoint::Checkpoint;
use crate::companions::{called, is_low_bit, quantized, without_codes};
use crate::doubt::doubt;
use crate::error::Error;
use crate::layer::{QuantizedLayer, WeightKind};
use crate::models::summed_axis;
use crate::scheme::RefusedField;
use crate::why::why;
use microscaling::safetensors::{CheckpointLayout, Mxfp6Weight, PackedFiles};
use microscaling::{ElementFormat, WeightLayout};
use std::collections::{BTreeMap, BTreeSet};

/// The quantized weights that are read, by name, and why others are not.
#[derive(Default)]
pub(crate) struct QuantizedLayers {
    pub(crate) known: BTreeMap<String, QuantizedLayer>,
    /// The name of each weight that is not read, the tensor with its codes, and the reason.
    pub(crate) unread: BTreeMap<String, (String, String)>,
    /// The contradictions of config.json to a layer, by name.
    pub(crate) doubts: BTreeMap<String, String>,
    /// The fields of config.json with which no weight is read.
    pub(crate) refused: Vec<RefusedField>,
    /// The weights without codes, which are not read.
    without_codes: BTreeSet<String>,
}

impl QuantizedLayers {
    /// The weights of a checkpoint.
    pub(crate) fn of(input: &Checkpoint, read: &PackedFiles<'_>) -> Result<Self, Error> {
        let mut layers = Self::default();
        let schemes = input.schemes()?;
        layers.add_packed(input, read);
        layers.add_scaled(read);
        layers.add_integers(read);
        layers.add_mxfp6(read);
        layers.add_without_codes(read);
        layers.add_unread(input, read);
        for layer in layers.known.values() {
            let doubt = doubt(&schemes, layer).or_else(|| unknown_block(read, layer));
            let doubt = doubt.map(|doubt| (layer.name.clone(), doubt));
            layers.doubts.extend(doubt);
        }
        layers.refused = schemes.refused;
        Ok(layers)
    }

    fn add_packed(&mut self, input: &Checkpoint, read: &PackedFiles<'_>) {
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
                is_turned: is_turned(input, *layout, name, shape.len(), packed.axis()),
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

    fn add_mxfp6(&mut self, read: &PackedFiles<'_>) {
        for (name, weight) in read.mxfp6() {
            let format = Mxfp6Weight::FORMAT;
            self.add(QuantizedLayer {
                kind: WeightKind::Mxfp6,
                name: name.clone(),
                layout: "mxfp6-pack-quantized",
                format: format.to_string(),
                shape: weight.shape.to_vec(),
                axis: Some(1),
                parts: weight.parts.to_vec(),
                bits: format.element_bits(),
                is_integer: false,
                group: Some(format.block_size),
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
    fn add_unread(&mut self, input: &Checkpoint, read: &PackedFiles<'_>) {
        let parts: BTreeSet<&String> = self.known.values().flat_map(|x| &x.parts).collect();
        let mut unknown: BTreeMap<String, String> = quantized(read)
            .into_iter()
            .filter(|(name, codes)| !self.known.contains_key(name) && !parts.contains(codes))
            .collect();
        // Names that nobody knows: config.json alone says that they are quantized.
        if input.config.get("quantization_config").is_some() {
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
            let called = called(&input.config, &name);
            let called = called.map(|called| format!("; config.json: {called}"));
            let why = why(read, &codes).unwrap_or_else(|| "unknown layout".to_owned());
            let reason = why + &called.unwrap_or_default();
            self.unread.insert(name, (codes, reason));
        }
    }

    /// Checks that every packed weight is whole, and that no weight lacks its codes.
    pub(crate) fn check_packed(
        &self,
        input: &Checkpoint,
        read: &PackedFiles<'_>,
    ) -> Result<(), Error> {
        let is_packed = |(name, _): &(&String, &(String, String))| {
            read.weights().contains_key(*name) || self.without_codes.contains(*name)
        };
        match self.unread.iter().find(is_packed) {
            Some((weight, (_, reason))) => Err(Self::error(input, weight, reason)),
            None => Ok(()),
        }
    }

    fn error(input: &Checkpoint, weight: &str, reason: &str) -> Error {
        Error::Unread {
            path: input.path.clone(),
            weight: weight.to_owned(),
            reason: reason.to_owned(),
        }
    }

    /// Checks that config.json has no field with which no weight is read. `is_named`: the user has named the layout.
    pub(crate) fn check_config(&self, input: &Checkpoint, is_named: bool) -> Result<(), Error> {
        let counts = |field: &&RefusedField| !(is_named && field.is_layout);
        match self.refused.iter().find(counts) {
            Some(RefusedField { field, reason, .. }) => Err(Error::Config {
                path: input.files[0].with_file_name("config.json"),
                reason: format!("quantization_config: {field} is {reason}"),
            }),
            None => Ok(()),
        }
    }

    /// Checks that every quantized weight is read, and that config.json says nothing against one.
    pub(crate) fn check(&self, input: &Checkpoint) -> Result<(), Error> {
        let unread = self.unread.iter().map(|(name, (_, reason))| (name, reason));
        let Some((weight, reason)) = unread.chain(&self.doubts).next() else {
            return Ok(());
        };
        Err(Self::error(input, weight, reason))
    }
}

/// Whether the float model has the last two axes of a packed weight in the other order. In transformers, the experts of gpt-oss are
/// [expert, in, out], and their codes are [expert, out, in].
fn is_turned(
    input: &Checkpoint,
    layout: CheckpointLayout,
    name: &str,
    rank: usize,
    axis: usize,
) -> bool {
    if rank < 3 || axis + 1 != rank {
        return false;
    }
    match summed_axis(&input.config, name, rank) {
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
