//! Rotations of features, folded into the weights around them ([QuaRot](https://arxiv.org/abs/2404.00456)).
//!
//! Layers that write features rotate their outputs, and layers that read the features rotate their inputs: `y = Wᵀ x` equals
//! `(Q W)ᵀ (Q x)` for an orthogonal Q. Between them there may be sums and RMS norms without a scale, as these commute with a
//! rotation. So the scales of norms go into the readers first.

use burn_backend::{Shape, TensorMetadata};
use burn_core::module::{Module, ModuleVisitor, Param};
use burn_core::tensor::Tensor;
use microscaling::{RandomHadamard, RandomStream, Signs};

use super::norms::GAMMA;
use super::{distance, floats_of, tensor};
use crate::config::Rotation;
use crate::error::PtqError;
use crate::parameters::{self, BIAS, WEIGHT, values};
use burn_mx_core::{MxBackend, MxKernels, MxSpecs, MxTensorOps};
use burn_mx_module::{initialize, label_parameters, nearest, parameter_of, set_specs};

/// The largest allowed ‖a − b‖ / ‖b‖, with a and b the outputs of the model with and without rotations. Rounding in float32
/// makes a hundredth of this value. A missing reader or writer makes about 1.
const TOLERANCE: f64 = 1e-4;

const BLOCK: usize = 128;

/// Folds the rotations into the weights of `model`, and compares the model's output on the first batch of calibration data, without
/// emulation, before and after.
pub(crate) fn rotate<B, M, T, R>(
    model: M,
    rotations: &[Rotation],
    calibration: &[T],
    forward: impl Fn(&M, &T) -> R + Sync,
) -> Result<M, PtqError>
where
    B: MxKernels,
    M: Module<MxBackend<B>> + Sync,
    T: Sync,
    R: 'static,
{
    let batch = calibration.first().ok_or(PtqError::NoCalibration)?;
    let none = MxSpecs::none().resolve()?;
    let output = |model: &M| {
        let output = forward(&set_specs(model.clone(), &none), batch);
        floats_of::<B>(&output).ok_or(PtqError::Output)
    };
    initialize::<MxBackend<B>, M>(&model);
    let mut model = label_parameters(model);
    let wanted = output(&model)?;
    for rotation in rotations {
        model = rotation.fold::<B, M>(model)?;
    }
    let distance = distance(&output(&model)?, &wanted);
    log::info!("burn-mx: rotations change the model's output by {distance:.1e} of its norm");
    // Also for NaN.
    match distance <= TOLERANCE {
        true => Ok(model),
        false => Err(PtqError::Rotation { distance }),
    }
}

/// The axis of a parameter that is rotated.
#[derive(Clone, Copy)]
enum Axis {
    First,
    Last,
}

impl Rotation {
    fn fold<B: MxKernels, M: Module<MxBackend<B>>>(&self, mut model: M) -> Result<M, PtqError> {
        for (norm, readers) in &self.norms {
            model = without_scale::<B, M>(model, norm, readers)?;
        }
        for writer in &self.writers {
            model = self.rotated::<B, M>(model, &parameter_of(writer, WEIGHT), Axis::Last)?;
            let bias = parameter_of(writer, BIAS);
            if parameters::value::<B, M>(&model, &bias).is_some() {
                model = self.rotated::<B, M>(model, &bias, Axis::Last)?;
            }
        }
        for reader in &self.readers {
            model = self.rotated::<B, M>(model, &parameter_of(reader, WEIGHT), Axis::First)?;
        }
        Ok(model)
    }

    /// The model with this parameter rotated along an axis.
    fn rotated<B: MxKernels, M: Module<MxBackend<B>>>(
        &self,
        model: M,
        label: &str,
        axis: Axis,
    ) -> Result<M, PtqError> {
        let transform = RandomHadamard { block_size: BLOCK };
        let signs = Signs::Random(RandomStream::new(self.seed, 0));
        changed::<B, M>(model, label, |values, shape| {
            let axis = match axis {
                Axis::First => 0,
                Axis::Last => shape.num_dims() - 1,
            };
            let features = shape[axis];
            let size = self.size.unwrap_or(features);
            if size == 0 || !features.is_multiple_of(size) {
                return Err(PtqError::Field {
                    field: "rotations",
                    value: format!("of `{label}`, {features} features in parts of {size}"),
                    allowed: "a `size` that divides the number of features",
                });
            }
            let mut parts = shape.to_vec();
            parts.splice(axis..=axis, [features / size, size]);
            let done = transform.transform(values, &parts, axis + 1, signs);
            done.expect("there are as many values as the shape has");
            Ok(())
        })
    }
}

/// The model with the scale of an RMS norm in the weights of the norm's readers.
fn without_scale<B: MxKernels, M: Module<MxBackend<B>>>(
    mut model: M,
    norm: &str,
    readers: &[String],
) -> Result<M, PtqError> {
    let mut scale = Vec::new();
    model = changed::<B, M>(model, &parameter_of(norm, GAMMA), |values, _| {
        scale = values.to_vec();
        values.fill(1.0);
        Ok(())
    })?;
    for reader in readers {
        let label = parameter_of(reader, WEIGHT);
        model = changed::<B, M>(model, &label, |values, shape| {
            if shape[0] != scale.len() {
                return Err(PtqError::Field {
                    field: "rotations",
                    value: format!(
                        "with norm `{norm}` of {} features before `{reader}` of {}",
                        scale.len(),
                        shape[0]
                    ),
                    allowed: "a norm and readers with the same features",
                });
            }
            let outputs = values.len() / scale.len().max(1);
            for (row, scale) in values.chunks_exact_mut(outputs.max(1)).zip(&scale) {
                row.iter_mut().for_each(|value| *value *= scale);
            }
            Ok(())
        })?;
    }
    Ok(model)
}

/// The model with other values of the parameter with this label.
fn changed<B: MxKernels, M: Module<MxBackend<B>>>(
    model: M,
    label: &str,
    change: impl FnOnce(&mut [f32], &Shape) -> Result<(), PtqError>,
) -> Result<M, PtqError> {
    let Some((value, _)) = parameters::value::<B, M>(&model, label) else {
        let all = labels::<B, M>(&model);
        return Err(PtqError::NoParameter {
            label: label.to_owned(),
            parameters: nearest(label, all.iter().map(String::as_str)),
        });
    };
    let (shape, device) = (value.shape(), B::float_device(&value));
    let mut values = values::<B>(value);
    change(&mut values, &shape)?;
    let value = tensor::<B>(values, shape, &device);
    Ok(parameters::replace(model, vec![(label.to_owned(), value)]))
}

/// The labels of all float parameters.
fn labels<B: MxKernels, M: Module<MxBackend<B>>>(model: &M) -> Vec<String> {
    struct Labels(Vec<String>);
    impl<B: MxKernels> ModuleVisitor<MxBackend<B>> for Labels {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<MxBackend<B>, D>>) {
            let tensor = param.val().into_primitive().tensor();
            let label = MxBackend::<B>::label_of(&tensor);
            self.0.extend(label.map(str::to_owned));
        }
    }
    let mut labels = Labels(Vec::new());
    model.visit(&mut labels);
    labels.0
}
