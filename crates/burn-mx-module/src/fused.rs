//! One tensor scale for the weights of layers that engines fuse.

use std::collections::BTreeMap;
use std::sync::Arc;

use burn_backend::DType;
use burn_core::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn_core::tensor::{Tensor, TensorData};
use microscaling::{
    BlockFormat, Dialect, FusedGroup, FusedLayers, OperandQuantization, Packed, RandomStream,
    Rounding,
};
use thiserror::Error;

use super::change::change;
use super::layers::{LayerKind, LayerPath};
use super::on_load::set_specs_of;
use burn_mx_core::hooks::SharedSpecs;
use burn_mx_core::{MxTensorOps, ResolvedSpecs, Slot, TensorChange, Unpacked};

/// Why fused layers cannot share a tensor scale.
#[derive(Clone, PartialEq, Eq, Error)]
#[error(
    "fused layers `{group}`: {reason}; allowed: {allowed}, or a list of fused layers without this group"
)]
#[non_exhaustive]
pub struct FusedError {
    /// The group, as `PARENT.{MEMBER,MEMBER}`.
    pub group: String,
    /// The layers that differ, and how.
    pub reason: String,
    /// The layers that are allowed.
    pub allowed: &'static str,
}

microscaling::debug_is_display!(FusedError);

/// Quantizes the weights of fused linear layers with one tensor scale for each group: the scale of the group's largest magnitude. An
/// engine that multiplies by all weights of a group at once has this scale ([`FusedLayers`]). Returns the model and the groups whose
/// weights have a format with a tensor scale, such as `nvfp4(tensor_scale=true)`. Other groups do not change.
///
/// The weights become the quantized values, by the rules of their specs' forward product (with `dialect_w`, the tool's rules). Forward
/// products take these values unchanged, and a checkpoint stores them bit for bit. An optimizer step gives new values with their
/// own scales: call the function after training, before evaluation and export. [`fused_linear`](super::fused_linear) shares a scale in training. A
/// group that shares a scale already, such as one from a file, does not change.
///
/// ```
/// # mod burn_mx { pub use burn_mx_core::*; pub use burn_mx_module as module; }
/// # use burn_core::module::Module;
/// # use burn_flex::Flex;
/// # use burn_mx::MxBackend;
/// # fn example<M: Module<MxBackend<Flex>>>(model: M) -> Result<(), burn_mx::module::FusedError> {
/// use microscaling::FusedLayers;
///
/// let (model, groups) = burn_mx::module::share_tensor_scales(model, &FusedLayers::default())?;
/// for group in groups {
///     println!("{group}"); // layers.0.self_attn.{q_proj,k_proj,v_proj}
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`FusedError`], before a weight changes:
/// * the layers of a group have different formats or numbers of inputs;
/// * they are quantized already, with different scales;
/// * the forward product rounds a weight at random, or transforms a weight;
/// * a weight is not float32 or not finite, or the dialect cannot pack the weight.
pub fn share_tensor_scales<B: MxTensorOps, M: Module<B>>(
    model: M,
    fused: &FusedLayers,
) -> Result<(M, Vec<FusedGroup>), FusedError> {
    let members = linear_weights(&model, Member::of::<B>);
    let mut groups = fused.groups(members.keys().map(String::as_str));
    let has_scale = |path: &String| members[path].has_tensor_scale();
    groups.retain(|group| group.members.iter().any(has_scale));
    let mut shared = BTreeMap::new();
    for group in &groups {
        let error = |(reason, allowed): (String, &'static str)| FusedError {
            group: group.to_string(),
            reason,
            allowed,
        };
        let Some(largest) = largest(group, &members).map_err(error)? else {
            continue;
        };
        for path in &group.members {
            let member = &members[path];
            let packed = member.pack(&member.rows(), largest);
            let allowed = "weights that the format and its dialect can pack";
            let packed =
                packed.map_err(|reason| error((format!("`{path}`: {reason}"), allowed)))?;
            shared.insert(path.to_owned(), packed);
        }
    }
    let mut replace = Replace {
        path: LayerPath::default(),
        shared,
    };
    Ok((model.map(&mut replace), groups))
}

/// The largest magnitude of layers that do not share a scale yet; `None` if they do.
fn largest(
    group: &FusedGroup,
    members: &BTreeMap<String, Member>,
) -> Result<Option<f32>, (String, &'static str)> {
    let layers = || group.members.iter().map(|path| (path, &members[path]));
    let same = |what: &dyn Fn(&Member) -> String, allowed| {
        let difference = group.difference(|path| what(&members[path]));
        difference.map_or(Ok(()), |reason| Err((reason, allowed)))
    };
    same(&Member::format_text, "one format")?;
    same(
        &|x| format!("has {} inputs", x.shape[0]),
        "one number of inputs",
    )?;
    for (path, member) in layers() {
        let Some(how) = member.how() else {
            let reason = format!("the forward product transforms `{path}`");
            return Err((reason, "no `hadamard_forward`"));
        };
        let elementwise = how.quantization.elementwise.map(|(_, rounding)| rounding);
        if [Some(how.rounding), elementwise].contains(&Some(Rounding::Stochastic)) {
            let reason = format!("the forward product rounds `{path}` at random");
            return Err((reason, "another rounding"));
        }
        if member.dtype != DType::F32 {
            let reason = format!("`{path}` has type {:?}", member.dtype);
            return Err((reason, "f32"));
        }
    }
    // Values that are quantized already have scales that their largest magnitude does not give again.
    if layers().any(|(_, member)| member.packed_scale.is_some()) {
        let scale = |x: &Member| format!("has the tensor scale {}", x.tensor_scale());
        same(
            &scale,
            "weights that are not quantized yet, or with one tensor scale",
        )?;
        return Ok(None);
    }
    let largest = layers().map(|(path, member)| (member.largest(), path));
    let largest: Vec<(f32, &String)> = largest.collect();
    if let Some((_, path)) = largest.iter().find(|(x, _)| !x.is_finite()) {
        return Err((format!("`{path}` has a NaN or Inf"), "finite weights"));
    }
    let largest = largest.into_iter().fold(0.0, |all: f32, (x, _)| all.max(x));
    // Zeros have no scale to share.
    Ok((largest > 0.0).then_some(largest))
}

/// A linear layer's weight, `[in, out]`.
struct Member {
    shape: [usize; 2],
    dtype: DType,
    specs: Option<&'static ResolvedSpecs>,
    /// The tensor scale of a weight whose values are quantized already.
    packed_scale: Option<f32>,
    /// The values, `[out, in]` in row-major order.
    data: Box<dyn Fn() -> TensorData>,
}

/// How the forward product quantizes a weight.
pub(super) struct How {
    quantization: OperandQuantization,
    format: BlockFormat,
    rounding: Rounding,
    dialect: Option<Dialect>,
}

/// Nothing here draws random numbers.
const NO_STREAM: RandomStream = RandomStream::new(0, 0);

impl How {
    /// By these specs; `None` if the weight has no blocks or is transformed before.
    pub(super) fn of(specs: &ResolvedSpecs) -> Option<Self> {
        let quantization = specs.weight_quantization()?;
        let (format, rounding) = quantization.blocks?;
        Some(Self {
            quantization,
            format,
            rounding,
            dialect: specs.dialect(Slot::W),
        })
    }

    /// Rounds values elementwise, as the product does before it quantizes blocks.
    pub(super) fn round(&self, values: &mut [f32]) {
        if let Some((format, rounding)) = self.quantization.elementwise {
            format.round_slice(values, rounding.with(NO_STREAM));
        }
    }

    /// The packed bytes of rounded values of a weight `[out, in]`. `largest` is the largest magnitude of the fused layers.
    pub(super) fn pack(
        &self,
        values: &[f32],
        shape: [usize; 2],
        largest: f32,
    ) -> Result<Packed, String> {
        if let Some(dialect) = self.dialect {
            let tensor = dialect.encode_part(self.format, values, &shape, largest);
            let tensor = tensor.map_err(|error| error.to_string())?;
            return Ok(match tensor.divisor {
                Some(divisor) => tensor.packed.with_divisor(divisor),
                None => tensor.packed,
            });
        }
        let rounder = self.rounding.with(NO_STREAM);
        Packed::encode_part(self.format, values, &shape, 1, rounder, largest)
            .map_err(|error| error.to_string())
    }
}

impl Member {
    fn of<B: MxTensorOps>(weight: Tensor<B, 2>) -> Self {
        let primitive = weight.clone().into_primitive().tensor();
        let packed = B::packed_of(&primitive, LayerKind::Linear.summed_axis());
        Self {
            shape: weight.dims(),
            dtype: weight.dtype(),
            specs: B::specs_of(&primitive),
            packed_scale: packed.and_then(Packed::tensor_scale),
            data: Box::new(move || weight.clone().transpose().into_data()),
        }
    }

    fn how(&self) -> Option<How> {
        How::of(self.specs?)
    }

    fn format(&self) -> Option<BlockFormat> {
        self.specs?.block_format(Slot::W)
    }

    fn has_tensor_scale(&self) -> bool {
        self.format().is_some_and(|format| format.tensor_scale)
    }

    /// The format, with the dialect and the elementwise format.
    fn format_text(&self) -> String {
        let Some(format) = self.format() else {
            return "has no format".to_owned();
        };
        let how = self.how();
        let elementwise = how.as_ref().and_then(|how| how.quantization.elementwise);
        let elementwise =
            elementwise.map_or_else(String::new, |(format, _)| format!(" after {format:?}"));
        let dialect = how.and_then(|how| how.dialect);
        let dialect = dialect.map_or_else(String::new, |dialect| format!(" by {dialect}"));
        format!("is {format}{dialect}{elementwise}")
    }

    /// The values that are quantized.
    fn rows(&self) -> Vec<f32> {
        let values = (self.data)().convert::<f32>().into_vec();
        let mut values: Vec<f32> = values.expect("they were converted");
        if let Some(how) = self.how() {
            how.round(&mut values);
        }
        values
    }

    fn largest(&self) -> f32 {
        let values = self.rows();
        let largest = values.iter().map(|x| x.abs().to_bits()).max();
        f32::from_bits(largest.unwrap_or(0))
    }

    /// The tensor scale of the packed weight, or the one that packing the weight alone gives.
    fn tensor_scale(&self) -> f32 {
        self.packed_scale.unwrap_or_else(|| {
            let packed = self.pack(&self.rows(), self.largest());
            packed
                .ok()
                .and_then(|packed| packed.tensor_scale())
                .unwrap_or(1.0)
        })
    }

    fn pack(&self, values: &[f32], largest: f32) -> Result<Packed, String> {
        let how = self.how().expect("it was checked");
        how.pack(values, [self.shape[1], self.shape[0]], largest)
    }
}

/// The results of `read` for the weights `[in, out]` of a model's linear layers, by the paths of the layers.
pub fn linear_weights<B: MxTensorOps, M: Module<B>, T>(
    model: &M,
    read: impl FnMut(Tensor<B, 2>) -> T,
) -> BTreeMap<String, T> {
    let mut weights = LinearWeights {
        path: LayerPath::default(),
        read,
        found: BTreeMap::new(),
    };
    Module::<B>::visit(model, &mut weights);
    weights.found
}

struct LinearWeights<F, T> {
    path: LayerPath,
    read: F,
    found: BTreeMap<String, T>,
}

/// If the path is of a linear layer's weight: the path of the layer.
fn linear_layer(path: &LayerPath) -> Option<String> {
    let (layer, kind) = path.layer_of_weight()?;
    (kind == LayerKind::Linear).then_some(layer)
}

impl<B: MxTensorOps, T, F: FnMut(Tensor<B, 2>) -> T> ModuleVisitor<B> for LinearWeights<F, T> {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let Some(layer) = linear_layer(&self.path) else {
            return;
        };
        let weight = param.val().into_primitive();
        if D == 2 && B::is_weight(&weight.clone().tensor()) {
            let weight = (self.read)(Tensor::from_primitive(weight));
            self.found.insert(layer, weight);
        }
    }
}

/// Replaces weights by packed ones.
struct Replace {
    path: LayerPath,
    shared: BTreeMap<String, Packed>,
}

impl<B: MxTensorOps> ModuleMapper<B> for Replace {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let packed = linear_layer(&self.path).and_then(|layer| self.shared.remove(&layer));
        let Some(packed) = packed else {
            return param;
        };
        let (id, old, mapper) = param.consume();
        let specs = B::specs_of(&old.clone().into_primitive().tensor());
        let specs = specs.expect("a weight with a format has specs");
        let [outputs, inputs] = *packed.shape() else {
            unreachable!("a linear layer's weight has two axes");
        };
        let rows = packed.decode();
        let of = |i: usize| rows[i % outputs * inputs + i / outputs];
        let values: Vec<f32> = (0..rows.len()).map(of).collect();
        let data = TensorData::new(values, [inputs, outputs]);
        let new = Tensor::from_data(data, &old.device()).set_require_grad(old.is_require_grad());
        let param = Param::from_mapped_value(id, new, mapper);
        let param = set_specs_of(param, &self.path.parameter(), SharedSpecs::of(specs));
        // Where a value is subnormal, the values do not have the factor.
        let magnitudes = rows.iter().map(|x| x.abs()).filter(|x| *x > 0.0);
        let is_normal = magnitudes.fold(f32::INFINITY, f32::min) >= f32::MIN_POSITIVE;
        let factor = packed.tensor_scale();
        let factor = factor.filter(|_| is_normal && specs.dialect(Slot::W).is_none());
        let unpacked = Unpacked::new(packed, factor, specs, LayerKind::Linear.summed_axis());
        let Some(unpacked) = unpacked else {
            return param;
        };
        let (id, tensor, mapper) = param.consume();
        let tensor = change(tensor, TensorChange::Unpacked(Arc::new(unpacked)));
        Param::from_mapped_value(id, tensor, mapper)
    }
}
