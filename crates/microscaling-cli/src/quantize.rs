//! `microscaling quantize`.

mod plan;
mod shared;
mod weight;

use crate::checkpoint::Checkpoint;
use crate::done::{Done, counted};
use crate::error::Error;
use crate::formats::{bytes_of, table};
use crate::fused::{Fused, FusedArgs};
use crate::numbers::floats;
use crate::output::Output;
use globset::Glob;
use microscaling::safetensors::{CheckpointLayout, PackedFiles};
use microscaling::{BlockFormat, Dialect, ElementRounding, Rounding, WeightLayout};
use microscaling_checkpoint::{called, is_low_bit, quantized, summed_axis};
use plan::{chosen, plan};
use shared::Shared;
use std::io::{self, Write};
use std::path::PathBuf;
use weight::WeightNumbers;

/// Pack the weights of a checkpoint: its tensors of floats (F32, F16, BF16) with two axes or more, without biases
#[derive(Debug, clap::Args)]
pub(crate) struct QuantizeArgs {
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
    /// The axis along which blocks lie, in all tensors. Negative numbers count from the last axis [default: the axis that products
    /// sum over; the last one of matrices, and by `model_type` in config.json]
    #[arg(long, allow_negative_numbers = true)]
    axis: Option<i64>,
    /// How numbers are rounded: `even` (ties to even), `nearest` (ties away from zero), `floor` (toward zero), `stochastic` [default:
    /// the format's own rounding, else `even`]
    #[arg(long)]
    rounding: Option<Rounding>,
    /// The seed of stochastic rounding; other roundings draw no random numbers
    #[arg(long)]
    seed: Option<u64>,
    /// Pack by the rules of this tool, which fix rounding and scales: see `formats`
    #[arg(long, conflicts_with_all = ["rounding", "seed"])]
    dialect: Option<Dialect>,
    /// Pack only tensors whose names match this pattern, such as `model.layers.*.weight`; may be repeated
    #[arg(long, value_name = "PATTERN")]
    only: Vec<Glob>,
    /// Leave tensors unchanged whose names match this pattern; may be repeated
    #[arg(long, value_name = "PATTERN")]
    skip: Vec<Glob>,
    #[command(flatten)]
    fused: FusedArgs,
}

pub(crate) fn run(args: &QuantizeArgs) -> Result<Done, Error> {
    let format = format(args)?;
    let rounding = rounding(args, format)?;
    check_seed(args, rounding)?;
    let fused = fused(args, format)?;
    let input = Checkpoint::open(&args.input)?;
    let read = input.read(None)?;
    if let Some((weight, layout)) = read.weights().first_key_value() {
        return Err(Error::Packed {
            path: input.path.clone(),
            weight: weight.clone(),
            layout: layout.name(),
        });
    }
    check_floats(&input, &read)?;
    let names = chosen(args, &input, &read)?;
    let shared = Shared::of(args, &fused, &input, &read, &names)?;
    let (planned, zeros) = plan(args, format, (&input, &read), &names, &shared)?;
    let output = Output {
        input: &input,
        read: &read,
        path: &args.output,
        layout: args.layout,
        config: None,
        force: args.force,
    };
    let mut rows = table(["Weight", "Shape", "Bytes", "SQNR in dB", "NaN or Inf"]);
    let mut not_finite = 0;
    let (files, bytes) = output.write(&planned, |name| {
        let tensor = read.tensor(name).expect("it is one of them");
        let data = floats(&tensor).expect("they are floats");
        let (data, shape, axis) = placed(args, &input, name, data, tensor.shape)?;
        let shape = &shape[..];
        // Each weight draws from another stream, in any file.
        let number = planned.iter().position(|weight| weight.name == name);
        let stream = number.expect("it is planned") as u64;
        let numbers = WeightNumbers {
            data: &data,
            shape,
            axis,
            stream,
            largest: shared.largest(name),
        };
        let failed = |source| Error::Tensor {
            path: input.path.clone(),
            tensor: name.to_owned(),
            source,
        };
        let weight = numbers.encode(args, format, rounding).map_err(failed)?;
        let sqnr = numbers.sqnr(format, &weight.0).map_err(failed)?;
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
    shared.add_to(&zeros, &mut done);
    if not_finite > 0 {
        done.text(format!(
            "{not_finite} elements of the input are NaN or Inf; SQNR leaves them out\n"
        ));
    }
    done.fact("nan_or_inf", not_finite);
    plan::add_zeros(args, &mut done, zeros);
    done.fact("format", format.to_string());
    done.fact("layout", layout.name());
    done.fact("bytes", bytes);
    done.files(&files);
    Ok(done)
}

/// The layers that share a tensor scale: by default in the layouts of engines that fuse.
fn fused(args: &QuantizeArgs, format: BlockFormat) -> Result<Fused, Error> {
    let is_engine = matches!(args.layout, CheckpointLayout::Weights(_));
    let why_none = || format!("{format} has no tensor scale");
    let why_none = (!format.tensor_scale).then(why_none);
    args.fused
        .layers(is_engine && format.tensor_scale, why_none)
}

fn format(args: &QuantizeArgs) -> Result<BlockFormat, Error> {
    match (args.format, args.layout) {
        (Some(format), _) => Ok(format),
        (None, CheckpointLayout::Weights(layout)) => Ok(layout.format()),
        (None, CheckpointLayout::Microscaling) => Err(Error::Arguments(
            "layout microscaling has every format: `--format` has to say which".into(),
        )),
    }
}

/// The rounding of the arguments, unless the format has its own.
fn rounding(args: &QuantizeArgs, format: BlockFormat) -> Result<Rounding, Error> {
    match (format.conversion.rounding, args.rounding) {
        (None, given) => Ok(given.unwrap_or(Rounding::NearestEven)),
        // The format says how random numbers are drawn, if they are.
        (Some(ElementRounding::Stochastic(_)), given) => Ok(given.unwrap_or(Rounding::Stochastic)),
        // Nothing else looks at the rounding.
        (Some(_), None) => Ok(Rounding::NearestEven),
        (Some(own), Some(given)) => Err(Error::Arguments(format!(
            "`--rounding` is {given}, and {format} has the rounding {own}; allowed: no `--rounding`"
        ))),
    }
}

/// Checks that stochastic rounding has a seed; says that a seed without it has no effect.
fn check_seed(args: &QuantizeArgs, rounding: Rounding) -> Result<(), Error> {
    match (rounding, args.seed) {
        (Rounding::Stochastic, None) => {
            return Err(Error::Arguments(
                "stochastic rounding draws random numbers: `--seed` has to say which".into(),
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
    Ok(())
}

/// That no weight is quantized already: packing its scales would ruin the weight.
fn check_floats(input: &Checkpoint, read: &PackedFiles<'_>) -> Result<(), Error> {
    let by_name = quantized(read).into_iter().next();
    let said = input.config.quantization().is_some();
    let by_config = || {
        let codes = read.others().iter().find(|name| is_low_bit(read, name));
        codes
            .filter(|_| said)
            .map(|codes| (codes.clone(), codes.clone()))
    };
    let Some((weight, codes)) = by_name.or_else(by_config) else {
        return Ok(());
    };
    let tensor = read.tensor(&codes);
    let dtype = tensor.map_or_else(String::new, |tensor| tensor.dtype);
    let called = called(&input.config.fields, &weight);
    let called = called.map_or_else(String::new, |called| format!("; config.json: {called}"));
    Err(Error::Quantized {
        path: input.path.clone(),
        called: format!("`{codes}` is {dtype}{called}"),
        weight,
    })
}

/// The axis along which blocks lie, counted from the first.
fn axis(
    args: &QuantizeArgs,
    input: &Checkpoint,
    tensor: &str,
    shape: &[usize],
) -> Result<usize, Error> {
    let rank = shape.len();
    let Some(axis) = args.axis else {
        let known = summed_axis(&input.config.fields, tensor, rank);
        return known.ok_or_else(|| Error::UnknownAxis {
            path: input.path.clone(),
            tensor: tensor.to_owned(),
            shape: shape.to_vec(),
        });
    };
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

/// The axis along which blocks lie, and whether the last two axes change places before. The layouts with experts have them as
/// [expert, out, in], so experts that are [expert, in, out] are transposed.
fn along(
    args: &QuantizeArgs,
    input: &Checkpoint,
    name: &str,
    shape: &[usize],
) -> Result<(usize, bool), Error> {
    let axis = axis(args, input, name, shape)?;
    let has_experts = matches!(
        args.layout,
        CheckpointLayout::Weights(WeightLayout::GptOss | WeightLayout::GgufMxfp4)
    );
    if has_experts && shape.len() > 2 && axis + 2 == shape.len() {
        return Ok((axis + 1, true));
    }
    match args.dialect {
        Some(dialect) if axis + 1 != shape.len() => Err(Error::DialectAxis {
            dialect,
            tensor: name.to_owned(),
            shape: shape.to_vec(),
            axis,
        }),
        _ => Ok((axis, false)),
    }
}

/// The numbers to pack, their shape, and the axis of their blocks.
fn placed(
    args: &QuantizeArgs,
    input: &Checkpoint,
    name: &str,
    data: Vec<f32>,
    mut shape: Vec<usize>,
) -> Result<(Vec<f32>, Vec<usize>, usize), Error> {
    let (axis, turned) = along(args, input, name, &shape)?;
    if !turned {
        return Ok((data, shape, axis));
    }
    let (rows, width) = (shape[axis - 1], shape[axis]);
    shape.swap(axis - 1, axis);
    let mut transposed = Vec::with_capacity(data.len());
    for matrix in data.chunks((rows * width).max(1)) {
        let of = |i: usize| matrix[i % rows * width + i / rows];
        transposed.extend((0..matrix.len()).map(of));
    }
    Ok((transposed, shape, axis))
}
