//! Statistics of a tensor's quantization: figures, figures that another thread still computes, or words on a device from
//! which figures follow.

pub(crate) mod in_turn;

use std::panic::resume_unwind;
#[cfg(feature = "host")]
use std::sync::atomic::{AtomicUsize, Ordering};

use burn_backend::Backend;
use burn_backend::tensor::IntTensor;
use microscaling::{PartStatistics, Statistics, StatisticsParts};

use super::portable;
use in_turn::Awaited;
#[cfg(feature = "host")]
use in_turn::in_turn;

/// Words of a part: sums as float32 patterns in units of 4^[`UNIT`], counts, and float32 patterns of magnitudes.
pub(super) const POWER: usize = 0;
pub(super) const QUANTIZED_POWER: usize = 1;
pub(super) const ERROR: usize = 2;
pub(super) const PRODUCT: usize = 3;
pub(super) const UNIT: usize = 4;
pub(super) const NON_FINITE: usize = 5;
pub(super) const OVERFLOW: usize = 6;
pub(super) const UNDERFLOW: usize = 7;
pub(super) const SATURATED: usize = 8;
pub(super) const AMAX: usize = 9;
pub(super) const SMALLEST: usize = 10;
pub(super) const NONZERO: usize = 11;
pub(super) const PART_WORDS: usize = 12;

/// Words of a block: float32 patterns of the ratio of error to power, or [`NO_RATIO`], and of the scale, or 0.
pub(super) const RATIO: usize = 0;
pub(super) const SCALE: usize = 1;
pub(super) const BLOCK_WORDS: usize = 2;
pub(super) const NO_RATIO: u32 = u32::MAX;

/// Statistics of a tensor's quantization.
#[derive(Debug)]
pub enum TensorStatistics<B: Backend> {
    /// In figures.
    Known(Statistics),
    /// In figures that another thread computes.
    Pending(PendingStatistics),
    /// In words that lie on a device still.
    OnDevice(StatisticsWords<B>),
}

impl<B: Backend> TensorStatistics<B> {
    /// Statistics of tensors in this process's memory, with this number of elements in all. Another thread does the `work`
    /// while this thread goes on, unless too much work waits already.
    #[cfg(feature = "host")]
    pub(super) fn beside(
        elements: usize,
        work: impl FnOnce() -> Statistics + Send + 'static,
    ) -> Self {
        // The other threads of a pool have work of their own.
        if rayon::current_thread_index().is_some() {
            return Self::Known(work());
        }
        match Held::of(elements) {
            Some(held) => Self::Pending(PendingStatistics(in_turn(move || {
                let _held = held;
                work()
            }))),
            None => Self::Known(work()),
        }
    }

    /// The figures; waits for the thread that computes them, or the device that they lie on.
    ///
    /// # Panics
    ///
    /// As [`StatisticsWords::read`] and [`PendingStatistics::read`].
    pub fn read(self) -> Statistics {
        match self {
            Self::Known(statistics) => statistics,
            Self::Pending(statistics) => statistics.read(),
            Self::OnDevice(words) => StatisticsWords::read(vec![words])
                .pop()
                .expect("there are as many as there were words"),
        }
    }
}

/// Elements of tensors that are held until they are looked at.
#[cfg(feature = "host")]
struct Held(usize);

#[cfg(feature = "host")]
static HELD: AtomicUsize = AtomicUsize::new(0);

#[cfg(feature = "host")]
impl Held {
    /// How many they may be: so many that a small model's step is not held up, and a large one's memory does not show it.
    const AT_MOST: usize = 1 << 22;

    /// Adds this number of elements; `None` if they are too many.
    fn of(elements: usize) -> Option<Self> {
        let before = HELD.fetch_add(elements, Ordering::Relaxed);
        let held = Self(elements);
        (before + elements <= Self::AT_MOST).then_some(held)
    }
}

#[cfg(feature = "host")]
impl Drop for Held {
    fn drop(&mut self) {
        HELD.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// The statistics of a tensor that another thread computes.
#[derive(Debug)]
pub struct PendingStatistics(Awaited<Statistics>);

impl PendingStatistics {
    /// The figures; waits for the thread.
    ///
    /// # Panics
    ///
    /// If that thread did.
    pub fn read(self) -> Statistics {
        let statistics = self.0.wait();
        statistics.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// The statistics of a tensor as a device sums them up, in 32-bit words. The words of the parts come first, in the order of
/// [`StatisticsParts`], then the words of the blocks.
#[derive(Clone, Debug)]
pub struct StatisticsWords<B: Backend> {
    words: IntTensor<B>,
    elements: u64,
    parts: StatisticsParts,
    has_format: bool,
}

impl<B: Backend> StatisticsWords<B> {
    pub(super) fn new(
        words: IntTensor<B>,
        elements: usize,
        parts: StatisticsParts,
        has_format: bool,
    ) -> Self {
        Self {
            words,
            elements: elements as u64,
            parts,
            has_format,
        }
    }

    /// The device that they are on.
    pub fn device(&self) -> B::Device {
        B::int_device(&self.words)
    }

    /// Reads the words of several tensors on one device, in one transfer.
    ///
    /// # Panics
    ///
    /// If the backend fails to read them: an error of the device is not papered over.
    pub fn read(all: Vec<Self>) -> Vec<Statistics> {
        if all.is_empty() {
            return Vec::new();
        }
        let words = B::int_cat(all.iter().map(|one| one.words.clone()).collect(), 0);
        let words = portable::read_words::<B>(words);
        let mut rest = words.as_slice();
        let statistics = all.iter().map(|one| {
            let (own, others) = rest.split_at(length(&one.parts));
            rest = others;
            one.statistics(own)
        });
        statistics.collect()
    }

    fn statistics(&self, words: &[i32]) -> Statistics {
        let (of_parts, of_blocks) = words.split_at(self.parts.count() * PART_WORDS);
        let word = |words: &[i32], at: usize| words[at] as u32;
        let parts = of_parts.chunks_exact(PART_WORDS).enumerate();
        let parts = parts.map(|(part, words)| {
            let count = |at: usize| u64::from(word(words, at));
            let single = |at: usize| f32::from_bits(word(words, at));
            let unit = 2f64.powi(2 * words[UNIT]);
            let sum = |at: usize| f64::from(single(at)) * unit;
            let mut part_statistics = PartStatistics {
                non_finite: count(NON_FINITE),
                overflow: count(OVERFLOW),
                power: sum(POWER),
                quantized_power: sum(QUANTIZED_POWER),
                error: sum(ERROR),
                product: sum(PRODUCT),
                nonzero: count(NONZERO),
                underflow: count(UNDERFLOW),
                saturated: count(SATURATED),
                amax: single(AMAX),
                smallest: single(SMALLEST),
                ..PartStatistics::default()
            };
            if self.has_format {
                for block in self.parts.blocks_of(part) {
                    let words = &of_blocks[block * BLOCK_WORDS..];
                    let (ratio, scale) = (word(words, RATIO), word(words, SCALE));
                    part_statistics.blocks += 1;
                    if ratio != NO_RATIO {
                        part_statistics.ratios.push(f32::from_bits(ratio));
                    }
                    if scale != 0 {
                        part_statistics.scales.push(f32::from_bits(scale));
                    }
                }
            }
            part_statistics
        });
        Statistics::of_parts(self.elements, parts)
    }
}

/// Words of a tensor that has these parts.
pub(super) fn length(parts: &StatisticsParts) -> usize {
    parts.count() * PART_WORDS + parts.blocks() * BLOCK_WORDS
}
