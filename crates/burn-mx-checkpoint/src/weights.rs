//! The weights of a model that are packed.

mod path;

use std::collections::BTreeMap;

use burn_backend::TensorMetadata;
use burn_core::module::{Module, ModuleVisitor, Param};
use burn_core::tensor::backend::Backend;
use burn_core::tensor::{Tensor, TensorData};
use microscaling::{
    BlockFormat, Dialect, FloatFormat, OperandQuantization, PackError, Packed, RandomStream,
    Rounding,
};

use crate::checkpoint::Checkpoint;
use crate::error::CheckpointError;
use burn_mx_core::{MxTensorOps, Packing, ResolvedSpecs, Slot};
use burn_mx_module::{LayerKind, PathError, Pattern};
pub(super) use path::Path;

/// The layout of a layer's weight in a file.
pub(super) trait InFile {
    /// The stored shape of a parameter with this shape: `[out, in]` for a linear layer.
    fn stored_shape(self, shape: Vec<usize>) -> Vec<usize>;

    /// The axis of the stored weight that the forward product sums over.
    fn summed_axis_of_stored(self) -> usize;

    /// The axis of a stored weight's blocks. Square blocks also lie along the axis before it.
    fn stored_axis(self, format: BlockFormat) -> usize;
}

impl InFile for LayerKind {
    fn stored_shape(self, mut shape: Vec<usize>) -> Vec<usize> {
        if self == Self::Linear {
            shape.reverse();
        }
        shape
    }

    fn summed_axis_of_stored(self) -> usize {
        match self {
            Self::Linear | Self::Convolution => 1,
            Self::Transposed => 0,
        }
    }

    fn stored_axis(self, format: BlockFormat) -> usize {
        match self {
            Self::Linear | Self::Convolution => 1,
            Self::Transposed => usize::from(format.square),
        }
    }
}

/// A weight that is packed.
pub(super) struct Weight {
    pub(super) layer: LayerKind,
    pub(super) path: String,
    pub(super) specs: ResolvedSpecs,
    /// The stored shape.
    pub(super) shape: Vec<usize>,
    format: BlockFormat,
    elementwise: Option<(FloatFormat, Rounding)>,
    rounding: Rounding,
    /// The packed weight that the values came from, if they are quantized already.
    packed: Option<Packed>,
    /// The values, in their stored order.
    data: Box<dyn Fn() -> TensorData>,
    /// Packs the values.
    encoded: Box<dyn Fn() -> Result<Packed, PackError>>,
}

impl Weight {
    pub(super) fn format(&self) -> BlockFormat {
        self.format
    }

    /// How many inputs the layer's product sums over.
    pub(super) fn inputs(&self) -> usize {
        self.shape[self.layer.summed_axis_of_stored()]
    }

    /// Whether the values are quantized already.
    pub(super) fn is_quantized(&self) -> bool {
        self.packed.is_some()
    }

    /// The values that are packed, in their stored order.
    fn values(&self) -> Vec<f32> {
        let data = (self.data)().convert::<f32>();
        let mut values: Vec<f32> = data.into_vec().expect("they were converted");
        round(&mut values, self.elementwise);
        values
    }

    /// The largest magnitude of the values: NaN or Inf if there is one.
    pub(super) fn largest(&self) -> f32 {
        let values = self.values();
        let largest = values.iter().map(|x| x.abs().to_bits()).max();
        f32::from_bits(largest.unwrap_or(0))
    }

    /// The packed weight, by the rules of a tool: the given one, else the one that forward products quantize the weight by. `largest` is the largest magnitude of
    /// the fused layers that the weight belongs to. Also returns the number that compressed-tensors stores in place of the tensor scale, if it is known.
    pub(super) fn pack(
        &self,
        dialect: Option<Dialect>,
        largest: Option<f32>,
    ) -> Result<(Packed, Option<f32>), CheckpointError> {
        let weight = || self.path.clone();
        if let (Some(packed), None) = (&self.packed, dialect) {
            return Ok((packed.clone(), None));
        }
        let is_trained = dialect.is_none();
        let Some(dialect) = dialect.or(self.specs.dialect(Slot::W)) else {
            let packed = match largest {
                Some(largest) => {
                    let axis = self.layer.stored_axis(self.format);
                    let rounder = self.rounding.with(NO_STREAM);
                    let values = self.values();
                    Packed::encode_part(self.format, &values, &self.shape, axis, rounder, largest)
                }
                None => (self.encoded)(),
            };
            let packed = packed.map_err(|source| CheckpointError::Pack {
                weight: weight(),
                source,
            })?;
            return Ok((packed, None));
        };
        if self.shape.len() != 2 {
            return Err(CheckpointError::DialectOfConvolution { weight: weight() });
        }
        let values = self.values();
        let tensor = match largest {
            Some(largest) => dialect.encode_part(self.format, &values, &self.shape, largest),
            None => dialect.encode(self.format, &values, &self.shape),
        };
        let tensor = tensor.map_err(|source| CheckpointError::Dialect {
            weight: weight(),
            source,
        })?;
        let packed = match (tensor.divisor, is_trained) {
            // So the packed values equal the values of training, to the last bit.
            (Some(divisor), true) => tensor.packed.with_divisor(divisor),
            _ => tensor.packed,
        };
        Ok((packed, tensor.divisor))
    }
}

/// A stream for roundings that are not stochastic.
pub(super) const NO_STREAM: RandomStream = RandomStream::new(0, 0);

/// Rounds to the elementwise format, if there is one.
pub(super) fn round(values: &mut [f32], elementwise: Option<(FloatFormat, Rounding)>) {
    if let Some((format, rounding)) = elementwise {
        format.round_slice(values, rounding.with(NO_STREAM));
    }
}

/// The block-quantized weights of linear layers and convolutions, by path. With `skip_variants`, enum variants are left out of
/// paths.
pub(super) fn weights<B: MxTensorOps, M: Module<B>>(
    model: &M,
    skip_variants: bool,
    layers: &Layers,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<BTreeMap<String, Weight>, CheckpointError> {
    let mut finder = Finder {
        path: Path::new(skip_variants),
        layers,
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

/// The [named](Checkpoint::summed_axis) summed axes of weights, by pattern.
pub(super) struct Layers(Vec<(Pattern, usize)>);

impl Layers {
    pub(super) fn of(checkpoint: &Checkpoint) -> Result<Self, CheckpointError> {
        let axes = checkpoint.axes.iter();
        let axes = axes.map(|(pattern, axis)| Ok((Pattern::new(pattern)?, *axis)));
        axes.collect::<Result<_, PathError>>()
            .map(Self)
            .map_err(Into::into)
    }

    /// The layout of a weight of this shape in the model, by its named axis or by its Burn module.
    pub(super) fn layer(
        &self,
        path: &Path,
        shape: &[usize],
    ) -> Result<Option<LayerKind>, CheckpointError> {
        let text = path.text();
        let said = self
            .0
            .iter()
            .rev()
            .find(|(pattern, _)| pattern.matches(&text));
        match (said, shape.len()) {
            (None, _) => Ok(path.layer()),
            // A bias, where the pattern is of the whole module.
            (Some(_), 0 | 1) => Ok(None),
            (Some((_, 0)), 2) => Ok(Some(LayerKind::Linear)),
            (Some((_, 0)), _) => Ok(Some(LayerKind::Transposed)),
            (Some((_, 1)), _) => Ok(Some(LayerKind::Convolution)),
            (Some((_, axis)), _) => Err(CheckpointError::SummedAxis {
                weight: text,
                axis: *axis,
                shape: shape.to_vec(),
            }),
        }
    }
}

struct Finder<'a, F> {
    path: Path,
    layers: &'a Layers,
    is_wanted: F,
    weights: BTreeMap<String, Weight>,
    error: Option<CheckpointError>,
}

impl<B: MxTensorOps, F: Fn(&str) -> bool> ModuleVisitor<B> for Finder<'_, F> {
    #[track_caller]
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, container_type: &str) {
        self.path.exit(container_type);
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let path = self.path.text();
        if !(self.is_wanted)(&path) {
            return;
        }
        let tensor = param.val();
        let primitive = tensor.clone().into_primitive().tensor();
        let layer = match self.layers.layer(&self.path, &primitive.shape()) {
            Ok(layer) => layer,
            Err(error) => {
                self.error.get_or_insert(error);
                return;
            }
        };
        if layer.is_none() && !self.path.is_alike() {
            return;
        }
        let Some(specs) = B::specs_of(&primitive) else {
            return;
        };
        if specs.block_format(Slot::W).is_none() {
            return;
        }
        let Some(layer) = layer else {
            self.error
                .get_or_insert(CheckpointError::UnknownLayer { weight: path });
            return;
        };
        let axis = layer.summed_axis();
        let quantization = match quantization(&path, specs) {
            Ok(quantization) => quantization,
            Err(error) => {
                self.error.get_or_insert(error);
                return;
            }
        };
        let stored = move || match layer {
            LayerKind::Linear => tensor.clone().transpose(),
            _ => tensor.clone(),
        };
        let Some((format, rounding)) = quantization.blocks else {
            return;
        };
        let packing = Packing {
            elementwise: quantization.elementwise,
            format,
            rounding,
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
            elementwise: quantization.elementwise,
            rounding,
            packed: B::packed_of(&primitive, axis).cloned(),
            data: Box::new(move || stored().into_data()),
            encoded: Box::new(encoded),
        };
        self.weights.insert(path, weight);
    }
}

/// The field of the specs that rounds a weight at random, if any.
pub(super) fn random_field(quantization: &OperandQuantization) -> Option<&'static str> {
    let blocks = quantization.blocks.map(|(_, rounding)| rounding);
    let elementwise = quantization.elementwise.map(|(_, rounding)| rounding);
    let fields = [("round_mx_output", blocks), ("round_weight", elementwise)];
    let is_random = |(_, rounding): &(_, Option<Rounding>)| *rounding == Some(Rounding::Stochastic);
    fields.into_iter().find(is_random).map(|(field, _)| field)
}

/// The quantization of a weight by the forward product, if a packed weight can represent it.
fn quantization(path: &str, specs: &ResolvedSpecs) -> Result<OperandQuantization, CheckpointError> {
    let weight = || path.to_owned();
    if specs.hot_columns().is_some() {
        return Err(CheckpointError::HotColumns { weight: weight() });
    }
    let Some(quantization) = specs.weight_quantization() else {
        let transform = specs.hadamard_forward();
        return Err(CheckpointError::Transformed {
            weight: weight(),
            transform: transform.map_or_else(String::new, |transform| transform.to_string()),
        });
    };
    match random_field(&quantization) {
        None => Ok(quantization),
        Some(field) => Err(CheckpointError::Random {
            weight: weight(),
            field,
        }),
    }
}

/// The paths of weights whose modules only share the name of a Burn layer.
pub(super) fn alike<B: Backend, M: Module<B>>(model: &M, skip_variants: bool) -> Vec<String> {
    let mut finder = Alike {
        path: Path::new(skip_variants),
        found: Vec::new(),
    };
    model.visit(&mut finder);
    finder.found
}

struct Alike {
    path: Path,
    found: Vec<String>,
}

impl<B: Backend> ModuleVisitor<B> for Alike {
    #[track_caller]
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, container_type: &str) {
        self.path.exit(container_type);
    }

    fn visit_float<const D: usize>(&mut self, _param: &Param<Tensor<B, D>>) {
        if self.path.is_alike() {
            self.found.push(self.path.text());
        }
    }
}
