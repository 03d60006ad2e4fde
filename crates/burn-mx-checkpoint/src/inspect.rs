//! Contents of a checkpoint, and differences between two.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use microscaling::{BlockFormat, Packed, PackedDifference};

use crate::archive::{Archive, files};
use crate::error::CheckpointError;
use burn_mx_core::MxSpecs;
use microscaling::safetensors::CheckpointLayout;

/// The contents of a checkpoint.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckpointContents {
    /// Its files.
    pub files: Vec<PathBuf>,
    /// The packed weights, in order.
    pub weights: Vec<StoredWeight>,
    /// All other tensors, in order.
    pub others: Vec<TensorInfo>,
}

/// A packed weight in a checkpoint.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoredWeight {
    /// Its name in the file.
    pub name: String,
    /// The layout that it is in.
    pub layout: CheckpointLayout,
    /// Its format.
    pub format: BlockFormat,
    /// Its shape.
    pub shape: Vec<usize>,
    /// The axis that its blocks lie along.
    pub axis: usize,
    /// Bytes of its codes and scales.
    pub bytes: u64,
    /// The specs that it was saved with, if the file has them.
    pub specs: Option<MxSpecs>,
}

/// A tensor in a checkpoint that is not a packed weight.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorInfo {
    /// Its name in the file.
    pub name: String,
    /// Its type, by safetensors' name.
    pub dtype: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its bytes.
    pub bytes: u64,
}

/// The difference between two checkpoints in one packed weight.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WeightDifference {
    /// Its name.
    pub name: String,
    /// The difference of the bytes. `None` if formats or shapes differ.
    pub difference: Option<PackedDifference>,
    /// The formats.
    pub formats: [BlockFormat; 2],
}

/// Lists the contents of the checkpoint at this path: a file, an index, or a folder with either. Every packed weight is read,
/// so that errors in it appear here.
///
/// # Errors
///
/// See [`CheckpointError`].
pub fn inspect(path: impl AsRef<Path>) -> Result<CheckpointContents, CheckpointError> {
    let files = files(path.as_ref())?;
    let archive = Archive::read(&files, None)?;
    let mut weights = Vec::new();
    for (name, layout) in archive.weights() {
        let packed = archive.packed(name)?;
        let tensor_scale = packed.tensor_scale().map_or(0, |_| size_of::<f32>());
        let bytes = packed.elements().len() + packed.scales().len() + tensor_scale;
        weights.push(StoredWeight {
            name: name.clone(),
            layout: *layout,
            format: packed.format(),
            shape: packed.shape().to_vec(),
            axis: packed.axis(),
            bytes: bytes as u64,
            specs: archive.specs(name).cloned(),
        });
    }
    let others = archive.unpacked().iter().filter_map(|name| {
        let tensor = archive.tensor(name)?;
        Some(TensorInfo {
            name: name.clone(),
            dtype: tensor.dtype,
            shape: tensor.shape,
            bytes: tensor.bytes.len() as u64,
        })
    });
    Ok(CheckpointContents {
        others: others.collect(),
        weights,
        files: files.mapped.iter().map(|file| file.path.clone()).collect(),
    })
}

/// The packed weights of the checkpoint at this path, by their names in the file, without unpacking them. A linear layer's has shape
/// `[out, in]`: the base of a [`PackedLinear`](burn_mx_module::PackedLinear). compressed-tensors' NVFP4 has that tool's
/// [divisor](Packed::with_divisor).
///
/// ```
/// # use burn_core::module::Param;
/// # use burn_core::tensor::{Distribution, Tensor};
/// # use burn_flex::{Flex, FlexDevice};
/// # use burn_mx_core::{MxBackend, MxDevice, MxSpecs};
/// # use burn_mx_checkpoint::{Checkpoint, packed_weights};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("model.safetensors");
/// let device = MxDevice::new(FlexDevice, MxSpecs::mxfp4())?;
/// let weight = Tensor::<MxBackend<Flex>, 2>::random([64, 16], Distribution::Default, &device);
/// // A linear layer's weight, outside of a linear layer.
/// Checkpoint::new(&path).summed_axis("0", 0).save(&vec![Param::from_tensor(weight)])?;
/// let weights = packed_weights(&path)?;
/// assert_eq!(weights["0"].shape(), [16, 64]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// See [`CheckpointError`].
pub fn packed_weights(path: impl AsRef<Path>) -> Result<BTreeMap<String, Packed>, CheckpointError> {
    let files = files(path.as_ref())?;
    let archive = Archive::read(&files, None)?;
    let names = archive.weights().keys();
    let weights =
        names.map(|name| Ok((name.clone(), archive.divided(name, archive.packed(name)?))));
    weights.collect()
}

/// Compares the packed weights that two checkpoints share, in any layouts. Also returns the names of the weights that only one
/// of them has.
///
/// # Errors
///
/// See [`CheckpointError`].
pub fn difference(
    one: impl AsRef<Path>,
    other: impl AsRef<Path>,
) -> Result<(Vec<WeightDifference>, Vec<String>), CheckpointError> {
    let (one, other) = (files(one.as_ref())?, files(other.as_ref())?);
    let (one, other) = (Archive::read(&one, None)?, Archive::read(&other, None)?);
    let mut differences = Vec::new();
    for name in one.weights().keys() {
        if !other.weights().contains_key(name) {
            continue;
        }
        let (a, b) = (one.packed(name)?, other.packed(name)?);
        differences.push(WeightDifference {
            name: name.clone(),
            difference: a.view().difference(&b.view()),
            formats: [a.format(), b.format()],
        });
    }
    let alone = |archive: &Archive<'_>, other: &Archive<'_>| {
        let names = archive.weights().keys();
        let alone = names.filter(|name| !other.weights().contains_key(*name));
        alone.cloned().collect::<Vec<_>>()
    };
    let mut only = alone(&one, &other);
    only.extend(alone(&other, &one));
    Ok((differences, only))
}
