//! Rows and columns exchanged.

use super::contiguous::LANES;
use core::ops::Range;
use microscaling_processor::transpose;

/// A word of 32 bits.
pub(super) trait Bits: Copy {
    fn to_word(self) -> u32;
    fn of_word(word: u32) -> Self;
}

impl Bits for u32 {
    #[inline(always)]
    fn to_word(self) -> u32 {
        self
    }

    #[inline(always)]
    fn of_word(word: u32) -> Self {
        word
    }
}

impl Bits for f32 {
    #[inline(always)]
    fn to_word(self) -> u32 {
        self.to_bits()
    }

    #[inline(always)]
    fn of_word(word: u32) -> Self {
        Self::from_bits(word)
    }
}

/// Writes `rows` rows of `columns` elements as columns. The strides are the distances of rows in `from` and in `to`.
#[inline(always)]
pub(super) fn exchange<T: Bits>(
    from: &[T],
    strides: [usize; 2],
    [rows, columns]: [usize; 2],
    to: &mut [T],
) {
    for row in (0..rows).step_by(LANES) {
        for column in (0..columns).step_by(LANES) {
            let rows = row..rows.min(row + LANES);
            let columns = column..columns.min(column + LANES);
            match (rows.len(), columns.len()) {
                (LANES, LANES) => exchange_tile(from, strides, [row, column], to),
                _ => exchange_part(from, strides, rows, columns, to),
            }
        }
    }
}

#[inline(always)]
fn exchange_tile<T: Bits>(
    from: &[T],
    strides: [usize; 2],
    [row, column]: [usize; 2],
    to: &mut [T],
) {
    let mut tile = [0; LANES * LANES];
    for (i, words) in tile.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        let from = from[(row + i) * strides[0] + column..].first_chunk::<LANES>();
        if let Some(from) = from {
            *words = from.map(
                #[inline(always)]
                |x| x.to_word(),
            );
        }
    }
    transpose(&mut tile);
    for (i, words) in tile.as_chunks::<LANES>().0.iter().enumerate() {
        let to = to[(column + i) * strides[1] + row..].first_chunk_mut::<LANES>();
        if let Some(to) = to {
            *to = words.map(
                #[inline(always)]
                |word| T::of_word(word),
            );
        }
    }
}

fn exchange_part<T: Bits>(
    from: &[T],
    strides: [usize; 2],
    rows: Range<usize>,
    columns: Range<usize>,
    to: &mut [T],
) {
    for row in rows {
        for column in columns.clone() {
            to[column * strides[1] + row] = from[row * strides[0] + column];
        }
    }
}
