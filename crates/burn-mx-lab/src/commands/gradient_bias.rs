//! Are the gradients of a recipe biased? Each preset's quantized backward passes against exact ones, on models of `compare`.
//!
//! ```text
//! cargo run --release --bin burn-mx-lab -- gradient-bias
//! cargo run --release --bin burn-mx-lab -- gradient-bias --model cnn --preset mxfp4 --preset mxfp4_sr_rht --passes 1024
//! ```
//!
//! A model trains for some steps in full precision; then, on one batch, the gradients of many quantized backward passes are
//! compared with the exact ones (`burn_mx::diagnose`). Their mean comes as close to the exact gradient as there are passes,
//! or comes to a halt: the recipe is biased.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
};

use burn::backend::flex::FlexDevice;
use burn_mx::{
    MxArgs, MxDevice, Recipe,
    diagnose::{Biases, GradientBias, chart, gradient_bias_with_progress},
    module::set_specs,
};
use burn_mx_lab::{output::OutputFile, own_files};
use clap::builder::RangedU64ValueParser;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::Refusal;
use crate::training::{
    layers::Layer,
    models::{Model, ModelName},
    presets::{self, Presets},
    tasks::Split,
    warm_up::{Train, items, trained},
};

/// Test whether the gradients of MX recipes are biased
#[derive(Debug, clap::Args)]
pub(crate) struct GradientBiasArgs {
    /// Models to try; repeat it
    #[arg(long = "model", value_enum, default_values_t = [ModelName::Cnn, ModelName::Transformer])]
    models: Vec<ModelName>,

    /// MX presets to try; repeat it. MX specs override their fields
    #[arg(
        long = "preset",
        value_name = "NAME",
        default_values = ["mxfp4", "mxfp4_sr_rht", "nvfp4", "mxfp8_e4m3", "mxfp8_rceil"]
    )]
    presets: Vec<Presets>,

    /// Quantized backward passes for each choice of products
    #[arg(long, value_name = "N", default_value_t = 256)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(8..=1_000_000))]
    passes: usize,

    /// Steps in full precision before
    #[arg(long, value_name = "N", default_value_t = 100)]
    steps: usize,

    /// Items in a batch
    #[arg(long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=1000))]
    batch_size: usize,

    /// Seed of the model's weights and of the random numbers
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,

    /// Folder for <model>_gradient_bias.svg and .json; created if missing
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,

    /// Write the verdicts as CSV, a line for each model, recipe, parameter and choice of products
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    #[command(flatten)]
    specs: MxArgs,
}

pub(crate) fn run(args: &GradientBiasArgs) -> Result<(), Box<dyn Error>> {
    let csv = args.csv.as_deref().map(OutputFile::open).transpose();
    let csv = csv.map_err(|error| Refusal(format!("--csv: {error}")))?;
    let recipes = args.recipes().map_err(Refusal)?;
    compare(args, &recipes, csv)
}

impl GradientBiasArgs {
    /// The presets by name, and the folder of the results tried.
    fn recipes(&self) -> Result<Vec<(&'static str, Recipe)>, String> {
        fs::create_dir_all(&self.out)
            .map_err(|error| format!("--out '{}': {error}", self.out.display()))?;
        for name in &self.models {
            for path in paths(&self.out, *name) {
                own_files::check(&path).map_err(|error| format!("--out: {error}"))?;
            }
        }
        let names = presets::expand(&self.presets).into_iter();
        let recipe = |name| {
            let recipe = Recipe::preset(name).map_err(|error| error.to_string())?;
            let specs = self.specs.apply(recipe.specs);
            let resolved = specs.resolve();
            resolved.map_err(|error| format!("--preset '{name}': {error}"))?;
            Ok((name, Recipe { specs, ..recipe }))
        };
        names.map(recipe).collect()
    }
}

/// The gradients of every model by every recipe.
fn compare(
    args: &GradientBiasArgs,
    recipes: &[(&'static str, Recipe)],
    csv: Option<OutputFile>,
) -> Result<(), Box<dyn Error>> {
    let mut verdicts = csv::Writer::from_writer(Vec::new());
    for &name in &args.models {
        let split = name.task().load()?;
        let model = trained(name, &split, args.seed, args.batch_size, args.steps)?;
        let mut found = Vec::new();
        for (preset, recipe) in recipes {
            let title = format!("{} {preset}", name.name());
            let biases = biases(args, name, &model, &split, recipe, &title)?;
            let specs = recipe.specs.resolve()?;
            println!("{title} ({specs})\n{}\n", biases.table());
            for parameter in &biases.parameters {
                for bias in &parameter.biases {
                    verdicts.serialize(VerdictLine {
                        model: name.name(),
                        preset,
                        parameter: &parameter.parameter,
                        products: bias.products.name(),
                        verdict: bias.verdict.name(),
                        bias: bias.bias,
                        noise: bias.noise,
                        slope: bias.slope,
                    })?;
                }
            }
            found.push((*preset, biases));
        }
        let (svg, json) = save(&args.out, name, &found)?;
        println!("{}\n{}\n", svg.display(), json.display());
    }
    if let Some(csv) = csv {
        println!("{}", csv.replace(&verdicts.into_inner()?)?.display());
    }
    Ok(())
}

/// A line of the CSV file. Bias and noise are shares of the gradient's norm.
#[derive(Serialize)]
struct VerdictLine<'a> {
    model: &'a str,
    preset: &'a str,
    parameter: &'a str,
    products: &'a str,
    verdict: &'a str,
    bias: f64,
    noise: f64,
    slope: f64,
}

fn biases(
    args: &GradientBiasArgs,
    name: ModelName,
    model: &Model<Train>,
    split: &Split,
    recipe: &Recipe,
    title: &str,
) -> Result<Biases, Box<dyn Error>> {
    let specs = recipe.specs.resolve()?;
    let device = MxDevice::new(FlexDevice, &specs)?;
    let exempt_specs = recipe.exempt_specs().resolve()?;
    let batch = name.task().batch::<Train>(
        &items(split, args.seed, args.batch_size, args.steps),
        &device,
    );
    let exempt = model.exempt_layers(recipe.exemptions, batch.clone())?;
    let exempt = exempt
        .into_iter()
        .map(|path| Layer::of(path, exempt_specs.clone()));
    let model = set_specs(model.clone(), &specs).with_layers(&exempt.collect::<Vec<_>>())?;
    let config = GradientBias {
        backward_passes: args.passes,
        seed: args.seed,
        ..GradientBias::default()
    };
    let bar = ProgressBar::new((config.products.len() * args.passes) as u64);
    bar.set_style(ProgressStyle::with_template(
        "{prefix} {bar:30} {pos}/{len} passes, {eta}",
    )?);
    bar.set_prefix(title.to_owned());
    let mut biases = gradient_bias_with_progress(
        &model,
        &batch,
        |model, batch| model.output(batch.clone()).loss,
        &config,
        |_, _| bar.inc(1),
    )?;
    bar.finish_and_clear();
    for parameter in &mut biases.parameters {
        // The models' own paths, in which the enum has no part.
        if let Some((_, own)) = parameter.parameter.split_once('.') {
            parameter.parameter = own.to_owned();
        }
    }
    Ok(biases)
}

/// The chart and the figures of a model.
fn paths(folder: &Path, name: ModelName) -> [PathBuf; 2] {
    ["svg", "json"].map(|ending| folder.join(format!("{}_gradient_bias.{ending}", name.name())))
}

fn save(
    folder: &Path,
    name: ModelName,
    found: &[(&'static str, Biases)],
) -> Result<(PathBuf, PathBuf), Box<dyn Error>> {
    let recipes: Vec<_> = found.iter().map(|(name, biases)| (*name, biases)).collect();
    let [svg, json] = paths(folder, name);
    own_files::write(&svg, chart(&recipes)?)?;
    let by_recipe: std::collections::BTreeMap<_, _> = recipes.into_iter().collect();
    own_files::write(&json, serde_json::to_vec_pretty(&by_recipe)?)?;
    Ok((svg, json))
}
