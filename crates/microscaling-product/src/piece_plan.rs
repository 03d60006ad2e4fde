//! How an operand is cut into pieces that are filled one by one.

use super::panels::{FREE, SUMMED, Side};
use core::ops::Range;
use microscaling_processor::threads::Divide;

/// Elements along a dense summed axis that are worked on together, in the cache nearest to the core.
const LONG: usize = 256;
/// Elements that may be worked on together.
const PIECE: usize = 8192;
/// Elements along the summed axis above which all of them are one piece.
const LONGEST: usize = 1024;

/// How matrices are cut into pieces: whole tiles, and whole blocks of a format.
pub(super) struct PiecePlan {
    pub(super) side: Side,
    /// Whether the summed axis is the dense one.
    pub(super) rows: bool,
    /// Number of matrices, and the lengths of their free and summed axes.
    lengths: [usize; 3],
    /// Elements of a piece along the summed axis, a multiple of a tile's, or all of them.
    summed: usize,
    /// Elements of a piece along the free axis, a multiple of a tile's.
    free: usize,
    /// Matrices of a piece: several ones only if they are whole.
    together: usize,
}

/// A part of a matrix, or several whole ones.
pub(super) struct Piece {
    pub(super) matrices: Range<usize>,
    pub(super) free: Range<usize>,
    pub(super) summed: Range<usize>,
}

impl PiecePlan {
    /// Pieces of matrices with elements, whose lengths along the free and the summed axis are multiples of the units, or
    /// all there is.
    pub(super) fn new(
        side: Side,
        rows: bool,
        lengths: [usize; 3],
        [free_unit, unit]: [usize; 2],
    ) -> Self {
        let [_, free, summed] = lengths;
        let step = unit / gcd(unit, SUMMED) * SUMMED;
        let wanted = if rows { LONG } else { SUMMED };
        let piece = match step > LONGEST {
            true => summed,
            false => (step * (wanted / step).max(1)).min(summed),
        };
        let free_step = free_unit / gcd(free_unit, FREE);
        let all_tiles = free.div_ceil(FREE);
        let tiles = match free_step * FREE > LONGEST {
            true => all_tiles,
            false => free_step * (PIECE / (FREE * free_step * piece)).max(1),
        };
        let tiles = tiles.min(all_tiles);
        let is_whole = tiles * FREE >= free && piece == summed;
        let together = match is_whole {
            true => (PIECE / (free * summed)).max(1),
            false => 1,
        };
        Self {
            side,
            rows,
            lengths,
            summed: piece,
            free: tiles * FREE,
            together,
        }
    }

    /// Number of pieces along the free and the summed axis.
    fn per_matrix(&self) -> [usize; 2] {
        let [_, free, summed] = self.lengths;
        [free.div_ceil(self.free), summed.div_ceil(self.summed)]
    }

    /// All pieces.
    pub(super) fn all(&self) -> Pieces<'_> {
        let [free, summed] = self.per_matrix();
        let range = 0..self.lengths[0].div_ceil(self.together) * free * summed;
        Pieces { plan: self, range }
    }

    /// A piece by its number, from 0 on: neighbours in memory have neighbouring numbers.
    fn piece(&self, number: usize) -> Piece {
        let [free_pieces, summed_pieces] = self.per_matrix();
        let per_matrix = free_pieces * summed_pieces;
        let (matrices, number) = (number / per_matrix, number % per_matrix);
        let (free, summed) = match self.rows {
            true => (number / summed_pieces, number % summed_pieces),
            false => (number % free_pieces, number / free_pieces),
        };
        let range = |piece: usize, step: usize, length: usize| {
            let start = piece * step;
            start..length.min(start + step)
        };
        let [all, free_length, summed_length] = self.lengths;
        Piece {
            matrices: range(matrices, self.together, all),
            free: range(free, self.free, free_length),
            summed: range(summed, self.summed, summed_length),
        }
    }
}

/// Some pieces, which neighbour each other.
pub(super) struct Pieces<'a> {
    pub(super) plan: &'a PiecePlan,
    range: Range<usize>,
}

impl Pieces<'_> {
    pub(super) fn each(&self) -> impl Iterator<Item = Piece> {
        self.range.clone().map(|number| self.plan.piece(number))
    }
}

impl Divide for Pieces<'_> {
    fn elements(&self) -> usize {
        let plan = self.plan;
        self.range.len() * plan.together * plan.free * plan.summed
    }

    fn halves(self) -> Result<[Self; 2], Self> {
        let Range { start, end } = self.range;
        let middle = start + (end - start) / 2;
        if middle == start {
            return Err(self);
        }
        Ok([start..middle, middle..end].map(|range| Self { range, ..self }))
    }
}

/// The greatest common divisor.
pub(super) fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
