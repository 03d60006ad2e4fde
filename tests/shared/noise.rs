//! Numbers for tests.

/// `count` values of magnitude 2^-6 to 2, all 24 significant bits in use: a bfloat16 does not hold these values.
pub(crate) fn noise(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u32
    };
    let mut value = || {
        let sign = next() & 0x8000_0000;
        let exponent = 121 + next() % 7;
        f32::from_bits(sign | exponent << 23 | (next() & 0x007f_ffff) | 1)
    };
    (0..count).map(|_| value()).collect()
}
