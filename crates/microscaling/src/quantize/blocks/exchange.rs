//! Rows and columns exchanged.

use super::contiguous::LANES;
use core::ops::Range;
use microscaling_processor::instruction_set::Level;
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
pub(super) fn exchange<T: Bits, U: Bits>(
    from: &[T],
    strides: [usize; 2],
    [rows, columns]: [usize; 2],
    to: &mut [U],
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

/// [`exchange`] as a kernel.
pub(super) fn exchange_at<T: Bits, U: Bits>(
    level: Level,
    from: &[T],
    strides: [usize; 2],
    shape: [usize; 2],
    to: &mut [U],
) {
    level.run(
        #[inline(always)]
        || exchange(from, strides, shape, to),
    );
}

#[inline(always)]
fn exchange_tile<T: Bits, U: Bits>(
    from: &[T],
    strides: [usize; 2],
    [row, column]: [usize; 2],
    to: &mut [U],
) {
    let mut tile = [0; LANES * LANES];
    for (i, words) in tile.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        *words = sixteen(from, (row + i) * strides[0] + column);
    }
    transpose(&mut tile);
    for (i, words) in tile.as_chunks::<LANES>().0.iter().enumerate() {
        put_sixteen(to, (column + i) * strides[1] + row, words);
    }
}

/// The words of the sixteen elements from this one on, which there must be.
#[inline(always)]
pub(super) fn sixteen<T: Bits>(elements: &[T], at: usize) -> [u32; LANES] {
    let elements: &[T; LANES] = elements[at..].first_chunk().expect("sixteen elements");
    elements.map(
        #[inline(always)]
        |x| x.to_word(),
    )
}

/// Writes the sixteen elements from this one on, which there must be.
#[inline(always)]
pub(super) fn put_sixteen<T: Bits>(elements: &mut [T], at: usize, words: &[u32; LANES]) {
    *elements[at..].first_chunk_mut().expect("sixteen elements") = words.map(
        #[inline(always)]
        |word| T::of_word(word),
    );
}

fn exchange_part<T: Bits, U: Bits>(
    from: &[T],
    strides: [usize; 2],
    rows: Range<usize>,
    columns: Range<usize>,
    to: &mut [U],
) {
    for row in rows {
        for column in columns.clone() {
            to[column * strides[1] + row] = U::of_word(from[row * strides[0] + column].to_word());
        }
    }
}
