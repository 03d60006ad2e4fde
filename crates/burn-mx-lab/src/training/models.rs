//! The models. They consist of Burn's own modules, without any code for MX. One enum stands for all of them, so that the
//! training is compiled once for each backend and not once for each model.

mod cnn;
mod ffn;
mod lstm;
mod transformer;

use std::ops::RangeInclusive;

use burn::{prelude::*, train::ClassificationOutput};
use burn_mx::{
    Exemptions,
    module::{ExemptError, MxTensorOps, PathError, exempt_layers, label_parameters},
};
use clap::ValueEnum;
use serde::Serialize;

use super::{
    layers::{Layer, set_layers},
    tasks::{Batch, Task},
};
use cnn::{Cnn, CnnConfig};
use ffn::{Ffn, FfnConfig};
use lstm::{Reader, ReaderConfig};
use transformer::{Adder, AdderConfig, HEADS};

/// The model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModelName {
    /// residual MLP with layer norm and gelu, on handwritten digits
    Ffn,
    /// convolutions, batch norm and pooling, on handwritten digits
    Cnn,
    /// LSTM, on handwritten digits row by row
    Lstm,
    /// causal transformer that adds two numbers as text, tested on pairs of operands unseen in training
    Transformer,
}

/// A model before its backend is chosen: the same becomes an FP32 model and an MX model.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(untagged)]
pub(crate) enum Architecture {
    Ffn(FfnConfig),
    Cnn(CnnConfig),
    Lstm(ReaderConfig),
    Transformer(AdderConfig),
}

/// Sizes that the command line gives; a model has some of them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sizes {
    pub(crate) hidden: Option<usize>,
    pub(crate) channels: Option<usize>,
    pub(crate) blocks: Option<usize>,
}

/// A model on a backend.
#[derive(Module, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub(crate) enum Model<B: Backend> {
    Ffn(Ffn<B>),
    Cnn(Cnn<B>),
    Lstm(Reader<B>),
    Transformer(Adder<B>),
}

impl ModelName {
    /// The name on the command line and in files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ffn => "ffn",
            Self::Cnn => "cnn",
            Self::Lstm => "lstm",
            Self::Transformer => "transformer",
        }
    }

    pub(crate) fn task(self) -> Task {
        match self {
            Self::Ffn | Self::Cnn | Self::Lstm => Task::Digits,
            Self::Transformer => Task::Sums,
        }
    }

    /// Heads the plot.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Ffn => "Residual MLP on 8×8 digits: training loss",
            Self::Cnn => "CNN on 8×8 digits: training loss",
            Self::Lstm => "LSTM on the rows of 8×8 digits: training loss",
            Self::Transformer => "Transformer that adds two numbers: training loss",
        }
    }

    /// Passes over the training items, unless the command line says otherwise.
    pub(crate) fn epochs(self) -> usize {
        match self {
            Self::Ffn | Self::Cnn => 20,
            Self::Lstm => 30,
            Self::Transformer => 15,
        }
    }

    /// Learning rate, unless the command line says otherwise.
    pub(crate) fn learning_rate(self) -> f64 {
        match self {
            Self::Ffn => 5e-4,
            Self::Cnn | Self::Transformer => 2e-3,
            Self::Lstm => 3e-3,
        }
    }

    /// Path patterns of the first and of the last layer that has matrix products.
    pub(crate) fn first_and_last(self) -> [&'static str; 2] {
        match self {
            Self::Ffn => ["embed", "head"],
            Self::Cnn => ["stages.0.conv", "head"],
            Self::Lstm => ["lstm", "head"],
            Self::Transformer => ["blocks.layers.0", "head"],
        }
    }

    /// The model of these sizes, the usual ones where none is given.
    ///
    /// The message of an error names the option, its value and the allowed values.
    pub(crate) fn of(self, sizes: Sizes) -> Result<Architecture, String> {
        let size = |option: &str, given: Option<usize>, usual, allowed: RangeInclusive<usize>| {
            let size = given.unwrap_or(usual);
            if allowed.contains(&size) {
                return Ok(size);
            }
            Err(format!(
                "{option} '{size}': allowed for --model {}: a whole number in {allowed:?}",
                self.name()
            ))
        };
        let none = |option: &str, given: Option<usize>, models: &str| match given {
            None => Ok(()),
            Some(size) => Err(format!(
                "{option} '{size}': --model {} has none; allowed for {models}",
                self.name()
            )),
        };
        if self != Self::Cnn {
            none("--channels", sizes.channels, "cnn")?;
        }
        if self != Self::Transformer {
            none("--blocks", sizes.blocks, "transformer")?;
        }
        match self {
            Self::Ffn => {
                let hidden = size("--hidden", sizes.hidden, 128, 1..=4096)?;
                Ok(Architecture::Ffn(FfnConfig { hidden }))
            }
            Self::Cnn => {
                none("--hidden", sizes.hidden, "ffn, lstm, transformer")?;
                let channels = size("--channels", sizes.channels, 16, 1..=512)?;
                Ok(Architecture::Cnn(CnnConfig { channels }))
            }
            Self::Lstm => {
                let hidden = size("--hidden", sizes.hidden, 64, 1..=2048)?;
                Ok(Architecture::Lstm(ReaderConfig { hidden }))
            }
            Self::Transformer => {
                let hidden = size("--hidden", sizes.hidden, 64, HEADS..=1024)?;
                if !hidden.is_multiple_of(HEADS) {
                    return Err(format!(
                        "--hidden '{hidden}': allowed for --model transformer: a multiple of its {HEADS} heads"
                    ));
                }
                let blocks = size("--blocks", sizes.blocks, 2, 1..=16)?;
                Ok(Architecture::Transformer(AdderConfig { hidden, blocks }))
            }
        }
    }
}

impl Architecture {
    pub(crate) fn init<B: Backend>(&self, device: &B::Device) -> Model<B> {
        match self {
            Self::Ffn(config) => Model::Ffn(config.init(device)),
            Self::Cnn(config) => Model::Cnn(config.init(device)),
            Self::Lstm(config) => Model::Lstm(config.init(device)),
            Self::Transformer(config) => Model::Transformer(config.init(device)),
        }
    }
}

impl<B: Backend> Model<B> {
    /// Logits, targets and the loss between them.
    pub(crate) fn output(&self, batch: Batch<B>) -> ClassificationOutput<B> {
        match (self, batch) {
            (Self::Ffn(model), Batch::Digits(batch)) => batch.output(model),
            (Self::Cnn(model), Batch::Digits(batch)) => batch.output(model),
            (Self::Lstm(model), Batch::Digits(batch)) => batch.output(model),
            (Self::Transformer(model), Batch::Sums(batch)) => batch.output(model),
            _ => unreachable!("a model has batches of its own task"),
        }
    }

    /// Number of items in the batch that are solved.
    pub(crate) fn solved(&self, batch: Batch<B>) -> usize {
        match (self, batch) {
            (Self::Ffn(model), Batch::Digits(batch)) => batch.solved(model),
            (Self::Cnn(model), Batch::Digits(batch)) => batch.solved(model),
            (Self::Lstm(model), Batch::Digits(batch)) => batch.solved(model),
            (Self::Transformer(model), Batch::Sums(batch)) => batch.solved(model),
            _ => unreachable!("a model has batches of its own task"),
        }
    }

    /// Sets specs by path: the model's own paths, in which this enum has no part.
    pub(crate) fn with_layers(self, layers: &[Layer]) -> Result<Self, PathError>
    where
        B: MxTensorOps,
    {
        Ok(match self {
            Self::Ffn(model) => Self::Ffn(set_layers(model, layers)?),
            Self::Cnn(model) => Self::Cnn(set_layers(model, layers)?),
            Self::Lstm(model) => Self::Lstm(set_layers(model, layers)?),
            Self::Transformer(model) => Self::Transformer(set_layers(model, layers)?),
        })
    }

    /// Paths of the layers that are exempt, the last of a forward pass on `batch`.
    pub(crate) fn exempt_layers(
        &self,
        exemptions: Exemptions,
        batch: Batch<B>,
    ) -> Result<Vec<String>, ExemptError>
    where
        B: MxTensorOps,
    {
        match (self, batch) {
            (Self::Ffn(model), Batch::Digits(batch)) => {
                exempt_layers(model, exemptions, |model| batch.output(model))
            }
            (Self::Cnn(model), Batch::Digits(batch)) => {
                exempt_layers(model, exemptions, |model| batch.output(model))
            }
            (Self::Lstm(model), Batch::Digits(batch)) => {
                exempt_layers(model, exemptions, |model| batch.output(model))
            }
            (Self::Transformer(model), Batch::Sums(batch)) => {
                exempt_layers(model, exemptions, |model| batch.output(model))
            }
            _ => unreachable!("a model has batches of its own task"),
        }
    }

    /// Tells products the paths of their parameters: the model's own paths, too.
    pub(crate) fn labelled(self) -> Self
    where
        B: MxTensorOps,
    {
        match self {
            Self::Ffn(model) => Self::Ffn(label_parameters(model)),
            Self::Cnn(model) => Self::Cnn(label_parameters(model)),
            Self::Lstm(model) => Self::Lstm(label_parameters(model)),
            Self::Transformer(model) => Self::Transformer(label_parameters(model)),
        }
    }
}
