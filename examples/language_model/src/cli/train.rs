//! `train`

use std::{collections::BTreeMap, error::Error, fs, path::PathBuf};

use burn::module::AutodiffModule;
use comfy_table::{Table, presets::ASCII_MARKDOWN};
use language_model::{
    DecoderConfig, Error as Reason, RotaryConfig, RotaryScaling,
    evaluate::{Score, held_out},
    plot, text,
    text::Tokens,
    train::{Curve, Data, Format, Training},
};

/// Train a model in one or more formats, from the same weights on the same batches
#[derive(Debug, clap::Args)]
pub(super) struct Train {
    /// The folder for models, curves and the plot; a run in this folder goes on
    #[arg(long, value_name = "FOLDER", default_value = "out/language_model")]
    out: PathBuf,
    /// Text to learn, the last tenth of which validates [default: parts of the King James Bible]
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// Formats: fp32, bfloat16, or presets such as mxfp8_e4m3, mxfp4, nvfp4
    #[arg(long, value_name = "NAME", num_args = 1.., default_values = ["fp32", "mxfp8_e4m3"])]
    formats: Vec<String>,
    /// Tokens: 256 are bytes, more are byte pairs
    #[arg(long, value_name = "TOKENS", default_value_t = 256)]
    vocabulary: usize,
    /// Layers
    #[arg(long, value_name = "LAYERS", default_value_t = 4)]
    layers: usize,
    /// Width
    #[arg(long, value_name = "FEATURES", default_value_t = 128)]
    width: usize,
    /// Width of the feed-forward network [default: 8/3 of the width, up to a multiple of 32]
    #[arg(long, value_name = "FEATURES")]
    hidden: Option<usize>,
    /// Heads of queries
    #[arg(long, value_name = "HEADS", default_value_t = 4)]
    heads: usize,
    /// Heads of keys and values [default: as of queries]
    #[arg(long, value_name = "HEADS")]
    kv_heads: Option<usize>,
    /// Train a separate head; without, the table of embeddings is the head
    #[arg(long)]
    untied: bool,
    /// Tokens of a window
    #[arg(long, value_name = "TOKENS", default_value_t = 64)]
    context: usize,
    /// Windows of a batch
    #[arg(long, value_name = "WINDOWS", default_value_t = 12)]
    batch: usize,
    /// Steps
    #[arg(long, value_name = "STEPS", default_value_t = 2000)]
    steps: usize,
    /// The highest learning rate
    #[arg(long, value_name = "RATE", default_value_t = 1e-3)]
    lr: f64,
    /// Steps between validations, after each of which a run can be resumed
    #[arg(long, value_name = "STEPS", default_value_t = 250)]
    interval: usize,
    /// Seed of weights and batches
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

impl Train {
    /// The model, by the rules that a folder's `config.json` has to keep.
    fn config(&self) -> Result<DecoderConfig, Reason> {
        let kv_heads = self.kv_heads.unwrap_or(self.heads);
        let config = DecoderConfig {
            model_type: "llama".into(),
            vocabulary: self.vocabulary,
            width: self.width,
            hidden: self
                .hidden
                .unwrap_or_else(|| (self.width * 8).div_ceil(3 * 32) * 32),
            heads: self.heads,
            kv_heads,
            head: self.width / self.heads.max(1),
            context: self.context,
            epsilon: 1e-5,
            rotary: RotaryConfig {
                theta: 10_000.0,
                scaling: RotaryScaling::None,
            },
            is_tied: !self.untied,
            has_qkv_bias: false,
            has_output_bias: false,
            has_qk_norm: false,
            windows: vec![None; self.layers],
        };
        DecoderConfig::from_json(&config.to_json().to_string())
    }

    pub(super) fn run(self) -> Result<(), Box<dyn Error>> {
        let config = self.config()?;
        if config.head * config.heads != config.width {
            return Err(format!(
                "--heads '{}'; allowed: a divisor of --width, {}",
                self.heads, self.width
            )
            .into());
        }
        for (option, value) in [
            ("--batch", self.batch),
            ("--steps", self.steps),
            ("--interval", self.interval),
        ] {
            if value == 0 {
                return Err(format!("{option} '0'; allowed: 1 or more").into());
            }
        }
        if !(self.lr.is_finite() && self.lr > 0.0) {
            return Err(format!("--lr '{}'; allowed: a positive number", self.lr).into());
        }
        let formats = self.formats.iter().map(|name| Format::named(name));
        let formats = formats.collect::<Result<Vec<_>, _>>()?;
        let text = text::read(self.text.as_deref())?;
        let [train, validation] = text::split(&text);
        let tokenizer = text::train_tokenizer(train, self.vocabulary)?;
        let tokens = |text, what| Tokens::of(&tokenizer, text, what, config.context);
        let training = tokens(train, "the text to train on")?;
        let validation = tokens(validation, "the text to validate on")?;
        fs::create_dir_all(&self.out)
            .map_err(|error| format!("--out '{}': {error}", self.out.display()))?;
        let settings = Training {
            batch: self.batch,
            steps: self.steps,
            learning_rate: self.lr,
            interval: self.interval,
            seed: self.seed,
        };
        let data = Data {
            training: &training,
            validation: &validation,
            tokenizer: &tokenizer,
        };
        let mut table = Table::new();
        table.load_preset(ASCII_MARKDOWN);
        table.set_header([
            "format",
            "loss",
            "perplexity",
            "bits a character",
            "tokens/s",
        ]);
        let mut curves: Vec<(String, Curve)> = Vec::new();
        for format in &formats {
            let bar = super::bar(&format.name, self.steps)?;
            let tokens = self.batch * config.context;
            let (model, curve) = settings.run(
                &config,
                format,
                data,
                &self.out.join(&format.name),
                |step, curve| {
                    bar.set_position(step as u64);
                    bar.set_message(format!("{:.0} tokens/s", bar.per_sec() * tokens as f64));
                    if let Some((_, loss)) = curve.validation.last().filter(|(at, _)| *at == step) {
                        let line = format!("{}: step {step}: loss {loss:.4}", format.name);
                        match bar.is_hidden() {
                            true => println!("{line}"),
                            false => bar.println(line),
                        }
                    }
                },
            )?;
            bar.finish_and_clear();
            let device = format.device()?;
            let all = validation.in_order([48, config.context], &device);
            let score = Score::of(f64::from(held_out(&model.valid(), all)), &validation);
            let speed = (self.steps * tokens) as f64 / curve.time.as_secs_f64();
            table.add_row([
                format.name.clone(),
                format!("{:.4}", score.loss),
                format!("{:.4}", score.perplexity),
                format!("{:.4}", score.bits_per_character),
                format!("{speed:.0}"),
            ]);
            curves.push((format.name.clone(), curve));
        }
        println!("{table}");
        let named: Vec<plot::Named<'_>> = curves
            .iter()
            .map(|(name, curve)| (name.as_str(), &curve.validation[..]))
            .collect();
        let svg = plot::curves("Validation loss while training", &named)?;
        let file = self.out.join("loss.svg");
        fs::write(&file, svg)?;
        let curves: BTreeMap<_, _> = curves.into_iter().collect();
        fs::write(
            self.out.join("loss.json"),
            serde_json::to_vec_pretty(&curves)?,
        )?;
        println!(
            "models: {}/*; curves: {}",
            self.out.display(),
            file.display()
        );
        Ok(())
    }
}
