//! Random words for the loops over memory, made many at a time.

use crate::RandomStream;
use crate::round::RoundingRule;
use crate::round::random::BATCH;

/// Elements that are rounded at a time: no more words are asked for at once.
pub(crate) const WINDOW: usize = 1024;

/// A window of random words that moves along the tensor.
pub(crate) struct Draws {
    stream: RandomStream,
    /// Index of the first word.
    start: u64,
    /// Number of words that are valid.
    len: usize,
    /// One batch more than is asked for, as only whole counters are made.
    words: [u32; WINDOW + BATCH],
}

impl Draws {
    #[inline(always)]
    pub(crate) fn new(stream: RandomStream) -> Self {
        Self {
            stream,
            start: 0,
            len: 0,
            words: [0; _],
        }
    }

    /// The words from `start` on, at most [`WINDOW`]; zeros if the rule wants none.
    #[inline(always)]
    pub(crate) fn get<R: RoundingRule>(&mut self, start: u64, count: usize) -> &[u32] {
        if !R::USES_DRAWS {
            return &self.words[..count];
        }
        if start < self.start || start + count as u64 > self.start + self.len as u64 {
            self.start = start / 4 * 4;
            let end = (start - self.start) as usize + WINDOW;
            self.len = end.next_multiple_of(BATCH);
            self.stream
                .fill_batches(self.start / 4, &mut self.words[..self.len]);
        }
        let first = (start - self.start) as usize;
        &self.words[first..first + count]
    }
}
