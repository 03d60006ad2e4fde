//! `evaluate`

use std::{error::Error, fs, path::PathBuf, sync::Arc};

use burn::backend::{Flex, flex::FlexDevice};
use burn::tensor::Tensor;
use burn_mx::module::{pack, unpack};
use burn_mx::{BlockFormat, MxBackend, MxDevice, Rounder};
use clap::ValueEnum;
use language_model::{
    Error as Reason, Folder, Stored,
    evaluate::{Score, held_out, held_out_cached},
    text,
    text::Tokens,
    train::Format,
};

use burn_mx_lab::own_files;

pub(super) type B = MxBackend<Flex>;

/// Measure how well a model predicts the last tenth of a text
#[derive(Debug, clap::Args)]
pub(super) struct Evaluate {
    /// The folder of a model: config.json, tokenizer.json, safetensors
    model: PathBuf,
    /// Text [default: parts of the King James Bible]
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// Tokens of a window [default: the model's]
    #[arg(long, value_name = "TOKENS")]
    context: Option<usize>,
    /// The format of all products: fp32, bfloat16, a preset, or a recipe as JSON. Exemptions do not count
    #[arg(long, value_name = "NAME", default_value = "fp32")]
    format: String,
    /// Adapters in PEFT's files, as `train --lora` from this model writes them, beside the packed weights
    #[arg(long, value_name = "FOLDER")]
    adapter: Option<PathBuf>,
    /// Tokens and logits of the first windows as JSON, to compare with another engine
    #[arg(long, value_name = "FILE", conflicts_with = "kv_format")]
    logits: Option<PathBuf>,
    /// Windows of --logits
    #[arg(long, value_name = "WINDOWS", default_value_t = 1, requires = "logits")]
    windows: usize,
    #[command(flatten)]
    cache: CacheOptions,
}

/// How keys and values are kept.
#[derive(Debug, clap::Args)]
pub(super) struct CacheOptions {
    /// The block format of cached keys and values, such as mxfp8_e4m3 [default: as they are]
    #[arg(long, value_name = "FORMAT")]
    kv_format: Option<BlockFormat>,
    /// Along what blocks of the cache lie
    #[arg(long, default_value = "head", requires = "kv_format")]
    kv_axis: CacheAxis,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum CacheAxis {
    /// the features of a head: a token is stored when it comes
    Head,
    /// tokens: a block is stored when it is full
    Time,
}

impl CacheOptions {
    /// How a cache stores keys and values; `None` if as they are.
    pub(super) fn stored(&self) -> Result<Option<Stored<B>>, Reason> {
        let Some(format) = self.kv_format else {
            return Ok(None);
        };
        let refuse = |reason: &str| Reason::Option {
            option: "--kv-format",
            value: format.to_string(),
            allowed: reason.to_owned(),
        };
        let (axis, positions) = match self.kv_axis {
            CacheAxis::Head => (3, 1),
            CacheAxis::Time => (2, format.group_size()),
        };
        if positions == 0 {
            return Err(refuse("a format with a block size, along time"));
        }
        if format.tensor_scale {
            return Err(refuse(
                "a format without a scale of the whole tensor, which grows with each token",
            ));
        }
        let round = move |x: Tensor<B, 4>| {
            let device = x.device();
            let packed = pack(x, axis, format, Rounder::NearestEven);
            let packed = packed.expect("the format is valid and has all numbers");
            unpack(&packed.view(), &device)
        };
        Ok(Some(Stored {
            positions,
            round: Arc::new(round),
        }))
    }
}

/// The last tenth of a text in a model's tokens, and the length of windows.
pub(super) fn validation(
    folder: &Folder,
    text: &Option<PathBuf>,
    context: Option<usize>,
) -> Result<(Tokens, usize), Reason> {
    let longest = folder.config.context;
    let context = context.unwrap_or(longest);
    if context > longest || context == 0 {
        let asked = context;
        return Err(Reason::Context { asked, longest });
    }
    let text = text::read(text.as_deref())?;
    let [_, validation] = text::split(&text);
    let tokens = Tokens::of(
        &folder.tokenizer,
        validation,
        "the text to validate on",
        context,
    )?;
    Ok((tokens, context))
}

impl Evaluate {
    pub(super) fn run(self) -> Result<(), Box<dyn Error>> {
        let folder = Folder::open(&self.model)?;
        if let Some(path) = &self.logits {
            let adapter = self
                .adapter
                .iter()
                .map(|path| path.join("adapter_model.safetensors"));
            let inputs = folder
                .files()
                .into_iter()
                .chain(self.text.clone())
                .chain(adapter);
            own_files::not_an_input("--logits", path, inputs)?;
        }
        let format = Format::named("--format", &self.format)?;
        let stored = self.cache.stored()?;
        let (tokens, context) = validation(&folder, &self.text, self.context)?;
        let most = (tokens.len() - 1) / context;
        if !(1..=most).contains(&self.windows) {
            let windows = self.windows;
            return Err(format!(
                "--windows '{windows}'; allowed: 1 to {most}, as many as the text has"
            )
            .into());
        }
        let device: MxDevice<FlexDevice> = format.device()?;
        let model = match &self.adapter {
            None => format.load(&folder)?,
            Some(adapter) => format.load_adapted(&folder, adapter)?,
        };
        if let Some(file) = &self.logits {
            let windows = tokens.in_order::<B>([1, context], &device);
            let windows: Vec<_> = windows.take(self.windows).collect();
            let json = windows.iter().map(|window| {
                let logits = model.forward(window.clone().narrow(1, 0, context));
                let logits: Vec<f32> = logits.into_data().iter::<f32>().collect();
                serde_json::json!({
                    // One more than the positions: the last one is predicted, too.
                    "tokens": window.to_data().iter::<i64>().collect::<Vec<_>>(),
                    "logits": logits.chunks(folder.config.vocabulary).collect::<Vec<_>>(),
                })
            });
            let json: serde_json::Value = json.collect();
            fs::write(file, json.to_string()).map_err(Reason::io(file))?;
        }
        let windows = tokens.in_order([48, context], &device);
        let loss = match &stored {
            None => held_out(&model, windows),
            Some(stored) => held_out_cached(&model, windows, stored),
        };
        let score = Score::of(f64::from(loss), &tokens);
        println!(
            "loss {:.4} nats a token, perplexity {:.4}, {:.4} bits a character, over {} tokens",
            score.loss,
            score.perplexity,
            score.bits_per_character,
            tokens.len()
        );
        Ok(())
    }
}
