//! Puts packed weights of a checkpoint into a model.

use crate::archive::Archive;
use crate::checkpoint::Checkpoint;
use crate::error::CheckpointError;
use crate::weights::{InFile, Layers, NO_STREAM, Path, random_field, round};
use burn_backend::DType;
use burn_core::module::{ModuleMapper, Param};
use burn_core::tensor::{Tensor, TensorData};
use burn_mx_core::hooks::SharedSpecs;
use burn_mx_core::{MxSpecs, ResolvedSpecs, Slot, SlotFormat};
use burn_mx_core::{MxTensorOps, TensorChange, Unpacked};
use burn_mx_module::{LayerKind, change, set_specs_of};
use microscaling::{Dialect, Packed, PackedView};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Puts the values of packed weights in their places.
pub(super) struct Unpacker<'a> {
    pub(super) checkpoint: &'a Checkpoint,
    pub(super) archive: &'a Archive<'a>,
    /// The names in the files, by the names in the model.
    pub(super) names: &'a BTreeMap<String, String>,
    pub(super) layers: &'a Layers,
    pub(super) path: Path,
    /// Paths of the weights that were found.
    pub(super) packed: Vec<String>,
    pub(super) error: Option<CheckpointError>,
}

impl<B: MxTensorOps> ModuleMapper<B> for Unpacker<'_> {
    #[track_caller]
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, container_type: &str) {
        self.path.exit(container_type);
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let path = self.path.text();
        let filter = self.checkpoint.filter.as_ref();
        let is_wanted = filter.is_none_or(|filter| {
            filter.matches_with_container_path(self.path.names(), self.path.containers())
        });
        let (true, None, Some(name)) = (is_wanted, &self.error, self.names.get(&path)) else {
            return param;
        };
        match self.unpacked(name, &path, param.clone()) {
            Ok(param) => {
                self.packed.push(path);
                param
            }
            Err(error) => {
                self.error = Some(error);
                param
            }
        }
    }
}

impl Unpacker<'_> {
    /// The parameter with the values of this weight, and its specs.
    fn unpacked<B: MxTensorOps, const D: usize>(
        &self,
        name: &str,
        path: &str,
        param: Param<Tensor<B, D>>,
    ) -> Result<Param<Tensor<B, D>>, CheckpointError> {
        let packed = self.archive.packed(name)?;
        let (id, old, mapper) = param.consume();
        let shape = old.shape().to_vec();
        let layer = self.layer(&packed, &shape)?;
        let stored_shape = match layer {
            Some(layer) => layer.stored_shape(shape.clone()),
            None => shape.clone(),
        };
        if packed.shape() != stored_shape {
            return Err(CheckpointError::Shape {
                tensor: path.to_owned(),
                expected: stored_shape,
                got: packed.shape().to_vec(),
            });
        }
        let specs = self.specs(name, path, &packed, &old, layer)?;
        // This tool's products divide, and so did the products of the saved model.
        let packed = match specs.dialect(Slot::W) {
            Some(Dialect::CompressedTensors) => self.archive.divided(name, packed),
            _ => packed,
        };
        let unpacked = layer.and_then(|layer| unpacked(&packed, layer, &specs));
        let values = match layer {
            Some(LayerKind::Linear) => transposed(&packed.view()),
            _ => packed.decode(),
        };
        drop(packed);
        let new = in_place_of(&old, TensorData::new(values, shape), path)?;
        let param = Param::from_mapped_value(id, new, mapper);
        let param = set_specs_of(param, path, SharedSpecs::of(&specs));
        let Some(unpacked) = unpacked else {
            return Ok(param);
        };
        let (id, tensor, mapper) = param.consume();
        let tensor = change(tensor, TensorChange::Unpacked(Arc::new(unpacked)));
        Ok(Param::from_mapped_value(id, tensor, mapper))
    }

    /// The layout of the weight in the model. For a module that is not Burn's and has no named axis, the shape of the matrix
    /// decides.
    fn layer(
        &self,
        packed: &Packed,
        shape: &[usize],
    ) -> Result<Option<LayerKind>, CheckpointError> {
        let known = self.layers.layer(&self.path, shape)?;
        let (None, &[outputs, inputs]) = (known, packed.shape()) else {
            return Ok(known);
        };
        match (shape == [outputs, inputs], shape == [inputs, outputs]) {
            (true, true) if outputs > 1 => Err(CheckpointError::UnknownLayer {
                weight: self.path.text(),
            }),
            (false, true) => Ok(Some(LayerKind::Linear)),
            _ => Ok(Some(LayerKind::Convolution)),
        }
    }

    /// The specs of a packed weight: the saved ones, or the parameter's with the layout's format.
    fn specs<B: MxTensorOps, const D: usize>(
        &self,
        name: &str,
        path: &str,
        packed: &Packed,
        old: &Tensor<B, D>,
        layer: Option<LayerKind>,
    ) -> Result<ResolvedSpecs, CheckpointError> {
        let of_parameter = || {
            let primitive = old.clone().into_primitive().tensor();
            let specs = B::specs_of(&primitive).map(|specs| specs.specs().clone());
            MxSpecs {
                w_elem_format: Some(SlotFormat::Block(packed.format())),
                ..specs.unwrap_or_default()
            }
        };
        let specs = self.archive.specs(name).cloned();
        let specs = specs.unwrap_or_else(of_parameter).resolve();
        let specs = specs.map_err(|source| CheckpointError::Specs {
            weight: path.to_owned(),
            source: Box::new(source),
        })?;
        let Some(input) = self.archive.input(name) else {
            return Ok(specs);
        };
        let fail = |what: String| CheckpointError::Json {
            path: self.checkpoint.path.clone(),
            what: "the metadata `burn_mx`",
            reason: format!("the scales of `{name}`'s input do not fit {what}"),
        };
        if !input.fits(specs.block_format(Slot::A)) {
            return Err(fail("its specs".to_owned()));
        }
        // A convolution's weight has the inputs of one group.
        let inputs = packed.shape()[layer.map_or(packed.axis(), LayerKind::summed_axis_of_stored)];
        let fits = match layer {
            Some(LayerKind::Convolution) if D > 2 && inputs > 0 => {
                let groups = input.length() / inputs;
                groups * inputs == input.length() && packed.shape()[0].is_multiple_of(groups)
            }
            _ => input.length() == inputs,
        };
        match fits {
            true => Ok(specs.with_static_input(input.clone())),
            false => Err(fail(format!(
                "the weight: they are of {} elements, and its products sum over {inputs}",
                input.length()
            ))),
        }
    }
}

/// A tensor of these values, with all other properties of `old`.
fn in_place_of<B: MxTensorOps, const D: usize>(
    old: &Tensor<B, D>,
    data: TensorData,
    path: &str,
) -> Result<Tensor<B, D>, CheckpointError> {
    let dtype = old.dtype();
    let data = match dtype {
        DType::F32 => data,
        dtype => {
            let narrow = data.clone().convert_dtype(dtype);
            let wide = narrow.clone().convert_dtype(DType::F32);
            if wide.as_bytes() != data.as_bytes() {
                return Err(CheckpointError::Inexact {
                    weight: path.to_owned(),
                    dtype,
                });
            }
            narrow
        }
    };
    let tensor = Tensor::from_data(data, (&old.device(), dtype));
    Ok(tensor.set_require_grad(old.is_require_grad()))
}

/// The record that the values of a packed weight are quantized already, if these specs would not give the same packed weight
/// again.
fn unpacked(packed: &Packed, layer: LayerKind, specs: &ResolvedSpecs) -> Option<Unpacked> {
    let quantization = specs.weight_quantization()?;
    let (format, rounding) = quantization.blocks?;
    if format != packed.format() || random_field(&quantization).is_some() {
        return None;
    }
    // Products by a tool's rules do not quantize the values again.
    if specs.dialect(Slot::W).is_some() {
        return Unpacked::new(packed.clone(), None, specs, layer.summed_axis());
    }
    let mut values = packed.decode();
    let smallest = values.iter().map(|x| x.abs()).filter(|x| *x > 0.0);
    let smallest = smallest.fold(f32::INFINITY, f32::min);
    round(&mut values, quantization.elementwise);
    let rounder = rounding.with(NO_STREAM);
    let again = Packed::encode(format, &values, packed.shape(), packed.axis(), rounder);
    if again.is_ok_and(|again| again == *packed) {
        return None;
    }
    // Where a value was rounded to a subnormal number the factor is lost.
    let tensor_scale = packed.tensor_scale();
    let tensor_scale = tensor_scale.filter(|_| smallest >= f32::MIN_POSITIVE);
    Unpacked::new(packed.clone(), tensor_scale, specs, layer.summed_axis())
}

/// Rows that are decoded at a time: as many as a cache line has numbers.
const ROWS: usize = 16;

/// The values of a matrix, transposed.
fn transposed(packed: &PackedView<'_>) -> Vec<f32> {
    let (rows, width) = (packed.shape()[0], packed.shape()[1]);
    let mut values = vec![0.0; rows * width];
    if values.is_empty() {
        return values;
    }
    let mut lines = vec![0.0; ROWS * width];
    for first in (0..rows).step_by(ROWS) {
        let count = ROWS.min(rows - first);
        let lines = &mut lines[..count * width];
        packed
            .decode_into(first..first + count, lines)
            .expect("the rows are there");
        for (column, values) in values.chunks_exact_mut(rows).enumerate() {
            for (line, value) in values[first..first + count].iter_mut().enumerate() {
                *value = lines[line * width + column];
            }
        }
    }
    values
}
