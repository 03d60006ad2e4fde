//! Quantizes a trained model by named configurations and shows what that costs: size and accuracy, as a table and a chart.
//!
//! ```text
//! cargo run --release --example quantize -- --config all
//! cargo run --release --example quantize -- --architecture transformer --config MXFP4E2M1 --config MXFP4E2M1_ADAQUANT
//! cargo run --release --example compare -- --model cnn --save run && \
//!     cargo run --release --example quantize -- --model run/fp32/seed-0/model.mpk --config MX6
//! ```
//!
//! Without `--model` it trains the model first, as `compare` does in FP32. Calibration data are training items; accuracies are
//! those of the test items, of the model as it comes out of the checkpoint that it was saved in, whose size the table has.

#![allow(dead_code, reason = "what is shared with `compare` is needed in part")]

mod epochs;
mod history;
mod layers;
mod models;
mod output;
#[path = "../support/quantization.rs"]
mod quantization;
mod saved;
mod tasks;
mod trainee;

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use burn::{
    backend::{Autodiff, Flex, flex::FlexDevice},
    data::dataloader::DataLoader,
    module::AutodiffModule,
    optim::{AdamWConfig, GradientsParams, Optimizer},
    prelude::*,
    record::{BinBytesRecorder, FullPrecisionSettings, Recorder, RecorderError},
};
use burn_mx::{
    MxBackend, MxDevice,
    checkpoint::Checkpoint,
    ptq::{PtqError, Quantizer, TunedLayer},
};
use clap::{CommandFactory, Parser, error::ErrorKind, value_parser};
use indicatif::{ProgressBar, ProgressStyle};

use epochs::{Epochs, in_order};
use models::{Model, ModelName, Sizes};
use output::OutputFile;
use quantization::{Named, Row, Score, file_stem, progress, rank, sqnr};
use saved::FileRecorder;
use tasks::{Batch, Split, Task};

type B = MxBackend<Flex>;

/// Items in a batch of the training, as `compare` has it.
const TRAIN_BATCH: usize = 64;
/// Items in a batch of an evaluation.
const TEST_BATCH: usize = 256;

/// Quantize a trained model by named configurations, and measure what is left of it
#[derive(Debug, Parser)]
#[command(name = "quantize")]
struct Cli {
    #[command(flatten)]
    options: quantization::Options,

    /// Record of a trained model, as `compare --save` leaves it; without, one is trained
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,

    /// Which model
    #[arg(long, value_enum, default_value_t = ModelName::Cnn)]
    architecture: ModelName,

    /// Passes over the training items, where the model is trained
    #[arg(long, conflicts_with = "model", value_parser = value_parser!(u64).range(1..=10_000))]
    epochs: Option<u64>,

    /// Training items to calibrate with
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = value_parser!(u64).range(1..))]
    calibration: u64,

    /// Seed of the training, and of the tuning
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,

    /// Folder for <architecture>_quantized.svg and the checkpoints <architecture>-<config>.safetensors; created if missing
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,

    /// Write the table as JSON: {"rows":[{"config","bytes","top1","top5","sqnr","tuned"}]}
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let plan = cli.plan().unwrap_or_else(|message| {
        let error = Cli::command().error(ErrorKind::ValueValidation, message);
        error.exit()
    });
    match run(&cli, plan) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What is to be done, checked.
struct Plan {
    configs: Vec<Named>,
    svg: OutputFile,
    json: Option<OutputFile>,
}

impl Cli {
    fn plan(&self) -> Result<Plan, String> {
        let configs = self.options.configurations(self.seed)?;
        let unusable = |option: &str, path: &Path, error: std::io::Error| {
            format!("{option} '{}': {error}", path.display())
        };
        if let Some(model) = &self.model {
            fs::File::open(model).map_err(|error| unusable("--model", model, error))?;
        }
        fs::create_dir_all(&self.out).map_err(|error| unusable("--out", &self.out, error))?;
        let svg = self
            .out
            .join(format!("{}_quantized.svg", self.architecture.name()));
        let svg = OutputFile::open(&svg).map_err(|error| unusable("--out", &svg, error))?;
        let json = self
            .json
            .as_ref()
            .map(|path| OutputFile::open(path).map_err(|error| unusable("--json", path, error)));
        Ok(Plan {
            configs,
            svg,
            json: json.transpose()?,
        })
    }
}

fn run(cli: &Cli, plan: Plan) -> Result<(), Box<dyn Error>> {
    let task = cli.architecture.task();
    let split = task.load()?;
    // No specs: what is not quantized is float32.
    let device = MxDevice::default();
    let model = float_model(cli, &split, &device)?;
    let test = in_order::<B>(task, &split.test, TEST_BATCH, &device);
    let calibration = calibration(cli, task, &split, &device);
    let (model, bytes) = saved_and_loaded(cli, "Float", model, &device)?;
    let (float, wanted) = scores(task, &model, test.as_ref());
    let mut rows = vec![Row {
        config: "Float".into(),
        bytes,
        scores: float,
        sqnr: None,
        tuned: Vec::new(),
    }];
    for Named { name, quantizer } in &plan.configs {
        let bar = progress(name)?;
        let (quantized, tuned) = quantized(&model, quantizer, &calibration, |done, all| {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
        })?;
        bar.finish_and_clear();
        let (quantized, bytes) = saved_and_loaded(cli, name, quantized, &device)?;
        let (scores, logits) = scores(task, &quantized, test.as_ref());
        rows.push(Row {
            config: name.clone(),
            bytes,
            scores,
            sqnr: Some(sqnr(&logits, &wanted)),
            tuned,
        });
    }
    println!("{}", quantization::table(&rows));
    let title = match task {
        Task::Digits => "Top-1 accuracy after quantization",
        Task::Sums => "Exact match after quantization",
    };
    let chart = quantization::chart(title, &rows)?;
    println!("chart: {}", plan.svg.replace(chart.as_bytes())?.display());
    if let Some(json) = plan.json {
        json.replace(&quantization::json(&rows)?)?;
    }
    Ok(())
}

/// The model before it is quantized: from its record, or trained.
fn float_model(
    cli: &Cli,
    split: &Split,
    device: &MxDevice<FlexDevice>,
) -> Result<Model<B>, Box<dyn Error>> {
    let architecture = cli.architecture.of(Sizes::default())?;
    if let Some(file) = &cli.model {
        return Ok(load(architecture.init(device), file, device)?);
    }
    type Train = Autodiff<Flex>;
    Train::seed(&FlexDevice, cli.seed);
    let mut model = architecture.init::<Train>(&FlexDevice);
    let mut optimizer = AdamWConfig::new().init();
    let reseed = Arc::new(|seed| Train::seed(&FlexDevice, seed));
    let epochs = cli.epochs.unwrap_or(cli.architecture.epochs() as u64);
    let task = cli.architecture.task();
    let loader = Epochs::<Train>::new(
        task,
        split.train.clone(),
        TRAIN_BATCH,
        (cli.seed, 0),
        FlexDevice,
        reseed,
    );
    let bar = ProgressBar::new(epochs);
    bar.set_style(ProgressStyle::with_template(
        "training {bar:30} {pos}/{len} epochs, {eta}",
    )?);
    for _ in bar.wrap_iter(0..epochs) {
        for batch in loader.iter() {
            let loss = model.output(batch).loss;
            let grads = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(cli.architecture.learning_rate(), model, grads);
        }
    }
    bar.finish_and_clear();
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
    let weights = Recorder::<Flex>::record(&recorder, model.valid().into_record(), ())?;
    let weights = Recorder::<B>::load(&recorder, weights, device)?;
    Ok(architecture.init::<B>(device).load_record(weights))
}

/// The model out of the checkpoint that it was saved in, by its own paths, and the bytes of that file.
fn saved_and_loaded(
    cli: &Cli,
    config: &str,
    model: Model<B>,
    device: &MxDevice<FlexDevice>,
) -> Result<(Model<B>, u64), Box<dyn Error>> {
    let name = format!("{}-{}", cli.architecture.name(), file_stem(config));
    let checkpoint = Checkpoint::new(cli.out.join(format!("{name}.safetensors")));
    let fresh = cli.architecture.of(Sizes::default())?.init::<B>(device);
    macro_rules! each {
        ($($variant:ident)*) => {
            match (model, fresh) {
                $((Model::$variant(model), Model::$variant(fresh)) => {
                    checkpoint.save(&model)?;
                    Model::$variant(checkpoint.load(fresh)?.model)
                })*
                _ => unreachable!("both are of one architecture"),
            }
        };
    }
    let model = each! { Ffn Cnn Lstm Transformer };
    Ok((model, fs::metadata(checkpoint.path())?.len()))
}

/// The model with the values of a record as `compare` saves it, which is that of the model's own type.
fn load(
    model: Model<B>,
    file: &Path,
    device: &MxDevice<FlexDevice>,
) -> Result<Model<B>, RecorderError> {
    let recorder = FileRecorder::new();
    Ok(match model {
        Model::Ffn(model) => Model::Ffn(model.load_file(file, &recorder, device)?),
        Model::Cnn(model) => Model::Cnn(model.load_file(file, &recorder, device)?),
        Model::Lstm(model) => Model::Lstm(model.load_file(file, &recorder, device)?),
        Model::Transformer(model) => Model::Transformer(model.load_file(file, &recorder, device)?),
    })
}

/// Batches of training items.
fn calibration(
    cli: &Cli,
    task: Task,
    split: &Split,
    device: &MxDevice<FlexDevice>,
) -> Vec<Batch<B>> {
    let count = split.train.len().min(cli.calibration as usize);
    let items: Vec<_> = (0..count).filter_map(|at| split.train.get(at)).collect();
    let batches = items.chunks(TRAIN_BATCH);
    batches.map(|items| task.batch(items, device)).collect()
}

/// The model quantized, by its own paths, in which the enum has no part; and what fast fine-tuning did.
fn quantized(
    model: &Model<B>,
    quantizer: &Quantizer,
    calibration: &[Batch<B>],
    progress: impl FnMut(usize, usize),
) -> Result<(Model<B>, Vec<TunedLayer>), PtqError> {
    macro_rules! each {
        ($($variant:ident)*) => {
            match model {
                $(Model::$variant(model) => {
                    let forward = |model: &_, batch: &Batch<B>| {
                        Model::$variant(Clone::clone(model)).output(batch.clone()).output
                    };
                    let model = model.clone();
                    let quantized =
                        quantizer.quantize_with_progress(model, calibration, forward, progress)?;
                    Ok((Model::$variant(quantized.model), quantized.tuned))
                })*
            }
        };
    }
    each! { Ffn Cnn Lstm Transformer }
}

/// The scores, and the logits of all items.
fn scores(
    task: Task,
    model: &Model<B>,
    test: &dyn DataLoader<B, Batch<B>>,
) -> (Vec<Score>, Vec<f32>) {
    let mut all = Vec::new();
    let (mut items, mut first, mut among_five, mut loss, mut solved) = (0, 0, 0, 0.0, 0);
    for batch in test.iter() {
        if task == Task::Sums {
            solved += model.solved(batch.clone());
        }
        let output = model.output(batch);
        let [count, classes] = output.output.dims();
        items += count;
        loss += output.loss.into_scalar().elem::<f64>() * count as f64;
        let logits = output.output.into_data().convert::<f32>();
        let logits: Vec<f32> = logits.into_vec().expect("they were converted");
        let targets = output.targets.into_data().convert::<i64>();
        let targets: Vec<i64> = targets.into_vec().expect("they were converted");
        for (logits, target) in logits.chunks(classes).zip(targets) {
            let rank = rank(logits, target as usize);
            first += usize::from(rank == 0);
            among_five += usize::from(rank < 5);
        }
        all.extend(logits);
    }
    let share = |count: usize| count as f64 / items as f64;
    let scores = match task {
        Task::Digits => vec![
            Score::share("top1", "Top1", share(first)),
            Score::share("top5", "Top5", share(among_five)),
        ],
        Task::Sums => {
            let exact_match = solved as f64 / test.num_items() as f64;
            let perplexity = (loss / items as f64).exp();
            vec![
                Score::share("exact_match", "Exact match", exact_match),
                Score::number("perplexity", "Perplexity", perplexity),
            ]
        }
    };
    (scores, all)
}
