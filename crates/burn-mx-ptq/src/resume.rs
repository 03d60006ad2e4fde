//! Saves tuned layers in a folder, so that fast fine-tuning can continue after an interruption.
//!
//! A layer has one file, `<place>-<path>.safetensors`, with the layer's `weight` and, if any, `bias` in float32. The file also
//! has a fingerprint of everything that the layer was tuned from. This is the algorithm with its settings, the specs, the
//! backend, the parameters before tuning, and all inputs and wanted outputs. So a layer is loaded only if tuning it again
//! would give the same bits.

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

/// The key of [`Kept`] in the file's metadata. There is one key only, because several keys have no fixed order, and the same
/// layer must give the same bytes.
const KEY: &str = "tuned";

/// The contents of a file beside the parameters, as JSON.
#[derive(Serialize, Deserialize)]
struct Kept {
    fingerprint: Fingerprint,
    layer: String,
    /// The bits of a float64, here and in the other error.
    error_before: u64,
    error_after: u64,
    iterations: usize,
}

/// A hash of everything that a layer is tuned from. Another version of the standard library may hash differently. Layers are
/// then tuned again.
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

/// The fingerprint of everything that tuning a layer depends on.
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
    /// Creates the folder if it is missing.
    pub(super) fn open(path: PathBuf) -> Result<Self, PtqError> {
        fs::create_dir_all(&path).map_err(|error| PtqError::Folder {
            path: path.clone(),
            reason: error.to_string(),
        })?;
        Ok(Self(path))
    }

    /// The file of the layer at this place in the order of the calls.
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

    /// The saved layer, if it was tuned from the same data. `start` are the parameters before tuning.
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
                "burn-mx: layer `{layer}` is tuned again: {} was saved for other data, parameters or settings",
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

    /// Saves a layer. The file is complete or absent: it is written under another name and renamed.
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
    if stored.dtype != Dtype::F32.to_string() || stored.shape != shape.to_vec() {
        return None;
    }
    let data = TensorData::from_bytes_vec(stored.bytes.to_vec(), shape, DType::F32);
    Some(B::float_from_data(data, &B::float_device(like)))
}

fn warn(path: &Path, reason: &str) {
    log::warn!(
        "burn-mx: {} cannot be used, and its layer is tuned again: {reason}",
        path.display()
    );
}

fn bytes<B: MxKernels>(tensor: FloatTensor<B>) -> Vec<u8> {
    values::<B>(tensor)
        .into_iter()
        .flat_map(f32::to_le_bytes)
        .collect()
}
