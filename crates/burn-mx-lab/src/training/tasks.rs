//! The tasks of the models: items with a fixed split, and the tensors of a batch of items.
//!
//! Nothing in here knows of MX: what the numbers are is decided by the backend `B` and by the device that the tensors
//! are made on. One enum stands for the batches of all tasks, so that the training is compiled once for each backend.

pub(crate) mod digits;
pub(crate) mod sums;

use std::{error::Error, sync::Arc};

use burn::{
    data::dataset::Dataset, nn::loss::CrossEntropyLossConfig, prelude::*,
    train::ClassificationOutput,
};

use digits::{Digit, DigitBatch};
use sums::{Sum, SumBatch};

/// Data, and the criterion for a solved item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// Which of the ten digits is it?
    Digits,
    /// What is `a + b`?
    Sums,
}

/// One example.
#[derive(Debug, Clone)]
pub(crate) enum Item {
    Digit(Digit),
    Sum(Sum),
}

/// A batch of examples on a device.
#[derive(Debug, Clone)]
pub(crate) enum Batch<B: Backend> {
    Digits(DigitBatch<B>),
    Sums(SumBatch<B>),
}

/// Items to learn from, and others to be tested on.
pub(crate) struct Split {
    pub(crate) train: Arc<dyn Dataset<Item>>,
    pub(crate) test: Arc<dyn Dataset<Item>>,
}

impl<B: Backend> Batch<B> {
    /// The batch on another device.
    pub(crate) fn to(self, device: impl Fn(&B::Device) -> B::Device) -> Self {
        match self {
            Self::Digits(batch) => Self::Digits(batch.to(device)),
            Self::Sums(batch) => Self::Sums(batch.to(device)),
        }
    }
}

impl Task {
    /// Plural of what an item is, for messages.
    pub(crate) fn items(self) -> &'static str {
        match self {
            Self::Digits => "digits",
            Self::Sums => "sums",
        }
    }

    /// The name of the share of test items that are solved.
    pub(crate) fn score(self) -> &'static str {
        match self {
            Self::Digits => "test accuracy",
            Self::Sums => "exact match",
        }
    }

    /// The items: accuracies of different seeds are over the same test items.
    pub(crate) fn load(self) -> Result<Split, Box<dyn Error>> {
        match self {
            Self::Digits => digits::load(),
            Self::Sums => Ok(sums::load()),
        }
    }

    /// An item of the shape that all have.
    pub(crate) fn sample(self) -> Item {
        match self {
            Self::Digits => Item::Digit(Digit::default()),
            Self::Sums => Item::Sum(Sum::default()),
        }
    }

    /// `items`, which are of this task.
    pub(crate) fn batch<B: Backend>(self, items: &[Item], device: &B::Device) -> Batch<B> {
        match self {
            Self::Digits => {
                let digits = items.iter().filter_map(|item| match item {
                    Item::Digit(digit) => Some(digit),
                    Item::Sum(_) => None,
                });
                Batch::Digits(DigitBatch::new(digits, device))
            }
            Self::Sums => {
                let sums = items.iter().filter_map(|item| match item {
                    Item::Sum(sum) => Some(sum),
                    Item::Digit(_) => None,
                });
                Batch::Sums(SumBatch::new(sums, device))
            }
        }
    }
}

/// Logits `[N, classes]` and targets `[N]` with the cross-entropy between them.
fn classification<B: Backend>(
    logits: Tensor<B, 2>,
    targets: Tensor<B, 1, Int>,
) -> ClassificationOutput<B> {
    let loss = CrossEntropyLossConfig::new()
        .init(&logits.device())
        .forward(logits.clone(), targets.clone());
    ClassificationOutput::new(loss, logits, targets)
}

/// Number of elements that are true.
fn count<B: Backend, const D: usize>(right: Tensor<B, D, Bool>) -> usize {
    right.int().sum().into_scalar().elem::<i64>() as usize
}
