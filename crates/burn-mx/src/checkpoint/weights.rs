//! The weights of a model that are packed.

use std::collections::BTreeMap;

use burn_backend::TensorMetadata;
use burn_core::module::{Module, ModuleVisitor, Param};
use burn_core::tensor::{Tensor, TensorData};
use microscaling::{BlockFormat, Dialect, FloatFormat, PackError, Packed, RandomStream, Rounding};

use super::CheckpointError;
use crate::kept::CopyKey;
use crate::module::{Layer, MxTensorOps, Packing};
use crate::specs::{ResolvedSpecs, Slot};

impl Layer {
    /// The axis of the parameter that the forward product sums over.
    pub(super) fn summed_axis(self) -> usize {
        match self {
            Self::Linear | Self::Transposed => 0,
            Self::Convolution => 1,
        }
    }

    /// The shape that a parameter of this one is stored with: `[out, in]` of a linear layer, as everywhere else.
    pub(super) fn stored_shape(self, mut shape: Vec<usize>) -> Vec<usize> {
        if self == Self::Linear {
            shape.reverse();
        }
        shape
    }

    /// The axis that blocks of a stored weight lie along; square ones lie along the one before it, too.
    pub(super) fn stored_axis(self, format: BlockFormat) -> usize {
        match self {
            Self::Linear | Self::Convolution => 1,
            Self::Transposed => usize::from(format.is_square()),
        }
    }
}

/// A weight that is packed.
pub(super) struct Weight {
    pub(super) layer: Layer,
    pub(super) path: String,
    pub(super) specs: ResolvedSpecs,
    /// As it is stored.
    pub(super) shape: Vec<usize>,
    format: BlockFormat,
    elementwise: Option<(FloatFormat, Rounding)>,
    /// What its values came from, if they are quantized by themselves.
    packed: Option<Packed>,
    /// The values as they are stored.
    data: Box<dyn Fn() -> TensorData>,
    /// What they are packed to.
    encoded: Box<dyn Fn() -> Result<Packed, PackError>>,
}

impl Weight {
    pub(super) fn format(&self) -> BlockFormat {
        self.format
    }

    /// The packed weight, and what compressed-tensors stores in place of its tensor scale, if that is known.
    pub(super) fn pack(
        &self,
        dialect: Option<Dialect>,
    ) -> Result<(Packed, Option<f32>), CheckpointError> {
        let weight = || self.path.clone();
        if let (Some(packed), None) = (&self.packed, dialect) {
            return Ok((packed.clone(), None));
        }
        let Some(dialect) = dialect else {
            let packed = (self.encoded)().map_err(|source| CheckpointError::Pack {
                weight: weight(),
                source,
            })?;
            return Ok((packed, None));
        };
        if self.layer != Layer::Linear {
            return Err(CheckpointError::DialectOfConvolution { weight: weight() });
        }
        let data = (self.data)().convert::<f32>();
        let mut values: Vec<f32> = data.into_vec().expect("they were converted");
        round(&mut values, self.elementwise);
        let tensor = dialect.encode(self.format, &values, &self.shape);
        let tensor = tensor.map_err(|source| CheckpointError::Dialect {
            weight: weight(),
            source,
        })?;
        Ok((tensor.packed, tensor.divisor))
    }
}

/// Nothing here is stochastic.
pub(super) const NO_STREAM: RandomStream = RandomStream::new(0, 0);

/// Rounds to the elementwise format, if there is one.
pub(super) fn round(values: &mut [f32], elementwise: Option<(FloatFormat, Rounding)>) {
    if let Some((format, rounding)) = elementwise {
        format.round_slice(values, rounding.with(NO_STREAM));
    }
}

/// The weights of linear layers and convolutions that are quantized in blocks, by path; enum variants are no part of a path if
/// `skip_variants`.
pub(super) fn weights<B: MxTensorOps, M: Module<B>>(
    model: &M,
    skip_variants: bool,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<BTreeMap<String, Weight>, CheckpointError> {
    let mut finder = Finder {
        path: Path::new(skip_variants),
        is_wanted,
        weights: BTreeMap::new(),
        error: None,
    };
    model.visit(&mut finder);
    match finder.error {
        Some(error) => Err(error),
        None => Ok(finder.weights),
    }
}

/// Where a walk through a module is, as burn-store names it.
pub(super) struct Path {
    skip_variants: bool,
    names: Vec<String>,
    containers: Vec<String>,
}

impl Path {
    pub(super) fn new(skip_variants: bool) -> Self {
        Self {
            skip_variants,
            names: Vec::new(),
            containers: Vec::new(),
        }
    }

    fn counts(&self, container: &str) -> bool {
        !self.skip_variants || !container.starts_with("Enum:")
    }

    pub(super) fn enter(&mut self, name: &str, container: &str) {
        self.containers.push(container.to_owned());
        if self.counts(container) {
            self.names.push(name.to_owned());
        }
    }

    pub(super) fn exit(&mut self, container: &str) {
        self.containers.pop();
        if self.counts(container) {
            self.names.pop();
        }
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    pub(super) fn containers(&self) -> &[String] {
        &self.containers
    }

    pub(super) fn text(&self) -> String {
        self.names.join(".")
    }

    /// The layer whose weight the parameter is that the walk is at.
    pub(super) fn layer(&self) -> Option<Layer> {
        let is_weight = self.names.last()? == "weight";
        Layer::of(self.containers.last()?).filter(|_| is_weight)
    }
}

struct Finder<F> {
    path: Path,
    is_wanted: F,
    weights: BTreeMap<String, Weight>,
    error: Option<CheckpointError>,
}

impl<B: MxTensorOps, F: Fn(&str) -> bool> ModuleVisitor<B> for Finder<F> {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, container_type: &str) {
        self.path.exit(container_type);
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let Some(layer) = self.path.layer() else {
            return;
        };
        let path = self.path.text();
        let tensor = param.val();
        let primitive = tensor.clone().into_primitive().tensor();
        let Some(specs) = B::specs_of(&primitive) else {
            return;
        };
        let Some(format) = specs.block_format(Slot::W) else {
            return;
        };
        if !(self.is_wanted)(&path) {
            return;
        }
        let axis = layer.summed_axis();
        let key = match key(&path, specs, axis) {
            Ok(key) => key,
            Err(error) => {
                self.error.get_or_insert(error);
                return;
            }
        };
        let stored = move || match layer {
            Layer::Linear => tensor.clone().transpose(),
            _ => tensor.clone(),
        };
        let packing = Packing {
            elementwise: key.elementwise,
            format,
            rounding: key.rounding,
            stream: NO_STREAM,
        };
        let encoded = {
            let (stored, axis) = (stored.clone(), layer.stored_axis(format));
            move || B::pack(stored().into_primitive().tensor(), axis, packing)
        };
        let weight = Weight {
            layer,
            path: path.clone(),
            specs: specs.clone(),
            shape: layer.stored_shape(primitive.shape().to_vec()),
            format,
            elementwise: key.elementwise,
            packed: B::packed_of(&primitive, axis).cloned(),
            data: Box::new(move || stored().into_data()),
            encoded: Box::new(encoded),
        };
        self.weights.insert(path, weight);
    }
}

/// How the forward product quantizes a weight, if a packed one can be that.
fn key(path: &str, specs: &ResolvedSpecs, axis: usize) -> Result<CopyKey, CheckpointError> {
    let weight = || path.to_owned();
    let Some(key) = CopyKey::of_weight(specs, axis) else {
        let transform = specs.hadamard_forward();
        return Err(CheckpointError::Transformed {
            weight: weight(),
            transform: transform.map_or_else(String::new, |transform| transform.to_string()),
        });
    };
    if key.repeats() {
        return Ok(key);
    }
    let field = match key.rounding {
        Rounding::Stochastic => "round_mx_output",
        _ => "round_weight",
    };
    Err(CheckpointError::Random {
        weight: weight(),
        field,
    })
}
