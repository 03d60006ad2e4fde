//! The command line.
//!
//! [`CompareArgs`] is what clap parses; [`CompareArgs::plan`] checks what clap cannot (specs that contradict each other, layers that the
//! model does not have, files that cannot be written), so that nothing is found out after a minute of training.

use std::{
    collections::HashSet,
    error::Error,
    fmt::Display,
    fs,
    hash::Hash,
    path::{Path, PathBuf},
};

use burn_mx::{Exemptions, MxArgs, MxSpecs, Recipe, module::Schedule};
use burn_mx_lab::{
    backends::BackendName,
    output::{OutputFile, unwritable},
    own_files,
};
use clap::builder::{ArgPredicate, RangedU64ValueParser};

use super::{
    found::CandidateArgs, plan::SweepPlan, progress_kind::ProgressKind, recording::RecordArgs,
    sweep, train::Hyperparameters, training_format::TrainingFormat,
};
use crate::training::{
    layers::{Layer, LayerSpecs},
    models::{Architecture, ModelName, Sizes},
    presets::{self, Presets},
    stages::SpecsStage,
};
use burn_mx_lab::costing::CostArgs;

/// Train a model in FP32, then in Microscaling (MX) formats, and compare
#[derive(Debug, clap::Args)]
pub(crate) struct CompareArgs {
    /// Model to train, with its data
    #[arg(long, value_enum, default_value_t = ModelName::Ffn)]
    model: ModelName,

    /// Width of the residual stream of ffn [default: 128] and transformer [default: 64], or of the state of lstm
    /// [default: 64]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    hidden: Option<usize>,

    /// Channels of the first stage of cnn; the second has twice as many [default: 16]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    channels: Option<usize>,

    /// Blocks of transformer [default: 2]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    blocks: Option<usize>,

    /// MX preset to train in, after FP32, or literature for its recipes, or all; repeat it for a sweep. AMD Quark's names of
    /// formats (MXFP6E3M2, MX6, BFP16) are allowed. MX specs override the preset's fields. A recipe's layers in high
    /// precision stay so, unless --layer sets other specs
    #[arg(long = "preset", value_name = "NAME", default_value = "mxfp6_e3m2")]
    #[arg(default_value_if("records", ArgPredicate::IsPresent, None))]
    presets: Vec<Presets>,

    /// Recipe to train in, as JSON, such as `search` writes it: {"specs", "layers"}. The run has the file's name. Repeat it
    #[arg(long = "recipe", value_name = "FILE")]
    recipes: Vec<PathBuf>,

    /// Schedule to train by, as JSON: [{"from": STEP, "ramp": STEPS, "preset": NAME or "recipe": {"specs", "layers"}}, ...].
    /// A phase holds from its step on; over a ramp, layer by layer. With --record the last phase may wait for a limit: "when":
    /// {"sqnr": DB}. The run has the file's name. Repeat it
    #[arg(long = "schedule", value_name = "FILE")]
    schedules: Vec<PathBuf>,

    /// Specs of the layers whose path matches PATTERN, in every MX run: 'head=fp32', 'blocks.*=mxfp4,block_size=16'.
    /// SPECS is fp32 or a preset as above, then fields that differ. Repeat it; the last match counts
    #[arg(long = "layer", value_name = "PATTERN=SPECS", value_parser = Layer::parse)]
    layers: Vec<Layer>,

    /// Specs of the first and the last layer in every MX run, such as fp32
    #[arg(long, value_name = "SPECS", value_parser = LayerSpecs::parse)]
    first_last: Option<LayerSpecs>,

    /// Wrapped Burn backend, for FP32 and MX alike
    #[arg(long, value_enum, default_value_t = BackendName::Flex)]
    backend: BackendName,

    /// Passes over the training items [default: 20, for lstm 30, for transformer 15]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    epochs: Option<usize>,

    /// Items in a batch
    #[arg(
        long,
        value_name = "N",
        default_value_t = 64,
        allow_negative_numbers = true
    )]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    batch_size: usize,

    /// Learning rate of AdamW [default: for ffn 5e-4, for cnn and transformer 2e-3, for lstm 3e-3]
    #[arg(long, allow_negative_numbers = true, value_parser = positive)]
    lr: Option<f64>,

    /// Seed of the initial weights and of the batch order (the train/test split is fixed); repeat it for a mean
    #[arg(
        long = "seed",
        value_name = "SEED",
        default_value = "0",
        allow_negative_numbers = true
    )]
    seeds: Vec<u64>,

    /// Progress display of a run
    #[arg(long, value_enum, value_name = "KIND", default_value_t = ProgressKind::Auto)]
    progress: ProgressKind,

    /// Keep every run's checkpoints, history and trained model in DIR/<format>/seed-<seed>
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,

    /// Continue the runs in --save's folder from their last checkpoint; --epochs may be larger than before
    #[arg(long, requires = "save")]
    resume: bool,

    /// Folder for the plots; created if missing
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,

    #[command(flatten)]
    recording: RecordArgs,

    /// Write the runs as JSON: {"runs":[{"name","seed","specs","layers","loss","accuracy","step_ms","cost"}]}
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write the table as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Write the loss of each run as TensorBoard event files in DIR; with --record also the recorded figures, in one folder
    /// for each run beside the records
    #[arg(long, value_name = "DIR")]
    tensorboard: Option<PathBuf>,

    #[command(flatten)]
    search: CandidateArgs,

    #[command(flatten)]
    cost: CostArgs,

    #[command(flatten)]
    specs: MxArgs,
}

impl CompareArgs {
    /// Resolves every preset with the overrides, tries the layers' paths, and opens the outputs.
    ///
    /// The message of an error names the option, its value and the defect.
    pub(crate) fn plan(&self) -> Result<SweepPlan, String> {
        let architecture = self.model.of(Sizes {
            hidden: self.hidden,
            channels: self.channels,
            blocks: self.blocks,
        })?;
        let progress = self.progress.decide()?;
        let costing = self.cost.plan()?;
        let presets = presets::expand(&self.presets);
        unique("--preset", &presets)?;
        unique("--seed", &self.seeds)?;
        let layers = self.layers();
        let of_presets = presets.iter().map(|&name| {
            let recipe =
                Recipe::preset(name).map_err(|error| format!("--preset '{name}': {error}"));
            self.format(name, ("--preset", name), recipe?, architecture, &layers)
        });
        let of_files = self.recipes.iter().map(|path| {
            let shown = path.display().to_string();
            let recipe = recipe(path).map_err(|error| format!("--recipe '{shown}': {error}"));
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            self.format(
                &name,
                ("--recipe", shown.as_str()),
                recipe?,
                architecture,
                &layers,
            )
        });
        let of_schedules = self.schedules.iter().map(|path| {
            self.scheduled(path, architecture, &layers)
                .map_err(|error| format!("--schedule '{}': {error}", path.display()))
        });
        let found = self
            .search
            .candidates(self.model)
            .map_err(|error| format!("--search: {error}"))?;
        let of_search = found.iter().flat_map(|found| &found.recipes);
        let of_search = of_search.map(|(name, recipe)| {
            let recipe = recipe.clone();
            self.format(name, ("--search", name), recipe, architecture, &layers)
        });
        let formats = [Ok(TrainingFormat::fp32())]
            .into_iter()
            .chain(of_presets)
            .chain(of_files)
            .chain(of_schedules)
            .chain(of_search);
        let formats = formats.collect::<Result<Vec<_>, _>>()?;
        let names: Vec<&str> = formats.iter().map(|format| format.name.as_str()).collect();
        unique("the format", &names)?;
        for layer in &layers {
            sweep::try_layer(architecture, layer)
                .map_err(|error| format!("--layer '{layer}': {error}"))?;
        }

        let split = self
            .model
            .task()
            .load()
            .map_err(|error| format!("the data: {error}"))?;
        let items = split.train.len();
        if self.batch_size > items {
            return Err(format!(
                "--batch-size '{}': allowed: a whole number from 1 to {items}, which is all",
                self.batch_size
            ));
        }

        let open = |option, path: &Path| {
            own_files::not_an_input(option, path, self.inputs())?;
            OutputFile::open(path).map_err(|error| unwritable(option, path, &error))
        };
        let json = self.json.as_deref();
        let json = json.map(|path| open("--json", path)).transpose()?;
        let csv = self.csv.as_deref();
        let csv = csv.map(|path| open("--csv", path)).transpose()?;
        if let Some(folder) = &self.tensorboard {
            fs::create_dir_all(folder)
                .map_err(|error| unwritable("--tensorboard", folder, &error))?;
        }
        fs::create_dir_all(&self.out).map_err(|error| unwritable("--out", &self.out, &error))?;
        let open_own = |path: &Path| {
            OutputFile::open_own(path).map_err(|error| unwritable("--out", path, &error))
        };
        let chart = |what: &str| self.out.join(format!("{}_{what}.svg", self.model.name()));
        let record = self.recording.plan(self.resume)?;
        let plan = SweepPlan {
            model: self.model,
            architecture,
            backend: self.backend,
            hyperparameters: Hyperparameters {
                epochs: self.epochs.unwrap_or(self.model.epochs()),
                batch_size: self.batch_size,
                lr: self.lr.unwrap_or(self.model.learning_rate()),
            },
            progress,
            seeds: self.seeds.clone(),
            formats,
            saved: self.save.clone(),
            split,
            plot: open_own(&chart("loss"))?,
            pareto: open_own(&chart("pareto"))?,
            json,
            csv,
            tensorboard: self.tensorboard.clone(),
            record,
            costing,
            found,
        };
        plan.open_saved(self.resume)?;
        Ok(plan)
    }

    /// The files that are read.
    fn inputs(&self) -> Vec<PathBuf> {
        let files = self.recipes.iter().chain(&self.schedules).cloned();
        files.chain(self.search.records()).collect()
    }

    fn format(
        &self,
        name: &str,
        (option, value): (&str, &str),
        recipe: Recipe,
        architecture: Architecture,
        layers: &[Layer],
    ) -> Result<TrainingFormat, String> {
        let recipe = Recipe {
            specs: self.specs.apply(recipe.specs),
            ..recipe
        };
        let resolved = |specs: MxSpecs| {
            let specs = specs.resolve();
            specs.map_err(|error| format!("{option} '{value}' with the MX options given: {error}"))
        };
        let exempt_specs = resolved(recipe.exempt_specs())?;
        let exempt = sweep::exempt_layers(self.model, architecture, recipe.exemptions)
            .map_err(|error| format!("{option} '{value}': {error}"))?;
        let exempt = exempt
            .into_iter()
            .map(|path| Layer::of(path, exempt_specs.clone()));
        let mut all: Vec<Layer> = exempt.collect();
        for (path, specs) in recipe.layers {
            let layer = Layer::of(path, resolved(specs)?);
            sweep::try_layer(architecture, &layer)
                .map_err(|error| format!("{option} '{value}': {error}"))?;
            all.push(layer);
        }
        all.extend_from_slice(layers);
        Ok(TrainingFormat {
            name: name.to_owned(),
            layers: all,
            stages: Vec::new(),
            specs: Some(resolved(recipe.specs)?),
            overridden: !self.specs.is_empty(),
        })
    }

    /// The first stage of a schedule, with the others behind it.
    fn scheduled(
        &self,
        path: &Path,
        architecture: Architecture,
        layers: &[Layer],
    ) -> Result<TrainingFormat, Box<dyn Error>> {
        let schedule: Schedule = serde_json::from_str(&fs::read_to_string(path)?)?;
        let order = sweep::exempt_layers(self.model, architecture, Exemptions::ALL)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let mut formats = Vec::new();
        for stage in schedule.stages(&order)? {
            let value = format!("the phase from step {}", stage.from);
            if stage.when.is_some() && self.recording.record.is_none() {
                return Err(format!(
                    "{value}: `when` needs the figures of --record, which is missing"
                )
                .into());
            }
            let format = self.format(&name, ("in", &value), stage.recipe, architecture, layers)?;
            formats.push((usize::try_from(stage.from)?, stage.when, format));
        }
        let mut formats = formats.into_iter();
        let (.., first) = formats.next().expect("a schedule has a phase");
        let stages = formats.map(|(from, when, format)| SpecsStage {
            from,
            when,
            specs: format.specs.expect("a recipe has specs"),
            layers: format.layers,
        });
        Ok(TrainingFormat {
            stages: stages.collect(),
            ..first
        })
    }

    /// `--first-last`, then every `--layer`.
    fn layers(&self) -> Vec<Layer> {
        let first_last = self.first_last.iter().flat_map(|specs| {
            self.model.first_and_last().map(|pattern| Layer {
                pattern: pattern.to_owned(),
                specs: specs.clone(),
            })
        });
        first_last.chain(self.layers.iter().cloned()).collect()
    }
}

/// The recipe in a file.
fn recipe(path: &Path) -> Result<Recipe, Box<dyn Error>> {
    Ok(serde_json::from_str(&fs::read_to_string(path)?)?)
}

fn unique<T: Eq + Hash + Display>(option: &str, values: &[T]) -> Result<(), String> {
    let mut seen = HashSet::new();
    match values.iter().find(|value| !seen.insert(*value)) {
        Some(twice) => Err(format!(
            "{option} '{twice}' is given more than once; allowed: each value once, because it identifies a run"
        )),
        None => Ok(()),
    }
}

fn positive(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|value: &f64| value.is_finite() && *value > 0.0)
        .ok_or_else(|| "allowed: a finite number above 0".to_owned())
}
