//! A number that tells bytes apart, the same in each run and on each platform.

/// Of no bytes.
pub(crate) const EMPTY: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, 64 bits: of these bytes after those that have this hash.
pub(crate) fn fnv_1a(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
