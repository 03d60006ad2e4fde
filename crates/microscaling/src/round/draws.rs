//! Random words for the loops over memory, made many at a time.

use super::random::BATCH;
use crate::round::random::RandomStream;
use alloc::vec::Vec;

/// Elements that are rounded at a time: no more words are asked for at once.
pub(crate) const WINDOW: usize = 1024;

/// The draws of rules without draws.
static ZEROS: [u32; WINDOW] = [0; WINDOW];

/// The words of a stream for a tensor, or for a part of one: lines of neighbours, which are evenly apart in the tensor.
#[derive(Clone, Copy)]
pub struct PartStream {
    stream: RandomStream,
    /// The place in the tensor of the part's first element.
    first: u64,
    /// Elements of a line.
    line: u64,
    /// How far apart in the tensor lines begin.
    apart: u64,
}

impl From<RandomStream> for PartStream {
    /// Of a whole tensor.
    fn from(stream: RandomStream) -> Self {
        Self::new(stream, 0, [WHOLE, 0])
    }
}

/// The length of the line that a whole tensor is.
const WHOLE: u64 = u64::MAX;

impl PartStream {
    /// For a part whose first element has the place `first` in the tensor, of lines of a length above 0, which begin `apart` from each other.
    pub const fn new(stream: RandomStream, first: u64, [line, apart]: [u64; 2]) -> Self {
        Self {
            stream,
            first,
            line,
            apart,
        }
    }

    /// The place in the tensor of an element of the part.
    #[inline(always)]
    fn place(self, at: u64) -> u64 {
        match self.line {
            WHOLE => self.first + at,
            line => self.first + at / line * self.apart + at % line,
        }
    }

    /// The word of an element of the part.
    #[inline(always)]
    pub(crate) fn draw(self, at: u64) -> u32 {
        self.stream.draw(self.place(at))
    }

    /// The words of the elements from `start` on. Of a whole tensor, whole counters: `start` is a multiple of 4, and there are whole
    /// [batches](BATCH).
    #[inline(always)]
    fn fill(self, mut start: u64, mut words: &mut [u32]) {
        if self.line == WHOLE {
            return self.stream.fill_batches(self.place(start) / 4, words);
        }
        while !words.is_empty() {
            let left = self.line - start % self.line;
            let (line, rest) = words.split_at_mut(left.min(words.len() as u64) as usize);
            self.stream.fill(self.place(start), line);
            start += left;
            words = rest;
        }
    }

    /// The words of sixteen neighbours in some rows of this length, from `first` on. Words behind the end of a row are any.
    #[inline(always)]
    pub(crate) fn fill_rows(self, first: u64, row: u64, rows: &mut [[u32; 16]]) {
        let start = self.place(first);
        match self.line {
            WHOLE => self.stream.fill_rows(start, row, rows),
            line if line == row => self.stream.fill_rows(start, self.apart, rows),
            _ => {
                for (word, at) in rows.as_flattened_mut().iter_mut().zip(0..) {
                    *word = self.draw(first + at / 16 * row + at % 16);
                }
            }
        }
    }
}

/// A window of random words that moves along the tensor.
pub(crate) struct Draws {
    stream: PartStream,
    /// Index of the first word that is never asked for.
    end: u64,
    /// Index of the first word.
    start: u64,
    words: Vec<u32>,
}

impl Draws {
    /// For elements before the position `end`. Nothing is made before it is asked for.
    #[inline(always)]
    pub(crate) fn new(stream: impl Into<PartStream>, end: u64) -> Self {
        Self {
            stream: stream.into(),
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
            self.stream.fill(self.start, &mut self.words);
        }
        let first = (start - self.start) as usize;
        &self.words[first..first + count]
    }
}
