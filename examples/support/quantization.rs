//! Common code of the programs that quantize models: configurations on the command line, the work, and the results as a
//! table, a chart and JSON.

use std::{
    error::Error,
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use burn::{backend::Flex, module::Module, tensor::Tensor};
use burn_mx::{
    MxBackend,
    checkpoint::Checkpoint,
    cost::{Cost, Tables},
    module::label_parameters,
    ptq::{Activations, FastFinetune, OptimAlgorithm, QuantConfig, Quantizer, TunedLayer},
    record::{Pass, products},
};
use clap::{Args, CommandFactory, builder::ArgPredicate, error::ErrorKind, value_parser};
use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Serialize, Serializer, ser::SerializeMap};

use crate::{
    output::{OutputFile, own_files},
    tables,
};

#[path = "quantized_chart.rs"]
mod chart;
#[path = "drawing.rs"]
mod drawing;
#[path = "recipe_option.rs"]
mod recipe_option;

/// The backend, on which weights that are not quantized stay float32.
pub(crate) type B = MxBackend<Flex>;

/// Options for the configurations and the output.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Configuration, one of AMD Quark's names (MX9, MXFP4E2M1_ADAQUANT, ...), `all`, or a JSON file; repeat it
    #[arg(long = "config", value_name = "NAME", default_value = "all")]
    #[arg(default_value_if("recipes", ArgPredicate::IsPresent, None))]
    configs: Vec<String>,

    /// Recipe as JSON, such as `search --slot w` writes: formats layer by layer. A method may follow, as in found.json_GPTQ; repeat
    /// it
    #[arg(long = "recipe", value_name = "FILE")]
    recipes: Vec<String>,

    /// Quantize weights alone, in every configuration
    #[arg(long)]
    weights_only: bool,

    /// Fold batch norms into the layers before them, in every configuration
    #[arg(long)]
    fold: bool,

    /// Fix the scales of activations by the calibration data, in every configuration
    #[arg(long = "static")]
    is_static: bool,

    /// Algorithm of fast fine-tuning, in place of the configurations' own: adaquant or adaround
    #[arg(long, value_parser = algorithm)]
    algorithm: Option<OptimAlgorithm>,

    /// Steps of fast fine-tuning for a layer, in place of the configurations' own
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    iterations: Option<u64>,

    /// Learning rate of fast fine-tuning, in place of the configurations' own
    #[arg(long)]
    learning_rate: Option<f64>,

    /// Items in a step of fast fine-tuning, in place of the configurations' own
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    batch_size: Option<u64>,

    /// Folder that keeps each tuned layer, by configuration; an interrupted run continues from these layers
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,

    /// Seed of the tuning, and of the training if the program trains
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub(crate) seed: u64,

    /// Folder for the chart MODEL_quantized.svg and the checkpoints MODEL-CONFIG.safetensors; created if missing
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,

    /// Write the table as JSON: {"rows":[{"config","bytes",SCORES,"sqnr","tuned"}]}
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write the table as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

/// The work, checked.
pub(crate) struct Plan {
    pub(crate) configs: Vec<Named>,
    /// The prefix of the model's files.
    model: String,
    out: PathBuf,
    svg: OutputFile,
    json: Option<OutputFile>,
    csv: Option<OutputFile>,
}

/// Runs a program of this command line, whose plan was made: an error ends it with status 1, an unusable plan with 2 before.
pub(crate) fn run<C: CommandFactory>(
    plan: Result<Plan, String>,
    program: impl FnOnce(Plan) -> Result<(), Box<dyn Error>>,
) -> ExitCode {
    let plan = plan.unwrap_or_else(|message| {
        let error = C::command().error(ErrorKind::ValueValidation, message);
        error.exit()
    });
    match program(plan) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The error text for an option's path.
pub(crate) fn unusable(option: &str, path: &Path, error: io::Error) -> String {
    format!("{option} '{}': {error}", path.display())
}

fn algorithm(name: &str) -> Result<OptimAlgorithm, String> {
    serde_json::from_value(name.into()).map_err(|error| error.to_string())
}

/// A configuration by its name.
pub(crate) struct Named {
    /// The name, with the command line's changes.
    pub(crate) name: String,
    pub(crate) quantizer: Quantizer,
}

impl Options {
    /// The plan for a model of this name, whose batch norms have this ε.
    pub(crate) fn plan(&self, model: &str, epsilon: f64) -> Result<Plan, String> {
        let mut configs = Vec::new();
        for name in &self.configs {
            match name.as_str() {
                "all" => {
                    for name in QuantConfig::names() {
                        configs.push(self.named(&name, epsilon)?);
                    }
                }
                name => configs.push(self.named(name, epsilon)?),
            }
        }
        for text in &self.recipes {
            let unusable = |error: &dyn Error| format!("--recipe '{text}': {error}");
            let (name, config) = recipe_option::read(text).map_err(|error| unusable(&*error))?;
            configs.push(self.changed(name, config, unusable)?);
        }
        fs::create_dir_all(&self.out).map_err(|error| unusable("--out", &self.out, error))?;
        let svg = self.out.join(format!("{model}_quantized.svg"));
        let names = configs.iter().map(|config| config.name.as_str());
        for name in names.chain([FLOAT]) {
            for path in checkpoints(&self.out, model, name) {
                own_files::check(&path).map_err(|error| format!("--out: {error}"))?;
            }
        }
        let svg = OutputFile::open_own(&svg).map_err(|error| unusable("--out", &svg, error))?;
        let open = |option, path: &Option<PathBuf>| {
            let open = |path: &PathBuf| {
                own_files::not_an_input(option, path, self.inputs())?;
                OutputFile::open(path).map_err(|error| unusable(option, path, error))
            };
            path.as_ref().map(open).transpose()
        };
        Ok(Plan {
            configs,
            model: model.to_owned(),
            out: self.out.clone(),
            svg,
            json: open("--json", &self.json)?,
            csv: open("--csv", &self.csv)?,
        })
    }

    /// The files that the configurations are read from.
    fn inputs(&self) -> Vec<PathBuf> {
        let recipes = self
            .recipes
            .iter()
            .filter_map(|text| recipe_option::file(text));
        let configs = self.configs.iter().map(PathBuf::from);
        configs.chain(recipes).collect()
    }

    fn named(&self, name: &str, epsilon: f64) -> Result<Named, String> {
        let unusable = |error: &dyn Error| format!("--config '{name}': {error}");
        let path = Path::new(name);
        let config = match path.extension().is_some_and(|ending| ending == "json") {
            true => {
                let text = fs::read_to_string(path).map_err(|error| unusable(&error))?;
                QuantConfig::from_json(&text)
            }
            false => QuantConfig::named(name).map(|config| QuantConfig {
                batch_norm_epsilon: epsilon,
                ..config
            }),
        }
        .map_err(|error| unusable(&error))?;
        self.changed(name.to_owned(), config, unusable)
    }

    /// The configuration with the command line's changes.
    fn changed(
        &self,
        name: String,
        mut config: QuantConfig,
        unusable: impl Fn(&dyn Error) -> String,
    ) -> Result<Named, String> {
        let mut label = name;
        if self.weights_only {
            config = config.weights_only();
            label += ", weights";
        }
        if self.fold {
            config.fold_batch_norm = true;
            label += ", folded";
        }
        if self.is_static {
            config.activations = Activations::Static;
            label += ", static";
        }
        if let (Some(_), Some(OptimAlgorithm::AdaRound)) = (&config.fast_finetune, self.algorithm) {
            label += ", AdaRound";
        }
        config.fast_finetune = config.fast_finetune.map(|tuning| FastFinetune {
            num_iterations: self
                .iterations
                .map_or(tuning.num_iterations, |n| n as usize),
            learning_rate: self.learning_rate.or(tuning.learning_rate),
            batch_size: self.batch_size.map_or(tuning.batch_size, |n| n as usize),
            optim_algorithm: self.algorithm.unwrap_or(tuning.optim_algorithm),
            // Far apart: those of layers follow each other.
            fixed_seed: tuning.fixed_seed.wrapping_add(self.seed << 32),
            ..tuning
        });
        let is_tuned = config.fast_finetune.is_some();
        let mut quantizer = Quantizer::new(config).map_err(|error| unusable(&error))?;
        if let (Some(folder), true) = (&self.resume, is_tuned) {
            let folder = folder.join(file_stem(&label));
            quantizer = quantizer
                .resumable(folder)
                .map_err(|error| format!("--resume: {error}"))?;
        }
        Ok(Named {
            name: label,
            quantizer,
        })
    }
}

/// The checkpoint of a configuration, and the file of its tuned weights.
fn checkpoints(folder: &Path, model: &str, config: &str) -> [PathBuf; 2] {
    let file = |end: &str| folder.join(format!("{model}-{}{end}.safetensors", file_stem(config)));
    [file(""), file("-tuned")]
}

impl Plan {
    /// The model out of the checkpoint that it is saved in, and the bytes of that file.
    pub(crate) fn saved_and_loaded<M: Module<B>>(
        &self,
        config: &str,
        model: M,
        fresh: M,
    ) -> Result<(M, u64), Box<dyn Error>> {
        let [path, _] = checkpoints(&self.out, &self.model, config);
        let checkpoint = Checkpoint::new(path);
        let saved = checkpoint.save(&model)?;
        saved
            .files
            .iter()
            .try_for_each(|path| own_files::note(path))?;
        let bytes = fs::metadata(checkpoint.path())?.len();
        Ok((checkpoint.load(fresh)?.model, bytes))
    }

    /// The rows of the float model and of each configuration's model, measured after loading their checkpoints.
    pub(crate) fn rows<S: Subject>(&self, subject: &S) -> Result<Vec<Row>, Box<dyn Error>> {
        let (model, bytes) = self.saved_and_loaded(FLOAT, subject.model(), subject.fresh())?;
        let float = subject.outputs(&model);
        subject.check(&float)?;
        let batch = subject
            .calibration()
            .first()
            .ok_or("there are no calibration data")?;
        let mut rows = vec![Row {
            config: FLOAT.into(),
            bytes,
            scores: subject.scores(&float, &float),
            sqnr: None,
            tuned: Vec::new(),
            cost: inference(|| drop(S::forward(&label_parameters(model.clone()), batch))),
        }];
        for Named { name, quantizer } in &self.configs {
            let bar = progress(name)?;
            let quantized = quantizer.quantize_with_progress(
                model.clone(),
                subject.calibration(),
                S::forward,
                |done, all| {
                    bar.set_length(all as u64);
                    bar.set_position(done as u64);
                },
            )?;
            bar.finish_and_clear();
            let [_, tuned] = checkpoints(&self.out, &self.model, name);
            subject.keep_tuned(&tuned, &model, &quantized.model)?;
            if tuned.exists() {
                own_files::note(&tuned)?;
            }
            let (model, bytes) = self.saved_and_loaded(name, quantized.model, subject.fresh())?;
            let outputs = subject.outputs(&model);
            rows.push(Row {
                config: name.clone(),
                bytes,
                scores: subject.scores(&outputs, &float),
                sqnr: Some(sqnr(&outputs, &float)),
                tuned: quantized.tuned,
                cost: inference(|| drop(S::forward(&label_parameters(model), batch))),
            });
        }
        Ok(rows)
    }

    /// Shows the rows: the table, the chart of their noise, JSON and CSV.
    pub(crate) fn report(self, title: &str, rows: &[Row]) -> Result<(), Box<dyn Error>> {
        let table = table(rows);
        println!("{table}\n\n{}", legend());
        let chart = chart::chart(title, rows)?;
        println!("chart: {}", self.svg.replace(chart.as_bytes())?.display());
        if let Some(json) = self.json {
            let rows = serde_json::json!({ "rows": rows });
            json.replace(&serde_json::to_vec_pretty(&rows)?)?;
        }
        if let Some(file) = self.csv {
            file.replace(&tables::csv(&table)?)?;
        }
        Ok(())
    }
}

/// A model, and how good it is.
pub(crate) trait Subject {
    type Model: Module<B> + Sync;
    /// Of calibration data.
    type Batch: Sync;

    /// The trained model.
    fn model(&self) -> Self::Model;
    /// One to load into.
    fn fresh(&self) -> Self::Model;
    fn calibration(&self) -> &[Self::Batch];
    fn forward(model: &Self::Model, batch: &Self::Batch) -> Tensor<B, 2>;
    /// Of all test items.
    fn outputs(&self, model: &Self::Model) -> Vec<f32>;
    /// Whether the outputs of the model that is not quantized are those that they should be.
    fn check(&self, float: &[f32]) -> Result<(), Box<dyn Error>>;
    fn scores(&self, outputs: &[f32], float: &[f32]) -> Vec<Score>;

    /// Keeps what folding and tuning changed of the float model's parameters, where there is a file for them.
    fn keep_tuned(&self, _: &Path, _: &Self::Model, _: &Self::Model) -> Result<(), Box<dyn Error>> {
        Ok(())
    }
}

/// The row of the model that is not quantized.
pub(crate) const FLOAT: &str = "Float";

/// A configuration's name as part of a file's.
fn file_stem(name: &str) -> String {
    let name = name.replace(".json", "");
    let name = Path::new(&name).file_name().unwrap_or_default();
    name.to_string_lossy().replace(", ", "-")
}

/// A bar for the steps of fast fine-tuning.
pub(crate) fn progress(name: &str) -> Result<ProgressBar, Box<dyn Error>> {
    let bar = ProgressBar::new(0).with_style(ProgressStyle::with_template(
        "{prefix} {bar:30} {pos}/{len} steps, {eta}",
    )?);
    bar.set_prefix(name.to_owned());
    Ok(bar)
}

/// A model's results under a configuration.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) config: String,
    /// Of the checkpoint: packed weights, all else in float32.
    pub(crate) bytes: u64,
    #[serde(flatten, serialize_with = "by_key")]
    pub(crate) scores: Vec<Score>,
    /// ‖y‖² / ‖q − y‖² in dB, with q all outputs, and y the outputs of the float model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sqnr: Option<f64>,
    /// The results of fast fine-tuning.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tuned: Vec<TunedLayer>,
    /// The cost of the products of a forward pass in hardware, by models.
    #[serde(serialize_with = "relative_cost")]
    pub(crate) cost: Cost,
}

/// The cost of what a forward pass of a model with labels multiplies.
pub(crate) fn inference(forward: impl FnOnce()) -> Cost {
    Tables::default().cost(&products(Pass::Inference, forward))
}

fn relative_cost<S: Serializer>(cost: &Cost, serializer: S) -> Result<S::Ok, S::Error> {
    let fields = [
        ("bits", cost.bits),
        ("area", cost.area),
        ("picojoules", cost.picojoules),
    ];
    serializer.collect_map(fields)
}

/// The meaning of the table's last columns.
fn legend() -> String {
    let tables = Tables::default();
    format!(
        "models of the products of one batch, no measurements: bits of an element of an operand; \
         area: gates of a multiply-accumulate lane, as a multiple of MXFP8 E4M3's ({}); \
         energy: of multiplications, sums, and operands read once ({})",
        tables.area.source, tables.operations.source
    )
}

/// A number that says how good a model is.
#[derive(Debug)]
pub(crate) struct Score {
    /// In JSON.
    pub(crate) key: &'static str,
    /// In the table.
    pub(crate) heading: &'static str,
    pub(crate) value: f64,
    /// Whether it is a share from 0 to 1, shown in percent.
    pub(crate) is_share: bool,
}

impl Score {
    pub(crate) fn share(key: &'static str, heading: &'static str, value: f64) -> Self {
        Self {
            is_share: true,
            ..Self::number(key, heading, value)
        }
    }

    pub(crate) fn number(key: &'static str, heading: &'static str, value: f64) -> Self {
        Self {
            key,
            heading,
            value,
            is_share: false,
        }
    }

    fn text(&self) -> String {
        match self.is_share {
            true => format!("{:.2} %", 100.0 * self.value),
            false => format!("{:.4}", self.value),
        }
    }
}

fn by_key<S: Serializer>(scores: &[Score], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    for score in scores {
        map.serialize_entry(score.key, &score.value)?;
    }
    map.end()
}

/// Signal to quantization noise, in dB.
pub(crate) fn sqnr(got: &[f32], wanted: &[f32]) -> f64 {
    let noise = got
        .iter()
        .zip(wanted)
        .map(|(q, y)| f64::from(q - y).powi(2));
    let signal = wanted.iter().map(|y| f64::from(*y).powi(2));
    10.0 * (signal.sum::<f64>() / noise.sum::<f64>()).log10()
}

/// The share of items whose class is the first, and among the first five, by logits.
pub(crate) fn among_first(logits: &[f32], classes: &[usize]) -> [f64; 2] {
    let count = classes.len();
    let rows = logits.chunks(logits.len() / count).zip(classes);
    let ranks: Vec<usize> = rows.map(|(logits, class)| rank(logits, *class)).collect();
    [1, 5].map(|among| {
        let right = ranks.iter().filter(|rank| **rank < among).count();
        right as f64 / count as f64
    })
}

/// How many of an item's logits rank before this class.
fn rank(logits: &[f32], class: usize) -> usize {
    let wanted = logits[class];
    // A number that is none is right of nothing.
    let is_before = |logit: &&f32| **logit >= wanted || logit.is_nan() || wanted.is_nan();
    logits.iter().filter(is_before).count() - 1
}

/// The rows as a table, of the same scores each.
fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    let scores = rows[0].scores.iter().map(|score| score.heading);
    let headings = ["DataType / Config", "Model size"].into_iter();
    table.load_preset(ASCII_MARKDOWN);
    table.set_header(
        headings
            .chain(scores)
            .chain(["SQNR", "Bits", "Area", "Energy"]),
    );
    for row in rows {
        let sqnr = row.sqnr.map(|sqnr| format!("{sqnr:.1} dB"));
        let cells = [
            row.config.clone(),
            format!("{:.1} kB", row.bytes as f64 / 1e3),
        ];
        let scores = row.scores.iter().map(Score::text);
        table.add_row(cells.into_iter().chain(scores).chain([
            sqnr.unwrap_or_default(),
            format!("{:.2}", row.cost.bits),
            format!("{:.2}", row.cost.area),
            format!("{:.1} µJ", row.cost.picojoules / 1e6),
        ]));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
