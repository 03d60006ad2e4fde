//! `microscaling diff`.

use crate::checkpoint::Checkpoint;
use crate::done::Done;
use crate::error::Error;
use crate::formats::table;
use crate::numbers::floats;
use comfy_table::Table;
use microscaling::safetensors::{CheckpointLayout, FileTensor, PackedFiles};
use microscaling::{Comparison, Packed, PackedDifference, Statistics};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Compare the tensors of two checkpoints in any layouts; the exit status is 1 if any differ
///
/// Tensors are compared by name. Two packed weights are compared by codes, scales and values, a packed weight and a tensor of
/// floats by values, and all other tensors by bytes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A safetensors file, the index of several, a folder with one of either, or NumPy's `.npy`
    one: PathBuf,
    /// Another checkpoint
    other: PathBuf,
    /// The layout of both; needed only for `gguf-mxfp4`, which names and types of tensors do not reveal
    #[arg(long)]
    from: Option<CheckpointLayout>,
}

/// A tensor of a checkpoint.
enum Tensor<'a> {
    Packed(Packed),
    Other(FileTensor<'a>),
}

impl<'a> Tensor<'a> {
    /// The weight or other tensor of this name, if there is one.
    fn find(input: &Checkpoint, read: &PackedFiles<'a>, name: &str) -> Result<Option<Self>, Error> {
        match read.packed(name) {
            Some(Ok(packed)) => Ok(Some(Self::Packed(packed))),
            Some(Err(source)) => Err(Error::file(&input.path, source)),
            None => Ok(read.tensor(name).map(Self::Other)),
        }
    }

    fn what(&self) -> String {
        match self {
            Self::Packed(packed) => packed.format().to_string(),
            Self::Other(tensor) => tensor.dtype.clone(),
        }
    }

    fn shape(&self) -> &[usize] {
        match self {
            Self::Packed(packed) => packed.shape(),
            Self::Other(tensor) => &tensor.shape,
        }
    }

    /// The values as float32, where float32 holds them all.
    fn values(&self) -> Option<Vec<f32>> {
        match self {
            Self::Packed(packed) => Some(packed.decode()),
            Self::Other(tensor) => floats(tensor),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<Done, Error> {
    let inputs = (Checkpoint::open(&args.one)?, Checkpoint::open(&args.other)?);
    let reads = (inputs.0.read(args.from)?, inputs.1.read(args.from)?);
    let names = |read: &PackedFiles<'_>| -> Vec<String> {
        let weights = read.weights().keys();
        weights.chain(read.others()).cloned().collect()
    };
    let all: BTreeSet<String> = [names(&reads.0), names(&reads.1)]
        .concat()
        .into_iter()
        .collect();
    let mut rows = table([
        "Tensor",
        "One",
        "Other",
        "Scales that differ",
        "Elements that differ",
        "Values that differ",
        "Largest difference",
        "SQNR in dB",
    ]);
    let (mut same, mut differ) = (0_usize, 0_usize);
    for name in &all {
        let one = Tensor::find(&inputs.0, &reads.0, name)?;
        let other = Tensor::find(&inputs.1, &reads.1, name)?;
        let is_same = match (&one, &other) {
            (Some(one), Some(other)) => compare(&args.one, name, one, other, &mut rows)?,
            _ => {
                let what = |tensor: &Option<Tensor<'_>>| {
                    tensor.as_ref().map_or("missing".into(), Tensor::what)
                };
                rows.add_row([name, &what(&one), &what(&other)]);
                false
            }
        };
        *(if is_same { &mut same } else { &mut differ }) += 1;
    }
    let mut done = Done::default();
    done.table("differences", rows);
    done.text(format!("{differ} of {} tensors differ", same + differ));
    done.fact("tensors", same + differ);
    done.fact("differ", differ);
    done.status = (differ > 0).into();
    Ok(done)
}

/// Whether two tensors are the same; a row of the table if they are not.
fn compare(
    path: &Path,
    name: &str,
    one: &Tensor<'_>,
    other: &Tensor<'_>,
    rows: &mut Table,
) -> Result<bool, Error> {
    let whats = [one.what(), other.what()];
    let mut row = vec![name.to_owned()];
    row.extend(whats);
    let packed = match (one, other) {
        (Tensor::Packed(one), Tensor::Packed(other)) => one.view().difference(&other.view()),
        (Tensor::Other(one), Tensor::Other(other)) if one == other => return Ok(true),
        _ => None,
    };
    if packed.is_some_and(|difference| difference.is_none()) {
        return Ok(true);
    }
    if one.shape() != other.shape() {
        for (cell, shape) in row[1..].iter_mut().zip([one.shape(), other.shape()]) {
            *cell += &format!(" {shape:?}");
        }
        rows.add_row(row);
        return Ok(false);
    }
    let Some((a, b)) = one.values().zip(other.values()) else {
        rows.add_row(row);
        return Ok(false);
    };
    let dash = || "-".to_owned();
    row.extend(match packed {
        Some(PackedDifference {
            scales,
            scales_differ,
            elements,
            elements_differ,
            ..
        }) => [
            format!("{scales_differ} of {scales}"),
            format!("{elements_differ} of {elements}"),
        ],
        None => [dash(), dash()],
    });
    let pairs = || a.iter().zip(&b).filter(|(a, b)| a.to_bits() != b.to_bits());
    let largest = pairs().fold(0.0, |largest: f32, (a, b)| {
        let distance = (a - b).abs();
        // A NaN stays.
        if distance <= largest {
            largest
        } else {
            distance
        }
    });
    let statistics = Statistics::of(Comparison {
        original: &a,
        quantized: &b,
        shape: one.shape(),
        axis: 0,
        format: None,
    });
    let statistics = statistics.map_err(Error::tensor(path, name))?;
    row.push(format!("{} of {}", pairs().count(), a.len()));
    row.push(format!("{largest}"));
    row.push(
        statistics
            .sqnr()
            .map_or_else(dash, |sqnr| format!("{sqnr:.2}")),
    );
    rows.add_row(row);
    Ok(false)
}
