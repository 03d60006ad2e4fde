//! Common code of the programs that quantize models: configurations on the command line, the work, and the results as a
//! table, a chart and JSON.

use std::{
    error::Error,
    fs, io,
    path::{Path, PathBuf},
};

use burn::{backend::Flex, module::Module, tensor::Tensor};
use burn_mx::{
    MxBackend,
    checkpoint::Checkpoint,
    module::label_parameters,
    ptq::{Activations, FastFinetune, OptimAlgorithm, QuantConfig, Quantizer},
};
use clap::{Args, builder::ArgPredicate, value_parser};
use indicatif::{ProgressBar, ProgressStyle};

use crate::{output::OutputFile, own_files, recipe_option, tables};

mod chart;
mod rows;

pub use rows::{QuantizedRow, Score, among_first, inference, sqnr};

/// The backend, on which weights that are not quantized stay float32.
pub type B = MxBackend<Flex>;

/// Options for the configurations and the output.
#[derive(Debug, Args)]
pub struct Options {
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
    pub seed: u64,

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
pub struct QuantizationPlan {
    /// The configurations.
    pub configs: Vec<NamedConfig>,
    /// The prefix of the model's files.
    model: String,
    out: PathBuf,
    svg: OutputFile,
    json: Option<OutputFile>,
    csv: Option<OutputFile>,
}

/// The error text for an option's path.
pub fn unusable(option: &str, path: &Path, error: io::Error) -> String {
    format!("{option} '{}': {error}", path.display())
}

fn algorithm(name: &str) -> Result<OptimAlgorithm, String> {
    serde_json::from_value(name.into()).map_err(|error| error.to_string())
}

/// A configuration by its name.
pub struct NamedConfig {
    /// The name, with the command line's changes.
    pub name: String,
    /// The quantizer of the configuration.
    pub quantizer: Quantizer,
}

impl Options {
    /// The plan for a model of this name, whose batch norms have this ε.
    pub fn plan(&self, model: &str, epsilon: f64) -> Result<QuantizationPlan, String> {
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
        Ok(QuantizationPlan {
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

    fn named(&self, name: &str, epsilon: f64) -> Result<NamedConfig, String> {
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
    ) -> Result<NamedConfig, String> {
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
            // Far apart: the seeds of layers follow each other.
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
        Ok(NamedConfig {
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

impl QuantizationPlan {
    /// The model out of the checkpoint that it is saved in, and the bytes of that file.
    pub fn saved_and_loaded<M: Module<B>>(
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
    pub fn rows<S: Subject>(&self, subject: &S) -> Result<Vec<QuantizedRow>, Box<dyn Error>> {
        let (model, bytes) = self.saved_and_loaded(FLOAT, subject.model(), subject.fresh())?;
        let float = subject.outputs(&model);
        subject.check(&float)?;
        let batch = subject
            .calibration()
            .first()
            .ok_or("there are no calibration data")?;
        let mut rows = vec![QuantizedRow {
            config: FLOAT.into(),
            bytes,
            scores: subject.scores(&float, &float),
            sqnr: None,
            tuned: Vec::new(),
            cost: inference(|| drop(S::forward(&label_parameters(model.clone()), batch))),
        }];
        for NamedConfig { name, quantizer } in &self.configs {
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
            rows.push(QuantizedRow {
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
    pub fn report(self, title: &str, rows: &[QuantizedRow]) -> Result<(), Box<dyn Error>> {
        let table = rows::table(rows);
        println!("{table}\n\n{}", rows::legend());
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
pub trait Subject {
    /// The model.
    type Model: Module<B> + Sync;
    /// A batch of calibration data.
    type Batch: Sync;

    /// The trained model.
    fn model(&self) -> Self::Model;
    /// A model to load into.
    fn fresh(&self) -> Self::Model;
    /// The calibration data.
    fn calibration(&self) -> &[Self::Batch];
    /// The output of a forward pass.
    fn forward(model: &Self::Model, batch: &Self::Batch) -> Tensor<B, 2>;
    /// The outputs for all test items.
    fn outputs(&self, model: &Self::Model) -> Vec<f32>;
    /// Whether the outputs of the model that is not quantized are those that they should be.
    fn check(&self, float: &[f32]) -> Result<(), Box<dyn Error>>;
    /// The scores of a model with these outputs, beside the float model's outputs.
    fn scores(&self, outputs: &[f32], float: &[f32]) -> Vec<Score>;

    /// Keeps what folding and tuning changed of the float model's parameters, where there is a file for them.
    fn keep_tuned(&self, _: &Path, _: &Self::Model, _: &Self::Model) -> Result<(), Box<dyn Error>> {
        Ok(())
    }
}

/// The row of the model that is not quantized.
pub const FLOAT: &str = "Float";

/// A configuration's name as part of a file's.
fn file_stem(name: &str) -> String {
    let name = name.replace(".json", "");
    let name = Path::new(&name).file_name().unwrap_or_default();
    name.to_string_lossy().replace(", ", "-")
}

/// A bar for the steps of fast fine-tuning.
pub fn progress(name: &str) -> Result<ProgressBar, Box<dyn Error>> {
    let bar = ProgressBar::new(0).with_style(ProgressStyle::with_template(
        "{prefix} {bar:30} {pos}/{len} steps, {eta}",
    )?);
    bar.set_prefix(name.to_owned());
    Ok(bar)
}
