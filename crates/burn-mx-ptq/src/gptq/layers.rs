//! GPTQ over a model, layer by layer.

use std::collections::BTreeMap;
use std::sync::Arc;

use burn_backend::tensor::Device;
use burn_backend::{Shape, TensorData, TensorMetadata};
use burn_core::module::{Module, ModuleMapper, Param};
use burn_core::tensor::Tensor;
use microscaling::{FusedGroup, Packed, RandomHadamard, Signs};

use super::grid::WeightFormat;
use super::{Gptq, saved, solve};
use crate::calls;
use crate::error::PtqError;
use crate::parameters::{self, WEIGHT, values};
use crate::passes::{Chosen, Passes};
use crate::resume::{Folder, LayerPlace, resumed};
use burn_mx_core::hooks::{self, LayerCall, LayerOp, SharedSpecs};
use burn_mx_core::{
    HadamardSigns, MxBackend, MxKernels, MxSpecs, MxTensorOps, ResolvedSpecs, Slot, TensorChange,
    Unpacked, process,
};
use burn_mx_module::{change, parameter_of, set_specs_at};

/// The result of GPTQ for a layer.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct GptqLayer {
    /// The layer's path.
    pub layer: String,
    /// ‖q − y‖² / ‖y‖² with weights rounded to nearest in the format's own scales. q is the layer's output with the
    /// quantized weight, y with the unquantized weight, both without the bias. The inputs are quantized, and come from the model
    /// whose layers before this layer are quantized.
    pub error_nearest: f64,
    /// The same error with the weight that GPTQ found.
    pub error: f64,
}

/// `Σ x xᵀ` of a layer's inputs.
#[derive(Debug, Default)]
struct Gram {
    sum: Vec<f64>,
    /// The layer's weight is used as a view, or the layer is not linear.
    is_unusable: bool,
}

impl Gram {
    fn hear<B: MxKernels>(&mut self, call: &LayerCall<'_>, specs: &'static SharedSpecs) {
        self.is_unusable |= !call.is_plain || !matches!(call.op, LayerOp::Linear);
        let Some(x) = call.input::<B>().filter(|_| !self.is_unusable) else {
            return;
        };
        let x = call
            .op
            .quantized_input::<B>(specs, x, call.weight.num_dims());
        let shape = x.shape();
        let inputs = shape[shape.num_dims() - 1];
        let rows = Shape::new([shape.num_elements() / inputs, inputs]);
        let x = B::float_reshape(x, rows);
        let gram = values::<B>(B::float_matmul(B::float_transpose(x.clone()), x));
        self.sum.resize(gram.len(), 0.0);
        for (sum, value) in self.sum.iter_mut().zip(gram) {
            *sum += f64::from(value);
        }
    }
}

/// The settings of GPTQ.
#[derive(Clone, Copy)]
pub(crate) struct GptqRun<'a> {
    config: &'a Gptq,
    folder: Option<&'a Folder>,
    /// The groups of layers that share a tensor scale.
    groups: &'a [FusedGroup],
}

impl<'a> GptqRun<'a> {
    pub(crate) const fn new(
        config: &'a Gptq,
        folder: Option<&'a Folder>,
        groups: &'a [FusedGroup],
    ) -> Self {
        Self {
            config,
            folder,
            groups,
        }
    }
}

/// The largest magnitudes of groups of fused layers, by layer. A weight that is quantized in a transformed basis leaves the model without
/// a format, so its scale is shared with none.
fn largest<B: MxKernels, M: Module<MxBackend<B>>>(
    model: &M,
    groups: &[FusedGroup],
    chosen: &[Chosen],
) -> Result<BTreeMap<String, f32>, PtqError> {
    let mut found = BTreeMap::new();
    for group in groups {
        let is_transformed = |x: &Chosen| x.specs.hadamard_forward().is_some();
        let mut members = chosen.iter().filter(|x| group.members.contains(&x.layer));
        if members.any(is_transformed) {
            continue;
        }
        let mut largest = 0.0_f32;
        for layer in &group.members {
            let ((rows, _), _) = weight_of::<B, M>(model, layer)?;
            largest = rows.iter().fold(largest, |largest, x| largest.max(x.abs()));
        }
        let members = group.members.iter().cloned();
        found.extend(members.map(|layer| (layer, largest)));
    }
    Ok(found)
}

/// Quantizes the weights of the chosen layers, in the order in which the model calls them. The inputs of each come from the
/// layers before it as they are quantized; layers after it are still unquantized. A layer in the folder is taken from there.
///
/// Memory holds the model, and of one layer the Hessian, the factor of its inverse, and the codes.
pub(crate) fn quantize<B, M, T, R, F>(
    mut model: M,
    mut chosen: Vec<Chosen>,
    passes: &Passes<'_, T, F>,
    GptqRun {
        config,
        folder,
        groups,
    }: GptqRun<'_>,
    mut progress: impl FnMut(usize, usize),
) -> Result<(M, Vec<GptqLayer>), PtqError>
where
    B: MxKernels,
    M: Module<MxBackend<B>> + Sync,
    T: Sync,
    F: Fn(&M, &T) -> R + Sync,
{
    let largest = largest::<B, M>(&model, groups, &chosen)?;
    for Chosen { layer, specs } in passes.in_order::<M, R>(&model, &mut chosen)? {
        model = set_specs_at(model, &layer, &specs)?;
    }
    let all = chosen.len();
    let mut reports = Vec::new();
    for (number, chosen) in chosen.iter().enumerate() {
        let Chosen { layer, specs } = chosen;
        let (weight, device) = weight_of::<B, M>(&model, layer)?;
        let basis = Basis::of(specs);
        let solved = {
            let (mut rows, shape) = weight;
            let gram = gram::<B, M, T, R, F>(&model, chosen, passes)?;
            basis.enter(&mut rows, shape);
            let format = specs.block_format(Slot::W).expect("the specs were checked");
            let wanted = WeightFormat {
                format,
                largest: largest.get(layer).copied(),
            };
            resumed(
                folder,
                LayerPlace(number, layer),
                (rows, gram),
                |(rows, gram)| saved::fingerprint(layer, config, (specs, wanted), rows, gram),
                |_, report, file| saved::read(format, shape, report, file),
                |(rows, gram)| {
                    let solved = solve(config, wanted, &rows, shape, &gram);
                    solved.ok_or_else(|| not_finite(layer, "input"))
                },
                saved::finished,
            )?
        };
        log::info!(
            "burn-mx: layer `{layer}`: error {:.3e} rounded to nearest, {:.3e} by GPTQ",
            solved.error_nearest,
            solved.error
        );
        reports.push(GptqLayer {
            layer: layer.clone(),
            error_nearest: solved.error_nearest,
            error: solved.error,
        });
        model = replaced(model, chosen, &basis, solved.packed, &device)?;
        progress(number + 1, all);
    }
    Ok((model, reports))
}

/// The finite weight of a layer, `[outputs, inputs]` in row-major order, and its device.
#[expect(clippy::type_complexity, reason = "it is taken apart at once")]
fn weight_of<B: MxKernels, M: Module<MxBackend<B>>>(
    model: &M,
    layer: &str,
) -> Result<((Vec<f32>, [usize; 2]), Device<B>), PtqError> {
    let label = parameter_of(layer, WEIGHT);
    let weight = parameters::value::<B, M>(model, &label);
    let (weight, _) = weight.expect("a layer that is called has its weight");
    let shape = weight.shape();
    if shape.num_dims() != 2 {
        return Err(PtqError::View {
            layer: layer.to_owned(),
        });
    }
    let device = B::float_device(&weight);
    let rows = values::<B>(B::float_transpose(weight));
    match rows.iter().all(|value| value.is_finite()) {
        true => Ok(((rows, [shape[1], shape[0]]), device)),
        false => Err(not_finite(layer, "weight")),
    }
}

fn not_finite(layer: &str, what: &'static str) -> PtqError {
    PtqError::NotFinite {
        layer: layer.to_owned(),
        what,
    }
}

/// `Σ x xᵀ` of the quantized inputs that a layer has in a pass.
fn gram<B, M, T, R, F>(
    model: &M,
    Chosen { layer, specs }: &Chosen,
    passes: &Passes<'_, T, F>,
) -> Result<Vec<f64>, PtqError>
where
    B: MxKernels,
    M: Module<MxBackend<B>> + Sync,
    T: Sync,
    F: Fn(&M, &T) -> R + Sync,
{
    let label = hooks::label(&parameter_of(layer, WEIGHT));
    let specs = SharedSpecs::of(specs);
    let gram = calls::listen(
        move |_, called| called == label,
        move |gram: &mut Gram, call| gram.hear::<B>(call, specs),
        // Copies would be the model once more, or half a model.
        || process::without_keeping_weights(|| passes.all::<M, R>(model)),
    );
    match gram.is_unusable {
        false => Ok(gram.sum),
        true => Err(PtqError::View {
            layer: layer.clone(),
        }),
    }
}

/// The model with a layer's quantized weight, and with the layer's specs.
fn replaced<B: MxKernels, M: Module<MxBackend<B>>>(
    model: M,
    Chosen { layer, specs }: &Chosen,
    basis: &Basis,
    packed: Packed,
    device: &Device<B>,
) -> Result<M, PtqError> {
    let label = hooks::label(&parameter_of(layer, WEIGHT));
    let &[outputs, inputs] = packed.shape() else {
        unreachable!("a weight has two axes");
    };
    let mut quantized = packed.decode();
    basis.leave(&mut quantized, [outputs, inputs]);
    let quantized = TensorData::new(quantized, Shape::new([outputs, inputs]));
    let quantized = B::float_transpose(B::float_from_data(quantized, device));
    let model = parameters::replace(model, vec![(label.to_owned(), quantized)]);
    Ok(match basis {
        Basis::Own => known(set_specs_at(model, layer, specs)?, label, packed, specs),
        Basis::Hadamard(..) => set_specs_at(model, layer, &without_weight(specs)?)?,
    })
}

/// The basis in which a weight is quantized.
enum Basis {
    Own,
    /// The basis of a transform in blocks of inputs, with these signs.
    Hadamard(RandomHadamard, Signs),
}

impl Basis {
    fn of(specs: &ResolvedSpecs) -> Self {
        match specs.hadamard_forward() {
            None => Self::Own,
            Some(hadamard) => {
                let HadamardSigns::Given(signs) = hadamard.signs else {
                    unreachable!("the specs were checked");
                };
                let transform = RandomHadamard {
                    block_size: hadamard.block_size,
                };
                Self::Hadamard(transform, Signs::Repeated(signs))
            }
        }
    }

    fn enter(&self, weight: &mut [f32], shape: [usize; 2]) {
        if let Self::Hadamard(transform, signs) = self {
            let done = transform.transform(weight, &shape, 1, *signs);
            done.expect("the shape is the weight's");
        }
    }

    fn leave(&self, weight: &mut [f32], shape: [usize; 2]) {
        if let Self::Hadamard(transform, signs) = self {
            let done = transform.inverse(weight, &shape, 1, *signs);
            done.expect("the shape is the weight's");
        }
    }
}

/// The specs of a layer whose weight is quantized already, and in its own basis again. A transform of two operands without
/// formats is one of nothing.
fn without_weight(specs: &ResolvedSpecs) -> Result<ResolvedSpecs, PtqError> {
    let specs = match specs.block_format(Slot::A) {
        None => MxSpecs::none(),
        Some(_) => MxSpecs {
            w_elem_format: None,
            ..specs.specs().clone()
        },
    };
    Ok(specs.resolve()?)
}

/// The model with the knowledge that this weight is quantized, so that products take its values as they are.
fn known<B: MxKernels, M: Module<MxBackend<B>>>(
    model: M,
    label: &'static str,
    packed: Packed,
    specs: &ResolvedSpecs,
) -> M {
    struct Know(&'static str, Arc<Unpacked>);
    impl<B: MxKernels> ModuleMapper<MxBackend<B>> for Know {
        fn map_float<const D: usize>(
            &mut self,
            param: Param<Tensor<MxBackend<B>, D>>,
        ) -> Param<Tensor<MxBackend<B>, D>> {
            let label = MxBackend::<B>::label_of(&param.val().into_primitive().tensor());
            match label == Some(self.0) {
                true => {
                    param.map(|tensor| change(tensor, TensorChange::Unpacked(Arc::clone(&self.1))))
                }
                false => param,
            }
        }
    }
    // As in a checkpoint: where a value is subnormal the factor is lost.
    let smallest = packed.decode().into_iter().map(f32::abs);
    let smallest = smallest
        .filter(|value| *value > 0.0)
        .fold(f32::INFINITY, f32::min);
    let tensor_scale = packed.tensor_scale();
    let tensor_scale = tensor_scale.filter(|_| smallest >= f32::MIN_POSITIVE);
    match Unpacked::new(packed, tensor_scale, specs, 0) {
        Some(unpacked) => model.map(&mut Know(label, Arc::new(unpacked))),
        None => model,
    }
}
