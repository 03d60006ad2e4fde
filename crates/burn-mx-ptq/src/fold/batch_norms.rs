//! Folding of batch norms into the layers before them.
//!
//! In inference a norm computes `(y − mean) / √(variance + ε) · γ + β` of a layer's output y, channel by channel. The layer
//! can compute this itself, with s = γ / √(variance + ε): its weights times s, and its bias as `(b − mean) · s + β`.
//! Quantization then applies to the combined weight.
//!
//! The norm stays in the module as the identity. All clones of a model share the running statistics, so folding does not
//! change them. Instead γ and β cancel them: γ = √(variance + ε), β = mean. A layer without a bias cannot get one, so its norm
//! adds the bias.

use burn_backend::ops::ConvTransposeOptions;
use burn_backend::{Shape, TensorMetadata};
use burn_core::module::Module;

use super::norms::{BETA, GAMMA, Norm, norms_of};
use super::{distance, floats_of, tensor};
use crate::calls::{self, Given};
use crate::config::{BatchNormPair, QuantConfig};
use crate::error::PtqError;
use crate::parameters::{self, BIAS, Replacements, WEIGHT, values};
use burn_mx_core::MxBackend;
use burn_mx_core::MxKernels;
use burn_mx_core::hooks::LayerOp;
use burn_mx_module::{nearest, parameter_of};

/// The largest allowed ‖a − b‖ / ‖b‖, with a and b the outputs of the model with and without folding. Rounding in float32
/// makes a tenth of this value. An ε of 1e-5 in place of 1e-3 makes twice this value.
const TOLERANCE: f64 = 4e-6;

/// A batch norm that was folded into the layer before it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct FoldedNorm {
    /// The layer's path.
    pub layer: String,
    /// The norm's path.
    pub norm: String,
}

/// A norm and the layer that it is folded into.
struct Pair {
    norm: Norm,
    layer: String,
    op: LayerOp,
    has_bias: bool,
    epsilon: f64,
}

/// Folds each batch norm of `model` into the layer of `layers` that produces its input. `float` is the same model without
/// emulation. Both are labelled. Returns both models folded, and the list of folded norms.
pub(crate) fn fold<B, M, T, R>(
    model: M,
    float: M,
    layers: &[&str],
    config: &QuantConfig,
    calibration: &[T],
    forward: impl Fn(&M, &T) -> R + Sync,
) -> Result<(M, M, Vec<FoldedNorm>), PtqError>
where
    B: MxKernels,
    M: Module<MxBackend<B>> + Sync,
    T: Sync,
    R: 'static,
{
    let outputs = |model: &M| -> Result<Vec<f32>, PtqError> {
        let outputs = calibration.iter().map(|batch| {
            let output = forward(model, batch);
            floats_of::<B>(&output).ok_or(PtqError::Output)
        });
        Ok(outputs.collect::<Result<Vec<_>, _>>()?.concat())
    };
    let wanted = outputs(&float)?;
    let pairs = pairs::<B, M, T, R>(&float, layers, config, calibration, &forward)?;
    if pairs.is_empty() {
        log::warn!("burn-mx: no batch norm was folded");
        return Ok((model, float, Vec::new()));
    }
    let is_kept = |folded: &M| -> Result<bool, PtqError> {
        Ok(distance(&outputs(folded)?, &wanted) <= TOLERANCE)
    };
    let replacements = |pairs: &[Pair]| -> Replacements<B> {
        let values = pairs.iter().flat_map(|pair| folded::<B, M>(&float, pair));
        values.collect()
    };
    let all = replacements(&pairs);
    let mut good = pairs;
    if !is_kept(&parameters::replace(float.clone(), all))? {
        // One of them is used in a way that the passes do not show, as an output that goes somewhere else, too.
        let candidates = core::mem::take(&mut good);
        for pair in candidates {
            good.push(pair);
            if !is_kept(&parameters::replace(float.clone(), replacements(&good)))? {
                let Pair {
                    norm,
                    layer,
                    epsilon,
                    ..
                } = good.pop().expect("it was just added");
                log::warn!(
                    "burn-mx: batch norm `{}` with ε = {epsilon} is not folded into `{layer}`: it would change the model's \
                     output; `batch_norms` names another layer or ε",
                    norm.path
                );
            }
        }
    }
    let values = replacements(&good);
    let model = parameters::replace(model, values.clone());
    let float = parameters::replace(float, values);
    let pairs = good.into_iter().map(|pair| {
        log::info!(
            "burn-mx: batch norm `{}` is folded into `{}`",
            pair.norm.path,
            pair.layer
        );
        FoldedNorm {
            layer: pair.layer,
            norm: pair.norm.path,
        }
    });
    let pairs = pairs.collect();
    Ok((model, float, pairs))
}

/// The norms and the layers that produce their inputs: the pairs that the configuration names, otherwise the layers before the
/// norms in the order of the module's fields. The later comparison of the model's output shows whether a pair is right.
fn pairs<B, M, T, R>(
    float: &M,
    layers: &[&str],
    config: &QuantConfig,
    calibration: &[T],
    forward: &(impl Fn(&M, &T) -> R + Sync),
) -> Result<Vec<Pair>, PtqError>
where
    B: MxKernels,
    M: Module<MxBackend<B>> + Sync,
    T: Sync,
{
    let all = burn_mx_module::layers(float);
    let weights: Vec<String> = all
        .iter()
        .map(|layer| parameter_of(layer, WEIGHT))
        .collect();
    let norms = norms_of(float, &weights);
    for BatchNormPair { norm, layer, .. } in &config.batch_norms {
        if !norms.iter().any(|known| known.path == *norm) {
            let paths = norms.iter().map(|norm| &*norm.path).collect::<Vec<_>>();
            return Err(PtqError::NoNorm {
                norm: norm.clone(),
                norms: paths.join(", "),
            });
        }
        if !all.contains(layer) {
            return Err(PtqError::NoMatch {
                pattern: layer.clone(),
                layers: nearest(layer, all.iter().map(String::as_str)),
            });
        }
    }
    let called = calls::layers(|| {
        for batch in calibration {
            forward(float, batch);
        }
    });
    let pairs = norms.into_iter().filter_map(|norm| {
        let mut given = config.batch_norms.iter();
        let given = given.find(|given| given.norm == norm.path);
        let label = match given {
            Some(given) => Some(parameter_of(&given.layer, WEIGHT)),
            None => norm.after.clone(),
        };
        let channels = norm.gamma.len();
        let found = called.iter().find(|call| Some(call.label) == label.as_deref());
        let chosen = |call: &Given| {
            let is_it = |layer: &&&str| parameter_of(layer, WEIGHT) == call.label;
            layers.iter().find(is_it).map(|layer| (*layer).to_owned())
        };
        let reason = match found {
            _ if label.is_none() => "no layer comes before it in the module",
            None => "its layer computes nothing on the calibration data",
            Some(call) if !call.is_plain => "its layer's weight is used as a view",
            Some(call) if out_channels(&call.op, &call.weight) != channels => {
                "it has not the channels of the layer before it"
            }
            Some(call) => match chosen(call) {
                Some(layer) => {
                    return Some(Pair {
                        norm,
                        layer,
                        op: call.op.clone(),
                        has_bias: call.has_bias,
                        epsilon: given
                            .and_then(|given| given.epsilon)
                            .unwrap_or(config.batch_norm_epsilon),
                    });
                }
                None => "its layer is not quantized",
            },
        };
        log::warn!(
            "burn-mx: batch norm `{}` is not folded: {reason}; `batch_norms` of the configuration names another layer",
            norm.path
        );
        None
    });
    Ok(pairs.collect())
}

/// The parameters of a pair, folded.
fn folded<B: MxKernels, M: Module<MxBackend<B>>>(
    model: &M,
    Pair {
        norm,
        layer,
        op,
        has_bias,
        epsilon,
    }: &Pair,
) -> Replacements<B> {
    let value = |label: &str| {
        let (value, _) = parameters::value(model, label).expect("a layer that is called has it");
        let device = B::float_device(&value);
        (value.shape(), device, values::<B>(value))
    };
    let channels = norm.gamma.len();
    // As the norm itself computes it.
    let deviation: Vec<f32> = norm
        .variance
        .iter()
        .map(|variance| (variance + *epsilon as f32).sqrt())
        .collect();
    let scale: Vec<f64> = (0..channels)
        .map(|c| f64::from(norm.gamma[c]) / (f64::from(norm.variance[c]) + epsilon).sqrt())
        .collect();
    let weight_label = parameter_of(layer, WEIGHT);
    let (shape, device, mut weight) = value(&weight_label);
    let channel = out_channel(op, &shape);
    for (at, weight) in weight.iter_mut().enumerate() {
        *weight = (f64::from(*weight) * scale[channel(at)]) as f32;
    }
    let flat = Shape::new([channels]);
    let mut beta = norm.mean.clone();
    let mut replacements = Vec::new();
    if *has_bias {
        let bias_label = parameter_of(layer, BIAS);
        let (_, _, mut bias) = value(&bias_label);
        for (c, bias) in bias.iter_mut().enumerate() {
            let centred = f64::from(*bias) - f64::from(norm.mean[c]);
            *bias = (centred * scale[c] + f64::from(norm.beta[c])) as f32;
        }
        replacements.push((bias_label, tensor::<B>(bias, flat.clone(), &device)));
    } else {
        for (c, beta) in beta.iter_mut().enumerate() {
            let mean = f64::from(norm.mean[c]);
            *beta = (mean + f64::from(norm.beta[c]) - mean * scale[c]) as f32;
        }
    }
    replacements.extend([
        (weight_label, tensor::<B>(weight, shape, &device)),
        (
            parameter_of(&norm.path, GAMMA),
            tensor::<B>(deviation, flat.clone(), &device),
        ),
        (
            parameter_of(&norm.path, BETA),
            tensor::<B>(beta, flat, &device),
        ),
    ]);
    replacements
}

/// The groups of a layer whose weight is [C, O / groups, ..]; `None` if it is [O, C / groups, ..].
fn groups_of_outputs(op: &LayerOp) -> Option<usize> {
    match op {
        LayerOp::ConvTranspose1d(ConvTransposeOptions { groups, .. }) => Some(*groups),
        LayerOp::ConvTranspose2d(ConvTransposeOptions { groups, .. }) => Some(*groups),
        LayerOp::ConvTranspose3d(ConvTransposeOptions { groups, .. }) => Some(*groups),
        // [K, N] is [C, O] of one group.
        LayerOp::Linear => Some(1),
        _ => None,
    }
}

/// The channels of the output of a layer with a weight of this shape.
fn out_channels(op: &LayerOp, shape: &Shape) -> usize {
    match groups_of_outputs(op) {
        Some(groups) => shape[1] * groups,
        None => shape[0],
    }
}

/// Which output channel an element of a weight of this shape belongs to.
fn out_channel(op: &LayerOp, shape: &Shape) -> impl Fn(usize) -> usize + use<> {
    let groups = groups_of_outputs(op);
    let [first, second] = [shape[0], shape[1]];
    let window = shape.num_elements() / (first * second).max(1);
    move |at| {
        let (row, column) = (at / (second * window), at / window % second);
        match groups {
            // [O, C / groups, ..]
            None => row,
            // [C, O / groups, ..]
            Some(groups) => row / (first / groups) * second + column,
        }
    }
}
