//! Tuned layers as files.
//!
//! A file has the layer's `weight` and, if any, `bias` in float32. Its fingerprint covers the algorithm with its settings,
//! the specs, the backend, the parameters before tuning, and all inputs and wanted outputs.

use burn_backend::tensor::FloatTensor;
use burn_backend::{DType, TensorData, TensorMetadata};
use microscaling::safetensors::PackedFile;
use microscaling::{StoredTensor, StoredType};

use super::{Parameters, TunedLayer, Tuner};
use crate::resume::{Fingerprint, Finished, bytes};
use burn_mx_core::MxKernels;

/// The fingerprint of everything that tuning a layer depends on.
pub(super) fn fingerprint<B: MxKernels>(
    tuner: &Tuner<'_, B>,
    start: &Parameters<B>,
    seed: u64,
) -> Fingerprint {
    let texts = [
        format!("{:?}", tuner.config),
        tuner.specs.resolved().specs().to_json(),
        format!("{:?}", start.storage),
        // Another backend sums in another order.
        B::name(&B::float_device(&start.weight)),
    ];
    let ops = tuner.samples().map(|(op, _)| format!("{op:?}"));
    let print = Fingerprint::new()
        .with(tuner.layer.as_bytes())
        .with(&seed.to_le_bytes());
    let texts = texts.into_iter().chain(ops);
    let print = texts.fold(print, |print, text| print.with(text.as_bytes()));
    let parameters = [Some(&start.weight), start.bias.as_ref()];
    let samples = tuner.samples().flat_map(|(_, tensors)| tensors);
    let tensors = parameters.into_iter().flatten().chain(samples);
    tensors.fold(print, |print, tensor| print.with_tensor::<B>(tensor))
}

/// A tuned layer, to be saved.
pub(super) fn finished<B: MxKernels>(parameters: &Parameters<B>, report: &TunedLayer) -> Finished {
    let tensors = [
        ("weight", Some(&parameters.weight)),
        ("bias", parameters.bias.as_ref()),
    ];
    let tensors = tensors.into_iter().filter_map(|(name, tensor)| {
        let tensor = tensor?;
        Some(StoredTensor {
            name: name.to_owned(),
            dtype: StoredType::F32,
            shape: tensor.shape().to_vec(),
            bytes: bytes::<B>(tensor.clone()),
        })
    });
    Finished {
        report: vec![
            report.error_before.to_bits(),
            report.error_after.to_bits(),
            report.iterations as u64,
        ],
        tensors: tensors.collect(),
    }
}

/// A tuned layer out of a file. `start` are the parameters before tuning.
pub(super) fn read<B: MxKernels>(
    layer: &str,
    start: &Parameters<B>,
    report: &[u64],
    file: &PackedFile<'_>,
) -> Option<(Parameters<B>, TunedLayer)> {
    let &[before, after, iterations] = report else {
        return None;
    };
    let report = TunedLayer {
        layer: layer.to_owned(),
        error_before: f64::from_bits(before),
        error_after: f64::from_bits(after),
        iterations: usize::try_from(iterations).ok()?,
    };
    Some((parameters::<B>(file, start)?, report))
}

/// The parameters in a file, with the shapes and the device of `like`.
fn parameters<B: MxKernels>(file: &PackedFile<'_>, like: &Parameters<B>) -> Option<Parameters<B>> {
    let bias = match &like.bias {
        Some(bias) => Some(tensor::<B>(file, "bias", bias)?),
        None => None,
    };
    Some(Parameters {
        weight: tensor::<B>(file, "weight", &like.weight)?,
        bias,
        storage: like.storage,
    })
}

/// A tensor in a file, with the shape and the device of another tensor.
fn tensor<B: MxKernels>(
    file: &PackedFile<'_>,
    name: &str,
    like: &FloatTensor<B>,
) -> Option<FloatTensor<B>> {
    let stored = file.tensor(name)?;
    let shape = like.shape();
    if stored.dtype != "F32" || stored.shape != shape.to_vec() {
        return None;
    }
    let data = TensorData::from_bytes_vec(stored.bytes.to_vec(), shape, DType::F32);
    Some(B::float_from_data(data, &B::float_device(like)))
}
