//! Why something is not done.

use std::{io, path::PathBuf};

use burn_mx::checkpoint::CheckpointError;

/// Why a folder, a text or an option cannot be used. Each is found before any work is done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A field of `config.json`.
    #[error("config.json: `{field}` is {value}; allowed: {allowed}")]
    Config {
        /// The field.
        field: String,
        /// Its value.
        value: String,
        /// The allowed values.
        allowed: String,
    },
    /// An option of the command line.
    #[error("{option} '{value}'; allowed: {allowed}")]
    Option {
        /// The option.
        option: &'static str,
        /// Its value.
        value: String,
        /// The allowed values.
        allowed: String,
    },
    /// A file or folder that cannot be read or written.
    #[error("'{}': {source}", path.display())]
    Io {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not a tokenizer.
    #[error("'{}' is not a tokenizer: {reason}", path.display())]
    Tokenizer {
        /// Its path.
        path: PathBuf,
        /// The error of the crate tokenizers.
        reason: String,
    },
    /// A tokenizer of another model.
    #[error(
        "the tokenizer '{}' has tokens up to {largest}, and the model has a vocabulary of {vocabulary}; it belongs to another model",
        path.display()
    )]
    Vocabulary {
        /// The tokenizer's path.
        path: PathBuf,
        /// The tokenizer's largest token.
        largest: u32,
        /// The model's number of tokens.
        vocabulary: usize,
    },
    /// More positions than the model has.
    #[error("a context of {asked} tokens; the model's longest is {longest}")]
    Context {
        /// The context asked for.
        asked: usize,
        /// The model's `max_position_embeddings`.
        longest: usize,
    },
    /// A text that is too short.
    #[error("{what} has {tokens} tokens; needed: {needed} or more")]
    Text {
        /// Which text.
        what: String,
        /// Its tokens.
        tokens: usize,
        /// The fewest that can be used.
        needed: usize,
    },
    /// Weights of another architecture.
    #[error("'{}' has tensors that a `{model_type}` of its config.json does not have: {names}", path.display())]
    Unexpected {
        /// The folder.
        path: PathBuf,
        /// The architecture.
        model_type: String,
        /// The tensors' names.
        names: String,
    },
    /// The weights cannot be read or written.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Specs that do not resolve.
    #[error(transparent)]
    Specs(#[from] burn_mx::SpecsError),
    /// Quantization failed.
    #[error(transparent)]
    Quantization(#[from] burn_mx::ptq::PtqError),
    /// Anything of a library that has no more to say than its text.
    #[error("{0}")]
    Other(String),
}

impl Error {
    /// Of a path.
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
