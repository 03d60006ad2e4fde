//! The 1,797 handwritten digits of `data/digits.csv.gz` as a Burn dataset (source and licence:
//! `data/README.md`).

use std::sync::Arc;

use burn::{
    data::{
        dataloader::{DataLoader, DataLoaderBuilder, batcher::Batcher},
        dataset::{
            Dataset, InMemDataset,
            transform::{PartialDataset, ShuffledDataset},
        },
    },
    prelude::*,
};
use flate2::read::GzDecoder;

/// Pixels of a digit: 8 rows of 8.
pub(crate) const PIXELS: usize = 64;
/// The digits 0 to 9.
pub(crate) const CLASSES: usize = 10;

/// Brightest pixel value in the file; pixels are divided by it (exactly: it is a power of two).
const WHITE: f32 = 16.0;
/// About four fifths, as whole digits.
pub(crate) const TRAIN_DIGITS: usize = 1437;
/// Seed of the split. Not `--seed`: accuracies of different seeds are over the same test digits.
const SPLIT_SEED: u64 = 1797;

// In the binary, so that the example runs from any folder.
static FILE: &[u8] = include_bytes!("../../data/digits.csv.gz");

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
    pub(crate) pixels: Tensor<B, 2>,
    /// `[N]`
    pub(crate) labels: Tensor<B, 1, Int>,
}

/// The digits, split once and for all.
pub(crate) struct Digits {
    pub(crate) train: Arc<dyn Dataset<Digit>>,
    pub(crate) test: Arc<dyn Dataset<Digit>>,
}

impl Digits {
    pub(crate) fn load() -> csv::Result<Self> {
        let rows = csv::ReaderBuilder::new()
            .has_headers(false)
            .from_reader(GzDecoder::new(FILE))
            .into_deserialize()
            .map(|row| row.map(Digit::from_row))
            .collect::<csv::Result<Vec<_>>>()?;
        let total = rows.len();
        let shuffled = Arc::new(ShuffledDataset::new(InMemDataset::new(rows), SPLIT_SEED));
        Ok(Self {
            train: Arc::new(PartialDataset::new(shuffled.clone(), 0, TRAIN_DIGITS)),
            test: Arc::new(PartialDataset::new(shuffled, TRAIN_DIGITS, total)),
        })
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

/// Batches of `dataset` on `device`; shuffled anew in each epoch if there is a `shuffle` seed.
///
/// The order depends on the seed alone, so that runs on different backends see the same batches.
pub(crate) fn batches<B: Backend>(
    dataset: &Arc<dyn Dataset<Digit>>,
    device: &B::Device,
    batch_size: usize,
    shuffle: Option<u64>,
) -> Arc<dyn DataLoader<B, DigitBatch<B>>> {
    let loader = DataLoaderBuilder::new(DigitBatcher)
        .batch_size(batch_size)
        .set_device(device.clone());
    match shuffle {
        Some(seed) => loader.shuffle(seed),
        None => loader,
    }
    .build(dataset.clone())
}

struct DigitBatcher;

impl<B: Backend> Batcher<B, Digit, DigitBatch<B>> for DigitBatcher {
    fn batch(&self, items: Vec<Digit>, device: &B::Device) -> DigitBatch<B> {
        let pixels: Vec<f32> = items.iter().flat_map(|digit| digit.pixels).collect();
        let labels: Vec<i64> = items.iter().map(|digit| i64::from(digit.label)).collect();
        DigitBatch {
            pixels: Tensor::from_data(TensorData::new(pixels, [items.len(), PIXELS]), device),
            labels: Tensor::from_data(TensorData::new(labels, [items.len()]), device),
        }
    }
}
