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

use super::task::{Solver, Split, Task, classification, count};

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

// In the binary, so that the example runs from any folder.
static FILE: &[u8] = include_bytes!("../../data/digits.csv.gz");

/// Which of the ten digits is it?
#[derive(Debug, Clone)]
pub(crate) struct Digits;

/// One handwritten digit.
#[derive(Debug, Clone)]
pub(crate) struct Digit {
    /// Row by row, 0 (paper) to 1 (ink).
    pixels: [f32; PIXELS],
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

impl<B: Backend, M: Classifier<B>> Solver<B, Digits> for M {
    fn output(&self, batch: DigitBatch<B>) -> ClassificationOutput<B> {
        classification(self.logits(batch.pixels), batch.labels)
    }

    /// Those whose largest logit is the label's.
    fn solved(&self, batch: DigitBatch<B>) -> usize {
        let guess = self.logits(batch.pixels).argmax(1).squeeze_dim::<1>(1);
        count(guess.equal(batch.labels))
    }
}

impl Task for Digits {
    type Item = Digit;
    type Batch<B: Backend> = DigitBatch<B>;

    const ITEMS: &'static str = "digits";
    const SCORE: &'static str = "test accuracy";

    fn load() -> Result<Split<Digit>, Box<dyn Error>> {
        let rows = csv::ReaderBuilder::new()
            .has_headers(false)
            .from_reader(GzDecoder::new(FILE))
            .into_deserialize()
            .map(|row| row.map(Digit::from_row))
            .collect::<csv::Result<Vec<_>>>()?;
        let total = rows.len();
        let shuffled = Arc::new(ShuffledDataset::new(InMemDataset::new(rows), SPLIT_SEED));
        Ok(Split {
            train: Arc::new(PartialDataset::new(shuffled.clone(), 0, TRAIN_DIGITS)),
            test: Arc::new(PartialDataset::new(shuffled, TRAIN_DIGITS, total)),
        })
    }

    fn batch<B: Backend>(items: &[Digit], device: &B::Device) -> DigitBatch<B> {
        let pixels: Vec<f32> = items.iter().flat_map(|digit| digit.pixels).collect();
        let labels: Vec<i64> = items.iter().map(|digit| i64::from(digit.label)).collect();
        DigitBatch {
            pixels: Tensor::from_data(TensorData::new(pixels, [items.len(), PIXELS]), device),
            labels: Tensor::from_data(TensorData::new(labels, [items.len()]), device),
        }
    }
}

impl Digit {
    fn from_row(row: Vec<u8>) -> Self {
        let (&label, pixels) = row.split_last().expect("csv yields no empty rows");
        let pixels: [u8; PIXELS] = pixels
            .try_into()
            .expect("the embedded file has 64 pixels a row");
        Self {
            pixels: pixels.map(|pixel| f32::from(pixel) / WHITE),
            label,
        }
    }
}
