//! The tiles of panels: where they lie, and how values become their words.

use super::panels::{FREE, LINE, PAIRS, SUMMED, Side, TILE, word};
use super::piece_plan::{Piece, PiecePlan};
use core::mem::MaybeUninit;
use microscaling::QuantizeError;
use microscaling::internal::bits::ABS;
use microscaling_processor::instruction_set::{Kernel, dispatch};
use microscaling_processor::transpose;

/// Where the tiles of panels lie.
#[derive(Clone, Copy)]
pub(super) struct Tiles {
    pub(super) first: *mut u32,
    /// Tiles of a matrix along the free axis.
    pub(super) per_matrix: usize,
    /// Tiles along the summed axis.
    pub(super) summed: usize,
}

// SAFETY: every tile is written in the course of one piece, and pieces have no tile in common, so no two threads get
// the same one.
unsafe impl Sync for Tiles {}

impl Tiles {
    /// A tile of a matrix, filled with zeros: the panels' memory is new.
    ///
    /// # Safety
    /// The panels must live, have room for this tile, and nobody else may hold it.
    pub(super) unsafe fn tile<'a>(
        self,
        matrix: usize,
        free: usize,
        summed: usize,
    ) -> &'a mut [u32; TILE] {
        // SAFETY: the caller's promise; zeros are words.
        unsafe {
            let room = self.room(matrix, free, summed).as_mut_ptr();
            room.write_bytes(0, TILE / LINE);
            &mut *room.cast()
        }
    }

    /// The room for a tile of a matrix.
    ///
    /// # Safety
    /// As [`tile`](Self::tile).
    pub(super) unsafe fn room<'a>(self, matrix: usize, free: usize, summed: usize) -> Room<'a> {
        debug_assert!(free < self.per_matrix && summed < self.summed);
        let tile = (matrix * self.per_matrix + free) * self.summed + summed;
        // SAFETY: the caller says that the tile is there and that it is nobody else's.
        unsafe { &mut *self.first.add(tile * TILE).cast() }
    }
}

/// Memory of a tile, line by line.
pub(super) type Room<'a> = &'a mut [MaybeUninit<[u32; LINE]>; TILE / LINE];

/// Known properties of elements.
#[derive(Clone, Copy)]
pub(super) struct KnownElements {
    /// All of them, or-ed.
    pub(super) low: u32,
    /// At most the smallest magnitude's pattern minus one, so that zero is the largest.
    pub(super) least: u32,
    /// The largest magnitude's pattern.
    pub(super) most: u32,
}

impl KnownElements {
    pub(super) const NOTHING: Self = Self {
        low: 0,
        least: u32::MAX,
        most: 0,
    };

    /// The properties of all elements of two parts.
    pub(super) fn and(
        left: Result<Self, QuantizeError>,
        right: Result<Self, QuantizeError>,
    ) -> Result<Self, QuantizeError> {
        let (left, right) = (left?, right?);
        Ok(Self {
            low: left.low | right.low,
            least: left.least.min(right.least),
            most: left.most.max(right.most),
        })
    }
}

/// The tiles of a piece.
pub(super) struct Target<'a> {
    pub(super) plan: &'a PiecePlan,
    pub(super) piece: &'a Piece,
    pub(super) tiles: Tiles,
    pub(super) seen: &'a mut KnownElements,
}

impl Target<'_> {
    /// Writes quantized values, `[matrices, free, summed]` if the summed axis is the dense one, else
    /// `[matrices, summed, free]`.
    pub(super) fn convert(&mut self, values: &[f32]) {
        dispatch(Convert {
            values,
            target: self,
        });
    }
}

/// [`Target::convert`].
struct Convert<'a, 'b> {
    values: &'a [f32],
    target: &'a mut Target<'b>,
}

impl Kernel for Convert<'_, '_> {
    #[inline(always)]
    fn run(self) {
        let Self { values, target } = self;
        let Target {
            plan,
            piece,
            tiles,
            ref mut seen,
        } = *target;
        // In registers: the compiler does not vectorize reductions of what lies behind a pointer.
        let KnownElements {
            mut low,
            mut least,
            mut most,
        } = **seen;
        for x in values {
            let bits = x.to_bits();
            low |= bits;
            least = least.min((bits & ABS).wrapping_sub(1));
            most = most.max(bits & ABS);
        }
        **seen = KnownElements { low, least, most };
        let (free, summed) = (piece.free.len(), piece.summed.len());
        let (first_free, first_summed) = (piece.free.start / FREE, piece.summed.start / SUMMED);
        let matrices = values.chunks_exact(free * summed);
        for (matrix, values) in piece.matrices.clone().zip(matrices) {
            for i in 0..free.div_ceil(FREE) {
                for j in 0..summed.div_ceil(SUMMED) {
                    // SAFETY: pieces begin at tiles' beginnings, so that the tile is in this piece alone; the panels
                    // outlive the work on them.
                    let tile = unsafe { tiles.tile(matrix, first_free + i, first_summed + j) };
                    let free_left = FREE.min(free - i * FREE);
                    let summed_left = SUMMED.min(summed - j * SUMMED);
                    // Whole tiles with their lengths as constants, so that a row is one or two vectors.
                    let is_whole = (free_left, summed_left) == (FREE, SUMMED);
                    match plan.rows {
                        true => {
                            let values = &values[i * FREE * summed + j * SUMMED..];
                            match is_whole {
                                true => rows(tile, values, summed, FREE, SUMMED),
                                false => rows(tile, values, summed, free_left, summed_left),
                            }
                        }
                        false => {
                            let values = &values[j * SUMMED * free + i * FREE..];
                            match is_whole {
                                true => columns(tile, values, free, SUMMED, FREE),
                                false => columns(tile, values, free, summed_left, free_left),
                            }
                        }
                    }
                    // A left operand's tile has rows, a right one's pairs of rows.
                    if plan.rows != (plan.side == Side::Lhs) {
                        transpose(tile);
                    }
                }
            }
        }
    }
}

/// A tile, row by row, of up to 16 rows that lie `stride` apart and have `length` elements left.
#[inline(always)]
fn rows(tile: &mut [u32; TILE], values: &[f32], stride: usize, count: usize, length: usize) {
    let (lines, _) = tile.as_chunks_mut::<PAIRS>();
    for (i, line) in lines.iter_mut().take(count).enumerate() {
        let row = first::<SUMMED>(&values[i * stride..], length);
        for p in 0..PAIRS {
            line[p] = word(row[2 * p].to_bits(), row[2 * p + 1].to_bits());
        }
    }
}

/// A tile, pair of rows by pair of rows, of up to 32 rows that lie `stride` apart and have `length` elements left.
#[inline(always)]
fn columns(tile: &mut [u32; TILE], values: &[f32], stride: usize, count: usize, length: usize) {
    let (lines, _) = tile.as_chunks_mut::<FREE>();
    for (p, line) in lines.iter_mut().take(count.div_ceil(2)).enumerate() {
        let even = first::<FREE>(&values[2 * p * stride..], length);
        let odd = match 2 * p + 1 < count {
            true => first::<FREE>(&values[(2 * p + 1) * stride..], length),
            false => [0.0; FREE],
        };
        for i in 0..FREE {
            line[i] = word(even[i].to_bits(), odd[i].to_bits());
        }
    }
}

/// The first `N` elements of a row that has `length`, and zeros where it ends.
#[inline(always)]
fn first<const N: usize>(row: &[f32], length: usize) -> [f32; N] {
    match row.first_chunk() {
        Some(row) if length >= N => *row,
        _ => {
            let mut padded = [0.0; N];
            padded[..length].copy_from_slice(&row[..length]);
            padded
        }
    }
}
