//! Loads checkpoints.

mod unpack;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;

use burn_backend::{DType, Shape};
use burn_core::module::{Module, ModuleVisitor, Param, ParamId};
use burn_core::tensor::{Bool, Int, Tensor, TensorData};
use burn_store::{
    ApplyError, ModuleAdapter, ModuleSnapshot, PathFilter, PyTorchToBurnAdapter, TensorSnapshot,
    TensorSnapshotError,
};

use crate::archive::{Archive, ForeignWeight, Mapped, files};
use crate::checkpoint::Checkpoint;
use crate::columns::in_rows;
use crate::error::CheckpointError;
use crate::types;
use crate::weights::{Layers, Path, alike};
use burn_mx_core::MxTensorOps;
use microscaling::safetensors::FileTensor;
use unpack::Unpacker;

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

impl Checkpoint {
    /// Loads the checkpoint into the model. A packed weight becomes its values and gets its own specs, as by
    /// [`set_specs_at`](burn_mx_module::set_specs_at). These are the specs that it was saved with. If the file has none, they
    /// are the model's specs with the layout's format for the weight. The forward product takes the values unchanged until an
    /// optimizer changes them.
    ///
    /// Some weights of other tools become their values, and keep the model's specs: FP8 with scales of higher precision, and integers of
    /// GPTQ, AWQ and compressed-tensors. The `config.json` beside the files says which elements
    /// share a scale. Files that [`save`](Self::save) wrote need no config, and a config beside them is not read.
    ///
    /// Files are mapped. Loading needs memory for one tensor beside the model.
    ///
    /// # Errors
    ///
    /// See [`CheckpointError`].
    pub fn load<B: MxTensorOps, M: Module<B>>(
        &self,
        model: M,
    ) -> Result<Loaded<M>, CheckpointError> {
        let files = files(&self.path)?;
        let archive = Archive::read(&files, self.layout)?;
        let unread = archive.check(&self.path, self.layout.is_some(), self.is_partial)?;
        let foreign = archive.is_foreign();
        let own = || foreign.then(|| Box::new(PyTorchToBurnAdapter) as Box<dyn ModuleAdapter>);
        let adapter = self.adapter.clone().or_else(own);
        // burn-store's adapter takes a layer called `Linear` for Burn's.
        let alike = match self.adapter {
            None => alike::<B, M>(&model, foreign),
            Some(_) => Vec::new(),
        };
        let layers = Layers::of(self)?;

        self.check_renames(archive.loaded().into_iter().cloned())?;
        let names = names_in_model(self, archive.weights().keys());
        let mut unpacker = Unpacker {
            checkpoint: self,
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
        let (mut snapshots, _) = self.renames.remap(snapshots(&archive));
        // A model must not take codes for values: the weight is missing.
        for (path, codes) in names_in_model(self, unread.keys()) {
            let is_left_out = |filter: &PathFilter| !filter.matches(&path);
            if !adapter.wants_float(&path) || self.filter.as_ref().is_some_and(is_left_out) {
                continue;
            }
            if !self.is_partial {
                let reason = &unread[&codes];
                return Err(CheckpointError::Tensor {
                    tensor: path,
                    reason: format!("the weight is quantized and cannot be read: {reason}"),
                });
            }
            snapshots.retain(|snapshot| snapshot.full_path() != path);
        }
        let filter = self.filter.clone();
        let applied = model.apply(snapshots, filter, Some(adapter.clone_box()), foreign);
        if let Some(error) = applied.errors.into_iter().next() {
            return Err(of_apply(error));
        }
        let missing: Vec<String> = (applied.missing.into_iter().map(|(path, _)| path))
            .filter(|path| !packed.contains(path))
            .collect();
        if !self.is_partial && !missing.is_empty() {
            let found: Vec<&str> = archive.names().collect();
            return Err(CheckpointError::Missing {
                path: self.path.clone(),
                missing: some(&missing),
                found: some(&found),
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
}

/// Loads a checkpoint into a model. Every tensor of the model must be in the checkpoint. [`Checkpoint`] has more options.
///
/// # Errors
///
/// See [`CheckpointError`].
pub fn load_checkpoint<B: MxTensorOps, M: Module<B>>(
    model: M,
    path: impl Into<PathBuf>,
) -> Result<M, CheckpointError> {
    Ok(Checkpoint::new(path).load(model)?.model)
}

/// These names in the files, by their names in the model.
fn names_in_model<'a>(
    checkpoint: &Checkpoint,
    names: impl Iterator<Item = &'a String>,
) -> BTreeMap<String, String> {
    let nothing: ToData = Rc::new(|| Ok(TensorData::new(Vec::<f32>::new(), [0])));
    let snapshots = names.map(|name| snapshot(name, DType::F32, [0].into(), Rc::clone(&nothing)));
    let (_, renamed) = checkpoint.renames.remap(snapshots.collect());
    renamed.into_iter().collect()
}

type ToData = Rc<dyn Fn() -> Result<TensorData, TensorSnapshotError>>;

fn snapshot(name: &str, dtype: DType, shape: Shape, data: ToData) -> TensorSnapshot {
    let path = name.split('.').map(str::to_owned).collect();
    TensorSnapshot::from_closure(data, dtype, shape, path, Vec::new(), ParamId::new())
}

/// The tensors that are not packed weights: weights of other tools by their values, all others unchanged.
fn snapshots(archive: &Archive<'_>) -> Vec<TensorSnapshot> {
    let weights = archive.with_values();
    let weights = weights.map(|(name, weight)| of_foreign(archive, name, weight));
    let others = archive.others().into_iter();
    let others = others.map(|name| of_other(Stored::new(archive, name), name));
    weights.chain(others).collect()
}

/// A tensor in a mapped file, which stays mapped.
struct Stored {
    file: Rc<Mapped>,
    range: Range<usize>,
    dtype: String,
    shape: Vec<usize>,
}

impl Stored {
    /// The tensor of this name, which the archive has.
    fn new(archive: &Archive<'_>, name: &str) -> Self {
        let tensor = archive.tensor(name).expect("it is one of the names");
        let file = archive.file(name).expect("it is one of the names");
        let start = tensor.bytes.as_ptr().addr() - file.bytes().as_ptr().addr();
        Self {
            file: Rc::clone(file),
            range: start..start + tensor.bytes.len(),
            dtype: tensor.dtype,
            shape: tensor.shape,
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.file.bytes()[self.range.clone()]
    }

    fn tensor(&self) -> FileTensor<'_> {
        FileTensor {
            dtype: self.dtype.clone(),
            shape: self.shape.clone(),
            bytes: self.bytes(),
        }
    }
}

fn of_other(stored: Stored, name: &str) -> TensorSnapshot {
    let shape = Shape::from(stored.shape.clone());
    let Some(dtype) = types::of_stored(&stored.dtype) else {
        let reason = format!("is {}, which no tensor of Burn is", stored.dtype);
        let fail = move || Err(TensorSnapshotError::DataError(reason.clone()));
        return snapshot(name, DType::F32, shape, Rc::new(fail));
    };
    let data = move || {
        let bytes = stored.bytes().to_vec();
        types::check(&bytes, dtype).map_err(TensorSnapshotError::DataError)?;
        Ok(TensorData::from_bytes_vec(
            bytes,
            stored.shape.clone(),
            dtype,
        ))
    };
    snapshot(name, dtype, shape, Rc::new(data))
}

fn of_foreign(archive: &Archive<'_>, name: &str, weight: ForeignWeight) -> TensorSnapshot {
    let parts = archive.parts_of(name).into_iter();
    let parts = parts.map(|part| (part.clone(), Stored::new(archive, &part)));
    let parts: BTreeMap<String, Stored> = parts.collect();
    let shape = weight.shape(name, |part| archive.tensor(part));
    let (name, of_weight) = (name.to_owned(), shape.clone());
    let data = {
        let name = name.clone();
        move || {
            let values = weight.values(&name, |part| parts.get(part).map(Stored::tensor));
            let missing = || TensorSnapshotError::DataError("lacks one of its parts".to_owned());
            Ok(TensorData::new(
                values.ok_or_else(missing)?,
                of_weight.clone(),
            ))
        }
    };
    snapshot(&name, DType::F32, Shape::from(shape), Rc::new(data))
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
struct ModelTensor {
    dtype: DType,
    /// The type of the module that the tensor belongs to.
    module: String,
}

/// A model's tensors, by path.
struct ModelTensors {
    path: Path,
    places: HashMap<String, ModelTensor>,
}

impl ModelTensors {
    fn insert(&mut self, dtype: DType) {
        let is_module = |kind: &&String| kind.starts_with("Struct:") || kind.starts_with("Enum:");
        let module = self.path.containers().iter().rev().find(is_module);
        let module = module.cloned().unwrap_or_default();
        self.places
            .insert(self.path.text(), ModelTensor { dtype, module });
    }
}

impl<B: MxTensorOps> ModuleVisitor<B> for ModelTensors {
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
    places: HashMap<String, ModelTensor>,
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
        let mut places = ModelTensors {
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

    /// Whether the model has a tensor of floats at this path.
    fn wants_float(&self, path: &str) -> bool {
        self.places
            .get(path)
            .is_some_and(|place| place.dtype.is_float())
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

/// The first names, and how many more there are.
fn some(names: &[impl AsRef<str>]) -> String {
    const MOST: usize = 10;
    let shown: Vec<&str> = names.iter().take(MOST).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(MOST) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
