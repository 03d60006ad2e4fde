//! Quantizing operands straight into panels.

use super::panels::{FREE, PAIRS, Panels, SUMMED, Side, TILE, word};
use super::path::ProductPath;
use super::transpose::transpose;
use crate::quantize::instruction_set::{Kernel, dispatch};
use crate::quantize::threads::{Divide, share};
use crate::round::bits::ABS;
use crate::{BlockFormat, FloatFormat, QuantizeError, RandomStream, Rounding};
use alloc::{string::String, vec::Vec};
use core::ops::Range;
use thiserror::Error;

/// An axis of a matrix in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    /// Number of elements.
    pub length: usize,
    /// How far the next element is.
    pub stride: usize,
}

/// Matrices in memory, all of the same lengths and strides, as an operand of products. Rows or columns of each lie
/// without gaps: one of the axes has stride 1.
#[derive(Debug, Clone, Copy)]
pub struct Matrices<'a> {
    /// The memory that they lie in.
    pub data: &'a [f32],
    /// Where each of them begins.
    pub starts: &'a [usize],
    /// The axis that the result has, too: the rows of a left operand, the columns of a right one.
    pub free: Axis,
    /// The axis that is summed over.
    pub summed: Axis,
    /// Blocks begin anew after so many elements along the summed axis: its length, or a divisor of it where it is
    /// several axes taken as one.
    pub group: usize,
}

/// What is done to the elements of an operand on the way. No rounding is stochastic, and no format has a tensor scale:
/// such operands are quantized before.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct OperandQuantization {
    /// Rounding to a float format, which comes first.
    pub elementwise: Option<(FloatFormat, Rounding)>,
    /// Rounding to a block format, in blocks along the summed axis.
    pub blocks: Option<(BlockFormat, Rounding)>,
}

/// Why there are no panels.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum PanelsError {
    /// The format or the lengths are wrong.
    #[error(transparent)]
    Quantize(#[from] QuantizeError),
    /// The quantization takes the whole tensor at once: it draws random numbers or has a tensor scale.
    #[error(
        "an operand that is quantized as a whole, by random numbers or a tensor scale, is no panels'"
    )]
    Whole,
    /// Neither axis has stride 1, or `group` is no divisor of the summed axis, or `data` ends before a matrix does.
    #[error(
        "matrices with free axis {free:?}, summed axis {summed:?} in groups of {group} do not lie in rows or columns within {length} elements"
    )]
    Layout {
        /// The free axis.
        free: Axis,
        /// The summed axis.
        summed: Axis,
        /// The length of a group.
        group: usize,
        /// Number of elements in memory.
        length: usize,
    },
    /// Two operands that make no product, or a result of another length.
    #[error("product of {lhs} and {rhs}: the pairs' results have {expected} elements, got {got}")]
    Product {
        /// The left operand.
        lhs: String,
        /// The right operand.
        rhs: String,
        /// Elements of the results.
        expected: usize,
        /// Elements that there is room for.
        got: usize,
    },
    /// This processor does not have the path.
    #[error("product path `{path}` is not available on this processor")]
    Path {
        /// The path.
        path: ProductPath,
    },
    /// A quantized element has more than 8 significant bits, or is a subnormal that bfloat16 does not have: bfloat16 would
    /// be another number.
    #[error("an element is no bfloat16 number")]
    Inexact,
}

impl Panels {
    /// Quantizes an operand into panels: one pass over memory, which `matrices` are read in. Large ones are worked on by
    /// the threads of the current rayon pool (feature `rayon`). The elements are what [`FloatFormat::round_slice`] and
    /// then [`BlockFormat::quantize`] make of them.
    ///
    /// # Errors
    /// See [`PanelsError`]. That an element is no bfloat16 number is known when all of them are quantized.
    pub fn quantize(
        side: Side,
        matrices: Matrices<'_>,
        quantization: OperandQuantization,
    ) -> Result<Self, PanelsError> {
        quantization.check()?;
        matrices.check()?;
        let mut panels = Self::zeros(
            side,
            matrices.starts.len(),
            matrices.free.length,
            matrices.summed.length,
        );
        if panels.words().is_empty() {
            return Ok(panels);
        }
        let plan = Plan::of(side, matrices, quantization);
        let tiles = Tiles {
            first: panels.words_mut().as_mut_ptr(),
            per_matrix: panels.free_tiles(),
            summed: panels.summed_tiles(),
        };
        let work = Pieces {
            plan: &plan,
            tiles,
            range: 0..plan.pieces(),
        };
        let seen = share(work, &|work| work.fill(), &Seen::and)?;
        if seen.low & 0xffff != 0 {
            return Err(PanelsError::Inexact);
        }
        panels.least = seen.least.saturating_add(1).min(f32::INFINITY.to_bits());
        Ok(panels)
    }
}

impl OperandQuantization {
    fn check(&self) -> Result<(), PanelsError> {
        if let Some((format, _)) = self.blocks {
            format.validate().map_err(QuantizeError::from)?;
        }
        let roundings = [
            self.elementwise.map(|(_, rounding)| rounding),
            self.blocks.map(|(_, rounding)| rounding),
        ];
        let whole = roundings.contains(&Some(Rounding::Stochastic))
            || self
                .blocks
                .is_some_and(|(format, _)| format.has_tensor_scale());
        match whole {
            true => Err(PanelsError::Whole),
            false => Ok(()),
        }
    }
}

impl Matrices<'_> {
    fn check(&self) -> Result<(), PanelsError> {
        let Self {
            data,
            starts,
            free,
            summed,
            group,
        } = *self;
        let last = |axis: Axis| axis.length.checked_sub(1)?.checked_mul(axis.stride);
        let ends = |start: usize| match (last(free), last(summed)) {
            (Some(free), Some(summed)) => {
                let end = start.checked_add(free)?.checked_add(summed);
                end.filter(|end| *end < data.len())
            }
            // Without elements, or beyond all memory.
            _ => (free.length == 0 || summed.length == 0).then_some(0),
        };
        let lies = [free, summed].iter().any(|axis| axis.is_dense());
        let divides = group > 0 && summed.length.is_multiple_of(group);
        let sound = lies
            && (divides || summed.length == 0)
            && starts.iter().all(|start| ends(*start).is_some());
        match sound {
            true => Ok(()),
            false => Err(PanelsError::Layout {
                free,
                summed,
                group,
                length: data.len(),
            }),
        }
    }
}

impl Axis {
    /// Whether neighbours along the axis are neighbours in memory.
    fn is_dense(&self) -> bool {
        self.stride == 1 || self.length <= 1
    }
}

/// Elements along a dense summed axis that are worked on together, in the cache nearest to the core.
const LONG: usize = 256;
/// Elements along a summed axis that is not dense that may be worked on together.
const PIECE: usize = 4096;
/// Elements along the summed axis above which all of them are one piece.
const LONGEST: usize = 1024;

/// How matrices are cut into pieces that are quantized one by one: whole blocks, and whole tiles.
struct Plan<'a> {
    side: Side,
    matrices: Matrices<'a>,
    quantization: OperandQuantization,
    /// Whether the summed axis is the dense one.
    rows: bool,
    /// After how many elements blocks begin anew in a piece; `None` if its blocks are all whole.
    group: Option<usize>,
    /// Elements of a piece along the summed axis, a multiple of a tile's, or all of them.
    summed: usize,
    /// Elements of a piece along the free axis, a multiple of a tile's.
    free: usize,
}

impl<'a> Plan<'a> {
    fn of(side: Side, matrices: Matrices<'a>, quantization: OperandQuantization) -> Self {
        let Matrices {
            free,
            summed,
            group,
            ..
        } = matrices;
        // Along which axis a copy takes long stretches of memory.
        let rows = summed.is_dense() && !(free.is_dense() && group < summed.length);
        // Blocks as long as the axis are as long as a group.
        let block = match quantization.blocks.map(|(format, _)| format.block_size()) {
            None => Some(1),
            Some(0) => None,
            Some(block) => Some(block),
        };
        let whole_blocks =
            group == summed.length || block.is_some_and(|block| group.is_multiple_of(block));
        let unit = match block {
            Some(block) if whole_blocks => block.min(group),
            _ => group,
        };
        let step = unit / gcd(unit, SUMMED) * SUMMED;
        let wanted = if rows { LONG } else { SUMMED };
        let piece = match step > LONGEST {
            true => summed.length,
            false => (step * (wanted / step).max(1)).min(summed.length),
        };
        let free = match rows {
            true => FREE,
            false => FREE * (PIECE / (FREE * piece)).clamp(1, free.length.div_ceil(FREE)),
        };
        Self {
            side,
            matrices,
            quantization,
            rows,
            group: (!whole_blocks).then_some(group),
            summed: piece,
            free,
        }
    }

    /// Number of pieces along the free and the summed axis.
    fn per_matrix(&self) -> [usize; 2] {
        let Matrices { free, summed, .. } = self.matrices;
        [
            free.length.div_ceil(self.free),
            summed.length.div_ceil(self.summed),
        ]
    }

    fn pieces(&self) -> usize {
        let [free, summed] = self.per_matrix();
        self.matrices.starts.len() * free * summed
    }

    /// A piece by its number: neighbours in memory have neighbouring numbers.
    fn piece(&self, number: usize) -> Piece {
        let [free_pieces, summed_pieces] = self.per_matrix();
        let (matrix, number) = (
            number / (free_pieces * summed_pieces),
            number % (free_pieces * summed_pieces),
        );
        let (free, summed) = match self.rows {
            true => (number / summed_pieces, number % summed_pieces),
            false => (number % free_pieces, number / free_pieces),
        };
        let range = |piece: usize, step: usize, length: usize| {
            let start = piece * step;
            start..length.min(start + step)
        };
        Piece {
            matrix,
            free: range(free, self.free, self.matrices.free.length),
            summed: range(summed, self.summed, self.matrices.summed.length),
        }
    }

    /// Copies a piece, `[free, summed]` or `[summed, free]`, whichever lies so in memory, and quantizes it.
    fn quantize(&self, piece: &Piece, values: &mut Vec<f32>) -> Result<(), QuantizeError> {
        let Matrices {
            data,
            starts,
            free,
            summed,
            ..
        } = self.matrices;
        let (outer, inner, stride) = match self.rows {
            true => (piece.free.clone(), piece.summed.clone(), free.stride),
            false => (piece.summed.clone(), piece.free.clone(), summed.stride),
        };
        values.clear();
        for i in outer.clone() {
            let start = starts[piece.matrix] + i * stride + inner.start;
            values.extend_from_slice(&data[start..start + inner.len()]);
        }
        // No rounding draws any.
        let stream = RandomStream::new(0, 0);
        if let Some((format, rounding)) = self.quantization.elementwise {
            format.round_slice(values, rounding.with(stream));
        }
        let Some((format, rounding)) = self.quantization.blocks else {
            return Ok(());
        };
        let group = self.group.unwrap_or(piece.summed.len());
        let groups = piece.summed.len() / group;
        let shape = match self.rows {
            true => [outer.len(), groups, group, 1],
            false => [1, groups, group, inner.len()],
        };
        format.quantize(values, &shape, 2, rounding.with(stream))
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A part of a matrix.
struct Piece {
    matrix: usize,
    free: Range<usize>,
    summed: Range<usize>,
}

/// Where the tiles of panels lie.
#[derive(Clone, Copy)]
struct Tiles {
    first: *mut u32,
    /// Tiles of a matrix along the free axis.
    per_matrix: usize,
    /// Tiles along the summed axis.
    summed: usize,
}

// SAFETY: every tile is written in the course of one piece, and pieces have no tile in common, so no two threads get
// the same one.
unsafe impl Send for Tiles {}

impl Tiles {
    /// A tile of a matrix.
    ///
    /// # Safety
    /// The panels must live, have this tile, and nobody else may hold it.
    unsafe fn tile<'a>(self, matrix: usize, free: usize, summed: usize) -> &'a mut [u32; TILE] {
        debug_assert!(free < self.per_matrix && summed < self.summed);
        let tile = (matrix * self.per_matrix + free) * self.summed + summed;
        // SAFETY: the caller says that the tile is there and that it is nobody else's.
        unsafe { &mut *self.first.add(tile * TILE).cast() }
    }
}

/// What is known of elements.
#[derive(Clone, Copy)]
struct Seen {
    /// All of them, or-ed.
    low: u32,
    /// The smallest magnitude's pattern minus one, so that zero is the largest.
    least: u32,
}

impl Seen {
    const NOTHING: Self = Self {
        low: 0,
        least: u32::MAX,
    };

    fn and(
        left: Result<Self, QuantizeError>,
        right: Result<Self, QuantizeError>,
    ) -> Result<Self, QuantizeError> {
        let (left, right) = (left?, right?);
        Ok(Self {
            low: left.low | right.low,
            least: left.least.min(right.least),
        })
    }
}

/// Some pieces, and where they go.
struct Pieces<'a> {
    plan: &'a Plan<'a>,
    tiles: Tiles,
    range: Range<usize>,
}

impl Divide for Pieces<'_> {
    fn elements(&self) -> usize {
        self.range.len() * self.plan.free * self.plan.summed
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

impl Pieces<'_> {
    /// Quantizes the pieces and writes their tiles.
    fn fill(self) -> Result<Seen, QuantizeError> {
        let Self { plan, tiles, range } = self;
        let mut seen = Seen::NOTHING;
        let mut values = Vec::new();
        for number in range {
            let piece = plan.piece(number);
            plan.quantize(&piece, &mut values)?;
            dispatch(Convert {
                values: &values,
                plan,
                piece: &piece,
                tiles,
                seen: &mut seen,
            });
        }
        Ok(seen)
    }
}

/// Writes the tiles of a quantized piece.
struct Convert<'a> {
    values: &'a [f32],
    plan: &'a Plan<'a>,
    piece: &'a Piece,
    tiles: Tiles,
    seen: &'a mut Seen,
}

impl Kernel for Convert<'_> {
    #[inline(always)]
    fn run(self) {
        let Self {
            values,
            plan,
            piece,
            tiles,
            seen,
        } = self;
        for x in values {
            let bits = x.to_bits();
            seen.low |= bits;
            seen.least = seen.least.min((bits & ABS).wrapping_sub(1));
        }
        let (free, summed) = (piece.free.len(), piece.summed.len());
        let (first_free, first_summed) = (piece.free.start / FREE, piece.summed.start / SUMMED);
        for i in 0..free.div_ceil(FREE) {
            for j in 0..summed.div_ceil(SUMMED) {
                // SAFETY: pieces begin at tiles' beginnings, so that the tile is in this piece alone; the panels
                // outlive the work on them.
                let tile = unsafe { tiles.tile(piece.matrix, first_free + i, first_summed + j) };
                let (free_left, summed_left) = (free - i * FREE, summed - j * SUMMED);
                match plan.rows {
                    true => {
                        let values = &values[i * FREE * summed + j * SUMMED..];
                        rows(tile, values, summed, free_left.min(FREE), summed_left);
                    }
                    false => {
                        let values = &values[j * SUMMED * free + i * FREE..];
                        columns(tile, values, free, free_left, summed_left.min(SUMMED));
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
fn columns(tile: &mut [u32; TILE], values: &[f32], stride: usize, length: usize, count: usize) {
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
