//! Loads checkpoints.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use burn_backend::{DType, Shape};
use burn_core::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn_core::tensor::{Bool, Int, Tensor, TensorData};
use burn_store::{
    ApplyError, ModuleAdapter, ModuleSnapshot, PyTorchToBurnAdapter, TensorSnapshot,
    TensorSnapshotError,
};
use microscaling::{Packed, PackedView};

use super::archive::{Archive, files};
use super::columns::in_rows;
use super::types;
use super::weights::{InFile, Layers, NO_STREAM, Path, alike, random_field, round};
use super::{Checkpoint, CheckpointError};
use burn_mx_core::hooks::SharedSpecs;
use burn_mx_core::{MxSpecs, ResolvedSpecs, Slot, SlotFormat};
use burn_mx_core::{MxTensorOps, TensorChange, Unpacked};
use burn_mx_module::{LayerKind, change, set_specs_of};

/// A loaded model.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Loaded<M> {
    /// The model.
    pub model: M,
    /// Paths of the weights that were packed in the file.
    pub packed: Vec<String>,
    /// Paths of all other loaded tensors.
    pub others: Vec<String>,
    /// Paths in the model that the file does not have. Empty unless the load is [partial](Checkpoint::partial).
    pub missing: Vec<String>,
    /// Names in the file that the model does not have.
    pub unused: Vec<String>,
}

pub(super) fn load<B: MxTensorOps, M: Module<B>>(
    checkpoint: &Checkpoint,
    model: M,
) -> Result<Loaded<M>, CheckpointError> {
    let files = files(&checkpoint.path)?;
    let archive = Archive::read(&files, checkpoint.layout)?;
    let foreign = archive.is_foreign();
    let own = || foreign.then(|| Box::new(PyTorchToBurnAdapter) as Box<dyn ModuleAdapter>);
    let adapter = checkpoint.adapter.clone().or_else(own);
    // burn-store's adapter takes what is called `Linear` for Burn's.
    let alike = match checkpoint.adapter {
        None => alike::<B, M>(&model, foreign),
        Some(_) => Vec::new(),
    };
    let layers = Layers::of(checkpoint)?;

    let stored = archive.weights().keys().chain(archive.others());
    checkpoint.check_renames(stored.cloned())?;
    let names = names_of_weights(checkpoint, &archive);
    let mut unpacker = Unpacker {
        checkpoint,
        archive: &archive,
        names: &names,
        layers: &layers,
        path: Path::new(foreign),
        packed: Vec::new(),
        error: None,
    };
    let model = Module::<B>::map(model, &mut unpacker);
    if let Some(error) = unpacker.error {
        return Err(error);
    }
    let packed = unpacker.packed;

    let (mut model, columns) = in_rows::<B, M>(model);
    let adapter = AsInModel::new::<B, M>(&model, foreign, adapter, alike);
    let (snapshots, _) = checkpoint.renames.remap(snapshots(&archive));
    let filter = checkpoint.filter.clone();
    let applied = model.apply(snapshots, filter, Some(adapter.clone_box()), foreign);
    if let Some(error) = applied.errors.into_iter().next() {
        return Err(of_apply(error));
    }
    let missing: Vec<String> = (applied.missing.into_iter().map(|(path, _)| path))
        .filter(|path| !packed.contains(path))
        .collect();
    if !checkpoint.is_partial && !missing.is_empty() {
        let found: Vec<&str> = archive.names().collect();
        return Err(CheckpointError::Missing {
            path: checkpoint.path.clone(),
            missing: missing.join(", "),
            found: found.join(", "),
        });
    }
    // burn-store takes a tensor that was found by its other name for one that nobody wants.
    let found = applied.applied.iter();
    let found: Vec<String> = found.filter_map(|path| adapter.other_name(path)).collect();
    let unused = names.keys().filter(|name| !packed.contains(name));
    let unused = unused.cloned().chain(applied.unused);
    Ok(Loaded {
        unused: unused.filter(|name| !found.contains(name)).collect(),
        model: columns.back_in::<B, M>(model),
        packed,
        others: applied.applied,
        missing,
    })
}

/// The names of packed weights in the files, by their names in the model.
fn names_of_weights(checkpoint: &Checkpoint, archive: &Archive<'_>) -> BTreeMap<String, String> {
    let nothing: ToData = Rc::new(|| Ok(TensorData::new(Vec::<f32>::new(), [0])));
    let names = archive.weights().keys();
    let snapshots = names.map(|name| snapshot(name, DType::F32, [0].into(), Rc::clone(&nothing)));
    let (_, renamed) = checkpoint.renames.remap(snapshots.collect());
    renamed.into_iter().collect()
}

type ToData = Rc<dyn Fn() -> Result<TensorData, TensorSnapshotError>>;

fn snapshot(name: &str, dtype: DType, shape: Shape, data: ToData) -> TensorSnapshot {
    let path = name.split('.').map(str::to_owned).collect();
    TensorSnapshot::from_closure(data, dtype, shape, path, Vec::new(), ParamId::new())
}

/// The tensors that are not packed weights, unchanged.
fn snapshots(archive: &Archive<'_>) -> Vec<TensorSnapshot> {
    let of = |name: &String| {
        let tensor = archive.tensor(name).expect("it is one of the names");
        let file = Rc::clone(archive.file(name).expect("it is one of the names"));
        let start = tensor.bytes.as_ptr().addr() - file.bytes().as_ptr().addr();
        let range = start..start + tensor.bytes.len();
        let shape = Shape::from(tensor.shape);
        let Some(dtype) = types::of_stored(&tensor.dtype) else {
            let reason = format!("is {}, which no tensor of Burn is", tensor.dtype);
            let fail = move || Err(TensorSnapshotError::DataError(reason.clone()));
            return snapshot(name, DType::F32, shape, Rc::new(fail));
        };
        let stored = shape.clone();
        let data = move || {
            let bytes = file.bytes()[range.clone()].to_vec();
            types::check(&bytes, dtype).map_err(TensorSnapshotError::DataError)?;
            Ok(TensorData::from_bytes_vec(bytes, stored.clone(), dtype))
        };
        snapshot(name, dtype, shape, Rc::new(data))
    };
    archive.others().iter().map(of).collect()
}

fn of_apply(error: ApplyError) -> CheckpointError {
    match error {
        ApplyError::ShapeMismatch {
            path,
            expected,
            found,
        } => CheckpointError::Shape {
            tensor: path,
            expected: expected.to_vec(),
            got: found.to_vec(),
        },
        ApplyError::LoadError { path, message } | ApplyError::AdapterError { path, message } => {
            CheckpointError::Tensor {
                tensor: path,
                reason: message,
            }
        }
        ApplyError::DTypeMismatch {
            path,
            expected,
            found,
        } => CheckpointError::Tensor {
            tensor: path,
            reason: format!("is {found:?}, expected {expected:?}"),
        },
    }
}

/// A tensor of a model.
#[derive(Clone)]
struct Place {
    dtype: DType,
    /// The type of the module that the tensor belongs to.
    module: String,
}

/// A model's tensors, by path.
struct Places {
    path: Path,
    places: HashMap<String, Place>,
}

impl Places {
    fn insert(&mut self, dtype: DType) {
        let is_module = |kind: &&String| kind.starts_with("Struct:") || kind.starts_with("Enum:");
        let module = self.path.containers().iter().rev().find(is_module);
        let module = module.cloned().unwrap_or_default();
        self.places
            .insert(self.path.text(), Place { dtype, module });
    }
}

impl<B: MxTensorOps> ModuleVisitor<B> for Places {
    #[track_caller]
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, container_type: &str) {
        self.path.exit(container_type);
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.insert(param.val().dtype());
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<B, D, Int>>) {
        self.insert(param.val().dtype());
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<B, D, Bool>>) {
        self.insert(param.val().dtype());
    }
}

/// An adapter that also casts numbers to the type that the model has at the same place.
#[derive(Clone)]
struct AsInModel {
    places: HashMap<String, Place>,
    /// Paths of modules that only share the name of a Burn layer; the adapter does not apply to them.
    alike: Vec<String>,
    adapter: Option<Box<dyn ModuleAdapter>>,
}

impl AsInModel {
    fn new<B: MxTensorOps, M: Module<B>>(
        model: &M,
        skip_variants: bool,
        adapter: Option<Box<dyn ModuleAdapter>>,
        alike: Vec<String>,
    ) -> Self {
        let mut places = Places {
            path: Path::new(skip_variants),
            places: HashMap::new(),
        };
        model.visit(&mut places);
        let places = places.places;
        Self {
            places,
            alike,
            adapter,
        }
    }

    /// The other name by which the tensor at this path may be stored.
    fn other_name(&self, path: &str) -> Option<String> {
        let (module, name) = path.rsplit_once('.')?;
        let other = self.get_alternative_param_name(name, &self.places.get(path)?.module)?;
        Some(format!("{module}.{other}"))
    }
}

impl ModuleAdapter for AsInModel {
    fn adapt(&self, snapshot: &TensorSnapshot) -> TensorSnapshot {
        let path = snapshot.full_path();
        let wanted = self.places.get(&path).map(|place| place.dtype);
        let adapted = match &self.adapter {
            Some(adapter) if !self.alike.contains(&path) => adapter.adapt(snapshot),
            _ => snapshot.clone(),
        };
        let found = adapted.dtype;
        let Some(wanted) = wanted.filter(|wanted| *wanted != found) else {
            return adapted;
        };
        let data = adapted.clone_data_fn();
        let data = move || match types::converts(found, wanted) {
            true if found.is_bool() => data(),
            true => Ok(data()?.convert_dtype(wanted)),
            false => {
                let reason = format!("is {found:?} in the file, expected {wanted:?}");
                Err(TensorSnapshotError::DataError(reason))
            }
        };
        let dtype = match found.is_bool() {
            true => found,
            false => wanted,
        };
        TensorSnapshot::from_closure(
            Rc::new(data),
            dtype,
            adapted.shape,
            adapted.path_stack.unwrap_or_default(),
            adapted.container_stack.unwrap_or_default(),
            adapted.tensor_id.unwrap_or_default(),
        )
    }

    fn get_alternative_param_name(&self, name: &str, container: &str) -> Option<String> {
        self.adapter
            .as_ref()?
            .get_alternative_param_name(name, container)
    }

    fn clone_box(&self) -> Box<dyn ModuleAdapter> {
        Box::new(self.clone())
    }
}

/// Puts the values of packed weights in their places.
struct Unpacker<'a> {
    checkpoint: &'a Checkpoint,
    archive: &'a Archive<'a>,
    /// The names in the files, by the names in the model.
    names: &'a BTreeMap<String, String>,
    layers: &'a Layers,
    path: Path,
    /// Paths of the weights that were found.
    packed: Vec<String>,
    error: Option<CheckpointError>,
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
    let mut values = packed.decode();
    let smallest = values.iter().map(|x| x.abs()).filter(|x| *x > 0.0);
    let smallest = smallest.fold(f32::INFINITY, f32::min);
    round(&mut values, quantization.elementwise);
    let rounder = rounding.with(NO_STREAM);
    let again = Packed::encode(format, &values, packed.shape(), packed.axis(), rounder);
    if again.is_ok_and(|again| again == *packed) {
        return None;
    }
    // Where a value was rounded to a subnormal number the factor is not to be had again.
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
