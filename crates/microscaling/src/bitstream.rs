//! Codes of a few bits one after the other, low bits first.

/// Most bits of a code: with those before it in its first byte they fit 32.
pub(crate) const MAX_BITS: u32 = 25;

/// Number of bytes of `count` codes; `None` if it overflows. The last byte is filled up with zeros.
pub(crate) fn byte_len(count: usize, bits: u32) -> Option<usize> {
    // In whole bytes and the rest, so that only what does not fit overflows.
    let whole = (count / 8).checked_mul(bits as usize)?;
    whole.checked_add((count % 8 * bits as usize).div_ceil(8))
}

/// The bytes that code number `index` is in, and where it begins in the first of them.
fn place(bytes: usize, index: usize, bits: u32) -> (core::ops::Range<usize>, u32) {
    let (eights, rest) = (index / 8, index % 8);
    let bit = rest * bits as usize;
    let first = eights * bits as usize + bit / 8;
    let begin = (bit % 8) as u32;
    let end = first + (begin + bits).div_ceil(8) as usize;
    debug_assert!(bits <= MAX_BITS && end <= bytes);
    (first..end, begin)
}

/// Writes code number `index`, of which only the low `bits` may be set, over zeros.
pub(crate) fn put(bytes: &mut [u8], index: usize, bits: u32, code: u32) {
    debug_assert!(code >> bits == 0);
    let (range, begin) = place(bytes.len(), index, bits);
    let mut rest = code << begin;
    for byte in &mut bytes[range] {
        *byte |= rest as u8;
        rest >>= 8;
    }
}

/// Reads code number `index`.
pub(crate) fn get(bytes: &[u8], index: usize, bits: u32) -> u32 {
    let (range, begin) = place(bytes.len(), index, bits);
    let joined = bytes[range]
        .iter()
        .rev()
        .fold(0, |joined, byte| joined << 8 | u32::from(*byte));
    (joined >> begin) & ((1 << bits) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RandomStream;
    use alloc::{vec, vec::Vec};

    /// Against a stream of single bits.
    #[test]
    fn low_bits_first() {
        let stream = RandomStream::new(1, 1);
        for bits in 0..=MAX_BITS {
            let mask = (1_u32 << bits) - 1;
            let codes: Vec<u32> = (0..37).map(|i| stream.draw(i) & mask).collect();
            let mut bytes = vec![0; byte_len(codes.len(), bits).unwrap()];
            for (i, code) in codes.iter().enumerate() {
                put(&mut bytes, i, bits, *code);
            }
            let mut expected = vec![0; (37 * bits as usize).div_ceil(8)];
            for bit in 0..37 * bits as usize {
                let set = codes[bit / bits as usize] >> (bit % bits as usize) & 1;
                expected[bit / 8] |= (set as u8) << (bit % 8);
            }
            assert_eq!(bytes, expected, "{bits} bits");
            for (i, code) in codes.iter().enumerate() {
                assert_eq!(get(&bytes, i, bits), *code, "{bits} bits");
            }
        }
    }

    #[test]
    fn length_overflows_only_where_it_must() {
        assert_eq!(byte_len(usize::MAX, 4), Some(usize::MAX / 2 + 1));
        assert_eq!(byte_len(usize::MAX, 8), Some(usize::MAX));
        assert_eq!(byte_len(usize::MAX, 9), None);
        assert_eq!(byte_len(5, 6), Some(4));
    }
}
