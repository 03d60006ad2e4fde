//! Random bits that depend on nothing but a position.

/// A stream of random 32-bit words by position: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel
/// random numbers: as easy as 1, 2, 3", SC 2011), a counter-based generator.
///
/// Word `index` is word `index mod 4` of the block with the counter (index / 4, stream), both 64
/// bits with the low half first, under the 64-bit key `seed`. There is no state: results do not
/// depend on the order, the threads or the device that compute them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
    #[inline(always)]
    pub(crate) fn fill(self, start: u64, words: &mut [u32]) {
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
    #[inline(always)]
    fn block(self, counter: u64) -> [u32; 4] {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn block(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let stream = RandomStream::new(pair(key[0], key[1]), pair(counter[2], counter[3]));
        stream.block(pair(counter[0], counter[1]))
    }

    /// `philox4x32 10` of the file kat_vectors of the authors' library Random123.
    #[test]
    fn known_answers() {
        assert_eq!(
            block([0; 4], [0; 2]),
            [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]
        );
        assert_eq!(
            block([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]
        );
        assert_eq!(
            block(
                [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
                [0xa4093822, 0x299f31d0]
            ),
            [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]
        );
    }

    #[test]
    fn fill_is_draw_by_position() {
        let stream = RandomStream::new(0x0123_4567_89ab_cdef, 42);
        for start in [0, 1, 2, 3, 4, 63, 64, 1001, (1 << 34) - 3] {
            for len in [0, 1, 3, 4, 31, 64, 65, 200] {
                let mut words = vec![0; len];
                stream.fill(start, &mut words);
                for (i, word) in words.into_iter().enumerate() {
                    assert_eq!(word, stream.draw(start + i as u64), "{start} + {i}");
                }
            }
        }
    }

    #[test]
    fn seed_and_stream_matter() {
        let words = |seed, stream| -> Vec<u32> {
            (0..8)
                .map(|i| RandomStream::new(seed, stream).draw(i))
                .collect()
        };
        assert_ne!(words(0, 0), words(1, 0));
        assert_ne!(words(0, 0), words(0, 1));
        assert_ne!(words(0, 0), words(1 << 32, 0));
        assert_ne!(words(0, 0), words(0, 1 << 32));
    }
}
