//! Random words by position: the words of `microscaling::RandomStream`.

use cubecl::prelude::*;
use microscaling::RandomStream;

/// A [`RandomStream`] as a kernel's argument.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(in crate::cube) struct Stream {
    key_low: u32,
    key_high: u32,
    stream_low: u32,
    stream_high: u32,
}

/// The argument that says which.
pub(in crate::cube) fn argument<R: Runtime>(stream: RandomStream) -> StreamLaunch<R> {
    let halves = |word: u64| (word as u32, (word >> 32) as u32);
    let (key_low, key_high) = halves(stream.seed());
    let (stream_low, stream_high) = halves(stream.stream());
    StreamLaunch::new(key_low, key_high, stream_low, stream_high)
}

/// Four words that are looked at as bits, the lowest first, as a kernel's argument in a stream's place.
pub(in crate::cube) fn bits_argument<R: Runtime>(bits: u128) -> StreamLaunch<R> {
    let word = |i: u32| (bits >> (32 * i)) as u32;
    StreamLaunch::new(word(0), word(1), word(2), word(3))
}

/// The bit at `position`, less than 128, of what [`bits_argument`] says.
#[cube]
pub(in crate::cube) fn bit(bits: &Stream, position: usize) -> u32 {
    bits_from(bits, position) & 1
}

/// The same bit and those after it in one of the four words, the lowest first.
#[cube]
pub(in crate::cube) fn bits_from(bits: &Stream, position: usize) -> u32 {
    let index = position as u32;
    let low = select(index < 32, bits.key_low, bits.key_high);
    let high = select(index < 96, bits.stream_low, bits.stream_high);
    select(index < 64, low, high) >> (index % 32)
}

/// The word at `position`, which is less than 2^34.
#[cube]
pub(in crate::cube) fn draw(stream: &Stream, position: usize) -> u32 {
    let words = four_words(stream, position / 4);
    let word = (position % 4) as u32;
    select(
        word < 2,
        select(word == 0, words.0, words.1),
        select(word == 2, words.2, words.3),
    )
}

/// The words at four times `index` and the three positions that follow.
#[cube]
pub(in crate::cube) fn four_words(stream: &Stream, index: usize) -> (u32, u32, u32, u32) {
    let mut x0 = index as u32;
    let mut x1 = 0u32.runtime();
    let mut x2 = stream.stream_low;
    let mut x3 = stream.stream_high;
    let mut key_low = stream.key_low;
    let mut key_high = stream.key_high;
    #[unroll]
    for _ in 0..10u32 {
        let p_high = x0.mul_hi(0xD251_1F53u32);
        let p_low = x0 * 0xD251_1F53u32;
        let q_high = x2.mul_hi(0xCD9E_8D57u32);
        let q_low = x2 * 0xCD9E_8D57u32;
        x0 = q_high ^ x1 ^ key_low;
        x2 = p_high ^ x3 ^ key_high;
        x1 = q_low;
        x3 = p_low;
        key_low += 0x9E37_79B9u32;
        key_high += 0xBB67_AE85u32;
    }
    (x0, x1, x2, x3)
}
