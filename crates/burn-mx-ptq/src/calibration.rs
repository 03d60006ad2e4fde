//! Static activations: the largest magnitudes of a layer's inputs on the calibration data, which fix the scales.

use std::collections::BTreeMap;

use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, TensorMetadata};
use microscaling::{Rounding, ScaleMode, SharedExpMethod};

use crate::calls;
use crate::error::PtqError;
use crate::parameters::values;
use burn_core::module::Module;
use burn_mx_core::MxBackend;
use burn_mx_core::hooks::{LayerCall, LayerOp, ProductKind};
use burn_mx_core::{GradientOperands, ResolvedSpecs, Slot, StaticInput};
use burn_mx_core::{MxKernels, to_f32};
use burn_mx_module::parameter_of;

/// Magnitudes of the inputs of each layer, by the label of the layer's weight.
#[derive(Debug, Default)]
pub(super) struct Largest(BTreeMap<&'static str, Inputs>);

/// The inputs of a layer.
#[derive(Debug)]
struct Inputs {
    /// The largest magnitude at each place along the summed axis. NaN and infinities are kept.
    largest: Vec<f32>,
    /// The shape of the first input with another length of this axis, if any.
    other: Option<Shape>,
    shape: Shape,
}

impl Largest {
    /// Adds an input.
    fn hear<B: MxKernels>(
        &mut self,
        label: &'static str,
        op: &LayerOp,
        x: FloatTensor<B>,
        weight_rank: usize,
    ) {
        let shape = x.shape();
        let [axis, _] = op.summed_axes(shape.num_dims(), weight_rank);
        let length = shape[axis];
        if shape.num_elements() == 0 {
            return;
        }
        let outer: usize = shape[..axis].iter().product();
        let inner = shape.num_elements() / (outer * length);
        let x = B::float_abs(to_f32::<B>(x));
        let x = B::float_reshape(x, Shape::new([outer, length, inner]));
        // On the host: a maximum on a device may leave out NaN.
        let all = values::<B>(x);
        let mut largest = vec![0.0_f32; length];
        for (at, value) in all.into_iter().enumerate() {
            let largest = &mut largest[at / inner % length];
            if value > *largest || value.is_nan() {
                *largest = value;
            }
        }
        match self.0.get_mut(label) {
            None => {
                let inputs = Inputs {
                    largest,
                    other: None,
                    shape,
                };
                self.0.insert(label, inputs);
            }
            Some(inputs) if inputs.largest.len() != length => {
                inputs.other.get_or_insert(shape);
            }
            Some(inputs) => {
                for (before, now) in inputs.largest.iter_mut().zip(largest) {
                    if now > *before || now.is_nan() {
                        *before = now;
                    }
                }
            }
        }
    }
}

/// The largest magnitudes of the inputs of all layers in a pass.
fn largest<B: MxKernels>(pass: impl FnOnce() + Send) -> Largest {
    let hear = |largest: &mut Largest, call: &LayerCall<'_>| {
        if let Some(input) = call.input::<B>() {
            largest.hear::<B>(call.label, &call.op, input, call.weight.num_dims());
        }
    };
    calls::listen(|_, _| true, hear, pass)
}

/// The specs of each of `layers`, with the scales of its inputs on the calibration data added. `float` is the model without
/// emulation, labelled. Layers whose activations are not quantized keep their specs.
pub(super) fn calibrated<B, M, T, R>(
    float: &M,
    layers: Vec<(&str, &ResolvedSpecs)>,
    calibration: &[T],
    forward: impl Fn(&M, &T) -> R + Sync,
) -> Result<Vec<ResolvedSpecs>, PtqError>
where
    B: MxKernels,
    M: Module<MxBackend<B>> + Sync,
    T: Sync,
{
    let mut heard = largest::<B>(|| {
        for batch in calibration {
            forward(float, batch);
        }
    });
    let specs = layers.into_iter().map(|(layer, specs)| {
        let Some(format) = specs.block_format(Slot::A) else {
            return Ok(specs.clone());
        };
        let label = parameter_of(layer, "weight");
        let layer = || layer.to_owned();
        let inputs = heard.0.remove(&*label);
        let inputs = inputs.ok_or_else(|| PtqError::NotCalibrated { layer: layer() })?;
        if let Some(other) = inputs.other {
            return Err(PtqError::Shapes {
                layer: layer(),
                calibrated: inputs.shape.to_vec(),
                other: other.to_vec(),
            });
        }
        // As tuning needs it, too; and far from where scales end.
        if !inputs
            .largest
            .iter()
            .all(|value| (value * value).is_finite())
        {
            return Err(PtqError::NotFinite {
                layer: layer(),
                what: "input",
            });
        }
        let input = StaticInput::new(&inputs.largest, format);
        Ok(specs.clone().with_static_input(input))
    });
    specs.collect()
}

/// Checks that the largest magnitude alone fixes the scale of an input.
pub(super) fn check(specs: &ResolvedSpecs) -> Result<(), PtqError> {
    let is_simple = match specs.block_format(Slot::A) {
        None => true,
        Some(format) => {
            format.has_exponent()
                && format.other_scales().is_none()
                && format.scale_mode == ScaleMode::Floor
                && format.shared_exp_method == SharedExpMethod::Max
                && !format.square
                && format.headroom.is_none()
        }
    };
    let is_simple = is_simple
        && specs.float_format().is_none()
        && specs.hadamard_forward().is_none()
        && specs.hot_columns().is_none()
        && !specs.mean_apart()
        && !specs.mask_clipped()
        && specs.gradient_operands() == GradientOperands::Original
        && specs.accumulator(ProductKind::Forward).is_none()
        && specs.round_mx_output() != Rounding::Stochastic;
    match is_simple {
        true => Ok(()),
        false => Err(PtqError::Field {
            field: "is_dynamic",
            value: format!("false with the specs `{specs}`"),
            allowed: "with activations in MX of the scale mode `floor`, microexponents or block floating point, without an \
                      elementwise format, `hadamard_forward`, `hot_columns`, `mean_apart`, `mask_clipped`, `gradient_operands`, an accumulator and random rounding; or \
                      true",
        }),
    }
}
