//! Trains a transformer in an MX format, saves it in every layout that has the format, loads it again, and compares: logits and
//! sizes. Shows what a checkpoint holds, and how two differ.
//!
//! ```text
//! cargo run --release --bin burn-mx-lab -- checkpoint
//! cargo run --release --bin burn-mx-lab -- checkpoint train --preset nvfp4 --out out/nvfp4
//! cargo run --release --bin burn-mx-lab -- checkpoint inspect out/checkpoint/microscaling.safetensors
//! cargo run --release --bin burn-mx-lab -- checkpoint diff out/checkpoint/microscaling.safetensors out/checkpoint/gpt-oss.safetensors
//! ```

use std::{
    error::Error,
    fmt::Write as _,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
};

use burn::{
    backend::flex::FlexDevice,
    data::dataloader::DataLoader,
    module::AutodiffModule,
    optim::{AdamWConfig, GradientsParams, Optimizer},
    prelude::*,
    tensor::DType,
};
use burn_mx::{
    BlockFormat, Dialect, FusedLayers, MxDevice, MxSpecs, ResolvedSpecs, Slot, WeightLayout,
    checkpoint::{Checkpoint, CheckpointLayout, Loaded, Saved, difference, inspect},
};
use burn_mx_lab::{output, own_files, quantization::B, tables};
use burn_store::{ModuleAdapter, TensorSnapshot};
use clap::{Subcommand, value_parser};
use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use indicatif::{ProgressBar, ProgressStyle};

use super::Refusal;
use crate::training::{
    epochs::Epochs,
    models::{Model, ModelName, Sizes},
    tasks::{Batch, Split},
    warm_up::Train,
};

/// Items in a batch of the training, as `compare` has it.
const TRAIN_BATCH: usize = 64;
/// Test items whose logits are compared.
const TEST_ITEMS: usize = 256;

/// Save models with packed weights, and inspect or compare checkpoints
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct CheckpointArgs {
    #[command(subcommand)]
    command: Option<CheckpointCommand>,
    #[command(flatten)]
    train: TrainArgs,
}

#[derive(Debug, Subcommand)]
enum CheckpointCommand {
    /// Train a transformer, save it in each layout, load it again and compare (the default command)
    Train(TrainArgs),
    /// Print the contents of a checkpoint
    Inspect {
        /// A safetensors file, the index of several, or a folder with one of either
        path: PathBuf,
    },
    /// Print how the packed weights of two checkpoints differ
    Diff {
        /// One checkpoint
        one: PathBuf,
        /// The other checkpoint
        other: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
struct TrainArgs {
    /// Preset to train in
    #[arg(long, value_name = "NAME", default_value = "mxfp4")]
    preset: String,

    /// Passes over the training items
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u64).range(1..=10_000))]
    epochs: u64,

    /// Seed of the training
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,

    /// Write the table as JSON: {"checkpoints":[{"name","bytes","bits_a_weight","difference"}]}
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write the table as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Folder for the checkpoints; created if missing
    #[arg(long, value_name = "DIR", default_value = "out/checkpoint")]
    out: PathBuf,
}

pub(crate) fn run(args: &CheckpointArgs) -> Result<(), Box<dyn Error>> {
    match &args.command {
        None => train_and_save(&args.train),
        Some(CheckpointCommand::Train(args)) => train_and_save(args),
        Some(CheckpointCommand::Inspect { path }) => contents(path).and_then(print),
        Some(CheckpointCommand::Diff { one, other }) => differences(one, other).and_then(print),
    }
}

impl TrainArgs {
    /// The specs, and the format that they have for weights.
    fn specs(&self) -> Result<(ResolvedSpecs, BlockFormat), String> {
        let unusable = |message: String| format!("--preset '{}': {message}", self.preset);
        let specs = MxSpecs::preset(&self.preset).map_err(|error| unusable(error.to_string()))?;
        let specs = specs
            .resolve()
            .map_err(|error| unusable(error.to_string()))?;
        let format = specs.block_format(Slot::W);
        let format = format.ok_or_else(|| unusable("weights have no format".into()))?;
        if specs.hot_columns().is_some() {
            let reason = "the specs have hot columns, but packed weights have none";
            return Err(unusable(reason.into()));
        }
        match specs.hadamard_forward() {
            None => Ok((specs, format)),
            Some(transform) => Err(unusable(format!(
                "the specs transform weights ({transform}), but packed weights are not transformed"
            ))),
        }
    }
}

/// A layout of a checkpoint, with its description.
struct Way {
    name: String,
    checkpoint: Checkpoint,
    /// Whether the weights are the tool's own bytes, not the bytes of the forward product.
    is_of_a_tool: bool,
}

fn train_and_save(args: &TrainArgs) -> Result<(), Box<dyn Error>> {
    let (specs, format) = args.specs().map_err(Refusal)?;
    fs::create_dir_all(&args.out)
        .map_err(|error| format!("--out '{}': {error}", args.out.display()))?;
    let ways = ways(&args.out, format);
    for way in &ways {
        let path = way.checkpoint.path();
        for path in [path, &path.with_extension("config.json")] {
            own_files::check(path).map_err(|error| format!("--out: {error}"))?;
        }
    }
    let device = MxDevice::new(FlexDevice, &specs)?;
    let task = ModelName::Transformer.task();
    let split = task.load()?;
    let model = trained(args, &split, &device)?;
    let Model::Transformer(model) = model else {
        unreachable!("it is the one that was asked for");
    };
    let items: Vec<_> = (0..TEST_ITEMS)
        .filter_map(|at| split.test.get(at))
        .collect();
    let batch = task.batch::<B>(&items, &device);
    let logits = |model: &_| logits(&Model::Transformer(Clone::clone(model)), &batch);
    let wanted = logits(&model.valid());

    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN);
    table.set_header(["Checkpoint", "Bytes", "of FP32", "Bits a weight", "Logits"]);
    let mut fp32 = None;
    let mut rows = Vec::new();
    for way in ways {
        let saved = way.checkpoint.save(&model)?;
        saved
            .files
            .iter()
            .try_for_each(|path| own_files::note(path))?;
        let Saved { bytes, packed, .. } = saved;
        let fp32 = *fp32.get_or_insert(bytes);
        let of_weights: u64 = packed.iter().map(|weight| weight.bytes).sum();
        let count: usize = packed
            .iter()
            .map(|weight| weight.shape.iter().product::<usize>())
            .sum();
        let bits = match count {
            0 => String::new(),
            count => format!("{:.4}", of_weights as f64 * 8.0 / count as f64),
        };
        let other = ModelName::Transformer.of(Sizes::default())?;
        let Model::Transformer(other) = other.init::<B>(&device) else {
            unreachable!("it is the one that was asked for");
        };
        let Loaded { model, .. } = way.checkpoint.load(other)?;
        let difference = largest_difference(&logits(&model), &wanted);
        let told = match (difference == 0.0, way.is_of_a_tool) {
            (true, _) => "the same, bit for bit".to_owned(),
            (false, true) => format!("the tool's weights: within {difference:.1e}"),
            (false, false) => format!("within {difference:.1e}"),
        };
        rows.push(serde_json::json!({
            "name": way.name,
            "bytes": bytes,
            "bits_a_weight": (count > 0).then(|| of_weights as f64 * 8.0 / count as f64),
            "difference": difference,
        }));
        let share = format!("{:.1} %", 100.0 * bytes as f64 / fp32 as f64);
        table.add_row([way.name, bytes.to_string(), share, bits, told]);
    }
    for column in [1, 2, 3] {
        let column = table.column_mut(column).expect("there are so many");
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{table}");
    let write = |option, path: &Path, contents: Vec<u8>| {
        output::write(path, contents).map_err(|error| format!("{option}: {error}"))
    };
    if let Some(path) = &args.json {
        let rows = serde_json::json!({ "checkpoints": rows });
        write("--json", path, serde_json::to_vec_pretty(&rows)?)?;
    }
    if let Some(path) = &args.csv {
        write("--csv", path, tables::csv(&table)?)?;
    }
    println!("checkpoints: {}", args.out.display());
    Ok(())
}

/// Everything that this format can be saved as, plain numbers first.
fn ways(folder: &Path, format: BlockFormat) -> Vec<Way> {
    // All layouts have the model's own weights, so that their logits can be compared.
    let at = |name: &str| {
        let checkpoint = Checkpoint::new(folder.join(format!("{name}.safetensors")));
        checkpoint.fused(FusedLayers::NONE)
    };
    let way = |name: &str, checkpoint| Way {
        name: name.to_owned(),
        checkpoint,
        is_of_a_tool: false,
    };
    let mut ways = vec![
        way("float32", at("float32").leave_unpacked("*")),
        way(
            "bfloat16",
            at("bfloat16").leave_unpacked("*").adapter(InBfloat16),
        ),
    ];
    for layout in CheckpointLayout::ALL {
        let name = layout.name();
        match layout {
            CheckpointLayout::Weights(foreign) if !foreign.has(format) => {}
            // Not every tensor scale is the reciprocal of a float32, which is what this layout has.
            CheckpointLayout::Weights(WeightLayout::Nvfp4PackQuantized) => ways.push(Way {
                is_of_a_tool: true,
                ..way(
                    name,
                    at(name).layout(layout).dialect(Dialect::CompressedTensors),
                )
            }),
            layout => ways.push(way(name, at(name).layout(layout))),
        }
    }
    ways
}

/// Stores float32 tensors as bfloat16.
#[derive(Clone)]
struct InBfloat16;

impl ModuleAdapter for InBfloat16 {
    fn adapt(&self, snapshot: &TensorSnapshot) -> TensorSnapshot {
        // The loaded model has the wanted form already.
        if snapshot.dtype != DType::F32 {
            return snapshot.clone();
        }
        let data = snapshot.clone_data_fn();
        TensorSnapshot::from_closure(
            Rc::new(move || Ok(data()?.convert_dtype(DType::BF16))),
            DType::BF16,
            snapshot.shape.clone(),
            snapshot.path_stack.clone().unwrap_or_default(),
            snapshot.container_stack.clone().unwrap_or_default(),
            snapshot.tensor_id.unwrap_or_default(),
        )
    }

    fn clone_box(&self) -> Box<dyn ModuleAdapter> {
        Box::new(self.clone())
    }
}

fn trained(
    args: &TrainArgs,
    split: &Split,
    device: &MxDevice<FlexDevice>,
) -> Result<Model<Train>, Box<dyn Error>> {
    Train::seed(device, args.seed);
    let name = ModelName::Transformer;
    let mut model = name.of(Sizes::default())?.init::<Train>(device);
    let mut optimizer = AdamWConfig::new().init();
    let reseed_on = device.clone();
    let loader = Epochs::<Train>::new(
        name.task(),
        split.train.clone(),
        TRAIN_BATCH,
        (args.seed, 0),
        device.clone(),
        Arc::new(move |seed| Train::seed(&reseed_on, seed)),
    );
    let bar = ProgressBar::new(args.epochs);
    bar.set_style(ProgressStyle::with_template(
        "training {bar:30} {pos}/{len} epochs, {eta}",
    )?);
    for _ in bar.wrap_iter(0..args.epochs) {
        for batch in loader.iter() {
            let loss = model.output(batch).loss;
            let grads = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(name.learning_rate(), model, grads);
        }
    }
    bar.finish_and_clear();
    Ok(model)
}

fn logits(model: &Model<B>, batch: &Batch<B>) -> Vec<f32> {
    let logits = model.output(batch.clone()).output.into_data();
    let logits = logits.convert::<f32>().into_vec();
    logits.expect("they were converted")
}

/// NaN where any of them is one.
fn largest_difference(got: &[f32], wanted: &[f32]) -> f32 {
    let differences = got
        .iter()
        .zip(wanted)
        .map(|(got, wanted)| (got - wanted).abs());
    differences.fold(0.0, |largest: f32, next| {
        if next.is_nan() {
            next
        } else {
            largest.max(next)
        }
    })
}

/// Prints the text, or the part that a reader such as `| head` takes.
fn print(text: String) -> Result<(), Box<dyn Error>> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// The output of `inspect`.
fn contents(path: &Path) -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    let contents = inspect(path)?;
    for file in &contents.files {
        writeln!(text, "{}", file.display())?;
    }
    let mut weights = Table::new();
    weights.load_preset(ASCII_MARKDOWN);
    weights.set_header([
        "Packed weight",
        "Layout",
        "Format",
        "Shape",
        "Bytes",
        "Bits a weight",
    ]);
    for weight in &contents.weights {
        let count = weight.shape.iter().product::<usize>().max(1);
        weights.add_row([
            weight.name.clone(),
            weight.layout.to_string(),
            weight.format.to_string(),
            format!("{:?}", weight.shape),
            weight.bytes.to_string(),
            format!("{:.4}", weight.bytes as f64 * 8.0 / count as f64),
        ]);
    }
    writeln!(text, "{weights}")?;
    let mut specs: Vec<String> = Vec::new();
    for weight in &contents.weights {
        let told = weight.specs.as_ref().map(|specs| match specs.resolve() {
            Ok(specs) => specs.to_string(),
            Err(error) => error.to_string(),
        });
        specs.extend(told.filter(|told| !specs.contains(told)));
    }
    for specs in specs {
        writeln!(text, "specs: {specs}")?;
    }
    let mut others = Table::new();
    others.load_preset(ASCII_MARKDOWN);
    others.set_header(["Tensor", "Type", "Shape", "Bytes"]);
    for tensor in &contents.others {
        others.add_row([
            tensor.name.clone(),
            tensor.dtype.clone(),
            format!("{:?}", tensor.shape),
            tensor.bytes.to_string(),
        ]);
    }
    writeln!(text, "{others}")?;
    Ok(text)
}

/// The output of `diff`.
fn differences(one: &Path, other: &Path) -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    let (differences, alone) = difference(one, other)?;
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN);
    table.set_header([
        "Weight",
        "Scales that differ",
        "Elements that differ",
        "Values that differ",
        "Largest difference",
    ]);
    let mut same = 0;
    for weight in &differences {
        let of = |count: usize, all: usize| format!("{count} of {all}");
        match &weight.difference {
            Some(difference) if difference.is_none() => same += 1,
            Some(difference) => {
                table.add_row([
                    weight.name.clone(),
                    of(difference.scales_differ, difference.scales),
                    of(difference.elements_differ, difference.elements),
                    of(difference.values_differ, difference.elements),
                    format!("{:e}", difference.largest),
                ]);
            }
            None => {
                let [one, other] = weight.formats;
                let formats = format!("{one} and {other}");
                table.add_row([weight.name.clone(), formats]);
            }
        }
    }
    writeln!(
        text,
        "{same} of {} weights are the same, byte for byte",
        differences.len()
    )?;
    if same < differences.len() {
        writeln!(text, "{table}")?;
    }
    for name in alone {
        writeln!(text, "in one of them only: {name}")?;
    }
    Ok(text)
}
