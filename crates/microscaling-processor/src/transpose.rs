//! Square tiles with rows and columns exchanged.

/// Rows and columns of a tile.
const SIDE: usize = 16;
/// Words of a tile.
const TILE: usize = SIDE * SIDE;

/// Exchanges rows and columns of a tile of 16 × 16 words.
pub fn transpose(tile: &mut [u32; TILE]) {
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if std::arch::is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has AVX-512 F.
        return unsafe { transpose_avx512(tile) };
    }
    transpose_scalar(tile);
}

fn transpose_scalar(tile: &mut [u32; TILE]) {
    for row in 0..SIDE {
        for column in 0..row {
            tile.swap(row * SIDE + column, column * SIDE + row);
        }
    }
}

/// # Safety
/// The processor must have AVX-512 F.
#[cfg(all(target_arch = "x86_64", feature = "std"))]
#[target_feature(enable = "avx512f")]
unsafe fn transpose_avx512(tile: &mut [u32; TILE]) {
    use core::arch::x86_64::*;

    // SAFETY: sixteen rows of sixteen words are the whole tile.
    let row = |i: usize| unsafe { _mm512_loadu_si512(tile.as_ptr().add(i * SIDE).cast()) };
    let rows: [__m512i; 16] = core::array::from_fn(row);
    // Exchanges words, then pairs of them, then quarters of the rows.
    let words: [__m512i; 16] = core::array::from_fn(|i| {
        let (low, high) = (rows[i & !1], rows[i | 1]);
        match i & 1 {
            0 => _mm512_unpacklo_epi32(low, high),
            _ => _mm512_unpackhi_epi32(low, high),
        }
    });
    let pairs: [__m512i; 16] = core::array::from_fn(|i| {
        let from = (i & !3) | ((i & 2) >> 1);
        let (low, high) = (words[from], words[from + 2]);
        match i & 1 {
            0 => _mm512_unpacklo_epi64(low, high),
            _ => _mm512_unpackhi_epi64(low, high),
        }
    });
    // pairs[4 r + c] holds, in its quarter q, the words of rows 4 r to 4 r + 3 in column 4 q + c.
    let halves: [__m512i; 16] = core::array::from_fn(|i| {
        let from = (i & 8) | (i & 3);
        let (low, high) = (pairs[from], pairs[from + 4]);
        match i & 4 {
            0 => _mm512_shuffle_i32x4::<0x88>(low, high),
            _ => _mm512_shuffle_i32x4::<0xdd>(low, high),
        }
    });
    // halves[8 h + 4 o + c] holds rows 8 h to 8 h + 7 in columns 4 o + c and 4 o + c + 8.
    for column in 0..16 {
        let from = column & 7;
        let (low, high) = (halves[from], halves[from + 8]);
        let whole = match column & 8 {
            0 => _mm512_shuffle_i32x4::<0x88>(low, high),
            _ => _mm512_shuffle_i32x4::<0xdd>(low, high),
        };
        // SAFETY: as for the loads.
        unsafe { _mm512_storeu_si512(tile.as_mut_ptr().add(column * SIDE).cast(), whole) };
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;

    #[test]
    fn rows_become_columns() {
        let before: [u32; TILE] = core::array::from_fn(|i| i as u32);
        for transpose in [transpose, transpose_scalar] {
            let mut tile = before;
            transpose(&mut tile);
            for (i, word) in tile.into_iter().enumerate() {
                assert_eq!(word, before[i % SIDE * SIDE + i / SIDE]);
            }
        }
    }
}
