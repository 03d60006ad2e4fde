//! Quantizes a network that came from an ONNX file. `build.rs` makes plain Burn code of it, which knows nothing of MX.
//!
//! ```text
//! cargo run --release -p burn-mx-onnx -- --config all
//! ```
//!
//! The float model has to compute what ONNX Runtime computed of the same digits. Scores are those of the model as it comes out
//! of the checkpoint that it was saved in.

#[path = "../../support/quantization.rs"]
#[allow(dead_code, reason = "there is no chart")]
mod quantization;

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

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use burn::{
    backend::{Flex, flex::FlexDevice},
    prelude::*,
    tensor::TensorData,
};
use burn_mx::{MxBackend, MxDevice, checkpoint::Checkpoint};
use clap::{CommandFactory, Parser, error::ErrorKind};
use safetensors::SafeTensors;

use digits_cnn::Model;
use quantization::{Named, Row, Score, file_stem, progress, rank, sqnr};

type B = MxBackend<Flex>;
type Device = MxDevice<FlexDevice>;

/// The digits, and what ONNX Runtime computes of them; `export.py` says how.
static DIGITS: &[u8] = include_bytes!("../digits_cnn.safetensors");

/// Quantize a network from an ONNX file by named configurations, and measure what is left of it
#[derive(Debug, Parser)]
#[command(name = "onnx")]
struct Cli {
    #[command(flatten)]
    options: quantization::Options,

    /// Seed of the tuning
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,

    /// Folder for the checkpoints digits_cnn-CONFIG.safetensors; created if missing
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,

    /// Write the table as JSON: {"rows":[{"config","bytes","top1","top5","sqnr","tuned"}]}
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let configs = cli.configurations().unwrap_or_else(|message| {
        let error = Cli::command().error(ErrorKind::ValueValidation, message);
        error.exit()
    });
    match run(&cli, &configs) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Cli {
    fn configurations(&self) -> Result<Vec<Named>, String> {
        let unusable = |option: &str, path: &Path, error: std::io::Error| {
            format!("{option} '{}': {error}", path.display())
        };
        fs::create_dir_all(&self.out).map_err(|error| unusable("--out", &self.out, error))?;
        if let Some(json) = &self.json {
            let mut file = fs::OpenOptions::new();
            let file = file.create(true).append(true).open(json);
            file.map_err(|error| unusable("--json", json, error))?;
        }
        self.options.configurations(self.seed)
    }
}

fn run(cli: &Cli, configs: &[Named]) -> Result<(), Box<dyn Error>> {
    // No specs: what is not quantized is float32.
    let device = Device::default();
    let digits = SafeTensors::deserialize(DIGITS)?;
    let calibration = images(&digits, "calibration", &device)?;
    let test = images(&digits, "test", &device)?;
    let labels: Vec<i64> = numbers(&digits, "labels", i64::from_le_bytes)?;
    let wanted: Vec<f32> = numbers(&digits, "logits", f32::from_le_bytes)?;

    let model = Model::<B>::from_embedded(&device);
    let (model, bytes) = saved_and_loaded(cli, "Float", model, &device)?;
    let float = logits(&model, &test);
    let agreement = sqnr(&float, &wanted);
    println!("ONNX Runtime's logits and those of the float model here: {agreement:.1} dB");
    if agreement.is_nan() || agreement < 100.0 {
        return Err("they differ by more than rounding leaves, which is 100 dB".into());
    }
    let mut rows = vec![Row {
        config: "Float".into(),
        bytes,
        scores: scores(&float, &labels),
        sqnr: None,
        tuned: Vec::new(),
    }];
    for Named { name, quantizer } in configs {
        let bar = progress(name)?;
        let quantized = quantizer.quantize_with_progress(
            model.clone(),
            std::slice::from_ref(&calibration),
            |model, images| model.forward(images.clone()),
            |done, all| {
                bar.set_length(all as u64);
                bar.set_position(done as u64);
            },
        )?;
        bar.finish_and_clear();
        let (quantized_model, bytes) = saved_and_loaded(cli, name, quantized.model, &device)?;
        let logits = logits(&quantized_model, &test);
        rows.push(Row {
            config: name.clone(),
            bytes,
            scores: scores(&logits, &labels),
            sqnr: Some(sqnr(&logits, &float)),
            tuned: quantized.tuned,
        });
    }
    println!("{}", quantization::table(&rows));
    if let Some(json) = &cli.json {
        fs::write(json, quantization::json(&rows)?)?;
    }
    Ok(())
}

/// The model out of the checkpoint that it was saved in, and the bytes of that file.
fn saved_and_loaded(
    cli: &Cli,
    config: &str,
    model: Model<B>,
    device: &Device,
) -> Result<(Model<B>, u64), Box<dyn Error>> {
    let name = format!("digits_cnn-{}.safetensors", file_stem(config));
    let checkpoint = Checkpoint::new(cli.out.join(name));
    checkpoint.save(&model)?;
    let model = checkpoint.load(Model::new(device))?.model;
    Ok((model, fs::metadata(checkpoint.path())?.len()))
}

fn logits(model: &Model<B>, images: &Tensor<B, 4>) -> Vec<f32> {
    let logits = model.forward(images.clone()).into_data();
    logits.into_vec().expect("they are float32")
}

fn scores(logits: &[f32], labels: &[i64]) -> Vec<Score> {
    let classes = logits.len() / labels.len();
    let ranks = logits.chunks(classes).zip(labels);
    let ranks: Vec<usize> = ranks
        .map(|(logits, label)| rank(logits, *label as usize))
        .collect();
    let share = |among: usize| {
        let count = ranks.iter().filter(|rank| **rank < among).count();
        count as f64 / ranks.len() as f64
    };
    vec![
        Score::share("top1", "Top1", share(1)),
        Score::share("top5", "Top5", share(5)),
    ]
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
