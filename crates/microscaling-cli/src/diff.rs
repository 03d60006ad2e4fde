//! `microscaling diff`.

use crate::checkpoint::Checkpoint;
use crate::done::Done;
use crate::error::Error;
use crate::formats::table;
use crate::numbers::floats;
use comfy_table::Table;
use microscaling::safetensors::{CheckpointLayout, FileTensor, PackedFiles};
use microscaling::{Comparison, Packed, PackedDifference, Statistics};
use microscaling_checkpoint::{QuantizedLayers, turned};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Compare the tensors of two checkpoints in any layouts; the exit status is 1 if any differ
///
/// Tensors are compared by name. Two packed weights are compared by codes and scales, and two tensors of one type by bytes. All
/// others are compared by values: a packed weight and a tensor of floats, FP8 with other scales, BF16 and F32. The table shows the
/// tensors that differ.
#[derive(Debug, clap::Args)]
pub(crate) struct DiffArgs {
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
    /// A packed weight, and whether the float model has its last two axes in the other order.
    Packed(Packed, bool),
    /// Another quantized weight.
    Valued(Valued<'a>),
    /// A packed weight that is damaged: why, and the tensors that it should have.
    Unread(String, Vec<Option<FileTensor<'a>>>),
    Other(FileTensor<'a>),
}

/// A weight of codes and scales that are not packed, with the values.
struct Valued<'a> {
    what: String,
    shape: Vec<usize>,
    parts: Vec<FileTensor<'a>>,
    values: Vec<f32>,
}

/// Values and their shape.
type FloatTensor = (Vec<f32>, Vec<usize>);

impl<'a> Tensor<'a> {
    /// The weight or other tensor of this name, if there is one.
    fn find(read: &PackedFiles<'a>, layers: &QuantizedLayers, name: &str) -> Option<Self> {
        let layer = layers.known.get(name);
        match read.packed(name) {
            Some(Ok(packed)) => Some(Self::Packed(packed, layer.is_some_and(|x| x.is_turned))),
            None if layer.is_some() => {
                let layer = layer?;
                let parts = layer.parts.iter().map(|part| read.tensor(part));
                Some(Self::Valued(Valued {
                    what: format!("{}: {}", layer.layout, layer.format),
                    shape: layer.shape.clone(),
                    parts: parts.collect::<Option<_>>()?,
                    values: read.values(name)?.ok()?,
                }))
            }
            Some(Err(source)) => {
                let parts = read.parts_of(name);
                let parts = parts.iter().map(|part| read.tensor(part)).collect();
                Some(Self::Unread(source.to_string(), parts))
            }
            None => read.tensor(name).map(Self::Other),
        }
    }

    fn what(&self) -> String {
        match self {
            Self::Packed(packed, _) => packed.format().to_string(),
            Self::Valued(weight) => weight.what.clone(),
            Self::Unread(reason, _) => format!("not read: {reason}"),
            Self::Other(tensor) => tensor.dtype.clone(),
        }
    }

    fn shape(&self) -> &[usize] {
        match self {
            Self::Packed(packed, _) => packed.shape(),
            Self::Unread(..) => &[],
            Self::Valued(weight) => &weight.shape,
            Self::Other(tensor) => &tensor.shape,
        }
    }

    /// The values as float32, where float32 holds them all.
    fn values(&self) -> Option<Vec<f32>> {
        match self {
            Self::Packed(packed, _) => Some(packed.decode()),
            Self::Valued(weight) => Some(weight.values.clone()),
            Self::Unread(..) => None,
            Self::Other(tensor) => floats(tensor),
        }
    }

    /// A weight that the float model has with its last two axes in the other order, as the float model has it.
    fn turned(&self, other: &Self) -> Option<FloatTensor> {
        let (Self::Packed(packed, true), Self::Other(tensor)) = (self, other) else {
            return None;
        };
        let mut shape = packed.shape().to_vec();
        let rank = shape.len();
        shape.swap(rank - 2, rank - 1);
        (shape == tensor.shape).then(|| (turned(&packed.decode(), packed.shape()), shape))
    }

    /// Whether every byte is the same. Packed weights are compared elsewhere.
    fn has_bytes_of(&self, other: &Self) -> bool {
        match (self, other) {
            // The same bytes have other values in another layout.
            (Self::Valued(one), Self::Valued(other)) => {
                one.what == other.what && one.parts == other.parts
            }
            (Self::Unread(_, one), Self::Unread(_, other)) => one == other,
            (Self::Other(one), Self::Other(other)) => one == other,
            _ => false,
        }
    }
}

/// How many scales and elements have other bytes, where both tensors have as many.
fn bytes_that_differ(
    packed: Option<PackedDifference>,
    one: &Tensor<'_>,
    other: &Tensor<'_>,
) -> Option<[String; 2]> {
    if let Some(difference) = packed {
        let PackedDifference {
            scales,
            scales_differ,
            elements,
            elements_differ,
            ..
        } = difference;
        let tensor_scale = match difference.tensor_scale_differs {
            true => ", and the tensor scale",
            false => "",
        };
        return Some([
            format!("{scales_differ} of {scales}{tensor_scale}"),
            format!("{elements_differ} of {elements}"),
        ]);
    }
    match (one, other) {
        (Tensor::Other(one), Tensor::Other(other)) if one.dtype == other.dtype => {
            let count = one.shape.iter().product::<usize>();
            let width = one.bytes.len().checked_div(count).unwrap_or(0).max(1);
            let elements = one.bytes.chunks(width).zip(other.bytes.chunks(width));
            let differ = elements.filter(|(one, other)| one != other).count();
            Some(["-".to_owned(), format!("{differ} of {count}")])
        }
        _ => None,
    }
}

/// The result for two tensors.
#[derive(PartialEq)]
enum Alike {
    Same,
    /// The values are the same, in other types.
    InValues,
    No,
}

pub(crate) fn run(args: &DiffArgs) -> Result<Done, Error> {
    let inputs = (Checkpoint::open(&args.one)?, Checkpoint::open(&args.other)?);
    let reads = (inputs.0.read(args.from)?, inputs.1.read(args.from)?);
    let layers = (
        QuantizedLayers::of(&inputs.0.config, &reads.0)?,
        QuantizedLayers::of(&inputs.1.config, &reads.1)?,
    );
    let names = |read: &PackedFiles<'_>, layers: &QuantizedLayers| -> Vec<String> {
        let parts: BTreeSet<&String> = layers.known.values().flat_map(|x| &x.parts).collect();
        let others = read.others().iter().filter(|name| !parts.contains(name));
        let known = layers.known.keys().chain(read.weights().keys());
        known.chain(others).cloned().collect()
    };
    let all: BTreeSet<String> = [names(&reads.0, &layers.0), names(&reads.1, &layers.1)]
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
    let (mut in_values, mut differ) = (0_usize, 0_usize);
    for name in &all {
        let one = Tensor::find(&reads.0, &layers.0, name);
        let other = Tensor::find(&reads.1, &layers.1, name);
        let alike = match (&one, &other) {
            (Some(one), Some(other)) => compare(&args.one, name, one, other, &mut rows)?,
            _ => {
                let what = |tensor: &Option<Tensor<'_>>| {
                    tensor.as_ref().map_or("missing".into(), Tensor::what)
                };
                rows.add_row([name, &what(&one), &what(&other)]);
                Alike::No
            }
        };
        in_values += usize::from(alike == Alike::InValues);
        differ += usize::from(alike == Alike::No);
    }
    let mut done = Done::default();
    done.table("differences", rows);
    done.text(format!("{differ} of {} tensors differ", all.len()));
    if in_values > 0 {
        done.text(format!("; {in_values} have equal values in other types"));
    }
    done.fact("tensors", all.len());
    done.fact("equal_values_in_other_types", in_values);
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
) -> Result<Alike, Error> {
    let mut row = vec![name.to_owned(), one.what(), other.what()];
    let packed = match (one, other) {
        (Tensor::Packed(one, _), Tensor::Packed(other, _)) => one.view().difference(&other.view()),
        _ if one.has_bytes_of(other) => return Ok(Alike::Same),
        _ => None,
    };
    if packed.is_some_and(|difference| difference.is_none()) {
        return Ok(Alike::Same);
    }
    let (one_turned, other_turned) = (one.turned(other), other.turned(one));
    let shape = |tensor: &Tensor<'_>, turned: &Option<FloatTensor>| {
        let of_turned = turned.as_ref().map(|(_, shape)| shape.clone());
        of_turned.unwrap_or_else(|| tensor.shape().to_vec())
    };
    if shape(one, &one_turned) != shape(other, &other_turned) {
        for (cell, shape) in row[1..].iter_mut().zip([one.shape(), other.shape()]) {
            *cell += &format!(" {shape:?}");
        }
        rows.add_row(row);
        return Ok(Alike::No);
    }
    let bytes = bytes_that_differ(packed, one, other);
    let dash = || "-".to_owned();
    let values = |tensor: &Tensor<'_>, turned: Option<FloatTensor>| {
        let of_turned = turned.map(|(values, _)| values);
        of_turned.or_else(|| tensor.values())
    };
    let Some((a, b)) = values(one, one_turned).zip(values(other, other_turned)) else {
        row.extend(bytes.unwrap_or_else(|| [dash(), dash()]));
        rows.add_row(row);
        return Ok(Alike::No);
    };
    let pairs = || a.iter().zip(&b).filter(|(a, b)| a.to_bits() != b.to_bits());
    if bytes.is_none() && pairs().next().is_none() {
        return Ok(Alike::InValues);
    }
    row.extend(bytes.unwrap_or_else(|| [dash(), dash()]));
    let largest = pairs().fold(0.0, |largest: f32, (a, b)| {
        let distance = (a - b).abs();
        // A NaN stays; the distance of two NaNs is 0.
        if largest.is_nan() || distance <= largest || (a.is_nan() && b.is_nan()) {
            largest
        } else {
            distance
        }
    });
    let statistics = Statistics::of(Comparison {
        original: &a,
        quantized: &b,
        shape: &[a.len()],
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
    Ok(Alike::No)
}
