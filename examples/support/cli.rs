//! The command line of a training example.
//!
//! [`SweepArgs`] is what clap parses; [`SweepArgs::plan`] checks what clap cannot (specs that contradict each other,
//! layers that the model does not have, files that cannot be written), so that nothing is found out after a minute of
//! training.

use std::{
    collections::HashSet,
    fmt::Display,
    fs,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    process::ExitCode,
    str::FromStr,
};

use burn_mx::{MxArgs, MxSpecs, ResolvedSpecs};
use clap::{Args, CommandFactory, FromArgMatches, Parser, ValueEnum, error::ErrorKind};
use serde::Serialize;
use serde_json::json;

use super::{
    layers::{Layer, LayerSpecs},
    output::OutputFile,
    presets::{self, PresetParser},
    progress::ProgressKind,
    saved::SavedRun,
    sweep,
    task::{Architecture, Split, Task},
    train::Recipe,
};

/// An example: options of the model, and those of every sweep.
#[derive(Parser)]
struct Cli<A: Args> {
    #[command(flatten)]
    architecture: A,
    #[command(flatten)]
    sweep: SweepArgs,
}

/// Options of every training example.
#[derive(Debug, Clone, Args)]
struct SweepArgs {
    /// MX preset to train in, after FP32, or all; repeat it for a sweep. AMD Quark's name of a format (MXFP6E3M2, MX6,
    /// BFP16) will do. MX specs override the preset's fields
    #[arg(long = "preset", value_name = "NAME", default_value = "mxfp6_e3m2")]
    #[arg(value_parser = PresetParser::new())]
    presets: Vec<String>,

    /// Specs of the layers whose path is PATTERN or matches it, in every MX run: 'head=fp32',
    /// 'blocks.*=mxfp4,block_size=16'. SPECS is fp32 or a preset as above, then fields that differ. Repeat it; the last
    /// match counts
    #[arg(long = "layer", value_name = "PATTERN=SPECS", value_parser = Layer::parse)]
    layers: Vec<Layer>,

    /// Specs of the first and the last layer in every MX run, such as fp32
    #[arg(long, value_name = "SPECS", value_parser = LayerSpecs::parse)]
    first_last: Option<LayerSpecs>,

    /// Burn backend that computes underneath, for FP32 and MX alike
    #[arg(long, value_enum, default_value_t = BackendName::Flex)]
    backend: BackendName,

    /// Passes over the training items
    #[arg(long, allow_negative_numbers = true)]
    #[arg(value_parser = whole_number::<usize>(1..=10_000))]
    epochs: usize,

    /// Items in a batch
    #[arg(long, default_value_t = 64, allow_negative_numbers = true)]
    #[arg(value_parser = whole_number::<usize>(1..=1_000_000))]
    batch_size: usize,

    /// Learning rate of AdamW
    #[arg(long, allow_negative_numbers = true)]
    #[arg(value_parser = positive)]
    lr: f64,

    /// Seed of the initial weights and of the batch order (the train/test split is fixed); repeat it for a mean
    #[arg(
        long = "seed",
        value_name = "SEED",
        default_value = "0",
        allow_negative_numbers = true
    )]
    #[arg(value_parser = whole_number::<u64>(0..=u64::MAX))]
    seeds: Vec<u64>,

    /// What is shown of a run while it trains
    #[arg(long, value_enum, value_name = "KIND", default_value_t = ProgressKind::Auto)]
    progress: ProgressKind,

    /// Keep every run's checkpoints, history and trained model in DIR/<format>/seed-<seed>
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,

    /// Go on with the runs in --save's folder from where they stopped; --epochs may be more than before
    #[arg(long, requires = "save")]
    resume: bool,

    /// Folder for the plot; created if missing
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,

    /// Write the runs as JSON: {"runs":[{"name","seed","specs","layers","loss","accuracy","step_ms"}]}
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    #[command(flatten)]
    specs: MxArgs,
}

/// The wrapped backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum BackendName {
    Flex,
    // Every backend doubles what has to be compiled.
    #[cfg(feature = "ndarray")]
    #[value(name = "ndarray")]
    NdArray,
}

/// A command line that was checked: all that is left is work.
pub(crate) struct Plan<T: Task> {
    pub(crate) backend: BackendName,
    pub(crate) recipe: Recipe,
    pub(crate) progress: ProgressKind,
    pub(crate) seeds: Vec<u64>,
    /// FP32, then the MX formats in the order they were asked for.
    pub(crate) formats: Vec<Format>,
    /// Specs by path in every MX run.
    pub(crate) layers: Vec<Layer>,
    /// Where a run is kept, by format and seed.
    pub(crate) saved: Option<PathBuf>,
    pub(crate) split: Split<T::Item>,
    pub(crate) plot: OutputFile,
    pub(crate) json: Option<OutputFile>,
}

/// What a run trains in.
#[derive(Debug, Clone)]
pub(crate) struct Format {
    pub(crate) name: String,
    /// `None` for FP32.
    pub(crate) specs: Option<ResolvedSpecs>,
    /// Whether MX options change what the preset is.
    pub(crate) overridden: bool,
}

/// The `main` of the example of `A`.
pub(crate) fn main<A: Architecture>() -> ExitCode {
    let command = Cli::<A>::command()
        .name(A::NAME)
        .about(A::ABOUT)
        .mut_arg("epochs", |epochs| {
            epochs.required(false).default_value(A::EPOCHS)
        })
        .mut_arg("lr", |lr| lr.required(false).default_value(A::LR));
    let mut usage = command.clone();
    let parsed = Cli::<A>::from_arg_matches(&command.get_matches());
    let cli = parsed.unwrap_or_else(|error| error.format(&mut usage).exit());
    let plan = cli.sweep.plan(&cli.architecture).unwrap_or_else(|message| {
        usage.error(ErrorKind::ValueValidation, message).exit();
    });
    match sweep::run(&cli.architecture, plan) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

impl SweepArgs {
    /// Resolves every preset with the overrides, tries the layers' paths, and opens the outputs.
    ///
    /// The message of an error names the option, its value and what is wrong with it.
    fn plan<A: Architecture>(&self, architecture: &A) -> Result<Plan<A::Task>, String> {
        let progress = self.progress.decide()?;
        let presets = presets::expand(&self.presets);
        unique("--preset", &presets)?;
        unique("--seed", &self.seeds)?;
        let formats = presets.iter().map(|name| self.format(name));
        let formats = [Ok(Format::fp32())].into_iter().chain(formats);
        let formats = formats.collect::<Result<Vec<_>, _>>()?;

        let layers = self.layers::<A>();
        for layer in &layers {
            sweep::try_layer(architecture, layer)
                .map_err(|error| format!("--layer '{layer}': {error}"))?;
        }

        let split = A::Task::load().map_err(|error| format!("the data: {error}"))?;
        let items = split.train.len();
        if self.batch_size > items {
            return Err(format!(
                "--batch-size '{}': allowed: a whole number from 1 to {items}, which is all",
                self.batch_size
            ));
        }

        fs::create_dir_all(&self.out).map_err(|error| unwritable("--out", &self.out, &error))?;
        let plot = self.out.join(format!("{}_loss.svg", A::NAME));
        let plan = Plan {
            backend: self.backend,
            recipe: Recipe {
                epochs: self.epochs,
                batch_size: self.batch_size,
                lr: self.lr,
            },
            progress,
            seeds: self.seeds.clone(),
            formats,
            layers,
            saved: self.save.clone(),
            split,
            plot: OutputFile::open(&plot).map_err(|error| unwritable("--out", &plot, &error))?,
            json: match &self.json {
                Some(path) => Some(
                    OutputFile::open(path).map_err(|error| unwritable("--json", path, &error))?,
                ),
                None => None,
            },
        };
        plan.open_saved(architecture, self.resume)?;
        Ok(plan)
    }

    fn format(&self, name: &str) -> Result<Format, String> {
        let base = MxSpecs::preset(name).map_err(|error| format!("--preset '{name}': {error}"))?;
        let specs = self
            .specs
            .specs(base)
            .map_err(|error| format!("--preset '{name}' with the MX options given: {error}"))?;
        Ok(Format {
            name: name.to_owned(),
            specs: Some(specs),
            overridden: !self.specs.is_empty(),
        })
    }

    /// `--first-last`, then every `--layer`.
    fn layers<A: Architecture>(&self) -> Vec<Layer> {
        let first_last = self.first_last.iter().flat_map(|specs| {
            A::FIRST_AND_LAST.map(|pattern| Layer {
                pattern: pattern.to_owned(),
                specs: specs.clone(),
            })
        });
        first_last.chain(self.layers.iter().cloned()).collect()
    }
}

impl Format {
    fn fp32() -> Self {
        Self {
            name: "fp32".to_owned(),
            specs: None,
            overridden: false,
        }
    }

    /// The name for people, with a star if the preset is not what it usually is.
    pub(crate) fn label(&self) -> String {
        format!("{}{}", self.name, if self.overridden { "*" } else { "" })
    }
}

impl<T: Task> Plan<T> {
    /// Every run: format by format, for each seed.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (&Format, u64)> {
        let seeds = |format| self.seeds.iter().map(move |&seed| (format, seed));
        self.formats.iter().flat_map(seeds)
    }

    /// Specs by path in a run of `format`.
    pub(crate) fn layers(&self, format: &Format) -> &[Layer] {
        match format.specs {
            Some(_) => &self.layers,
            None => &[],
        }
    }

    /// Where a run is kept.
    pub(crate) fn saved(&self, format: &Format, seed: u64) -> Option<SavedRun> {
        let folder = self.saved.as_ref()?;
        let folder = folder.join(&format.name).join(format!("seed-{seed}"));
        Some(SavedRun::new(folder))
    }

    /// Begins the folders of all runs, or makes sure that they hold the same runs.
    fn open_saved<A: Architecture>(&self, architecture: &A, resume: bool) -> Result<(), String> {
        let Some(folder) = self.saved.as_ref().map(|folder| folder.display()) else {
            return Ok(());
        };
        let runs: Vec<_> = self
            .runs()
            .filter_map(|(format, seed)| Some((format, seed, self.saved(format, seed)?)))
            .collect();
        match (resume, runs.iter().any(|(.., saved)| saved.exists())) {
            (false, true) => Err(format!(
                "--save '{folder}' has such a run already; add --resume to go on with it, or name another folder"
            )),
            (true, false) => Err(format!(
                "--resume: --save '{folder}' has no such run; name the folder of an earlier --save"
            )),
            _ => runs.iter().try_for_each(|(format, seed, saved)| {
                let settings = json!({
                    "example": A::NAME,
                    "model": architecture,
                    "backend": self.backend,
                    "batch_size": self.recipe.batch_size,
                    "lr": self.recipe.lr,
                    "seed": seed,
                    "specs": format.specs.as_ref().map(ResolvedSpecs::specs),
                    "layers": self.layers(format),
                });
                saved
                    .open(&settings)
                    .map_err(|error| format!("--save: {error}"))
            }),
        }
    }
}

fn unique<T: Eq + std::hash::Hash + Display>(option: &str, values: &[T]) -> Result<(), String> {
    let mut seen = HashSet::new();
    match values.iter().find(|value| !seen.insert(*value)) {
        Some(twice) => Err(format!(
            "{option} '{twice}' is given more than once; runs are told apart by it"
        )),
        None => Ok(()),
    }
}

fn unwritable(option: &str, path: &Path, error: &std::io::Error) -> String {
    format!(
        "{option}: cannot write '{}' ({error}); name a place that can be written to",
        path.display()
    )
}

/// A parser for options that count; a model's own use it too.
pub(crate) fn whole_number<T: FromStr + PartialOrd + Display + Clone>(
    allowed: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        text.parse()
            .ok()
            .filter(|value| allowed.contains(value))
            .ok_or_else(|| {
                format!(
                    "allowed: a whole number from {} to {}",
                    allowed.start(),
                    allowed.end()
                )
            })
    }
}

fn positive(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|value: &f64| value.is_finite() && *value > 0.0)
        .ok_or_else(|| "allowed: a finite number above 0".to_owned())
}
