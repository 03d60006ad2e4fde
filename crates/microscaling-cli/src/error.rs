//! The errors.

use burn_mx_files::PutError;
use microscaling::safetensors::{CheckpointFilesError, FileError};
use microscaling::{Dialect, WeightLayoutError};
use microscaling_checkpoint::{ConfigError, UnreadWeight};
use std::io;
use std::path::{Path, PathBuf};

/// Why a command did nothing. Files that a command was to write are as they were before.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: {source}", .path.display())]
    File {
        path: PathBuf,
        source: Box<FileError>,
    },
    #[error(transparent)]
    Files(#[from] CheckpointFilesError),
    #[error("{}: {reason}", .path.display())]
    NoCheckpoint { path: PathBuf, reason: String },
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{}: `{tensor}`: {source}", .path.display())]
    Tensor {
        path: PathBuf,
        tensor: String,
        source: Box<dyn std::error::Error>,
    },
    #[error("{}: {source}", .path.display())]
    Layout {
        path: PathBuf,
        source: Box<WeightLayoutError>,
    },
    #[error("{} is {}, which is read; allowed: another file", .path.display(), .input.display())]
    Input { path: PathBuf, input: PathBuf },
    #[error("{} exists; `--force` replaces it", .path.display())]
    Exists { path: PathBuf },
    #[error("{} is a pipe or a device, which `--force` does not replace; allowed: a file", .path.display())]
    NotAFile { path: PathBuf },
    #[error(
        "{} belongs to another checkpoint, and programs would read it beside the new files; allowed: another folder, or the folder \
         without this file", .path.display()
    )]
    OtherCheckpoint { path: PathBuf },
    #[error("{}: two tensors would have the name `{name}`; allowed: names that differ", .path.display())]
    SameName { path: PathBuf, name: String },
    #[error(
        "{}: `{tensor}` is {what}{dtype} of shape {shape:?}; allowed: weights in F32, F16 or BF16 with two axes or more, \
         which `--only` and `--skip` choose", .path.display()
    )]
    NoWeight {
        path: PathBuf,
        tensor: String,
        what: &'static str,
        dtype: String,
        shape: Vec<usize>,
    },
    #[error(
        "{}: `{weight}` is packed already, in layout {layout}; allowed: tensors of floats (`convert` changes the layout)",
        .path.display()
    )]
    Packed {
        path: PathBuf,
        weight: String,
        layout: &'static str,
    },
    #[error(
        "{}: `{weight}` is quantized already ({called}); allowed: weights in F32, F16 or BF16, and no quantized weight beside them",
        .path.display()
    )]
    Quantized {
        path: PathBuf,
        weight: String,
        called: String,
    },
    #[error(
        "{}: `{tensor}` has shape {shape:?}, and which axis its products sum over is not known; allowed: `--axis`, which counts \
         for all packed tensors, or `--skip`. Only matrices [out, in] and the experts of some models, by `model_type` in \
         config.json, have a known axis", .path.display()
    )]
    UnknownAxis {
        path: PathBuf,
        tensor: String,
        shape: Vec<usize>,
    },
    #[error(
        "{}: the file has no packed weight in {looked_for}; see `inspect`. `quantize` packs floats, into each of these layouts",
        .path.display()
    )]
    NothingPacked { path: PathBuf, looked_for: String },
    #[error("{}: layout {target} cannot hold `{layer}`, which is {what}", .path.display())]
    Unheld {
        path: PathBuf,
        layer: String,
        what: String,
        target: String,
    },
    #[error(
        "{}: fused layers `{group}`: {reason}; allowed: {allowed}, `--fused` with the layers that the engine fuses, or `--own-scales` \
         for an engine that fuses none", .path.display()
    )]
    Fused {
        path: PathBuf,
        group: String,
        reason: String,
        allowed: String,
    },
    #[error("{}: the file has no quantized weight to unpack; see `inspect`", .path.display())]
    NothingQuantized { path: PathBuf },
    #[error("{}: {source}", .path.display())]
    Unread {
        path: PathBuf,
        source: Box<UnreadWeight>,
    },
    #[error("{}: there is no tensor to pack: {reason}", .path.display())]
    NothingToPack { path: PathBuf, reason: String },
    #[error("axis is {axis}, expected {} to {} for `{tensor}` of {rank} axes", -(*rank as i64), rank - 1)]
    Axis {
        axis: i64,
        tensor: String,
        rank: usize,
    },
    #[error(
        "dialect {dialect}: `{tensor}` has shape {shape:?}, and its products sum over axis {axis}; allowed: the last axis, or \
         experts in the layouts gpt-oss and gguf-mxfp4, or `--skip`, which leaves the tensor unchanged"
    )]
    DialectAxis {
        dialect: Dialect,
        tensor: String,
        shape: Vec<usize>,
        axis: usize,
    },
    #[error("{0}")]
    Arguments(String),
}

impl Error {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            source,
        }
    }

    /// The errors of a checkpoint's tensor.
    pub(crate) fn tensor<E: std::error::Error + 'static>(
        path: &Path,
        tensor: &str,
    ) -> impl FnOnce(E) -> Self {
        move |source| Self::Tensor {
            path: path.to_owned(),
            tensor: tensor.to_owned(),
            source: Box::new(source),
        }
    }

    pub(crate) fn unread(path: &Path) -> impl FnOnce(UnreadWeight) -> Self {
        |source| Self::Unread {
            path: path.to_owned(),
            source: Box::new(source),
        }
    }

    pub(crate) fn put(error: PutError) -> Self {
        match error.source.kind() {
            io::ErrorKind::AlreadyExists => Self::Exists { path: error.path },
            _ => Self::io(&error.path, error.source),
        }
    }

    pub(crate) fn file(path: &Path, source: FileError) -> Self {
        Self::File {
            path: path.to_owned(),
            source: Box::new(source),
        }
    }
}
