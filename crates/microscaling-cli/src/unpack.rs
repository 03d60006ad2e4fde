//! `microscaling unpack`.

use crate::checkpoint::Checkpoint;
use crate::done::{Done, counted};
use crate::error::Error;
use crate::files::{check_targets, new_file};
use crate::numbers::floats;
use crate::output::refuse_npy;
use burn_mx_files::put_all;
use clap::ValueEnum;
use half::bf16;
use microscaling::safetensors::{CheckpointLayout, HeaderEntry, PackedFiles, header};
use microscaling_checkpoint::{QuantizedLayers, companion_of};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::PathBuf;

/// Write the float model of a quantized checkpoint: every tensor by its name in the float model, each weight as the values that its
/// codes and scales have
#[derive(Debug, clap::Args)]
pub(crate) struct UnpackArgs {
    /// A safetensors file, the index of several, or a folder with one of either
    input: PathBuf,
    /// The safetensors file to write
    #[arg(long)]
    out: PathBuf,
    /// The type of the floats; bfloat16 rounds to nearest, ties to even
    #[arg(long, value_enum, default_value_t = Floats::Float32)]
    dtype: Floats,
    /// Replace a file that exists; an input is never replaced
    #[arg(long)]
    force: bool,
    /// The layout of the input; needed only for `gguf-mxfp4`, which names and types of tensors do not reveal
    #[arg(long)]
    from: Option<CheckpointLayout>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Floats {
    Float32,
    Bfloat16,
}

impl Floats {
    const fn dtype(self) -> &'static str {
        match self {
            Self::Float32 => "F32",
            Self::Bfloat16 => "BF16",
        }
    }

    const fn width(self) -> usize {
        match self {
            Self::Float32 => 4,
            Self::Bfloat16 => 2,
        }
    }

    fn write(self, values: &[f32], file: &mut impl Write) -> io::Result<()> {
        let mut bytes = Vec::new();
        for values in values.chunks(1 << 16) {
            bytes.clear();
            match self {
                Self::Float32 => bytes.extend(values.iter().flat_map(|x| x.to_le_bytes())),
                Self::Bfloat16 => {
                    let values = values.iter().map(|x| bf16::from_f32(*x));
                    bytes.extend(values.flat_map(bf16::to_le_bytes));
                }
            }
            file.write_all(&bytes)?;
        }
        Ok(())
    }
}

/// A tensor of the float model.
struct Planned {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    bytes: usize,
}

pub(crate) fn run(args: &UnpackArgs) -> Result<Done, Error> {
    let input = Checkpoint::open(&args.input)?;
    let targets = [args.out.clone()];
    refuse_npy(&targets, &input.paths())?;
    check_targets(&targets, &input.paths(), args.force)?;
    let read = input.read(args.from)?;
    let layers = QuantizedLayers::of(&input.config, &read)?;
    layers.check().map_err(Error::unread(&input.path))?;
    layers.check_config(&input.config, args.from.is_some())?;
    if layers.known.is_empty() {
        return Err(Error::NothingQuantized {
            path: input.path.clone(),
        });
    }
    let (planned, left_out) = plan(args, &input, &read, &layers)?;
    let entries = planned.iter().map(|tensor| HeaderEntry {
        name: &tensor.name,
        dtype: &tensor.dtype,
        shape: &tensor.shape,
        bytes: tensor.bytes,
    });
    let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    let header = header(entries, &metadata).map_err(|source| Error::file(&args.out, source))?;
    let file = new_file(&args.out, |file| {
        file.write_all(&header)?;
        for tensor in &planned {
            let layer = layers.known.get(&tensor.name);
            let values = layer.map(|layer| layer.values(&read));
            let values = values
                .transpose()
                .map_err(|error| io::Error::other(error.to_string()))?;
            let stored = || read.tensor(&tensor.name).expect("it is planned");
            match values.or_else(|| floats(&stored())) {
                Some(values) => args.dtype.write(&values, file)?,
                None => file.write_all(stored().bytes)?,
            }
        }
        Ok(())
    })?;
    let files = put_all(vec![file], args.force).map_err(Error::put)?;
    let bytes: usize = planned.iter().map(|tensor| tensor.bytes).sum();
    let (count, dtype) = (layers.known.len(), args.dtype.dtype());
    let mut done = Done::default();
    done.text(format!(
        "{} of {} tensors unpacked to {dtype}",
        counted(count),
        planned.len()
    ));
    if !left_out.is_empty() {
        done.text(format!(
            "; {} tensors of quantized activations and caches left out, such as `{}`",
            left_out.len(),
            left_out[0]
        ));
    }
    done.text(format!("; {bytes} bytes of tensors in\n"));
    done.fact("weights", count);
    done.fact("tensors", planned.len());
    done.fact("left_out", left_out);
    done.fact("dtype", dtype);
    done.fact("bytes", bytes);
    done.files(&files);
    Ok(done)
}

/// The tensors of the float model, in the file's order, and the names of those that only a quantized model has.
fn plan(
    args: &UnpackArgs,
    input: &Checkpoint,
    read: &PackedFiles<'_>,
    layers: &QuantizedLayers,
) -> Result<(Vec<Planned>, Vec<String>), Error> {
    let width = args.dtype.width();
    let of_floats = |name: &str, shape: Vec<usize>| Planned {
        name: name.to_owned(),
        dtype: args.dtype.dtype().to_owned(),
        bytes: shape.iter().product::<usize>() * width,
        shape,
    };
    let mut planned: Vec<Planned> = layers
        .known
        .values()
        .map(|layer| of_floats(&layer.name, layer.float_shape()))
        .collect();
    let parts: BTreeSet<&String> = layers
        .known
        .values()
        .flat_map(|layer| &layer.parts)
        .collect();
    let mut left_out = Vec::new();
    for name in read.names() {
        if parts.contains(&name.to_owned()) {
            continue;
        }
        if layers.known.contains_key(name) {
            return Err(Error::SameName {
                path: input.path.clone(),
                name: name.to_owned(),
            });
        }
        if companion_of(name, |weight| layers.known.contains_key(weight)) {
            left_out.push(name.to_owned());
            continue;
        }
        let tensor = read.tensor(name).expect("it is one of the names");
        planned.push(match tensor.dtype.as_str() {
            "F32" | "F16" | "BF16" => of_floats(name, tensor.shape),
            _ => Planned {
                name: name.to_owned(),
                bytes: tensor.bytes.len(),
                dtype: tensor.dtype,
                shape: tensor.shape,
            },
        });
    }
    // Wide elements first: each tensor begins at a multiple of its element's size.
    let wide = |tensor: &Planned| {
        let elements = tensor.shape.iter().product::<usize>();
        tensor.bytes.checked_div(elements)
    };
    planned.sort_by(|a, b| (Reverse(wide(a)), &a.name).cmp(&(Reverse(wide(b)), &b.name)));
    Ok((planned, left_out))
}
