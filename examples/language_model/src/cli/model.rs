//! The options for a model to train, and for its text.

use std::{error::Error, path::PathBuf};

use language_model::{
    DecoderConfig, Error as Reason, Experts, Folder, RotaryConfig, RotaryScaling, text,
    text::Tokens, train::Data,
};
use tokenizers::Tokenizer;

/// Tokens of a window of a model with random weights.
const CONTEXT: usize = 64;

/// A model to train, and its text.
#[derive(Debug, clap::Args)]
pub(super) struct Model {
    /// Text to learn, the last tenth of which validates [default: parts of the King James Bible]
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
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
    /// Experts of each layer, as in Mixtral [default: one feed-forward network]
    #[arg(long, value_name = "EXPERTS")]
    experts: Option<usize>,
    /// Experts that compute a token
    #[arg(
        long,
        value_name = "EXPERTS",
        default_value_t = 2,
        requires = "experts"
    )]
    experts_per_token: usize,
    /// The factor of the balance of the experts' loads in the training loss: `router_aux_loss_coef` of Mixtral's config
    #[arg(
        long,
        value_name = "FACTOR",
        default_value_t = 0.0,
        allow_negative_numbers = true,
        requires = "experts"
    )]
    balance: f64,
    /// Heads of queries
    #[arg(long, value_name = "HEADS", default_value_t = 4)]
    heads: usize,
    /// Heads of keys and values [default: as of queries]
    #[arg(long, value_name = "HEADS")]
    kv_heads: Option<usize>,
    /// Train a separate head; without, the table of embeddings is the head
    #[arg(long)]
    untied: bool,
    /// Tokens of a window [default: 64, or the context of a trained model]
    #[arg(long, value_name = "TOKENS")]
    context: Option<usize>,
    /// Windows of a batch
    #[arg(long, value_name = "WINDOWS", default_value_t = 12)]
    pub(super) batch: usize,
    /// Seed of weights and batches
    #[arg(long, default_value_t = 0)]
    pub(super) seed: u64,
}

/// A text as tokens.
pub(super) struct Corpus {
    tokenizer: Tokenizer,
    training: Tokens,
    validation: Tokens,
}

impl Corpus {
    pub(super) fn data(&self) -> Data<'_> {
        Data {
            training: &self.training,
            validation: &self.validation,
            tokenizer: &self.tokenizer,
            tuning: None,
        }
    }

    /// The tokens of a text by this tokenizer, in windows of `window` tokens.
    fn of(text: &str, tokenizer: Tokenizer, window: usize) -> Result<Self, Reason> {
        let [train, validation] = text::split(text);
        let tokens = |text, what| Tokens::of(&tokenizer, text, what, window);
        let training = tokens(train, "the text to train on")?;
        let validation = tokens(validation, "the text to validate on")?;
        Ok(Self {
            training,
            validation,
            tokenizer,
        })
    }
}

impl Model {
    /// The model, by the rules that a folder's `config.json` has to keep.
    fn config(&self) -> Result<DecoderConfig, Reason> {
        let kv_heads = self.kv_heads.unwrap_or(self.heads);
        // JSON has no NaN, so that the config's own check would not see one.
        if !self.balance.is_finite() {
            return Err(Reason::Option {
                option: "--balance",
                value: self.balance.to_string(),
                allowed: "0, or a positive number".into(),
            });
        }
        let config = DecoderConfig {
            model_type: if self.experts.is_some() {
                "mixtral"
            } else {
                "llama"
            }
            .into(),
            vocabulary: self.vocabulary,
            width: self.width,
            hidden: self
                .hidden
                .unwrap_or_else(|| (self.width * 8).div_ceil(3 * 32) * 32),
            experts: self.experts.map(|count| Experts {
                count,
                per_token: self.experts_per_token,
                balance: self.balance,
            }),
            heads: self.heads,
            kv_heads,
            head: self.width / self.heads.max(1),
            context: self.context.unwrap_or(CONTEXT),
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
            special_tokens: DecoderConfig::no_special_tokens(),
        };
        DecoderConfig::from_json(&config.to_json().to_string())
    }

    /// The model and the tokens of the text, which are checked.
    pub(super) fn open(&self) -> Result<(DecoderConfig, Corpus), Box<dyn Error>> {
        let config = self.config()?;
        if config.head * config.heads != config.width {
            return Err(format!(
                "--heads '{}'; allowed: a divisor of --width, {}",
                self.heads, self.width
            )
            .into());
        }
        self.check_batch()?;
        let text = text::read(self.text.as_deref())?;
        let [train, _] = text::split(&text);
        let tokenizer = text::train_tokenizer(train, self.vocabulary)?;
        let corpus = Corpus::of(&text, tokenizer, config.context)?;
        Ok((config, corpus))
    }

    /// Tokens of a window for a model with this number of positions.
    pub(super) fn window(&self, positions: usize) -> usize {
        self.context.unwrap_or(positions)
    }

    /// The tokens of the text for a trained model.
    pub(super) fn open_for(&self, model: &Folder) -> Result<Corpus, Box<dyn Error>> {
        let positions = model.config.context;
        let window = self.window(positions);
        if !(1..=positions).contains(&window) {
            let allowed = format!("1 to {positions}, the model's");
            return Err(format!("--context '{window}'; allowed: {allowed}").into());
        }
        self.check_batch()?;
        let text = text::read(self.text.as_deref())?;
        Ok(Corpus::of(&text, model.tokenizer.clone(), window)?)
    }

    fn check_batch(&self) -> Result<(), Box<dyn Error>> {
        match self.batch {
            0 => Err("--batch '0'; allowed: 1 or more".into()),
            _ => Ok(()),
        }
    }
}
