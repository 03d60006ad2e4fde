//! From a float model to a quantized one.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use crate::activations::{Activations, DOMAIN};
use crate::additions::{Additions, Builder};
use crate::files::{ExternalData, Output, map};
use crate::graph::Model;
use crate::layers::{self, Layer, Layout};
use crate::options::{Parts, Patterns, QuantizeOptions};
use crate::proto::{self, Data, NewAttribute, Tensor, data_type, little_endian};
use crate::rewrite::{Edits, Rewrite};
use crate::safetensors_file::TensorFile;
use crate::weights::Storage;
use crate::{OnnxError, WeightTypes};

/// The versions of ONNX's operators that are known.
const OPSETS: std::ops::RangeInclusive<i64> = 13..=26;

/// What was quantized.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The names of the layers.
    pub layers: Vec<String>,
    /// Bytes of the model and its external data, before.
    pub bytes_before: u64,
    /// Bytes of the model and its external data, after.
    pub bytes_after: u64,
}

/// Quantizes a model. Where the input has external data, so has the output, in a file of its own (`….onnx.data`) beside it.
///
/// The output appears when it is complete. Messages of the model that do not change are written byte for byte as they were
/// read, and so are the elements of tensors.
///
/// # Errors
/// The output is as it was before.
/// * A file cannot be read or written, is no ONNX model, or exists ([`OnnxError::Io`], [`OnnxError::Model`],
///   [`OnnxError::Exists`]).
/// * The operator set is not one of 13 to 26 ([`OnnxError::Opset`]).
/// * The format cannot be used for weights or activations ([`OnnxError::Format`]).
/// * A pattern matches no layer, or no layer is left ([`OnnxError::NoMatch`], [`OnnxError::NoLayers`]).
/// * A weight has another number of elements than its shape says, or has no code, as a NaN in block floating point
///   ([`OnnxError::Tensor`]).
/// * External data is missing, or not in the model's folder ([`OnnxError::External`]).
pub fn quantize(
    input: &Path,
    output: &Path,
    options: &QuantizeOptions,
) -> Result<Report, OnnxError> {
    let map = map(input)?;
    let mut model = Model::read(&map).map_err(|error| OnnxError::Model {
        path: input.to_owned(),
        reason: error.0,
    })?;
    check_opset("the model", model.opset)?;
    let external = ExternalData::beside(input);
    let storage = Storage {
        format: options.format,
        rounding: options.rounding,
        types: options.types,
        opset: model.opset,
    };
    let activations = Activations {
        format: options.format,
        rounding: options.rounding,
        opset: model.opset,
        is_static: options.calibration.is_some(),
    };
    let quantizes_weights = options.parts != Parts::Activations;
    let quantizes_activations = options.parts != Parts::Weights;
    if quantizes_weights {
        storage.check()?;
    }
    if quantizes_activations {
        activations.check()?;
    } else if options.calibration.is_some() {
        return Err(OnnxError::Field {
            field: "calibration",
            value: "given, but activations are not quantized".into(),
            allowed: "with activations".into(),
        });
    }
    let layers = chosen(layers::layers(&model)?, options)?;
    for layer in &layers {
        if let Some((name, opset)) = model.bodies[layer.body].function
            && opset != model.opset
        {
            return Err(OnnxError::Opset {
                place: format!("function `{name}`"),
                got: opset,
                allowed: format!("{}, as in the model", model.opset),
            });
        }
    }
    let is_external = model
        .bodies
        .iter()
        .flat_map(|body| body.initializers.values());
    let is_external = is_external
        .clone()
        .any(|tensor| matches!(tensor.data, Data::External { .. }));
    let mut output_file = Output::at(output, options.force, is_external)?;
    let tuned = options.tuned.as_deref().map(TensorFile::open).transpose()?;
    let calibration = options
        .calibration
        .as_deref()
        .map(TensorFile::open)
        .transpose()?;
    let replaced = replaced(&model, tuned.as_ref())?;

    let edits = model.bodies.iter().map(|body| Edits {
        first: Additions::of(body.function.is_some()),
        ..Edits::default()
    });
    let mut work = Work {
        edits: edits.collect(),
        uses: model.uses(),
        model: &mut model,
        output: &mut output_file,
        external: &external,
        replaced: &replaced,
        weights: HashMap::new(),
        inputs: HashMap::new(),
        functions: BTreeSet::new(),
        calibration: calibration.as_ref(),
    };
    for layer in &layers {
        if quantizes_weights {
            work.weight(layer, &storage)?;
        }
        if quantizes_activations {
            work.activation(layer, &activations)?;
        }
    }
    let Work {
        edits, functions, ..
    } = work;
    let functions = functions.into_iter().map(|is_padded| {
        let text = format!("Quantizes to {}, {} ties", options.format, options.rounding);
        activations.function(&function_name(&activations, is_padded), &text, is_padded)
    });
    let rewrite = Rewrite {
        model: &model,
        edits,
        functions: functions.collect(),
        replaced,
        external: &external,
        output: &mut output_file,
        is_newest: options.types == WeightTypes::Newest && quantizes_weights,
    };
    let message = rewrite.message()?;
    let bytes_after = output_file.finish(&message)?;
    Ok(Report {
        layers: layers.iter().map(|layer| layer.name.to_owned()).collect(),
        bytes_before: bytes_of(input, &map, &model)?,
        bytes_after,
    })
}

fn check_opset(place: &str, got: i64) -> Result<(), OnnxError> {
    match OPSETS.contains(&got) {
        true => Ok(()),
        false => Err(OnnxError::Opset {
            place: place.to_owned(),
            got,
            allowed: format!(
                "{} to {}; onnx.version_converter raises older ones",
                OPSETS.start(),
                OPSETS.end()
            ),
        }),
    }
}

/// The layers that the options choose.
fn chosen<'a>(
    layers: Vec<Layer<'a>>,
    options: &QuantizeOptions,
) -> Result<Vec<Layer<'a>>, OnnxError> {
    let include = Patterns::new(&options.include, "include")?;
    let exclude = Patterns::new(&options.exclude, "exclude")?;
    let names: Vec<&str> = layers.iter().map(|layer| layer.name).collect();
    include.check(&names)?;
    exclude.check(&names)?;
    let is_chosen = |layer: &Layer<'_>| {
        (include.is_empty() || include.matches(layer.name)) && !exclude.matches(layer.name)
    };
    let layers: Vec<_> = layers.into_iter().filter(is_chosen).collect();
    match layers.is_empty() {
        true => Err(OnnxError::NoLayers),
        false => Ok(layers),
    }
}

/// The elements of tuned initializers.
fn replaced<'a>(
    model: &Model<'a>,
    tuned: Option<&TensorFile>,
) -> Result<HashMap<&'a str, Vec<f32>>, OnnxError> {
    let mut replaced = HashMap::new();
    let Some(tuned) = tuned else {
        return Ok(replaced);
    };
    let initializers = &model.bodies[0].initializers;
    for name in tuned.names()? {
        let Some((known, tensor)) = initializers.get_key_value(name.as_str()) else {
            let reason =
                "the model has no initializer of this name, as the file of tuned weights has";
            return Err(OnnxError::tensor(&name, reason));
        };
        let (shape, floats) = tuned.get(&name)?.expect("it has this name");
        if tensor.data_type != data_type::FLOAT || tensor.shape().as_ref() != Some(&shape) {
            let reason = format!(
                "the tuned one is float32 of shape {shape:?}, that of the model is of type {} and shape {:?}",
                tensor.data_type, tensor.dims
            );
            return Err(OnnxError::tensor(&name, reason));
        }
        replaced.insert(*known, floats);
    }
    Ok(replaced)
}

/// Bytes of a model and its external data.
fn bytes_of(input: &Path, map: &[u8], model: &Model<'_>) -> Result<u64, OnnxError> {
    let tensors = model
        .bodies
        .iter()
        .flat_map(|body| body.initializers.values());
    let files: BTreeSet<PathBuf> = tensors
        .filter_map(|tensor| match tensor.data {
            Data::External { location, .. } => Some(input.with_file_name(location)),
            _ => None,
        })
        .collect();
    let sizes = files
        .iter()
        .map(|file| fs::metadata(file).map_err(OnnxError::io(file)));
    let sizes: u64 = sizes
        .map(|metadata| Ok(metadata?.len()))
        .sum::<Result<_, OnnxError>>()?;
    Ok(map.len() as u64 + sizes)
}

/// The function's name: that of the format, as far as letters and digits say it.
fn function_name(activations: &Activations, is_padded: bool) -> String {
    let text = activations.format.to_string();
    let letters = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    let mut name: String = letters.collect::<String>().trim_end_matches('_').to_owned();
    for (holds, end) in [(activations.is_static, "_static"), (is_padded, "_padded")] {
        if holds {
            name += end;
        }
    }
    name
}

/// The changes while they are made.
struct Work<'m, 'a> {
    model: &'m mut Model<'a>,
    edits: Vec<Edits<'a>>,
    uses: HashMap<(usize, &'a str), usize>,
    output: &'m mut Output,
    external: &'m ExternalData,
    replaced: &'m HashMap<&'a str, Vec<f32>>,
    /// Names of quantized weights: by body, constant, axis and transposes.
    weights: HashMap<(usize, &'a str, usize, Vec<Vec<usize>>), String>,
    /// Names of quantized activations: by body, name and blocks.
    inputs: HashMap<(usize, &'a str, Layout, usize), String>,
    /// The functions that are called: padded or not.
    functions: BTreeSet<bool>,
    calibration: Option<&'m TensorFile>,
}

impl<'a> Work<'_, 'a> {
    fn weight(&mut self, layer: &Layer<'a>, storage: &Storage) -> Result<(), OnnxError> {
        let weight = &layer.weight;
        let owner = weight.owner;
        let permutations = weight
            .path
            .iter()
            .rev()
            .filter_map(|step| step.permutation.clone());
        let permutations: Vec<_> = permutations.collect();
        let key = (owner, weight.name, weight.axis, permutations);
        let value = match self.weights.get(&key) {
            Some(value) => value.clone(),
            None => {
                let floats = self.floats(layer)?;
                let mut builder = Builder {
                    additions: &mut self.edits[owner].first,
                    model: self.model,
                    output: self.output,
                };
                let place = (&weight.shape[..], weight.axis);
                let mut value =
                    storage.add(&mut builder, weight.name, floats, place, weight.data_type)?;
                for permutation in &key.3 {
                    let axes = permutation.iter().map(|axis| *axis as i64).collect();
                    let axes = vec![NewAttribute::Integers("perm", axes)];
                    let wish = format!("{}_transposed", weight.name);
                    value = builder.node(&wish, "Transpose", &[&value], axes);
                }
                self.weights.insert(key, value.clone());
                value
            }
        };
        let edits = &mut self.edits[layer.body];
        edits
            .renamed
            .insert((layer.node, layer.weight_input), value);
        self.release(layer);
        Ok(())
    }

    fn floats(&self, layer: &Layer<'a>) -> Result<Vec<f32>, OnnxError> {
        let weight = &layer.weight;
        let body = &self.model.bodies[weight.owner];
        if weight.owner == 0
            && weight.constant.is_none()
            && let Some(floats) = self.replaced.get(weight.name)
        {
            return Ok(floats.clone());
        }
        match weight.constant {
            None => self.external.floats(&body.initializers[weight.name]),
            Some(node) => {
                let value = body.nodes[node].node.attribute("value");
                let tensor = value.and_then(|value| Tensor::read(value.tensor?).ok());
                self.external.floats(&tensor.expect("it was read before"))
            }
        }
    }

    /// Drops what only this layer used: the nodes before its weight, and the constant.
    fn release(&mut self, layer: &Layer<'a>) {
        let weight = &layer.weight;
        let mut is_used = |owner: usize, name: &'a str| {
            let uses = self.uses.entry((owner, name)).or_default();
            *uses = uses.saturating_sub(1);
            *uses > 0
        };
        for step in &weight.path {
            if is_used(step.body, step.output) {
                return;
            }
            self.edits[step.body].dropped_nodes.insert(step.node);
        }
        if is_used(weight.owner, weight.name) {
            return;
        }
        let edits = &mut self.edits[weight.owner];
        match weight.constant {
            None => _ = edits.dropped.insert(weight.name),
            Some(node) => _ = edits.dropped_nodes.insert(node),
        }
    }

    fn activation(
        &mut self,
        layer: &Layer<'a>,
        activations: &Activations,
    ) -> Result<(), OnnxError> {
        let node = &self.model.bodies[layer.body].nodes[layer.node].node;
        let x = node.inputs[layer.activation_input];
        let key = (layer.body, x, layer.layout, layer.length);
        let value = match self.inputs.get(&key) {
            Some(value) => value.clone(),
            None => {
                let value = self.call(layer, x, activations)?;
                self.inputs.insert(key, value.clone());
                value
            }
        };
        let edits = &mut self.edits[layer.body];
        edits
            .renamed
            .insert((layer.node, layer.activation_input), value);
        Ok(())
    }

    /// Adds a call of the function before a layer.
    fn call(
        &mut self,
        layer: &Layer<'a>,
        x: &'a str,
        activations: &Activations,
    ) -> Result<String, OnnxError> {
        let length = layer.length;
        let blocks = activations.blocks(length);
        let padded = blocks[0] * blocks[1];
        let is_padded = padded != length;
        let powers = self.powers(layer, x, activations, blocks)?;
        // Nodes stand before the layer, constants are the body's.
        let nodes = std::mem::take(&mut self.edits[layer.body].first.nodes);
        let mut to = Builder {
            additions: &mut self.edits[layer.body].first,
            model: self.model,
            output: self.output,
        };
        let wish = format!("{x}_quantized");
        let mut value = x.to_owned();
        let is_cast = layer.weight.data_type != data_type::FLOAT;
        if is_cast {
            let float = vec![NewAttribute::Integer("to", data_type::FLOAT)];
            value = to.node(&format!("{x}_float32"), "Cast", &[&value], float);
        }
        let inner = activations.axes(blocks);
        let mut inputs = vec![value.clone()];
        let around = |axes: &[i64]| -> Vec<i64> {
            match layer.layout {
                Layout::Last => [&[-1], axes, &[1]].concat(),
                _ => [&[0], axes, &[-1]].concat(),
            }
        };
        // The axes before and after the summed one.
        let three = match layer.layout {
            Layout::LastButOne => Some(last_but_one(&mut to, x, &value, &[length as i64])?),
            _ if is_padded => Some(to.integers("axes", &around(&[length as i64]))?),
            _ => None,
        };
        if is_padded {
            inputs.extend(three);
            inputs.push(to.integers("padding", &[0, 0, 0, 0, (padded - length) as i64, 0])?);
            inputs.push(to.integers("blocks", &[&[0], &inner[..], &[-1]].concat())?);
            inputs.push(to.integers("axes", &[0, padded as i64, -1])?);
            inputs.push(to.integers("end", &[length as i64])?);
        } else if layer.layout == Layout::LastButOne {
            inputs.push(last_but_one(&mut to, x, &value, &inner)?);
        } else {
            inputs.push(to.integers("blocks", &around(&inner))?);
        }
        if let Some((shape, powers)) = powers {
            let bytes = little_endian(&powers, f32::to_le_bytes);
            let wish = format!("{x}_powers");
            inputs.push(to.constant(&wish, data_type::FLOAT, &shape, bytes)?);
        }
        let name = to.model.unique(&wish);
        let function = function_name(activations, is_padded);
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let call = proto::node(&name, (DOMAIN, &function), &inputs, &[&name], Vec::new());
        to.additions.nodes.push(call);
        let mut value = name;
        if is_cast {
            let own = vec![NewAttribute::Integer("to", layer.weight.data_type)];
            value = to.node(&format!("{x}_quantized_cast"), "Cast", &[&value], own);
        }
        let edits = &mut self.edits[layer.body];
        let mut before = std::mem::replace(&mut edits.first.nodes, nodes);
        edits
            .before
            .entry(layer.node)
            .or_default()
            .append(&mut before);
        edits.calls = true;
        self.functions.insert(is_padded);
        Ok(value)
    }

    /// The powers of two of blocks that calibration fixes, and their shape.
    fn powers(
        &self,
        layer: &Layer<'a>,
        x: &str,
        activations: &Activations,
        [count, size]: [usize; 2],
    ) -> Result<Option<(Vec<usize>, Vec<f32>)>, OnnxError> {
        let Some(calibration) = self.calibration else {
            return Ok(None);
        };
        let Some((shape, largest)) = calibration.get(x)? else {
            let reason =
                format!("its input `{x}` is not in the file of calibration; exclude the layer");
            return Err(OnnxError::layer(layer.name, reason));
        };
        if shape != [layer.length] {
            let reason = format!(
                "calibration of `{x}` has the shape {shape:?}, expected [{}]",
                layer.length
            );
            return Err(OnnxError::layer(layer.name, reason));
        }
        if !largest.iter().all(|value| (value * value).is_finite()) {
            let reason = format!(
                "calibration of `{x}` has a NaN, an infinity, or a number whose square is one"
            );
            return Err(OnnxError::layer(layer.name, reason));
        }
        let blocks = largest.chunks(size);
        let amax = blocks.map(|block| {
            block
                .iter()
                .fold(0.0, |all: f32, value| all.max(value.abs()))
        });
        let powers = amax.map(|amax| activations.static_power(amax)).collect();
        let ones = activations.axes([count, size]).len();
        Ok(Some(([&[1, count][..], &vec![1; ones]].concat(), powers)))
    }
}

/// A shape that is computed: all axes before, these ones in place of the last axis but one, and the last one.
fn last_but_one(
    to: &mut Builder<'_, '_>,
    name: &str,
    x: &str,
    axes: &[i64],
) -> Result<String, OnnxError> {
    let shape = to.node(&format!("{name}_shape"), "Shape", &[x], Vec::new());
    let (start, end) = (
        to.integers("start", &[-1])?,
        to.integers("end", &[i64::MAX])?,
    );
    let last = to.node(
        &format!("{name}_last"),
        "Slice",
        &[&shape, &start, &end],
        Vec::new(),
    );
    let before = to.integers("axes", &[&[-1], axes].concat())?;
    let axis = vec![NewAttribute::Integer("axis", 0)];
    Ok(to.node(&format!("{name}_axes"), "Concat", &[&before, &last], axis))
}
