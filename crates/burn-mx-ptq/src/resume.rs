//! Layers that were tuned, kept in a folder, so that fast fine-tuning goes on where it was stopped.
//!
//! A layer has one file, `<place>-<path>.safetensors`: its `weight`, and its `bias` if it has one, in float32, with the fingerprint
//! of all that they were made from. That is the algorithm with its numbers, the specs, the backend, the parameters before, and
//! every input and wanted output; so a layer is taken from its file only where tuning it again would give the same bits.

use std::collections::HashMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use burn_backend::tensor::FloatTensor;
use burn_backend::{DType, TensorData, TensorMetadata};
use microscaling::safetensors::PackedFile;
use safetensors::tensor::{Dtype, TensorView};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use super::PtqError;
use super::norms::values;
use super::tuning::{Parameters, TunedLayer, Tuner};
use burn_mx_core::MxKernels;

/// The key of a file's metadata that [`Kept`] is the value of; the only one, because those of a file come in no order, and the
/// same layer is to give the same bytes.
const KEY: &str = "tuned";

/// What a file has beside the parameters, as JSON.
#[derive(Serialize, Deserialize)]
struct Kept {
    fingerprint: Fingerprint,
    layer: String,
    /// The bits of float64, as those of the other error.
    error_before: u64,
    error_after: u64,
    iterations: usize,
}

/// A hash of what a layer is tuned from. Another version of the standard library may hash otherwise: then layers are tuned anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Fingerprint(u64);

impl Fingerprint {
    pub(super) fn new() -> Self {
        let new = Self(0);
        // Another version may tune otherwise.
        new.with(env!("CARGO_PKG_VERSION").as_bytes())
    }

    pub(super) fn with(self, bytes: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        (self.0, bytes).hash(&mut hasher);
        Self(hasher.finish())
    }

    pub(super) fn with_tensor<B: MxKernels>(self, tensor: &FloatTensor<B>) -> Self {
        let shape = tensor.shape();
        let shape: Vec<u8> = shape
            .iter()
            .flat_map(|length| (*length as u64).to_le_bytes())
            .collect();
        self.with(&shape).with(&bytes::<B>(tensor.clone()))
    }
}

/// Of all that tuning a layer goes by.
pub(super) fn fingerprint<B: MxKernels>(
    tuner: &Tuner<'_, B>,
    start: &Parameters<B>,
    seed: u64,
) -> Fingerprint {
    let texts = [
        format!("{:?}", tuner.config()),
        tuner.specs().resolved().specs().to_json(),
        format!("{:?}", start.storage),
        // Another backend sums in another order.
        B::name(&B::float_device(&start.weight)),
    ];
    let ops = tuner.samples().map(|(op, _)| format!("{op:?}"));
    let print = Fingerprint::new()
        .with(tuner.layer().as_bytes())
        .with(&seed.to_le_bytes());
    let texts = texts.into_iter().chain(ops);
    let print = texts.fold(print, |print, text| print.with(text.as_bytes()));
    let parameters = [Some(&start.weight), start.bias.as_ref()];
    let samples = tuner.samples().flat_map(|(_, tensors)| tensors);
    let tensors = parameters.into_iter().flatten().chain(samples);
    tensors.fold(print, |print, tensor| print.with_tensor::<B>(tensor))
}

/// The folder.
#[derive(Clone, Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Creates it, where it is missing.
    pub(super) fn open(path: PathBuf) -> Result<Self, PtqError> {
        fs::create_dir_all(&path).map_err(|error| PtqError::Folder {
            path: path.clone(),
            reason: error.to_string(),
        })?;
        Ok(Self(path))
    }

    /// Of the layer at this place in the order of the calls.
    fn file(&self, place: usize, layer: &str) -> PathBuf {
        let plain = |c: char| {
            if c.is_alphanumeric() || "._-".contains(c) {
                c
            } else {
                '_'
            }
        };
        let layer: String = layer.chars().map(plain).collect();
        self.0.join(format!("{place:03}-{layer}.safetensors"))
    }

    /// The layer as it was tuned from the same things, if it was. `start` are the parameters before.
    pub(super) fn load<B: MxKernels>(
        &self,
        place: usize,
        layer: &str,
        fingerprint: Fingerprint,
        start: &Parameters<B>,
    ) -> Option<(Parameters<B>, TunedLayer)> {
        let path = self.file(place, layer);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => {
                warn(&path, &error.to_string());
                return None;
            }
        };
        let file = match PackedFile::read(&bytes) {
            Ok(file) => file,
            Err(error) => {
                warn(&path, &error.to_string());
                return None;
            }
        };
        let kept = file.metadata(KEY).map(serde_json::from_str::<Kept>);
        let Some(Ok(kept)) = kept else {
            warn(&path, &format!("its metadata have no `{KEY}`"));
            return None;
        };
        if kept.fingerprint != fingerprint {
            log::info!(
                "burn-mx: layer `{layer}` is tuned anew: {} is of other data, parameters or settings",
                path.display()
            );
            return None;
        }
        let Some(parameters) = parameters::<B>(&file, start) else {
            warn(&path, "it does not have the layer's parameters");
            return None;
        };
        let report = TunedLayer {
            layer: layer.to_owned(),
            error_before: f64::from_bits(kept.error_before),
            error_after: f64::from_bits(kept.error_after),
            iterations: kept.iterations,
        };
        Some((parameters, report))
    }

    /// Keeps a layer. The file is complete or not there: it is written beside its place and moved.
    pub(super) fn save<B: MxKernels>(
        &self,
        place: usize,
        fingerprint: Fingerprint,
        parameters: &Parameters<B>,
        report: &TunedLayer,
    ) -> Result<(), PtqError> {
        let path = self.file(place, &report.layer);
        let kept = Kept {
            fingerprint,
            layer: report.layer.clone(),
            error_before: report.error_before.to_bits(),
            error_after: report.error_after.to_bits(),
            iterations: report.iterations,
        };
        let kept = serde_json::to_string(&kept).expect("numbers and texts are JSON");
        let metadata = HashMap::from([(KEY.to_owned(), kept)]);
        let tensors = [
            ("weight", Some(&parameters.weight)),
            ("bias", parameters.bias.as_ref()),
        ];
        let tensors = tensors.into_iter().filter_map(|(name, tensor)| {
            let tensor = tensor?;
            Some((name, tensor.shape().to_vec(), bytes::<B>(tensor.clone())))
        });
        let tensors: Vec<_> = tensors.collect();
        let views = tensors.iter().map(|(name, shape, bytes)| {
            let view = TensorView::new(Dtype::F32, shape.clone(), bytes);
            (
                *name,
                view.expect("there are as many bytes as the shape has"),
            )
        });
        let file = NamedTempFile::new_in(&self.0).and_then(|file| {
            safetensors::serialize_to_file(views, Some(metadata), file.path())
                .map_err(std::io::Error::other)?;
            file.as_file().sync_all()?;
            file.persist(&path).map_err(|error| error.error)
        });
        file.map(drop).map_err(|error| PtqError::Folder {
            path: path.clone(),
            reason: error.to_string(),
        })
    }
}

/// The parameters that a file has, of the shapes and on the device of others.
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

/// A tensor that a file has, of the shape and on the device of another one.
fn tensor<B: MxKernels>(
    file: &PackedFile<'_>,
    name: &str,
    like: &FloatTensor<B>,
) -> Option<FloatTensor<B>> {
    let stored = file.tensor(name)?;
    let shape = like.shape();
    if stored.dtype != Dtype::F32.to_string() || stored.shape != shape.to_vec() {
        return None;
    }
    let data = TensorData::from_bytes_vec(stored.bytes.to_vec(), shape, DType::F32);
    Some(B::float_from_data(data, &B::float_device(like)))
}

fn warn(path: &Path, reason: &str) {
    log::warn!(
        "burn-mx: {} is not used, its layer is tuned anew: {reason}",
        path.display()
    );
}

fn bytes<B: MxKernels>(tensor: FloatTensor<B>) -> Vec<u8> {
    values::<B>(tensor)
        .into_iter()
        .flat_map(f32::to_le_bytes)
        .collect()
}
