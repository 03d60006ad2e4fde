//! Random bits that depend on nothing but a position.

/// A stream of random 32-bit words by position: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel
/// random numbers: as easy as 1, 2, 3", SC 2011), a counter-based generator.
///
/// Word `index` is word `index mod 4` of the block with the counter (index / 4, stream), both 64
/// bits with the low half first, under the 64-bit key `seed`. There is no state: results do not
/// depend on the order, the threads or the device that compute them. The default is number 0 of key 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RandomStream {
    seed: u64,
    stream: u64,
}

/// Counters that are worked on together, a multiple of the width of any vector register.
const LANES: usize = 16;

/// Words of this number of counters.
pub(crate) const BATCH: usize = 4 * LANES;

impl RandomStream {
    /// Stream number `stream` of the generator with key `seed`. Any two different pairs give
    /// independent streams.
    pub const fn new(seed: u64, stream: u64) -> Self {
        Self { seed, stream }
    }

    /// The key of the generator.
    pub const fn seed(self) -> u64 {
        self.seed
    }

    /// The number of the stream.
    pub const fn stream(self) -> u64 {
        self.stream
    }

    /// The word at `index`: uniform in 0 … 2^32 − 1.
    #[inline]
    pub fn draw(self, index: u64) -> u32 {
        self.block(index / 4)[(index % 4) as usize]
    }

    /// The words from `start` on: `words[i] = draw(start + i)`.
    #[doc(hidden)]
    #[inline(always)]
    pub fn fill(self, start: u64, words: &mut [u32]) {
        let mut batch = [0; BATCH];
        let mut skip = (start % 4) as usize;
        let mut counter = start / 4;
        let mut rest = words;
        while !rest.is_empty() {
            self.fill_batches(counter, &mut batch);
            let (head, tail) = rest.split_at_mut((BATCH - skip).min(rest.len()));
            head.copy_from_slice(&batch[skip..skip + head.len()]);
            (skip, counter, rest) = (0, counter + LANES as u64, tail);
        }
    }

    /// The words of the first sixteen positions of some rows: row number 0 begins at `first`, and the next ones `apart` from each other.
    #[doc(hidden)]
    #[inline(always)]
    pub fn fill_rows(self, first: u64, apart: u64, rows: &mut [[u32; LANES]]) {
        let mut start = first;
        let are_counters = first.is_multiple_of(4) && apart.is_multiple_of(4);
        let batches = if are_counters { rows.len() / 4 } else { 0 };
        let (batches, rest) = rows.split_at_mut(4 * batches);
        for batch in batches.as_flattened_mut().chunks_exact_mut(BATCH) {
            for (i, words) in (0..).zip(batch.chunks_exact_mut(4)) {
                words.copy_from_slice(&self.block((start + i / 4 * apart) / 4 + i % 4));
            }
            start += 4 * apart;
        }
        for row in rest {
            self.fill(start, row);
            start += apart;
        }
    }

    /// The words of the counters from `first` on; their number must be a multiple of [`BATCH`].
    #[inline(always)]
    pub(crate) fn fill_batches(self, first: u64, words: &mut [u32]) {
        let mut counter = first;
        for batch in words.chunks_exact_mut(BATCH) {
            for (i, words) in batch.chunks_exact_mut(4).enumerate() {
                words.copy_from_slice(&self.block(counter + i as u64));
            }
            counter += LANES as u64;
        }
    }

    /// The four words of a counter.
    #[doc(hidden)]
    #[inline(always)]
    pub fn block(self, counter: u64) -> [u32; 4] {
        const LOW: u64 = u32::MAX as u64;
        // Words in the low halves of 64 bits, where a vector multiplication wants them. Nobody reads the high halves.
        let mut x = [counter, counter >> 32, self.stream, self.stream >> 32];
        let mut key = [self.seed as u32, (self.seed >> 32) as u32];
        for _ in 0..10 {
            let p = 0xD251_1F53 * (x[0] & LOW);
            let q = 0xCD9E_8D57 * (x[2] & LOW);
            x = [
                (q >> 32) ^ x[1] ^ u64::from(key[0]),
                q,
                (p >> 32) ^ x[3] ^ u64::from(key[1]),
                p,
            ];
            key[0] = key[0].wrapping_add(0x9E37_79B9);
            key[1] = key[1].wrapping_add(0xBB67_AE85);
        }
        [x[0] as u32, x[1] as u32, x[2] as u32, x[3] as u32]
    }
}
