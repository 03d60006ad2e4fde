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
    ptq::{FastFinetune, PtqError, QuantConfig, Quantizer, TunedLayer},
};
use clap::{CommandFactory, Parser, error::ErrorKind, value_parser};
use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use indicatif::{ProgressBar, ProgressStyle};
use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use serde::Serialize;

use epochs::{Epochs, in_order};
use models::{Model, ModelName, Sizes};
use output::OutputFile;
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
    /// Configuration, one of AMD Quark's names (MX9, MXFP4E2M1_ADAQUANT, ...), `all`, or a JSON file; repeat it
    #[arg(long = "config", value_name = "NAME", default_value = "all")]
    configs: Vec<String>,

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

    /// Steps of fast fine-tuning for a layer, in place of those of the configurations
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    iterations: Option<u64>,

    /// Learning rate of fast fine-tuning, in place of that of the configurations
    #[arg(long)]
    learning_rate: Option<f64>,

    /// Items in a step of fast fine-tuning, in place of those of the configurations
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    batch_size: Option<u64>,

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

/// A configuration by its name.
struct Named {
    name: String,
    quantizer: Quantizer,
}

/// What a model does on the test items.
#[derive(Debug, Serialize)]
struct Row {
    config: String,
    /// Of the checkpoint: packed weights, all else in float32.
    bytes: u64,
    #[serde(flatten)]
    scores: Scores,
    /// ‖y‖² / ‖q − y‖² in dB, with q the logits of all test items and y those of the model that is not quantized.
    #[serde(skip_serializing_if = "Option::is_none")]
    sqnr: Option<f64>,
    /// What fast fine-tuning did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tuned: Vec<TunedLayer>,
}

/// Scores on the test items: shares from 0 to 1.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Scores {
    Digits { top1: f64, top5: f64 },
    Sums { exact_match: f64, perplexity: f64 },
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
        let mut configs = Vec::new();
        for name in &self.configs {
            match name.as_str() {
                "all" => {
                    for name in QuantConfig::names() {
                        configs.push(self.named(&name)?);
                    }
                }
                name => configs.push(self.named(name)?),
            }
        }
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

    /// A configuration, with what the command line changes of it.
    fn named(&self, name: &str) -> Result<Named, String> {
        let path = Path::new(name);
        let config = match path.extension().is_some_and(|ending| ending == "json") {
            true => {
                let text = fs::read_to_string(path)
                    .map_err(|error| format!("--config '{name}': {error}"))?;
                QuantConfig::from_json(&text)
            }
            false => QuantConfig::named(name),
        };
        let config = config.map_err(|error| format!("--config '{name}': {error}"))?;
        let fast_finetune = config.fast_finetune.map(|tuning| FastFinetune {
            num_iterations: self
                .iterations
                .map_or(tuning.num_iterations, |n| n as usize),
            learning_rate: self.learning_rate.or(tuning.learning_rate),
            batch_size: self.batch_size.map_or(tuning.batch_size, |n| n as usize),
            // Far apart: those of layers follow each other.
            fixed_seed: tuning.fixed_seed.wrapping_add(self.seed << 32),
            ..tuning
        });
        let config = QuantConfig {
            fast_finetune,
            ..config
        };
        let quantizer =
            Quantizer::new(config).map_err(|error| format!("--config '{name}': {error}"))?;
        Ok(Named {
            name: name.to_owned(),
            quantizer,
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
        let bar = ProgressBar::new(0);
        bar.set_style(ProgressStyle::with_template(
            "{prefix} {bar:30} {pos}/{len} steps, {eta}",
        )?);
        bar.set_prefix(name.clone());
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
    println!("{}", table(&rows));
    println!(
        "chart: {}",
        plan.svg.replace(chart(&rows)?.as_bytes())?.display()
    );
    if let Some(json) = plan.json {
        json.replace(&serde_json::to_vec_pretty(
            &serde_json::json!({ "rows": rows }),
        )?)?;
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
    let name = Path::new(config).file_stem().unwrap_or_default();
    let name = format!("{}-{}", cli.architecture.name(), name.to_string_lossy());
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
fn scores(task: Task, model: &Model<B>, test: &dyn DataLoader<B, Batch<B>>) -> (Scores, Vec<f32>) {
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
            let wanted = logits[target as usize];
            // A number that is none is right of nothing.
            let is_before = |logit: &&f32| **logit >= wanted || logit.is_nan() || wanted.is_nan();
            let before = logits.iter().filter(is_before).count();
            first += usize::from(before == 1);
            among_five += usize::from(before <= 5);
        }
        all.extend(logits);
    }
    let share = |count: usize| count as f64 / items as f64;
    let scores = match task {
        Task::Digits => Scores::Digits {
            top1: share(first),
            top5: share(among_five),
        },
        Task::Sums => Scores::Sums {
            exact_match: solved as f64 / test.num_items() as f64,
            perplexity: (loss / items as f64).exp(),
        },
    };
    (scores, all)
}

/// Signal to quantization noise, in dB.
fn sqnr(got: &[f32], wanted: &[f32]) -> f64 {
    let noise = got
        .iter()
        .zip(wanted)
        .map(|(q, y)| f64::from(q - y).powi(2));
    let signal = wanted.iter().map(|y| f64::from(*y).powi(2));
    10.0 * (signal.sum::<f64>() / noise.sum::<f64>()).log10()
}

impl Row {
    fn cells(&self) -> [String; 5] {
        let percent = |share: f64| format!("{:.2} %", 100.0 * share);
        let [first, second] = match self.scores {
            Scores::Digits { top1, top5 } => [percent(top1), percent(top5)],
            Scores::Sums {
                exact_match,
                perplexity,
            } => [percent(exact_match), format!("{perplexity:.4}")],
        };
        let sqnr = self.sqnr.map(|sqnr| format!("{sqnr:.1} dB"));
        let size = format!("{:.1} kB", self.bytes as f64 / 1e3);
        [
            self.config.clone(),
            size,
            first,
            second,
            sqnr.unwrap_or_default(),
        ]
    }

    /// The first score.
    fn score(&self) -> f64 {
        match self.scores {
            Scores::Digits { top1, .. } => top1,
            Scores::Sums { exact_match, .. } => exact_match,
        }
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    let scores = match rows[0].scores {
        Scores::Digits { .. } => ["Model size", "Top1", "Top5", "SQNR of logits"],
        Scores::Sums { .. } => ["Model size", "Exact match", "Perplexity", "SQNR of logits"],
    };
    table.load_preset(ASCII_MARKDOWN);
    table.set_header([&["DataType / Config"], &scores[..]].concat());
    for row in rows {
        table.add_row(row.cells());
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The scores as bars.
fn chart(rows: &[Row]) -> Result<String, Box<dyn Error>> {
    const ROW: u32 = 26;
    let mut svg = String::new();
    {
        let size = (900, 90 + ROW * rows.len() as u32);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        let title = match rows[0].scores {
            Scores::Digits { .. } => "Top-1 accuracy after quantization",
            Scores::Sums { .. } => "Exact match after quantization",
        };
        let count = rows.len();
        let mut chart = ChartBuilder::on(&root)
            .caption(title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(30)
            .y_label_area_size(190)
            .build_cartesian_2d(0.0..112.0, (0..count).into_segmented())?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .x_max_light_lines(1)
            .x_labels(11)
            .x_label_formatter(&|share| match *share <= 100.0 {
                true => format!("{share:.0} %"),
                false => String::new(),
            })
            .y_labels(count)
            .y_label_style(("sans-serif", 15))
            .y_label_formatter(&|place| match place {
                SegmentValue::CenterOf(at) => rows
                    .get(count - 1 - at)
                    .map_or_else(String::new, |row| row.config.clone()),
                _ => String::new(),
            })
            .draw()?;
        for (at, row) in rows.iter().rev().enumerate() {
            let percent = 100.0 * row.score();
            let colour = match (row.config.as_str(), row.tuned.is_empty()) {
                ("Float", _) => BLACK,
                (_, true) => RGBColor(86, 180, 233),
                (_, false) => RGBColor(0, 114, 178),
            };
            let ends = [
                (0.0, SegmentValue::Exact(at)),
                (percent, SegmentValue::Exact(at + 1)),
            ];
            let mut bar = Rectangle::new(ends, colour.filled());
            bar.set_margin(4, 4, 0, 0);
            chart.draw_series([bar])?;
            let place = (percent + 1.0, SegmentValue::CenterOf(at));
            let style = ("sans-serif", 14).into_text_style(&root);
            let style = style.pos(Pos::new(HPos::Left, VPos::Center));
            chart.draw_series([Text::new(format!("{percent:.2}"), place, style)])?;
        }
        root.present()?;
    }
    Ok(svg)
}
