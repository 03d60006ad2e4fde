//! How an operand is cut into pieces that are quantized one by one.

use super::fill::OperandQuantization;
use super::matrices::Matrices;
use super::panels::{FREE, SUMMED, Side};
use crate::quantize::rules::is_large;
use crate::{BlockFormat, PanelsError, QuantizeError, RandomStream};
use alloc::vec::Vec;
use core::ops::Range;

/// Elements along a dense summed axis that are worked on together, in the cache nearest to the core.
const LONG: usize = 256;
/// Elements that may be worked on together.
const PIECE: usize = 4096;
/// Elements along the summed axis above which all of them are one piece.
const LONGEST: usize = 1024;

/// How matrices are cut into pieces that are quantized one by one: whole blocks, and whole tiles.
pub(super) struct Plan<'a> {
    pub(super) side: Side,
    pub(super) matrices: Matrices<'a>,
    quantization: OperandQuantization,
    /// Where the format has one.
    pub(super) tensor_scale: Option<f32>,
    /// Whether the summed axis is the dense one.
    pub(super) rows: bool,
    /// After how many elements blocks begin anew in a piece; `None` if its blocks are all whole.
    group: Option<usize>,
    /// Elements of a piece along the summed axis, a multiple of a tile's, or all of them.
    summed: usize,
    /// Elements of a piece along the free axis, a multiple of a tile's.
    free: usize,
    /// Matrices of a piece: several ones only if they are whole.
    together: usize,
}

impl<'a> Plan<'a> {
    /// # Errors
    /// [`PanelsError::Inexact`] if the tensor scale is so small that elements in units of it are others, or no number.
    pub(super) fn of(
        side: Side,
        matrices: Matrices<'a>,
        quantization: OperandQuantization,
    ) -> Result<Self, PanelsError> {
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
        let tiles = (PIECE / (FREE * piece)).clamp(1, free.length.div_ceil(FREE));
        let is_whole = tiles * FREE >= free.length && piece == summed.length;
        let together = match is_whole {
            true => (PIECE / (free.length * summed.length)).max(1),
            false => 1,
        };
        let format = quantization.blocks.map(|(format, _)| format);
        let tensor_scale = format.and_then(|format| {
            format.tensor_scale(|| {
                let amax = f32::from_bits(matrices.largest(rows));
                let rounded = quantization
                    .elementwise
                    .map(|(format, rounding)| format.round(amax, rounding, 0));
                rounded.unwrap_or(amax).to_bits()
            })
        });
        if tensor_scale.is_some_and(|scale| !scale.is_finite() || !is_large(scale)) {
            return Err(PanelsError::Inexact);
        }
        Ok(Self {
            side,
            matrices,
            quantization,
            tensor_scale,
            rows,
            group: (!whole_blocks).then_some(group),
            summed: piece,
            free: tiles * FREE,
            together,
        })
    }

    /// Number of pieces along the free and the summed axis.
    fn per_matrix(&self) -> [usize; 2] {
        let Matrices { free, summed, .. } = self.matrices;
        [
            free.length.div_ceil(self.free),
            summed.length.div_ceil(self.summed),
        ]
    }

    pub(super) fn pieces(&self) -> usize {
        let [free, summed] = self.per_matrix();
        self.matrices.starts.len().div_ceil(self.together) * free * summed
    }

    /// Elements of a piece at most.
    pub(super) fn piece_elements(&self) -> usize {
        self.together * self.free * self.summed
    }

    /// A piece by its number, from 0 on: neighbours in memory have neighbouring numbers.
    pub(super) fn piece(&self, number: usize) -> Piece {
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
        Piece {
            matrices: range(matrices, self.together, self.matrices.starts.len()),
            free: range(free, self.free, self.matrices.free.length),
            summed: range(summed, self.summed, self.matrices.summed.length),
        }
    }

    /// Copies a piece, `[matrices, free, summed]` or `[matrices, summed, free]`, whichever lies so in memory, and quantizes
    /// it.
    pub(super) fn quantize(
        &self,
        piece: &Piece,
        values: &mut Vec<f32>,
    ) -> Result<(), QuantizeError> {
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
        for start in &starts[piece.matrices.clone()] {
            for i in outer.clone() {
                let start = start + i * stride + inner.start;
                values.extend_from_slice(&data[start..start + inner.len()]);
            }
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
        let count = piece.matrices.len();
        let shape = match self.rows {
            true => [count * outer.len(), groups, group, 1],
            false => [count, groups, group, inner.len()],
        };
        let rounder = rounding.with(stream);
        match (format, self.tensor_scale) {
            (BlockFormat::Nvfp4(format), Some(scale)) => {
                format.quantize_in_units_of(scale, values, &shape, 2, rounder)
            }
            _ => format.quantize(values, &shape, 2, rounder),
        }
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A part of a matrix, or several whole ones.
pub(super) struct Piece {
    pub(super) matrices: Range<usize>,
    pub(super) free: Range<usize>,
    pub(super) summed: Range<usize>,
}
