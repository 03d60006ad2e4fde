//! Texts, and what makes tokens of them.

use std::{fs, io::Read, path::Path};

use burn::prelude::*;
use flate2::read::GzDecoder;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokenizers::{
    Tokenizer, TokenizerBuilder,
    models::bpe::{BPE, BpeTrainerBuilder},
    pre_tokenizers::byte_level::ByteLevel,
};

use crate::Error;

/// Psalms, Proverbs and the New Testament of 1611; `data/README.md` says more.
static KING_JAMES: &[u8] = include_bytes!("../../../data/king_james.txt.gz");

/// The text of a file, or the one that is here.
///
/// # Errors
///
/// If the file cannot be read, is not UTF-8, or is empty.
pub fn read(file: Option<&Path>) -> Result<String, Error> {
    let Some(file) = file else {
        let mut text = String::new();
        let read = GzDecoder::new(KING_JAMES).read_to_string(&mut text);
        read.expect("the file is whole");
        return Ok(text);
    };
    let text = fs::read_to_string(file).map_err(Error::io(file))?;
    match text.trim().is_empty() {
        false => Ok(text),
        true => Err(Error::Text {
            what: format!("'{}'", file.display()),
            tokens: 0,
            needed: 1,
        }),
    }
}

/// The two parts of a text: nine tenths to train on, and the last tenth to validate on.
pub fn split(text: &str) -> [&str; 2] {
    let mut at = text.len() / 10 * 9;
    while !text.is_char_boundary(at) {
        at += 1;
    }
    let (train, validation) = text.split_at(at);
    [train, validation]
}

/// A byte-pair tokenizer of this many tokens, trained on a text. 256 tokens are the bytes themselves: one for each character
/// of an English text.
///
/// # Errors
///
/// If there are fewer than 256 tokens, or the text has too few different pairs for this vocabulary.
pub fn train_tokenizer(text: &str, vocabulary: usize) -> Result<Tokenizer, Error> {
    let refuse = |allowed: String| Error::Option {
        option: "--vocabulary",
        value: vocabulary.to_string(),
        allowed,
    };
    if vocabulary < 256 {
        return Err(refuse("256 (bytes) or more".into()));
    }
    let other = |error: tokenizers::Error| Error::Other(error.to_string());
    let byte_level = ByteLevel::new(false, true, true);
    let mut tokenizer = TokenizerBuilder::<
        BPE,
        tokenizers::NormalizerWrapper,
        ByteLevel,
        ByteLevel,
        ByteLevel,
    >::default()
    .with_model(BPE::default())
    .with_pre_tokenizer(Some(byte_level))
    .with_decoder(Some(byte_level))
    .build()
    .map_err(other)?;
    let mut trainer = BpeTrainerBuilder::new()
        .vocab_size(vocabulary)
        .show_progress(false)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build();
    tokenizer
        .train(&mut trainer, text.lines().map(|line| format!("{line}\n")))
        .map_err(other)?;
    let found = tokenizer.get_vocab_size(true);
    match found == vocabulary {
        true => Ok(tokenizer.into()),
        false => Err(refuse(format!(
            "256 to {found}: the text has no more pairs"
        ))),
    }
}

/// The tokenizer of a file, for a model of this vocabulary.
///
/// # Errors
///
/// If the file is not a tokenizer, or has tokens that the model does not know.
pub fn tokenizer(file: &Path, vocabulary: usize) -> Result<Tokenizer, Error> {
    let text = fs::read_to_string(file).map_err(Error::io(file))?;
    let tokenizer: Tokenizer =
        text.parse()
            .map_err(|error: tokenizers::Error| Error::Tokenizer {
                path: file.to_owned(),
                reason: error.to_string(),
            })?;
    let largest = tokenizer.get_vocab(true).into_values().max();
    match largest {
        Some(largest) if (largest as usize) < vocabulary => Ok(tokenizer),
        _ => Err(Error::Vocabulary {
            path: file.to_owned(),
            largest: largest.unwrap_or(0),
            vocabulary,
        }),
    }
}

/// A text as tokens.
#[derive(Clone, Debug)]
pub struct Tokens {
    tokens: Vec<i64>,
    /// Of the text.
    pub characters: usize,
}

impl Tokens {
    /// The tokens of a text.
    ///
    /// # Errors
    ///
    /// If there are too few for a window of `context + 1`.
    pub fn of(
        tokenizer: &Tokenizer,
        text: &str,
        what: &str,
        context: usize,
    ) -> Result<Self, Error> {
        // Line by line, so that tokenizing takes linear time.
        let mut tokens = Vec::new();
        for line in text.split_inclusive('\n') {
            let encoded = tokenizer.encode_fast(line, false);
            let encoded = encoded.map_err(|error| Error::Other(error.to_string()))?;
            tokens.extend(encoded.get_ids().iter().map(|token| i64::from(*token)));
        }
        match tokens.len() > context {
            true => Ok(Self {
                tokens,
                characters: text.chars().count(),
            }),
            false => Err(Error::Text {
                what: what.to_owned(),
                tokens: tokens.len(),
                needed: context + 1,
            }),
        }
    }

    /// The number of tokens.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there are none, which [`of`](Self::of) refuses.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Random windows `[count, length]`; the same ones for the same seed.
    pub fn windows<B: Backend>(
        &self,
        [count, length]: [usize; 2],
        seed: u64,
        device: &B::Device,
    ) -> Tensor<B, 2, Int> {
        let mut random = StdRng::seed_from_u64(seed);
        let starts = (0..count).map(|_| random.random_range(0..=self.tokens.len() - length));
        let tokens: Vec<i64> = starts
            .flat_map(|start| &self.tokens[start..start + length])
            .copied()
            .collect();
        Tensor::from_data(TensorData::new(tokens, [count, length]), device)
    }

    /// Windows of `context + 1` tokens that follow each other, with the last token of each the first of the next. So every
    /// token but the first is predicted once. Each tensor is `[up to batch, context + 1]`. An incomplete last window is left out.
    pub fn in_order<B: Backend>(
        &self,
        [batch, context]: [usize; 2],
        device: &B::Device,
    ) -> impl Iterator<Item = Tensor<B, 2, Int>> {
        let starts: Vec<usize> = (0..(self.tokens.len() - 1) / context)
            .map(|window| window * context)
            .collect();
        let batches: Vec<Vec<usize>> = starts.chunks(batch).map(<[usize]>::to_vec).collect();
        batches.into_iter().map(move |starts| {
            let shape = [starts.len(), context + 1];
            let tokens: Vec<i64> = starts
                .iter()
                .flat_map(|start| &self.tokens[*start..start + context + 1])
                .copied()
                .collect();
            Tensor::from_data(TensorData::new(tokens, shape), device)
        })
    }
}
