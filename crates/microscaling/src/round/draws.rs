//! Random words for the loops over memory, made many at a time.

use super::random::BATCH;
use crate::round::random::RandomStream;
use alloc::vec::Vec;

/// Elements that are rounded at a time: no more words are asked for at once.
pub(crate) const WINDOW: usize = 1024;

/// The draws of rules without draws.
static ZEROS: [u32; WINDOW] = [0; WINDOW];

/// A window of random words that moves along the tensor.
pub(crate) struct Draws {
    stream: RandomStream,
    /// Index of the first word that is never asked for.
    end: u64,
    /// Index of the first word.
    start: u64,
    words: Vec<u32>,
}

impl Draws {
    /// For elements before the position `end`. Nothing is made before it is asked for.
    #[inline(always)]
    pub(crate) fn new(stream: RandomStream, end: u64) -> Self {
        Self {
            stream,
            end,
            start: 0,
            words: Vec::new(),
        }
    }

    /// Of elements whose words these are.
    pub(crate) fn of(words: Vec<u32>) -> Self {
        Self {
            words,
            ..Self::new(RandomStream::new(0, 0), 0)
        }
    }

    /// The words.
    pub(crate) fn into_words(self) -> Vec<u32> {
        self.words
    }

    /// The words from `start` on, at most [`WINDOW`]; zeros if none are used.
    #[inline(always)]
    pub(crate) fn get(&mut self, used: bool, start: u64, count: usize) -> &[u32] {
        if !used {
            return &ZEROS[..count];
        }
        if start < self.start || start + count as u64 > self.start + self.words.len() as u64 {
            // Whole counters are made, many together, but not many more than there are elements.
            self.start = start / 4 * 4;
            let rest = (self.end - self.start).min((start - self.start) + WINDOW as u64);
            self.words
                .resize((rest as usize).next_multiple_of(BATCH), 0);
            self.stream.fill_batches(self.start / 4, &mut self.words);
        }
        let first = (start - self.start) as usize;
        &self.words[first..first + count]
    }
}
