//! `quantize`

use std::{error::Error, fs, path::PathBuf};

use burn::prelude::*;
use burn_mx::ptq::{QuantConfig, Quantizer};
use burn_mx_lab::{own_files, recipe_option};
use clap::ValueEnum;
use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use language_model::{
    Decoder, DecoderConfig, Folder,
    evaluate::{Score, held_out, held_out_cached},
    quantize::{self, Scope},
    text,
    text::Tokens,
    train::Format,
};
use serde_json::json;

use super::evaluate::{B, CacheOptions, validation};

/// Quantize a trained model by named configurations, and measure the results
#[derive(Debug, clap::Args)]
pub(super) struct Quantize {
    /// The folder of a model: config.json, tokenizer.json, safetensors
    model: PathBuf,
    #[command(flatten)]
    options: Options,
    /// Configurations, such as MXFP8E4M3, MXFP4E2M1_ADAQUANT, NVFP4_MRGPTQ [default: without --recipe, MX and
    /// NVFP4 formats to nearest, by GPTQ and by MR-GPTQ]
    #[arg(long, value_name = "NAME", num_args = 1..)]
    configs: Vec<String>,
    /// Recipes as JSON, such as `search --slot w` writes: formats layer by layer. A method may follow, as in found.json_GPTQ
    #[arg(long = "recipe", value_name = "FILE", num_args = 1..)]
    recipes: Vec<String>,
    /// Seeds of the calibration data; each is a row of the configurations that need it
    #[arg(long, num_args = 1.., default_values_t = [0])]
    seeds: Vec<u64>,
    #[command(flatten)]
    cache: CacheOptions,
    /// The table as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The configurations without `--configs` and `--recipe`.
const CONFIGS: [&str; 8] = [
    "MXFP8E4M3",
    "MXFP6E2M3",
    "MXFP4E2M1",
    "MXFP4E2M1_GPTQ",
    "MXFP4E2M1_MRGPTQ",
    "NVFP4",
    "NVFP4_GPTQ",
    "NVFP4_MRGPTQ",
];

/// How a model is quantized.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// Text, of which the first nine tenths calibrate and the last tenth validates [default: parts of the King James Bible]
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// Tokens of a window [default: the model's]
    #[arg(long, value_name = "TOKENS")]
    context: Option<usize>,
    /// The tensors of a linear layer to quantize
    #[arg(long, default_value = "weights")]
    scope: ScopeName,
    /// Windows of calibration data
    #[arg(long, value_name = "WINDOWS", default_value_t = 128)]
    calibration: usize,
    /// GPTQ: round inputs in the order of their importance
    #[arg(long)]
    act_order: bool,
    /// AdaQuant and AdaRound: steps for a layer [default: 1000]
    #[arg(long, value_name = "STEPS")]
    iterations: Option<usize>,
    /// AdaQuant and AdaRound: the learning rate [default: 1e-5, of AdaRound 0.1]
    #[arg(long, value_name = "RATE")]
    learning_rate: Option<f64>,
    /// A folder for finished layers of GPTQ, AdaQuant and AdaRound, with which the same command goes on
    #[arg(long, value_name = "FOLDER")]
    resume: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ScopeName {
    /// weights alone
    Weights,
    /// weights, and inputs by their own values
    Dynamic,
    /// weights, and inputs with scales of the calibration data
    Static,
}

impl Options {
    /// The configuration of this name.
    pub(super) fn config(
        &self,
        name: &str,
        decoder: &DecoderConfig,
    ) -> Result<QuantConfig, Box<dyn Error>> {
        let config = quantize::named(name, self.scope(), decoder);
        self.changed(config.map_err(|error| format!("--config '{name}': {error}"))?)
    }

    /// The configuration of a recipe, and its name.
    fn recipe(&self, text: &str) -> Result<(String, QuantConfig), Box<dyn Error>> {
        let read = || -> Result<_, Box<dyn Error>> {
            let (name, config) = recipe_option::read(text)?;
            Ok((name, quantize::scoped(config, self.scope())?))
        };
        let (name, config) = read().map_err(|error| format!("--recipe '{text}': {error}"))?;
        Ok((name, self.changed(config)?))
    }

    fn scope(&self) -> Scope {
        match self.scope {
            ScopeName::Weights => Scope::Weights,
            ScopeName::Dynamic => Scope::Dynamic,
            ScopeName::Static => Scope::Static,
        }
    }

    /// The configuration with the command line's changes.
    fn changed(&self, mut config: QuantConfig) -> Result<QuantConfig, Box<dyn Error>> {
        if let Some(gptq) = &mut config.gptq {
            gptq.act_order = self.act_order && gptq.error_feedback;
        }
        if let Some(tuning) = &mut config.fast_finetune {
            tuning.num_iterations = self.iterations.unwrap_or(tuning.num_iterations);
            tuning.learning_rate = self.learning_rate.or(tuning.learning_rate);
        }
        Quantizer::new(config.clone())?;
        Ok(config)
    }

    /// The folder for finished layers of this configuration with this seed.
    pub(super) fn resume(&self, name: &str, config: &QuantConfig, seed: u64) -> Option<PathBuf> {
        let folder = self.resume.as_ref()?;
        quantize::is_resumable(config).then(|| folder.join(format!("{name}-{seed}")))
    }

    /// The texts of a model.
    pub(super) fn texts(&self, folder: &Folder) -> Result<Texts, Box<dyn Error>> {
        if self.calibration == 0 {
            return Err("--calibration '0'; allowed: 1 or more".into());
        }
        let (validating, context) = validation(folder, &self.text, self.context)?;
        let text = text::read(self.text.as_deref())?;
        let [training, _] = text::split(&text);
        let what = "the text to calibrate on";
        Ok(Texts {
            validating,
            context,
            training: Tokens::of(&folder.tokenizer, training, what, context)?,
            windows: self.calibration,
        })
    }
}

/// The texts that a quantized model is calibrated and evaluated on.
pub(super) struct Texts {
    validating: Tokens,
    /// The length of a window in tokens.
    context: usize,
    training: Tokens,
    /// The number of windows of calibration data.
    windows: usize,
}

impl Texts {
    /// Batches of calibration data, `[windows, context]` tokens each.
    pub(super) fn calibration(&self, seed: u64, device: &Device<B>) -> Vec<Tensor<B, 2, Int>> {
        let windows = [self.windows, self.context];
        self.training
            .windows::<B>(windows, seed, device)
            .split(32, 0)
    }
}

impl Quantize {
    /// The named configurations, then the recipes.
    fn configs(&self, folder: &Folder) -> Result<Vec<(String, QuantConfig)>, Box<dyn Error>> {
        let mut names: Vec<&str> = self.configs.iter().map(String::as_str).collect();
        if names.is_empty() && self.recipes.is_empty() {
            names = CONFIGS.to_vec();
        }
        let named = names.into_iter().map(|name| {
            let config = self.options.config(name, &folder.config)?;
            Ok((name.to_owned(), config))
        });
        let recipes = self.recipes.iter().map(|text| self.options.recipe(text));
        named.chain(recipes).collect()
    }

    /// Checks that `--json` would not overwrite an input.
    fn check_json(&self, folder: &Folder) -> Result<(), Box<dyn Error>> {
        if let Some(path) = &self.json {
            let recipes = self
                .recipes
                .iter()
                .filter_map(|text| recipe_option::file(text));
            let inputs = folder.files().into_iter().chain(recipes);
            own_files::not_an_input("--json", path, inputs.chain(self.options.text.clone()))?;
        }
        Ok(())
    }

    pub(super) fn run(self) -> Result<(), Box<dyn Error>> {
        let folder = Folder::open(&self.model)?;
        let configs = self.configs(&folder)?;
        self.check_json(&folder)?;
        let stored = self.cache.stored()?;
        let texts = self.options.texts(&folder)?;
        let (tokens, context) = (&texts.validating, texts.context);
        let device = Format::named("--format", "fp32")?.device()?;
        let float = folder.load::<B>(&device)?;
        let probe = tokens.windows::<B>([32, context], 0, &device);
        let wanted = float.forward(probe.clone());
        let score = |model: &Decoder<B>| {
            let windows = tokens.in_order([48, context], &device);
            let loss = match &stored {
                None => held_out(model, windows),
                Some(stored) => held_out_cached(model, windows, stored),
            };
            Score::of(f64::from(loss), tokens)
        };
        let mut table = Table::new();
        table.load_preset(ASCII_MARKDOWN);
        table.set_header([
            "configuration",
            "seed",
            "bits a weight",
            "perplexity",
            "bits a character",
            "SQNR of logits",
        ]);
        let mut rows = Vec::new();
        let mut row =
            |name: &str, seed: Option<u64>, bits: f64, score: Score, sqnr: Option<f64>| {
                table.add_row([
                    name.to_owned(),
                    seed.map_or_else(String::new, |seed| seed.to_string()),
                    format!("{bits:.2}"),
                    format!("{:.4}", score.perplexity),
                    format!("{:.4}", score.bits_per_character),
                    sqnr.map_or_else(String::new, |sqnr| format!("{sqnr:.2} dB")),
                ]);
                rows.push(
                json!({ "config": name, "seed": seed, "bits": bits, "score": score, "sqnr": sqnr }),
            );
            };
        row("float32", None, 32.0, score(&float), None);
        // Each configuration loads the model anew, so that one model is in memory.
        drop(float);
        for (name, config) in &configs {
            let seeds = match quantize::depends_on_data(config) {
                true => self.seeds.iter().copied().map(Some).collect(),
                false => vec![None],
            };
            for seed in seeds {
                let bar = super::bar(name, 1)?;
                let data = texts.calibration(seed.unwrap_or(0), &device);
                let resume = self.options.resume(name, config, seed.unwrap_or(0));
                let progress = |done, all| {
                    bar.set_length(all as u64);
                    bar.set_position(done as u64);
                };
                let model = folder.load::<B>(&device)?;
                let quantized =
                    quantize::quantize(model, config.clone(), &data, resume.as_deref(), progress)?;
                bar.finish_and_clear();
                let sqnr = quantize::sqnr(quantized.model.forward(probe.clone()), wanted.clone());
                let bits = quantized.weight_bits();
                row(name, seed, bits, score(&quantized.model), Some(sqnr));
            }
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        println!("{table}");
        if let Some(file) = self.json {
            let text = serde_json::to_vec_pretty(&json!({ "rows": rows }))?;
            fs::write(&file, text)
                .map_err(|error| format!("--json '{}': {error}", file.display()))?;
        }
        Ok(())
    }
}
