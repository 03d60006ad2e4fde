//! Saves finished layers in a folder, so that quantization can continue after an interruption.
//!
//! A layer has one file, `<place>-<path>.safetensors`, with a fingerprint of everything that the layer was computed from. So a
//! layer is loaded only if computing it again would give the same bits.

use std::collections::HashMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use microscaling::safetensors::PackedFile;
use microscaling::{StoredTensor, StoredType};
use safetensors::tensor::{Dtype, TensorView};
use serde::{Deserialize, Serialize};

use crate::error::PtqError;
use crate::parameters::values;
use burn_mx_core::MxKernels;
use burn_mx_files::NewFile;

/// The key of [`FileHeader`] in the file's metadata. There is one key only, because several keys have no fixed order, and the same
/// layer must give the same bytes.
const KEY: &str = "tuned";

/// The contents of a file beside the tensors, as JSON.
#[derive(Serialize, Deserialize)]
struct FileHeader {
    fingerprint: Fingerprint,
    layer: String,
    /// The numbers of the layer's report; a float64 as its bits.
    report: Vec<u64>,
}

/// A hash of everything that a layer is computed from. Another version of the standard library may hash differently. Layers are
/// then computed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Fingerprint(u64);

impl Fingerprint {
    pub(super) fn new() -> Self {
        let new = Self(0);
        // Another version may compute otherwise.
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

/// A finished layer, as a file has it.
pub(super) struct Finished {
    /// The numbers of its report; a float64 as its bits.
    pub(super) report: Vec<u64>,
    /// In float32 or bytes.
    pub(super) tensors: Vec<StoredTensor>,
}

/// The place of a layer in the order of the calls, and the layer's path.
#[derive(Clone, Copy)]
pub(super) struct LayerPlace<'a>(pub(super) usize, pub(super) &'a str);

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

    fn file(&self, LayerPlace(place, layer): LayerPlace<'_>) -> PathBuf {
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

    /// Calls `read` with the saved layer's numbers and tensors, if the layer was computed from the same data.
    fn load<T>(
        &self,
        place: LayerPlace<'_>,
        fingerprint: Fingerprint,
        read: impl FnOnce(&[u64], &PackedFile<'_>) -> Option<T>,
    ) -> Option<T> {
        let path = self.file(place);
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
        let header = file.metadata(KEY).map(serde_json::from_str::<FileHeader>);
        let Some(Ok(header)) = header else {
            warn(&path, &format!("its metadata have no `{KEY}`"));
            return None;
        };
        if header.fingerprint != fingerprint {
            let LayerPlace(_, layer) = place;
            log::info!(
                "burn-mx: layer `{layer}` is computed again: {} was saved for other data, parameters or settings",
                path.display()
            );
            return None;
        }
        let finished = read(&header.report, &file);
        if finished.is_none() {
            warn(&path, "it does not have the layer's parameters");
        }
        finished
    }

    /// Saves a layer. The file is complete or absent: it is written under another name and renamed. Another file of the same name
    /// is renamed, because somebody may need it.
    fn save(
        &self,
        place: LayerPlace<'_>,
        fingerprint: Fingerprint,
        Finished { report, tensors }: Finished,
    ) -> Result<(), PtqError> {
        let path = self.file(place);
        let LayerPlace(_, layer) = place;
        let header = FileHeader {
            fingerprint,
            layer: layer.to_owned(),
            report,
        };
        let header = serde_json::to_string(&header).expect("numbers and texts are JSON");
        let metadata = HashMap::from([(KEY.to_owned(), header)]);
        let views = tensors.iter().map(|tensor| {
            let dtype = match tensor.dtype {
                StoredType::F32 => Dtype::F32,
                _ => Dtype::U8,
            };
            let view = TensorView::new(dtype, tensor.shape.clone(), &tensor.bytes);
            (
                tensor.name.as_str(),
                view.expect("there are as many bytes as the shape has"),
            )
        });
        let written = NewFile::at(&path).and_then(|file| {
            safetensors::serialize_to_file(views, Some(metadata), file.temporary())
                .map_err(std::io::Error::other)?;
            if path.exists() && !is_layer(&path) {
                let kept = (1..).map(|n| path.with_extension(format!("safetensors.kept-{n}")));
                let mut free = kept.filter(|kept| !kept.exists());
                fs::rename(&path, free.next().expect("numbers do not end"))?;
            }
            file.put(true)
        });
        written.map_err(|error| PtqError::Folder {
            path: path.clone(),
            reason: error.to_string(),
        })
    }
}

/// Whether a file has a layer that was saved here.
fn is_layer(path: &Path) -> bool {
    let bytes = fs::read(path).unwrap_or_default();
    PackedFile::read(&bytes).is_ok_and(|file| file.metadata(KEY).is_some())
}

/// A layer by `compute` from its input, or as the folder has it.
pub(super) fn resumed<I, T>(
    folder: Option<&Folder>,
    place: LayerPlace<'_>,
    input: I,
    fingerprint: impl FnOnce(&I) -> Fingerprint,
    read: impl FnOnce(&I, &[u64], &PackedFile<'_>) -> Option<T>,
    compute: impl FnOnce(I) -> Result<T, PtqError>,
    finished: impl FnOnce(&T) -> Finished,
) -> Result<T, PtqError> {
    let Some(folder) = folder else {
        return compute(input);
    };
    let fingerprint = fingerprint(&input);
    let kept = folder.load(place, fingerprint, |report, file| {
        read(&input, report, file)
    });
    if let Some(kept) = kept {
        return Ok(kept);
    }
    let computed = compute(input)?;
    folder.save(place, fingerprint, finished(&computed))?;
    Ok(computed)
}

fn warn(path: &Path, reason: &str) {
    log::warn!(
        "burn-mx: {} cannot be used, and its layer is computed again: {reason}",
        path.display()
    );
}

/// The values in row-major order, little-endian.
pub(super) fn bytes<B: MxKernels>(tensor: FloatTensor<B>) -> Vec<u8> {
    values::<B>(tensor)
        .into_iter()
        .flat_map(f32::to_le_bytes)
        .collect()
}
