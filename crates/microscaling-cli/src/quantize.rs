//! `microscaling quantize`.

use crate::checkpoint::Checkpoint;
use crate::done::{Done, counted};
use crate::error::Error;
use crate::formats::{bytes_of, table};
use crate::numbers::floats;
use crate::output::{Output, Planned};
use globset::{Glob, GlobSet, GlobSetBuilder};
use microscaling::safetensors::{CheckpointLayout, FileTensor, PackedFiles};
use microscaling::{BlockFormat, Comparison, Dialect, Packed, RandomStream, Rounding, Statistics};
use std::io::{self, Write};
use std::path::PathBuf;

/// Pack the weights of a checkpoint: its tensors of floats (F32, F16, BF16) with two axes or more
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A safetensors file, the index of several, a folder with one of either, or NumPy's `.npy`
    input: PathBuf,
    /// The file to write, or the folder: for an input that is a folder or an index
    output: PathBuf,
    /// Replace files of the output that exist; an input is never replaced
    #[arg(long)]
    force: bool,
    /// The block format, such as `mxfp4` [default: the layout's own]
    #[arg(long)]
    format: Option<BlockFormat>,
    /// The layout of the packed weights: `microscaling`, or another tool's layout, see `formats`
    #[arg(long, default_value = "microscaling")]
    layout: CheckpointLayout,
    /// The axis along which blocks lie; negative numbers count from the last axis
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    axis: i64,
    /// How numbers are rounded: `even` (ties to even), `nearest` (ties away from zero), `floor` (toward zero), `stochastic`
    #[arg(long, default_value_t = Rounding::NearestEven)]
    rounding: Rounding,
    /// The seed of stochastic rounding; other roundings draw no random numbers
    #[arg(long)]
    seed: Option<u64>,
    /// Pack by the rules of this tool, which fix rounding and scales: see `formats`
    #[arg(long, conflicts_with_all = ["axis", "rounding", "seed"])]
    dialect: Option<Dialect>,
    /// Pack only tensors whose names match this pattern, such as `model.layers.*.weight`; may be repeated
    #[arg(long, value_name = "PATTERN")]
    only: Vec<Glob>,
    /// Leave tensors unchanged whose names match this pattern; may be repeated
    #[arg(long, value_name = "PATTERN")]
    skip: Vec<Glob>,
}

pub(crate) fn run(args: &Args) -> Result<Done, Error> {
    let format = match (args.format, args.layout) {
        (Some(format), _) => format,
        (None, CheckpointLayout::Weights(layout)) => layout.format(),
        (None, CheckpointLayout::Microscaling) => {
            return Err(Error::Arguments(
                "layout microscaling has every format: `--format` has to say which".into(),
            ));
        }
    };
    match (args.rounding, args.seed) {
        (Rounding::Stochastic, None) => {
            return Err(Error::Arguments(
                "`--rounding stochastic` draws random numbers: `--seed` has to say which".into(),
            ));
        }
        (Rounding::Stochastic, Some(_)) | (_, None) => {}
        // On the standard error, as results are read by programs. A loop over roundings may give all of them a seed.
        (rounding, Some(seed)) => {
            let _ = writeln!(
                io::stderr(),
                "microscaling: `--seed {seed}` has no effect: rounding `{rounding}` draws no random numbers"
            );
        }
    }
    let input = Checkpoint::open(&args.input)?;
    let read = input.read(None)?;
    if let Some((weight, layout)) = read.weights().first_key_value() {
        return Err(Error::Packed {
            path: input.path.clone(),
            weight: weight.clone(),
            layout: layout.name(),
        });
    }
    let planned = plan(args, &input, &read)?;
    let output = Output {
        input: &input,
        read: &read,
        path: &args.output,
        layout: args.layout,
        force: args.force,
    };
    let mut rows = table(["Weight", "Shape", "Bytes", "SQNR in dB", "NaN or Inf"]);
    let mut not_finite = 0;
    let (files, bytes) = output.write(&planned, |name| {
        let tensor = read.tensor(name).expect("it is one of them");
        let (data, shape) = (floats(&tensor).expect("they are floats"), &tensor.shape);
        let axis = axis(args.axis, name, shape.len())?;
        let weight = match args.dialect {
            Some(dialect) => {
                let encoded = dialect.encode(format, &data, shape);
                let encoded = encoded.map_err(Error::tensor(&input.path, name))?;
                (encoded.packed, encoded.divisor)
            }
            None => {
                // Each weight draws from another stream, whatever file it is in.
                let number = planned.iter().position(|weight| weight.name == name);
                let stream = number.expect("it is planned") as u64;
                let stream = RandomStream::new(args.seed.unwrap_or(0), stream);
                let rounder = args.rounding.with(stream);
                let packed = Packed::encode(format, &data, shape, axis, rounder);
                let packed = packed.map_err(Error::tensor(&input.path, name))?;
                (packed, None)
            }
        };
        let quantized = weight.0.decode();
        let statistics = Statistics::of(Comparison {
            original: &data,
            quantized: &quantized,
            shape,
            axis,
            format: Some(format),
        });
        let statistics = statistics.map_err(Error::tensor(&input.path, name))?;
        let sqnr = statistics
            .sqnr()
            .map_or("-".into(), |sqnr| format!("{sqnr:.2}"));
        let count = data.iter().filter(|x| !x.is_finite()).count();
        not_finite += count;
        rows.add_row([
            name,
            &format!("{shape:?}"),
            &bytes_of(&weight.0).to_string(),
            &sqnr,
            &count.to_string(),
        ]);
        Ok(weight)
    })?;
    let (count, layout) = (planned.len(), args.layout);
    let mut done = Done::default();
    done.table("weights", rows);
    done.text(format!(
        "{} in {format}, {layout} layout; {bytes} bytes of tensors in\n",
        counted(count)
    ));
    if not_finite > 0 {
        done.text(format!(
            "{not_finite} elements of the input are NaN or Inf; SQNR leaves them out\n"
        ));
    }
    done.fact("nan_or_inf", not_finite);
    done.fact("format", format.to_string());
    done.fact("layout", layout.name());
    done.fact("bytes", bytes);
    done.files(&files);
    Ok(done)
}

/// The tensors to pack.
fn plan(args: &Args, input: &Checkpoint, read: &PackedFiles<'_>) -> Result<Vec<Planned>, Error> {
    let nothing = |reason: String| Error::NothingToPack {
        path: input.path.clone(),
        reason,
    };
    let names = || read.names();
    for glob in args.only.iter().chain(&args.skip) {
        let matcher = glob.compile_matcher();
        if !names().any(|name| matcher.is_match(name)) {
            return Err(nothing(format!("no name matches `{}`", glob.glob())));
        }
    }
    let (only, skip) = (set(&args.only)?, set(&args.skip)?);
    let mut planned = Vec::new();
    for name in names() {
        let tensor = read.tensor(name).expect("it is one of the names");
        let is_named = only.is_match(name);
        let is_weight = is_weight(&tensor);
        if skip.is_match(name) || !(is_named || only.is_empty() && is_weight) {
            continue;
        }
        if !is_weight {
            return Err(Error::NoWeight {
                path: input.path.clone(),
                tensor: name.to_owned(),
                dtype: tensor.dtype,
                shape: tensor.shape,
            });
        }
        planned.push(Planned {
            name: name.to_owned(),
            file: read.file_of(name).expect("it is in a file"),
            replaces: vec![name.to_owned()],
        });
    }
    match planned.is_empty() {
        true => Err(nothing("no tensor of floats has two axes or more".into())),
        false => Ok(planned),
    }
}

fn is_weight(tensor: &FileTensor<'_>) -> bool {
    ["F32", "F16", "BF16"].contains(&tensor.dtype.as_str()) && tensor.shape.len() >= 2
}

fn set(globs: &[Glob]) -> Result<GlobSet, Error> {
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        set.add(glob.clone());
    }
    set.build()
        .map_err(|error| Error::Arguments(error.to_string()))
}

/// The axis counted from the first.
fn axis(axis: i64, tensor: &str, rank: usize) -> Result<usize, Error> {
    let counted = if axis < 0 { axis + rank as i64 } else { axis };
    let within = usize::try_from(counted)
        .ok()
        .filter(|counted| *counted < rank);
    within.ok_or_else(|| Error::Axis {
        axis,
        tensor: tensor.to_owned(),
        rank,
    })
}
