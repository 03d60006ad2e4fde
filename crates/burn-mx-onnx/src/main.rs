//! The program `quantize_onnx`; see the library.

use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use burn_mx_files::input_at;
use burn_mx_onnx::{
    Configuration, OnnxError, Parts, QuantizeOptions, WeightTypes, quantize_with_progress,
};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use microscaling::Rounding;

const UNTUNED: &str = "a configuration `…_ADAQUANT`, or with `FastFinetune`, has tuned weights, and this program does not tune: compile the network with \
    burn-onnx, tune it as `examples/onnx` does, and give the weights by `--tuned`";

const ROUNDED_TWICE: &str =
    "`--rounding` is given beside a JSON file; allowed: the file's `rounding_mode`";

/// Quantize an ONNX model to MX formats and their kin; the output runs wherever ONNX's standard operators do
#[derive(Debug, Parser)]
#[command(name = "quantize_onnx", version)]
struct Args {
    /// The float model
    model: PathBuf,

    /// The format: MXFP8E4M3, MXFP4E2M1, MX6, BFP16, NVFP4 (with a tensor scale), mx(element=int8,block_size=8), …. MX6_ADAQUANT with `--tuned`. Or a
    /// JSON file with AMD Quark's `MXAttributes` or `BFPAttributes`
    #[arg(long, value_name = "NAME|FILE.json")]
    config: String,

    /// The quantized model; default: MODEL with the name of `--config`, `model_MXFP8E4M3.onnx`
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Quantize weights only
    #[arg(long, conflicts_with = "activations_only")]
    weights_only: bool,

    /// Quantize activations only
    #[arg(long)]
    activations_only: bool,

    /// Quantize these layers only: a node's name, a prefix of the name, or a glob
    #[arg(long, value_name = "PATTERN")]
    include: Vec<String>,

    /// Leave these layers as they are
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,

    /// How elements are rounded: even (default), nearest (ties away from zero), floor (toward zero). A JSON file has its own
    /// `rounding_mode`
    #[arg(long, value_name = "MODE")]
    rounding: Option<Rounding>,

    /// Fix the scales of activations: a safetensors file that `calibrate.py` wrote
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,

    /// Weights and biases in place of the model's: a safetensors file, by the names of initializers
    #[arg(long, value_name = "FILE")]
    tuned: Option<PathBuf>,

    /// Store weights by ONNX's newest types, FLOAT4E2M1 and FLOAT8E8M0 (operator set 24)
    #[arg(long)]
    newest_types: bool,

    /// Replace an output that exists; a file that is read is never replaced
    #[arg(long)]
    force: bool,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let file = args.config.strip_suffix(".json");
    let config: Configuration = match file {
        None => args.config.parse()?,
        Some(_) if args.rounding.is_some() => return Err(ROUNDED_TWICE.into()),
        Some(_) => {
            let in_file = |error: &dyn Error| format!("{}: {error}", args.config);
            let json = fs::read_to_string(&args.config).map_err(|error| in_file(&error))?;
            Configuration::from_json(&json).map_err(|error| in_file(&error))?
        }
    };
    if config.is_tuned && args.tuned.is_none() {
        return Err(UNTUNED.into());
    }
    let options = QuantizeOptions {
        rounding: args.rounding.unwrap_or(config.rounding),
        parts: match (args.weights_only, args.activations_only) {
            (true, _) => Parts::Weights,
            (_, true) => Parts::Activations,
            _ => Parts::Both,
        },
        types: match args.newest_types {
            true => WeightTypes::Newest,
            false => WeightTypes::Portable,
        },
        include: args.include.clone(),
        exclude: args.exclude.clone(),
        calibration: args.calibration.clone(),
        tuned: args.tuned.clone(),
        force: args.force,
        ..QuantizeOptions::new(config.format)
    };
    let name = file.map_or(args.config.as_str(), |file| {
        let stem = Path::new(file).file_name();
        stem.and_then(OsStr::to_str).unwrap_or_default()
    });
    let output = args
        .output
        .clone()
        .unwrap_or_else(|| with_format(&args.model, name));
    if file.is_some() && input_at(&output, [&args.config]).is_some() {
        let (path, input) = (output, PathBuf::from(&args.config));
        return Err(OnnxError::Input { path, input }.into());
    }
    let began = Instant::now();
    let bar = ProgressBar::new(0).with_style(ProgressStyle::with_template(
        "{bar:30} {pos}/{len} layers, {eta}",
    )?);
    let report = quantize_with_progress(&args.model, &output, &options, |done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    let report = report?;
    println!(
        "{}: {} layers, {} -> {} bytes ({:.3}), {:.1} s",
        output.display(),
        report.layers.len(),
        report.bytes_before,
        report.bytes_after,
        report.bytes_after as f64 / report.bytes_before as f64,
        began.elapsed().as_secs_f64()
    );
    for left in &report.left {
        println!("layer `{}` stays unchanged: {}", left.name, left.reason);
    }
    Ok(())
}

/// `model_MXFP8E4M3.onnx` beside `model.onnx`.
fn with_format(model: &Path, config: &str) -> PathBuf {
    let text = config.chars().map(|c| {
        if c.is_ascii_alphanumeric() || c == '_' {
            c
        } else {
            '-'
        }
    });
    let text: String = text.collect();
    let stem = model.file_stem().unwrap_or_default().display().to_string();
    model.with_file_name(format!("{stem}_{}.onnx", text.trim_end_matches('-')))
}
