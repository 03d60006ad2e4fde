//! Quantizes a network that came from an ONNX file. `build.rs` turns the file into plain Burn code, without any code
//! for MX.
//!
//! ```text
//! cargo run --release -p burn-mx-onnx-example -- --config all
//! cargo run --release -p burn-mx-onnx-example -- train --config MXFP4E2M1
//! ```
//!
//! The float model has to compute ONNX Runtime's logits on the same digits. Scores come from the loaded checkpoints.
//! Folding and tuning change parameters. The changed ones go into `digits_cnn-CONFIG-tuned.safetensors`, by their names in the ONNX
//! file; `quantize_onnx --tuned` reads them. So it does with the parameters of `train`, which goes on training in a format.

mod train;
mod tuned;

#[allow(
    clippy::all,
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "burn-onnx wrote it"
)]
mod digits_cnn {
    include!(concat!(env!("OUT_DIR"), "/model/digits_cnn.rs"));
}

use std::{error::Error, path::Path, process::ExitCode};

use burn::{backend::flex::FlexDevice, prelude::*, tensor::TensorData};
use burn_mx::MxDevice;
use clap::{CommandFactory, Parser, Subcommand, error::ErrorKind};
use safetensors::SafeTensors;

use burn_mx_lab::quantization::{B, Options, QuantizationPlan, Score, Subject, among_first, sqnr};
use digits_cnn::Model;

type Device = MxDevice<FlexDevice>;

/// The digits, and what ONNX Runtime computes of them; `export.py` says how.
static DIGITS: &[u8] = include_bytes!("../digits_cnn.safetensors");

/// The network's file.
const ONNX: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/digits_cnn.onnx");

/// Quantize a network from an ONNX file by named configurations, and measure its accuracy
#[derive(Debug, Parser)]
#[command(name = "onnx", args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Go on training the network with a quantized forward pass, for `quantize_onnx --tuned`
    Train(train::Train),
}

/// The value, or the end of the program as clap ends it where an option cannot be.
fn checked<T>(value: Result<T, String>) -> T {
    value.unwrap_or_else(|message| {
        let error = Cli::command().error(ErrorKind::ValueValidation, message);
        error.exit()
    })
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Some(Command::Train(options)) => checked(options.plan()).run(),
        None => run(checked(cli.options.plan("digits_cnn", 1e-5))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(plan: QuantizationPlan) -> Result<(), Box<dyn Error>> {
    let rows = plan.rows(&Digits::read()?)?;
    plan.report("Noise of the logits after quantization", &rows)
}

/// The network and its data.
struct Digits {
    calibration: [Tensor<B, 4>; 1],
    test: Tensor<B, 4>,
    labels: Vec<usize>,
    /// ONNX Runtime's logits.
    logits: Vec<f32>,
    /// With the specs `none`: everything outside of quantized layers is float32.
    device: Device,
}

impl Digits {
    fn read() -> Result<Self, Box<dyn Error>> {
        let device = Device::new(FlexDevice, "none")?;
        let digits = SafeTensors::deserialize(DIGITS)?;
        let labels = numbers(&digits, "labels", i64::from_le_bytes)?;
        Ok(Self {
            calibration: [images(&digits, "calibration", &device)?],
            test: images(&digits, "test", &device)?,
            labels: labels.into_iter().map(|label| label as usize).collect(),
            logits: numbers(&digits, "logits", f32::from_le_bytes)?,
            device,
        })
    }
}

impl Subject for Digits {
    type Model = Model<B>;
    type Batch = Tensor<B, 4>;

    fn model(&self) -> Model<B> {
        Model::from_embedded(&self.device)
    }

    fn fresh(&self) -> Model<B> {
        Model::new(&self.device)
    }

    fn calibration(&self) -> &[Tensor<B, 4>] {
        &self.calibration
    }

    fn forward(model: &Model<B>, images: &Tensor<B, 4>) -> Tensor<B, 2> {
        model.forward(images.clone())
    }

    fn outputs(&self, model: &Model<B>) -> Vec<f32> {
        let logits = Self::forward(model, &self.test).into_data();
        logits.into_vec().expect("they are float32")
    }

    fn check(&self, float: &[f32]) -> Result<(), Box<dyn Error>> {
        let agreement = sqnr(float, &self.logits);
        println!("ONNX Runtime's logits and the logits of the float model here: {agreement:.1} dB");
        match agreement >= 100.0 {
            true => Ok(()),
            false => Err("they differ by more than rounding leaves, which is 100 dB".into()),
        }
    }

    fn scores(&self, outputs: &[f32], _: &[f32]) -> Vec<Score> {
        let [first, five] = among_first(outputs, &self.labels);
        vec![
            Score::share("top1", "Top1", first),
            Score::share("top5", "Top5", five),
        ]
    }

    fn keep_tuned(
        &self,
        file: &Path,
        float: &Model<B>,
        tuned: &Model<B>,
    ) -> Result<(), Box<dyn Error>> {
        tuned::keep(file, Path::new(ONNX), float, tuned)
    }
}

/// `[N, 1, 8, 8]`
fn images(
    digits: &SafeTensors,
    name: &str,
    device: &Device,
) -> Result<Tensor<B, 4>, Box<dyn Error>> {
    let shape = digits.tensor(name)?.shape().to_vec();
    let values: Vec<f32> = numbers(digits, name, f32::from_le_bytes)?;
    Ok(Tensor::from_data(TensorData::new(values, shape), device))
}

fn numbers<T, const N: usize>(
    digits: &SafeTensors,
    name: &str,
    number: fn([u8; N]) -> T,
) -> Result<Vec<T>, Box<dyn Error>> {
    let (numbers, _) = digits.tensor(name)?.data().as_chunks();
    Ok(numbers.iter().map(|bytes| number(*bytes)).collect())
}
