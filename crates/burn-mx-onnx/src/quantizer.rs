//! From a float model to a quantized one.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use crate::activations::Activations;
use crate::changes::Work;
use crate::changes::rewrite::Rewrite;
use crate::error::OnnxError;
use crate::files::safetensors_file::TensorFile;
use crate::files::{ExternalData, Output, map};
use crate::graph::Model;
use crate::graph::layers::{self, Found, Layer};
use crate::options::{Parts, Patterns, QuantizeOptions};
use crate::proto::{Data, Tensor, data_type};
use crate::weights::Storage;

/// The versions of ONNX's operators that are known.
const OPSETS: std::ops::RangeInclusive<i64> = 13..=26;

/// The layers that were quantized, and the sizes before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The names of the layers.
    pub layers: Vec<String>,
    /// Chosen products with a constant operand that stay unchanged, because this crate does not compute the constant.
    pub left: Vec<LeftLayer>,
    /// Bytes of the model and its external data, before.
    pub bytes_before: u64,
    /// Bytes of the model and its external data, after.
    pub bytes_after: u64,
}

/// A product that stays unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftLayer {
    /// The name of its node.
    pub name: String,
    /// Why it is not quantized: where its constant operand comes from.
    pub reason: String,
}

/// Quantizes a model. If the input has external data, the output has a file with external data next to the model (`….onnx.data`).
///
/// The output appears when it is complete. Messages of the model that do not change are written byte for byte as they were
/// read, and so are the elements of tensors.
///
/// # Errors
/// The output is unchanged.
/// * A file cannot be read or written, or is not an ONNX model ([`OnnxError::Io`], [`OnnxError::Model`]).
/// * The output exists and is not to be replaced, or is a file that is read ([`OnnxError::Exists`], [`OnnxError::Input`]).
/// * The operator set is not one of 13 to 26 ([`OnnxError::Opset`]).
/// * The format cannot be used for weights or activations ([`OnnxError::Format`]).
/// * A pattern matches no layer, or no layer is left ([`OnnxError::NoMatch`], [`OnnxError::NoLayers`],
///   [`OnnxError::OnlyLeft`]).
/// * A weight has another number of elements than its shape says, or has no code, as a NaN in block floating point
///   ([`OnnxError::Tensor`]).
/// * External data is missing, not in the model's folder, or a node's attribute ([`OnnxError::External`]).
/// * A weight has an axis of dynamic length ([`OnnxError::DynamicShape`]). Activations need no shape.
pub fn quantize(
    input: &Path,
    output: &Path,
    options: &QuantizeOptions,
) -> Result<Report, OnnxError> {
    quantize_with_progress(input, output, options, |_, _| ())
}

/// Like [`quantize`]. Calls `progress(done, all)` with the number of layers that are done.
///
/// # Errors
/// As [`quantize`].
pub fn quantize_with_progress(
    input: &Path,
    output: &Path,
    options: &QuantizeOptions,
    mut progress: impl FnMut(usize, usize),
) -> Result<Report, OnnxError> {
    let map = map(input)?;
    let mut model = Model::read(&map).map_err(|error| OnnxError::Model {
        path: input.to_owned(),
        reason: error.0,
    })?;
    check_opset("the model", model.opset)?;
    let external = ExternalData::beside(input);
    let storage = storage(options, model.opset)?;
    let activations = activations(options, model.opset)?;
    check_attributes(&model)?;
    let (layers, left) = chosen(layers::layers(&model), options)?;
    check_functions(&model, &layers)?;
    let mut inputs: Vec<PathBuf> = data_files(input, &model).into_iter().collect();
    let is_external = !inputs.is_empty();
    inputs.push(input.to_owned());
    inputs.extend(options.tuned.iter().chain(&options.calibration).cloned());
    let mut output_file = Output::at(output, options.force, is_external, &inputs)?;
    let tuned = options.tuned.as_deref().map(TensorFile::open).transpose()?;
    let calibration = options
        .calibration
        .as_deref()
        .map(TensorFile::open)
        .transpose()?;
    let replaced = replaced(&model, tuned.as_ref())?;

    let mut work = Work::new(
        &mut model,
        &mut output_file,
        &external,
        &replaced,
        calibration.as_ref(),
    );
    for (done, layer) in layers.iter().enumerate() {
        progress(done, layers.len());
        if let Some(storage) = &storage {
            work.weight(layer, storage)?;
        }
        if let Some(activations) = &activations {
            work.activation(layer, activations)?;
        }
    }
    progress(layers.len(), layers.len());
    let Work {
        edits, functions, ..
    } = work;
    let rewrite = Rewrite {
        model: &model,
        edits,
        functions: functions.into_values().filter_map(|(_, new)| new).collect(),
        replaced,
        external: &external,
        output: &mut output_file,
        ir_version: storage.as_ref().map_or(0, Storage::ir_version),
    };
    let message = rewrite.message()?;
    let bytes_after = output_file.finish(&message)?;
    Ok(Report {
        layers: layers.iter().map(|layer| layer.name.to_owned()).collect(),
        left,
        bytes_before: bytes_of(input, &map, &model)?,
        bytes_after,
    })
}

/// How weights are stored, if they are quantized.
fn storage(options: &QuantizeOptions, opset: i64) -> Result<Option<Storage>, OnnxError> {
    if options.parts == Parts::Activations {
        return Ok(None);
    }
    let storage = Storage {
        format: options.format,
        rounding: options.rounding,
        types: options.types,
        opset,
    };
    storage.check()?;
    Ok(Some(storage))
}

/// How activations are quantized, if they are.
fn activations(options: &QuantizeOptions, opset: i64) -> Result<Option<Activations>, OnnxError> {
    let is_static = options.calibration.is_some();
    if options.parts == Parts::Weights {
        return match is_static {
            false => Ok(None),
            true => Err(OnnxError::Field {
                field: "calibration".into(),
                value: "given, but activations are not quantized".into(),
                allowed: "with activations".into(),
            }),
        };
    }
    let activations = Activations {
        format: options.format,
        rounding: options.rounding,
        opset,
        is_static,
    };
    activations.check()?;
    Ok(Some(activations))
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

/// Checks that the functions around layers import the model's version of ONNX's operators.
fn check_functions(model: &Model<'_>, layers: &[Layer<'_>]) -> Result<(), OnnxError> {
    for layer in layers {
        if let Some(function) = &model.bodies[model.root(layer.body)].function
            && function.opset != model.opset
        {
            return Err(OnnxError::Opset {
                place: format!("function `{}`", function.name),
                got: function.opset,
                allowed: format!("{}, as in the model", model.opset),
            });
        }
    }
    Ok(())
}

/// Checks that no node has external data in its attributes: only the places of initializers are followed and written.
fn check_attributes(model: &Model<'_>) -> Result<(), OnnxError> {
    let nodes = model.bodies.iter().flat_map(|body| &body.nodes);
    for attribute in nodes.flat_map(|at| &at.node.attributes) {
        if let Some(Ok(tensor)) = attribute.tensor.map(Tensor::read)
            && let Data::External { location, .. } = tensor.data
        {
            return Err(OnnxError::External {
                tensor: tensor.name.to_owned(),
                location: location.to_owned(),
                reason: "it is a node's attribute; allowed: external data of initializers".into(),
            });
        }
    }
    Ok(())
}

/// The layers that the options choose, and the chosen products that stay unchanged.
fn chosen<'a>(
    found: Vec<(&'a str, Result<Found<'a>, OnnxError>)>,
    options: &QuantizeOptions,
) -> Result<(Vec<Layer<'a>>, Vec<LeftLayer>), OnnxError> {
    let include = Patterns::new(&options.include, "include")?;
    let exclude = Patterns::new(&options.exclude, "exclude")?;
    let names: Vec<&str> = found.iter().map(|(name, _)| *name).collect();
    include.check(&names)?;
    exclude.check(&names)?;
    let is_chosen =
        |name: &str| (include.is_empty() || include.matches(name)) && !exclude.matches(name);
    let (mut layers, mut left) = (Vec::new(), Vec::new());
    for (name, found) in found.into_iter().filter(|(name, _)| is_chosen(name)) {
        match found? {
            Found::Layer(layer) => layers.push(*layer),
            Found::Left(reason) => left.push(LeftLayer {
                name: name.to_owned(),
                reason,
            }),
        }
    }
    match (layers.is_empty(), left.is_empty()) {
        (false, _) => Ok((layers, left)),
        (true, true) => Err(OnnxError::NoLayers),
        (true, false) => {
            let layers = left
                .iter()
                .map(|left| format!("`{}`: {}", left.name, left.reason));
            let layers = layers.collect::<Vec<_>>().join("; ");
            Err(OnnxError::OnlyLeft { layers })
        }
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

/// The files of a model's external data.
fn data_files(input: &Path, model: &Model<'_>) -> BTreeSet<PathBuf> {
    let bodies = model.bodies.iter();
    let tensors = bodies.flat_map(|body| body.initializers.values());
    let files = tensors.filter_map(|tensor| match tensor.data {
        Data::External { location, .. } => Some(input.with_file_name(location)),
        _ => None,
    });
    files.collect()
}

/// Bytes of a model and its external data.
fn bytes_of(input: &Path, map: &[u8], model: &Model<'_>) -> Result<u64, OnnxError> {
    let sizes = data_files(input, model)
        .into_iter()
        .map(|file| fs::metadata(&file).map_err(OnnxError::io(&file)));
    let sizes: u64 = sizes
        .map(|metadata| Ok(metadata?.len()))
        .sum::<Result<_, OnnxError>>()?;
    Ok(map.len() as u64 + sizes)
}
