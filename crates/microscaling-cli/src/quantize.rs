//! `microscaling quantize`.

mod inputs;
mod numbers;
mod plan;
mod shared;
mod weight;

use crate::checkpoint::Checkpoint;
use crate::done::{Done, counted};
use crate::error::Error;
use crate::formats::table;
use crate::fused::{Fused, FusedArgs};
use crate::numbers::floats;
use crate::output::{Output, PackedWeight};
use crate::scheme::{Scheme, SchemeWeights};
use crate::target::NewLayout;
use globset::Glob;
use inputs::{InputMax, input_max};
use microscaling::internal::CompressedElement;
use microscaling::safetensors::{CheckpointLayout, PackedFiles};
use microscaling::{Dialect, Rounding, WeightLayout};
use microscaling_checkpoint::{called, is_low_bit, quantized, summed_axis};
use numbers::{NewNumbers, NumberFormat};
use plan::{chosen, plan};
use shared::Shared;
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
    /// The format of weights and of inputs, by the name that compressed-tensors has: `FP8_DYNAMIC`, `W4A16`, `NVFP4A16`, `MXFP4`. Rounded by
    /// the rules of that tool, for vLLM and transformers
    #[arg(long, value_name = "NAME", conflicts_with_all = ["format", "layout", "axis", "rounding", "seed", "dialect"])]
    scheme: Option<Scheme>,
    /// The largest magnitude of layers' inputs, for the schemes `FP8` and `NVFP4`, which fix a scale of inputs. A number for all layers, or a
    /// JSON file with a number for each: {"model.layers.0.mlp.up_proj": 3.5}
    #[arg(long, value_name = "NUMBER|FILE")]
    input_max: Option<InputMax>,
    /// The block format, such as `mxfp4`; in layouts of integers `int4(group_size=128,zero_points=false)`, with 2, 3, 4 or 8 bits, where the
    /// size 0 is a whole row [default: the layout's own]
    #[arg(long)]
    format: Option<NumberFormat>,
    /// The layout of the packed weights: `microscaling`, or another tool's layout, see `formats`
    #[arg(long, default_value = "microscaling")]
    layout: NewLayout,
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

impl QuantizeArgs {
    /// The layout and the dialect that the scheme has.
    pub(crate) fn with_scheme(mut self) -> Self {
        match self.scheme.map(|scheme| scheme.weights) {
            Some(SchemeWeights::Blocks(layout)) => {
                self.layout = NewLayout::Packed(layout.into());
                self.dialect = Some(Dialect::CompressedTensors);
            }
            Some(SchemeWeights::Numbers(numbers)) => {
                self.layout = match numbers.element {
                    CompressedElement::Fp8 => NewLayout::Float,
                    CompressedElement::Integers { layout, .. } => NewLayout::Integers(layout),
                };
            }
            None => {}
        }
        self
    }
}

pub(crate) fn run(args: &QuantizeArgs) -> Result<Done, Error> {
    let target = NewNumbers::of(args)?;
    let fused = fused(args, target)?;
    let input = Checkpoint::open(&args.input)?;
    let read = input.read(None)?;
    check_floats(&input, &read)?;
    let names = chosen(args, &input, &read)?;
    let input_max = input_max(args, &names)?;
    let shared = Shared::of(args, &fused, &input, &read, &names)?;
    let (planned, zeros) = plan(args, target, (&input, &read), &names, &shared)?;
    let output = Output {
        input: &input,
        read: &read,
        path: &args.output,
        layout: target.layout(),
        config: target.config(args.scheme, &read, &planned),
        force: args.force,
    };
    let mut rows = table(["Weight", "Shape", "Bytes", "SQNR in dB", "NaN or Inf"]);
    let mut not_finite = 0;
    let (files, bytes) = output.write(&planned, |name| {
        let tensor = read.tensor(name).expect("it is one of them");
        let (dtype, data) = (tensor.dtype.clone(), floats(&tensor));
        let data = data.expect("they are floats");
        let (data, shape, axis) = placed(args, &input, name, data, tensor.shape)?;
        let shape = &shape[..];
        // Each weight draws from another stream, in any file.
        let number = planned.iter().position(|weight| weight.name == name);
        let stream = number.expect("it is planned") as u64;
        let numbers = WeightNumbers {
            name,
            data: &data,
            shape,
            axis,
            stream,
            largest: shared.largest(name),
            dtype: &dtype,
            input_max: input_max.get(name).copied(),
        };
        let failed = |source| Error::Tensor {
            path: input.path.clone(),
            tensor: name.to_owned(),
            source,
        };
        let (weight, values) = numbers.encode(args, target).map_err(failed)?;
        let sqnr = numbers.sqnr(target, &values).map_err(failed)?;
        let count = data.iter().filter(|x| !x.is_finite()).count();
        not_finite += count;
        rows.add_row([
            name,
            &format!("{shape:?}"),
            &bytes_of(&weight).to_string(),
            &sqnr,
            &count.to_string(),
        ]);
        Ok(weight)
    })?;
    let (count, layout) = (planned.len(), args.layout.name());
    let format = target.format(args.scheme);
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
    done.fact("format", format);
    done.fact("layout", layout);
    done.fact("bytes", bytes);
    done.files(&files);
    Ok(done)
}

/// The layers that share a tensor scale: by default in the layouts of engines that fuse.
fn fused(args: &QuantizeArgs, target: NewNumbers) -> Result<Fused, Error> {
    let is_engine = args.layout != NewLayout::Packed(CheckpointLayout::Microscaling);
    let has_scale = target.blocks().is_some_and(|format| format.tensor_scale);
    let why_none = || format!("{} has no tensor scale", target.format(args.scheme));
    let why_none = (!has_scale).then(why_none);
    args.fused.layers(is_engine && has_scale, why_none)
}

/// Bytes of a weight's codes and scales.
fn bytes_of(weight: &PackedWeight) -> usize {
    match weight {
        PackedWeight::Blocks(packed, _) => crate::formats::bytes_of(packed),
        PackedWeight::Tensors(tensors) => tensors.iter().map(|tensor| tensor.bytes.len()).sum(),
    }
}

/// That no weight is quantized already: packing its scales would ruin the weight.
fn check_floats(input: &Checkpoint, read: &PackedFiles<'_>) -> Result<(), Error> {
    if let Some((weight, layout)) = read.weights().first_key_value() {
        return Err(Error::Packed {
            path: input.path.clone(),
            weight: weight.clone(),
            layout: layout.name(),
        });
    }
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
        NewLayout::Packed(CheckpointLayout::Weights(
            WeightLayout::GptOss | WeightLayout::GgufMxfp4
        ))
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
