//! Layers that were tuned, kept in a folder, so that fast fine-tuning goes on where it was stopped.
//!
//! A layer has one file, `<place>-<path>.safetensors`: its `weight`, and its `bias` if it has one, in float32, with the fingerprint
//! of all that they were made from. That is the algorithm with its numbers, the specs, the backend, the parameters before, and
//! every input and wanted output; so a layer is taken from its file only where tuning it again would give the same bits.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use burn_backend::tensor::FloatTensor;
use burn_backend::{TensorData, TensorMetadata};
use serde_json::{Value, json};

use super::PtqError;
use super::norms::values;
use super::tuning::{Parameters, TunedLayer};
use crate::kernels::MxKernels;

/// 64-bit FNV-1a of what a layer is tuned from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint(u64);

impl Fingerprint {
    pub(super) fn new() -> Self {
        let new = Self(0xcbf2_9ce4_8422_2325);
        // Another version may tune otherwise.
        new.with(env!("CARGO_PKG_VERSION").as_bytes())
    }

    pub(super) fn with(self, bytes: &[u8]) -> Self {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        let length = (bytes.len() as u64).to_le_bytes();
        Self(length.iter().chain(bytes).fold(self.0, step))
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
        let Some(kept) = Kept::parse(&bytes) else {
            warn(&path, "it is no file of a tuned layer, or a damaged one");
            return None;
        };
        if kept.text("fingerprint") != Some(&format!("{:016x}", fingerprint.0)) {
            log::info!(
                "burn-mx: layer `{layer}` is tuned anew: {} is of other data, parameters or settings",
                path.display()
            );
            return None;
        }
        let found = kept.layer::<B>(layer, start);
        if found.is_none() {
            warn(&path, "it does not have what it should");
        }
        found
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
        let mut header = json!({ "__metadata__": {
            "fingerprint": format!("{:016x}", fingerprint.0),
            "layer": report.layer,
            "error_before": bits(report.error_before),
            "error_after": bits(report.error_after),
            "iterations": report.iterations.to_string(),
        } });
        let mut data = Vec::new();
        let tensors = [
            ("weight", Some(&parameters.weight)),
            ("bias", parameters.bias.as_ref()),
        ];
        for (name, tensor) in tensors {
            let Some(tensor) = tensor else { continue };
            let start = data.len();
            data.extend(bytes::<B>(tensor.clone()));
            header[name] = json!({
                "dtype": "F32",
                "shape": tensor.shape().to_vec(),
                "data_offsets": [start, data.len()],
            });
        }
        let mut header = header.to_string();
        while !header.len().is_multiple_of(8) {
            header.push(' ');
        }
        let write = || {
            let beside = path.with_extension("partial");
            let mut file = File::create(&beside)?;
            file.write_all(&(header.len() as u64).to_le_bytes())?;
            file.write_all(header.as_bytes())?;
            file.write_all(&data)?;
            file.sync_all()?;
            fs::rename(&beside, &path)
        };
        write().map_err(|error: std::io::Error| PtqError::Folder {
            path: path.clone(),
            reason: error.to_string(),
        })
    }
}

/// A file, read.
struct Kept<'a> {
    header: Value,
    data: &'a [u8],
}

impl<'a> Kept<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk::<8>()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (header, data) = rest.split_at_checked(length)?;
        let header = serde_json::from_slice(header).ok()?;
        Some(Self { header, data })
    }

    fn text(&self, field: &str) -> Option<&str> {
        self.header["__metadata__"][field].as_str()
    }

    fn layer<B: MxKernels>(
        &self,
        layer: &str,
        start: &Parameters<B>,
    ) -> Option<(Parameters<B>, TunedLayer)> {
        let error = |field| {
            let bits = u64::from_str_radix(self.text(field)?, 16).ok()?;
            Some(f64::from_bits(bits))
        };
        let report = TunedLayer {
            layer: layer.to_owned(),
            error_before: error("error_before")?,
            error_after: error("error_after")?,
            iterations: self.text("iterations")?.parse().ok()?,
        };
        let bias = match &start.bias {
            Some(bias) => Some(self.tensor::<B>("bias", bias)?),
            None => None,
        };
        let parameters = Parameters {
            weight: self.tensor::<B>("weight", &start.weight)?,
            bias,
            storage: start.storage,
        };
        Some((parameters, report))
    }

    /// Of the shape and on the device of another one.
    fn tensor<B: MxKernels>(&self, name: &str, like: &FloatTensor<B>) -> Option<FloatTensor<B>> {
        let offsets = self.header[name]["data_offsets"].as_array()?;
        let offset = |at: usize| usize::try_from(offsets.get(at)?.as_u64()?).ok();
        let bytes = self.data.get(offset(0)?..offset(1)?)?;
        let shape = like.shape();
        if bytes.len() != 4 * shape.num_elements() {
            return None;
        }
        let (values, _) = bytes.as_chunks::<4>();
        let values: Vec<f32> = values
            .iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect();
        let device = B::float_device(like);
        Some(B::float_from_data(TensorData::new(values, shape), &device))
    }
}

fn warn(path: &Path, reason: &str) {
    log::warn!(
        "burn-mx: {} is not used, its layer is tuned anew: {reason}",
        path.display()
    );
}

fn bits(value: f64) -> String {
    format!("{:016x}", value.to_bits())
}

fn bytes<B: MxKernels>(tensor: FloatTensor<B>) -> Vec<u8> {
    values::<B>(tensor)
        .into_iter()
        .flat_map(f32::to_le_bytes)
        .collect()
}
