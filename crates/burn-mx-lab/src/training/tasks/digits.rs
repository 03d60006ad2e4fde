//! The 1,797 handwritten digits of `data/digits.csv.gz` as a task (source and licence: `data/README.md`).

use std::{error::Error, sync::Arc};

use burn::{
    data::dataset::{
        InMemDataset,
        transform::{PartialDataset, ShuffledDataset},
    },
    prelude::*,
    train::ClassificationOutput,
};
use flate2::read::GzDecoder;

use super::{Item, Split, classification, count};

/// Rows of a digit, and pixels of a row.
pub(crate) const SIDE: usize = 8;
/// Pixels of a digit.
pub(crate) const PIXELS: usize = SIDE * SIDE;
/// The digits 0 to 9.
pub(crate) const CLASSES: usize = 10;

/// Brightest pixel value in the file; pixels are divided by it (exactly: it is a power of two).
const WHITE: f32 = 16.0;
/// About four fifths, as whole digits.
const TRAIN_DIGITS: usize = 1437;
const SPLIT_SEED: u64 = 1797;

// In the binary, so that the program runs from any folder.
static FILE: &[u8] = include_bytes!("../../../data/digits.csv.gz");

/// One handwritten digit.
#[derive(Debug, Clone)]
pub(crate) struct Digit {
    /// Row by row, 0 (paper) to 1 (ink).
    pixels: Vec<f32>,
    label: u8,
}

/// A batch of `N` digits on a device.
#[derive(Debug, Clone)]
pub(crate) struct DigitBatch<B: Backend> {
    /// `[N, PIXELS]`
    pixels: Tensor<B, 2>,
    /// `[N]`
    labels: Tensor<B, 1, Int>,
}

/// A model that tells digits apart.
pub(crate) trait Classifier<B: Backend> {
    /// Pixels `[N, PIXELS]` to logits `[N, CLASSES]`.
    fn logits(&self, pixels: Tensor<B, 2>) -> Tensor<B, 2>;
}

impl Default for Digit {
    /// No ink.
    fn default() -> Self {
        Self {
            pixels: vec![0.0; PIXELS],
            label: 0,
        }
    }
}

impl<B: Backend> DigitBatch<B> {
    pub(super) fn new<'a>(digits: impl Iterator<Item = &'a Digit>, device: &B::Device) -> Self {
        let (pixels, labels): (Vec<_>, Vec<_>) = digits
            .map(|digit| (digit.pixels.as_slice(), i64::from(digit.label)))
            .unzip();
        let shape = [labels.len(), PIXELS];
        Self {
            pixels: Tensor::from_data(TensorData::new(pixels.concat(), shape), device),
            labels: Tensor::from_data(labels.as_slice(), device),
        }
    }

    pub(super) fn to(self, device: impl Fn(&B::Device) -> B::Device) -> Self {
        let device = device(&self.pixels.device());
        Self {
            pixels: self.pixels.to_device(&device),
            labels: self.labels.to_device(&device),
        }
    }

    /// Logits, labels and the loss between them.
    pub(crate) fn output(self, model: &impl Classifier<B>) -> ClassificationOutput<B> {
        classification(model.logits(self.pixels), self.labels)
    }

    /// Number of digits whose largest logit is the label's.
    pub(crate) fn solved(self, model: &impl Classifier<B>) -> usize {
        let guess = model.logits(self.pixels).argmax(1).squeeze_dim::<1>(1);
        count(guess.equal(self.labels))
    }
}

pub(super) fn load() -> Result<Split, Box<dyn Error>> {
    let digits = csv::ReaderBuilder::new()
        .has_headers(false)
        .from_reader(GzDecoder::new(FILE))
        .into_deserialize()
        .map(|row| row.map(Digit::from_row).map(Item::Digit))
        .collect::<csv::Result<Vec<_>>>()?;
    let total = digits.len();
    let shuffled = Arc::new(ShuffledDataset::new(InMemDataset::new(digits), SPLIT_SEED));
    Ok(Split {
        train: Arc::new(PartialDataset::new(shuffled.clone(), 0, TRAIN_DIGITS)),
        test: Arc::new(PartialDataset::new(shuffled, TRAIN_DIGITS, total)),
    })
}

impl Digit {
    fn from_row(row: Vec<u8>) -> Self {
        let (&label, pixels) = row.split_last().expect("csv yields no empty rows");
        let pixels = pixels.iter().map(|&pixel| f32::from(pixel) / WHITE);
        Self {
            pixels: pixels.collect(),
            label,
        }
    }
}
