//! From codes of a byte each to codes of a few bits one after the other, eight at a time. Eight codes make one word, and the
//! words are the lanes of vectors.

/// Constants that join codes of this number of bits.
struct JoinConstants<const BITS: usize>;

impl<const BITS: usize> JoinConstants<BITS> {
    /// In lanes of 16, 32 and 64 bits, the low codes: one of them, two, and four.
    const LOW: [u64; 3] = [
        low_bits(BITS, 16),
        low_bits(2 * BITS, 32),
        low_bits(4 * BITS, 64),
    ];
    /// How far the high ones move.
    const WAY: [usize; 3] = [8 - BITS, 2 * (8 - BITS), 4 * (8 - BITS)];
    /// Bits of the low ones.
    const WIDTH: [usize; 3] = [BITS, 2 * BITS, 4 * BITS];
}

/// The low bits of every lane.
const fn low_bits(bits: usize, lane: usize) -> u64 {
    let mut mask = (1 << bits) - 1;
    let mut length = lane;
    while length < 64 {
        mask |= mask << length;
        length *= 2;
    }
    mask
}

/// The low `BITS` of eight bytes, whose others are zero, one after the other.
#[inline(always)]
fn joined<const BITS: usize>(codes: u64) -> u64 {
    let mut joined = codes;
    for step in 0..3 {
        let low = JoinConstants::<BITS>::LOW[step];
        let (way, width) = (
            JoinConstants::<BITS>::WAY[step],
            JoinConstants::<BITS>::WIDTH[step],
        );
        joined = (joined & low) | (joined >> way & low << width);
    }
    joined
}

/// Writes a multiple of eight codes, each a byte whose bits above the low ones are zero; `bits` is 8 at most.
#[inline(always)]
pub fn pack(bits: u32, codes: &[u8], bytes: &mut [u8]) {
    match bits {
        2 => pack_eights::<2>(codes, bytes),
        3 => pack_eights::<3>(codes, bytes),
        4 => {
            for (byte, pair) in bytes.iter_mut().zip(codes.as_chunks().0) {
                let pair = u16::from_le_bytes(*pair);
                *byte = (pair | pair >> 4) as u8;
            }
        }
        5 => pack_eights::<5>(codes, bytes),
        6 => pack_eights::<6>(codes, bytes),
        7 => pack_eights::<7>(codes, bytes),
        8 => bytes.copy_from_slice(codes),
        _ => unreachable!("codes of 2 to 8 bits"),
    }
}

#[inline(always)]
fn pack_eights<const BITS: usize>(codes: &[u8], bytes: &mut [u8]) {
    let eights = bytes.as_chunks_mut::<BITS>().0.iter_mut();
    for (bytes, codes) in eights.zip(codes.as_chunks().0) {
        let joined = joined::<BITS>(u64::from_le_bytes(*codes)).to_le_bytes();
        bytes.copy_from_slice(&joined[..BITS]);
    }
}
