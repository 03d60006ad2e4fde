//! The command line of a training example.
//!
//! [`SweepArgs`] is what clap parses; [`SweepArgs::plan`] checks what clap cannot (specs that
//! contradict each other, files that cannot be written), so that nothing is found out after a
//! minute of training.

use std::{
    collections::HashSet,
    fmt::Display,
    fs,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    str::FromStr,
};

use burn_mx::{MxArgs, MxSpecs, ResolvedSpecs};
use clap::{Args, ValueEnum, builder::PossibleValuesParser};

use super::{digits::TRAIN_DIGITS, output::OutputFile};

/// Options of every training example; a model's own options stand beside them.
#[derive(Debug, Clone, Args)]
pub(crate) struct SweepArgs {
    /// MX preset to train in, after FP32; repeat it for a sweep. MX specs override its fields
    #[arg(long = "preset", value_name = "NAME", default_value = "mxfp6_e3m2")]
    #[arg(value_parser = PossibleValuesParser::new(MxSpecs::PRESETS))]
    presets: Vec<String>,

    /// Burn backend that computes underneath, for FP32 and MX alike
    #[arg(long, value_enum, default_value_t = BackendName::Flex)]
    backend: BackendName,

    #[command(flatten)]
    recipe: Recipe,

    /// Folder for the plot; created if missing
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,

    /// Write the runs as JSON: {"runs":[{"name","specs","loss","accuracy","step_ms"}]}
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    #[command(flatten)]
    specs: MxArgs,
}

/// The wrapped backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendName {
    Flex,
    #[value(name = "ndarray")]
    NdArray,
}

/// How every run trains.
#[derive(Debug, Clone, Args)]
pub(crate) struct Recipe {
    /// Passes over the training digits
    #[arg(long, default_value_t = 20, allow_negative_numbers = true)]
    #[arg(value_parser = whole_number::<usize>(1..=10_000))]
    pub(crate) epochs: usize,

    /// Digits in a batch
    #[arg(long, default_value_t = 64, allow_negative_numbers = true)]
    #[arg(value_parser = whole_number::<usize>(1..=TRAIN_DIGITS))]
    pub(crate) batch_size: usize,

    /// Learning rate of AdamW
    #[arg(long, default_value_t = 5e-4, allow_negative_numbers = true)]
    #[arg(value_parser = positive)]
    pub(crate) lr: f64,

    /// Seed of the initial weights and of the batch order (the train/test split is fixed)
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    #[arg(value_parser = whole_number::<u64>(0..=u64::MAX))]
    pub(crate) seed: u64,
}

/// A command line that was checked: all that is left is work.
pub(crate) struct Plan {
    pub(crate) backend: BackendName,
    pub(crate) recipe: Recipe,
    /// The MX runs, in the order they were asked for.
    pub(crate) mx: Vec<MxRun>,
    /// Whether MX options change what the presets are.
    pub(crate) overridden: bool,
    pub(crate) plot: OutputFile,
    pub(crate) json: Option<OutputFile>,
}

/// One run in MX.
pub(crate) struct MxRun {
    pub(crate) name: String,
    pub(crate) specs: ResolvedSpecs,
}

impl SweepArgs {
    /// Resolves every preset with the overrides and opens the outputs; `example` names the plot.
    ///
    /// The message of an error names the option, its value and what is wrong with it.
    pub(crate) fn plan(&self, example: &str) -> Result<Plan, String> {
        // Runs are told apart by their names.
        let mut seen = HashSet::new();
        if let Some(twice) = self.presets.iter().find(|name| !seen.insert(*name)) {
            return Err(format!(
                "--preset '{twice}' is given more than once; name each preset once"
            ));
        }
        let mx = self
            .presets
            .iter()
            .map(|name| self.mx_run(name))
            .collect::<Result<_, _>>()?;

        fs::create_dir_all(&self.out).map_err(|error| unwritable("--out", &self.out, &error))?;
        let plot = self.out.join(format!("{example}_loss.svg"));
        Ok(Plan {
            backend: self.backend,
            recipe: self.recipe.clone(),
            mx,
            overridden: !self.specs.is_empty(),
            plot: OutputFile::open(&plot).map_err(|error| unwritable("--out", &plot, &error))?,
            json: match &self.json {
                Some(path) => Some(
                    OutputFile::open(path).map_err(|error| unwritable("--json", path, &error))?,
                ),
                None => None,
            },
        })
    }

    fn mx_run(&self, name: &str) -> Result<MxRun, String> {
        let base = MxSpecs::preset(name).map_err(|error| format!("--preset '{name}': {error}"))?;
        let specs = self
            .specs
            .specs(base)
            .map_err(|error| format!("--preset '{name}' with the MX options given: {error}"))?;
        Ok(MxRun {
            name: name.to_owned(),
            specs,
        })
    }
}

fn unwritable(option: &str, path: &Path, error: &std::io::Error) -> String {
    format!(
        "{option}: cannot write '{}' ({error}); name a place that can be written to",
        path.display()
    )
}

/// A parser for options that count; `--hidden` of a model uses it too.
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
