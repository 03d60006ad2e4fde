//! Some of many cases, spread evenly.

/// Most words that a sample keeps.
const MOST_WORDS: usize = 1 << 20;
/// Most cases that a sample keeps.
const MOST_CASES: usize = 1 << 16;

/// All cases, or, where there are too many, each one whose number is a multiple of a power of two.
pub(super) struct Sample {
    width: usize,
    words: Vec<u64>,
    most: usize,
    stride: u64,
    pub(super) seen: u64,
}

impl Sample {
    pub(super) fn new(width: usize) -> Self {
        let most = (MOST_WORDS / width).clamp(256, MOST_CASES);
        Self {
            width,
            words: Vec::new(),
            most,
            stride: 1,
            seen: 0,
        }
    }

    pub(super) fn push(&mut self, inputs: &[u64], outputs: &[u64]) {
        let at = self.seen;
        self.seen += 1;
        if !at.is_multiple_of(self.stride) {
            return;
        }
        if self.words.len() == self.most * self.width {
            let kept = self.words.chunks(self.width).step_by(2);
            self.words = kept.flatten().copied().collect();
            self.stride *= 2;
            if !at.is_multiple_of(self.stride) {
                return;
            }
        }
        self.words.extend_from_slice(inputs);
        self.words.extend_from_slice(outputs);
    }

    pub(super) fn cases(&self) -> impl Iterator<Item = &[u64]> + Clone {
        self.words.chunks(self.width)
    }

    pub(super) fn len(&self) -> usize {
        self.words.len() / self.width
    }
}
