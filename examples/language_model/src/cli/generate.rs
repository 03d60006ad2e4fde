//! `generate`

use std::{
    error::Error,
    io::{self, Write},
    path::PathBuf,
    time::Instant,
};

use language_model::{
    Folder,
    generate::{Choice, generate},
    train::Format,
};

use super::evaluate::CacheOptions;

/// Write on from a prompt
#[derive(Debug, clap::Args)]
pub(super) struct Generate {
    /// The folder of a model: config.json, tokenizer.json, safetensors
    model: PathBuf,
    /// The prompt: the text to continue
    #[arg(long, value_name = "TEXT", default_value = "And ")]
    prompt: String,
    /// Tokens to write [default: as many as the model's context has room for]
    #[arg(long, value_name = "TOKENS")]
    tokens: Option<usize>,
    /// Always the most probable token
    #[arg(long)]
    greedy: bool,
    /// Less than 1 makes probable tokens more probable
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0.8,
        conflicts_with = "greedy"
    )]
    temperature: f64,
    /// Choose among this many tokens only
    #[arg(long, value_name = "TOKENS", conflicts_with = "greedy")]
    top: Option<usize>,
    /// The same text for the same seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The format of all products: fp32, bfloat16, a preset, or a recipe as JSON. Exemptions do not count
    #[arg(long, value_name = "NAME", default_value = "fp32")]
    format: String,
    #[command(flatten)]
    cache: CacheOptions,
}

impl Generate {
    pub(super) fn run(self) -> Result<(), Box<dyn Error>> {
        if !(self.temperature.is_finite() && self.temperature > 0.0) {
            let value = self.temperature;
            return Err(format!("--temperature '{value}'; allowed: a positive number").into());
        }
        if self.top == Some(0) {
            return Err("--top '0'; allowed: 1 or more".into());
        }
        let folder = Folder::open(&self.model)?;
        let format = Format::named("--format", &self.format)?;
        let stored = self.cache.stored()?;
        let encoded = folder.tokenizer.encode(self.prompt.as_str(), false);
        let prompt = encoded.map_err(|error| error.to_string())?;
        let prompt = prompt.get_ids();
        let longest = folder.config.context;
        let room = (longest + 1).saturating_sub(prompt.len());
        let model = format.load(&folder)?;
        let choice = match self.greedy {
            true => Choice::Greedy,
            false => Choice::Sampled {
                temperature: self.temperature,
                top: self.top,
                seed: self.seed,
            },
        };
        let began = Instant::now();
        let mut all = prompt.to_vec();
        let mut shown = 0;
        let count = self.tokens.unwrap_or(room);
        let stored = stored.as_ref();
        generate(&model, (prompt, count), longest, choice, stored, |token| {
            all.push(token);
            // Several tokens may be one character: an unfinished one waits.
            let text = folder.tokenizer.decode(&all, false).unwrap_or_default();
            let whole = text.trim_end_matches('\u{fffd}');
            if whole.len() > shown {
                print!("{}", &whole[shown..]);
                io::stdout().flush().ok();
                shown = whole.len();
            }
        })?;
        println!();
        let speed = count as f64 / began.elapsed().as_secs_f64();
        eprintln!("{count} tokens, {speed:.0} tokens/s");
        Ok(())
    }
}
