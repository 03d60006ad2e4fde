//! The sources that fill the pieces of an operand.

use super::matrices::Matrices;
use super::panels::{FREE, SUMMED, Side};
use super::piece_plan::{Piece, PiecePlan, Pieces, gcd};
use super::tile_blocks::{TileBlocks, TileDraws, tile_blocks};
use super::tiles::Target;
use crate::PanelsError;
use alloc::vec::Vec;
use microscaling::internal::{
    LineFactors, PartStream, PlainBlocks, RoundingRule, is_large, largest, with_rule,
};
use microscaling::{BlockFormat, OperandQuantization, QuantizeError, RandomHadamard, Rounding};
use microscaling_processor::instruction_set::{Kernel, dispatch};
use microscaling_processor::threads::share;

/// A source of pieces.
pub(super) trait PieceSource: Sync {
    /// Writes a piece into its tiles. `values` are room for a copy.
    fn write(&self, target: &mut Target<'_>, values: &mut Vec<f32>) -> Result<(), QuantizeError>;
}

/// Values in memory, and the steps that they go through.
pub(super) struct Quantized<'a> {
    matrices: Matrices<'a>,
    quantization: OperandQuantization,
    /// Where the format has one.
    pub(super) tensor_scale: Option<f32>,
    rows: bool,
    /// After how many elements blocks begin anew in a piece; `None` if its blocks are all whole.
    group: Option<usize>,
    /// The blocks and the rounding of [`TileBlocks`].
    of_tiles: Option<(PlainBlocks, Rounding)>,
    /// The transform, and the factors of the elements of a group.
    transform: Option<(RandomHadamard, LineFactors)>,
}

impl<'a> Quantized<'a> {
    /// With the pieces that go with it.
    ///
    /// # Errors
    /// [`PanelsError::TensorScale`] if the tensor scale is NaN, Inf, or so small that dividing by it changes the
    /// elements.
    pub(super) fn of(
        side: Side,
        matrices: Matrices<'a>,
        quantization: OperandQuantization,
    ) -> Result<(PiecePlan, Self), PanelsError> {
        let Matrices {
            free,
            summed,
            group,
            ..
        } = matrices;
        // Along which axis a copy takes long stretches of memory.
        let rows = summed.is_dense() && !(free.is_dense() && group < summed.length);
        let format = quantization.blocks.map(|(format, _)| format);
        // Blocks as long as the axis are as long as a group.
        let block = match quantization.blocks {
            None => Some(1),
            Some((format, Rounding::Stochastic)) if format.eden => Some(BlockFormat::EDEN_GROUP),
            Some((format, _)) => Some(format.group_size()).filter(|block| *block > 0),
        };
        let (hadamard, factor) = (quantization.hadamard, quantization.factor);
        // A piece has blocks of both.
        let block = match (block, hadamard) {
            (Some(block), Some((RandomHadamard { block_size }, _))) => {
                Some(block / gcd(block, block_size) * block_size)
            }
            _ => block,
        };
        // A piece's place in its group decides about signs.
        let whole_blocks = group == summed.length
            || hadamard.is_none() && block.is_some_and(|block| group.is_multiple_of(block));
        let unit = match block {
            Some(block) if whole_blocks => block.min(group),
            _ => group,
        };
        let is_square = format.is_some_and(|format| format.square);
        if is_square && group < summed.length {
            return Err(PanelsError::SquareGroups {
                group,
                summed: summed.length,
            });
        }
        let free_unit = match block {
            Some(block) if is_square => block.min(free.length),
            _ => 1,
        };
        let lengths = [matrices.starts.len(), free.length, summed.length];
        let plan = PiecePlan::new(side, rows, lengths, [free_unit, unit]);
        let mut source = Self {
            matrices,
            quantization,
            tensor_scale: None,
            rows,
            group: (!whole_blocks).then_some(group),
            of_tiles: None,
            transform: hadamard
                .map(|(transform, signs)| (transform, transform.line_factors(group, signs, false))),
        };
        let amax = || match hadamard.is_some() || factor.is_some() {
            true => share(plan.all(), &|pieces| source.largest(pieces), &u32::max),
            false => {
                let amax = f32::from_bits(matrices.largest(rows));
                let rounded = quantization
                    .elementwise
                    .map(|(format, rounding)| format.round(amax, rounding, 0));
                rounded.unwrap_or(amax).to_bits()
            }
        };
        let tensor_scale = format.and_then(|format| format.tensor_scale(amax));
        if let Some(tensor_scale) = tensor_scale
            && !(tensor_scale.is_finite() && is_large(tensor_scale))
        {
            return Err(PanelsError::TensorScale { tensor_scale });
        }
        source.tensor_scale = tensor_scale;
        let is_random = |rounding| rounding == Rounding::Stochastic;
        source.of_tiles = quantization.blocks.and_then(|(format, rounding)| {
            let is_corrected = format.eden && is_random(rounding);
            let is_plain = whole_blocks && !is_square && !is_corrected;
            let blocks = tile_blocks(&format, tensor_scale).filter(|_| is_plain)?;
            Some((blocks, rounding))
        });
        Ok((plan, source))
    }

    /// The largest magnitude of some pieces before they are quantized in blocks, as a pattern.
    fn largest(&self, pieces: Pieces<'_>) -> u32 {
        let mut values = Vec::new();
        let of_piece = |piece| {
            self.prepare(&piece, &mut values);
            largest(&values)
        };
        pieces.each().map(of_piece).max().unwrap_or(0)
    }

    /// Copies a piece as it lies in memory, and does all steps with the copy that come before its quantization in blocks.
    fn prepare(&self, piece: &Piece, values: &mut Vec<f32>) {
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
        if let Some((format, rounding)) = self.quantization.elementwise {
            format.round_slice(values, rounding.with(self.quantization.stream));
        }
        if let Some((transform, factors)) = &self.transform {
            let places = match self.group {
                Some(group) => 0..group,
                None => piece.summed.clone(),
            };
            let inner = if self.rows { 1 } else { inner.len() };
            transform.transform_part(values, inner, factors, places);
        }
        if let Some(factor) = self.quantization.factor {
            dispatch(Multiply { values, factor });
        }
    }
}

/// Multiplies all values by a number.
struct Multiply<'a> {
    values: &'a mut [f32],
    factor: f32,
}

impl Kernel for Multiply<'_> {
    #[inline(always)]
    fn run(self) {
        for x in self.values {
            *x *= self.factor;
        }
    }
}

impl Quantized<'_> {
    /// Whether anything comes before the quantization in blocks.
    fn is_prepared(&self) -> bool {
        let OperandQuantization {
            elementwise,
            hadamard,
            factor,
            ..
        } = self.quantization;
        elementwise.is_some() || hadamard.is_some() || factor.is_some()
    }

    /// Where the piece's part of each matrix begins in memory.
    fn places(&self, piece: &Piece) -> impl Iterator<Item = usize> {
        let Matrices {
            starts,
            free,
            summed,
            ..
        } = self.matrices;
        let first = piece.free.start * free.stride + piece.summed.start * summed.stride;
        let starts = starts[piece.matrices.clone()].iter();
        starts.map(move |start| start + first)
    }

    /// The length of a line of a piece, and how far apart lines begin in memory.
    fn lines(&self, piece: &Piece) -> [usize; 2] {
        match self.rows {
            true => [piece.summed.len(), self.matrices.free.stride],
            false => [piece.free.len(), self.matrices.summed.stride],
        }
    }

    /// Writes [`TileBlocks`] of a piece, from its copy if there is one. Returns whether all of the piece is written.
    fn write_tile_blocks(&self, target: &mut Target<'_>, copy: Option<&[f32]>) -> bool {
        let piece = target.piece;
        let (free, summed) = (piece.free.len(), piece.summed.len());
        let is_whole = free.is_multiple_of(FREE) && summed.is_multiple_of(SUMMED);
        let Some((blocks, rounding)) = self.of_tiles.filter(|_| is_whole) else {
            return false;
        };
        let places: Vec<usize> = self.places(piece).collect();
        let [line, apart] = self.lines(piece);
        let in_copy: Vec<usize> = match copy {
            Some(_) => (0..places.len()).map(|i| i * free * summed).collect(),
            None => Vec::new(),
        };
        let (data, starts, stride) = match copy {
            Some(copy) => (copy, &in_copy, line),
            None => (self.matrices.data, &places, apart),
        };
        let draws = TileDraws {
            stream: self.quantization.stream,
            starts: &places,
            stride: apart,
        };
        let mut done = false;
        macro_rules! tiles {
            ($of_line:literal, $draws:expr, $rounding:expr) => {
                dispatch(TileBlocks::<_, _, $of_line, { $draws }> {
                    blocks,
                    rounding: $rounding,
                    data,
                    starts,
                    stride,
                    draws,
                    plan: target.plan,
                    piece,
                    tiles: target.tiles,
                    seen: target.seen,
                    done: &mut done,
                })
            };
        }
        with_rule!(rounding, R => match blocks.has_powers_of_two() {
            true => tiles!(1, R::USES_DRAWS, blocks.by_powers::<R>()),
            false => tiles!(2, R::USES_DRAWS, blocks.by_floats::<R>()),
        });
        done
    }

    /// Quantizes the copy of a piece in blocks.
    fn quantize(&self, piece: &Piece, values: &mut [f32]) -> Result<(), QuantizeError> {
        let Some((format, rounding)) = self.quantization.blocks else {
            return Ok(());
        };
        let (free, summed) = (piece.free.len(), piece.summed.len());
        let group = self.group.unwrap_or(summed);
        let groups = summed / group;
        let quantize = |values: &mut [f32], count, stream| {
            let shape = match (self.rows, format.square) {
                // Their two axes are the second and the third one.
                (true, true) => [count, free, summed, 1],
                (false, true) => [count, summed, free, 1],
                (true, false) => [count * free, groups, group, 1],
                (false, false) => [count, groups, group, free],
            };
            format.quantize_part(self.tensor_scale, values, &shape, 2, rounding, stream)
        };
        let stream = self.quantization.stream;
        if rounding != Rounding::Stochastic {
            return quantize(values, piece.matrices.len(), stream.into());
        }
        // Matrices may lie anywhere.
        let lines = self.lines(piece).map(|length| length as u64);
        let matrices = values.chunks_exact_mut(free * summed);
        for (place, values) in self.places(piece).zip(matrices) {
            quantize(values, 1, PartStream::new(stream, place as u64, lines))?;
        }
        Ok(())
    }
}

impl PieceSource for Quantized<'_> {
    /// Quantizes a piece in a copy of what lies in memory, unless its blocks are quantized on their way into the tiles.
    fn write(&self, target: &mut Target<'_>, values: &mut Vec<f32>) -> Result<(), QuantizeError> {
        let piece = target.piece;
        let is_prepared = self.is_prepared();
        if is_prepared {
            self.prepare(piece, values);
        }
        if self.write_tile_blocks(target, is_prepared.then_some(&values[..])) {
            return Ok(());
        }
        if !is_prepared {
            self.prepare(piece, values);
        }
        self.quantize(piece, values)?;
        target.convert(values);
        Ok(())
    }
}

/// Values that a function writes, line by line along the dense axis.
pub(super) struct Written<F> {
    pub(super) rows: bool,
    pub(super) write: F,
}

impl<F: Fn(Line, &mut [f32]) + Sync> PieceSource for Written<F> {
    fn write(&self, target: &mut Target<'_>, values: &mut Vec<f32>) -> Result<(), QuantizeError> {
        let piece = target.piece;
        let (outer, inner) = match self.rows {
            true => (piece.free.clone(), piece.summed.clone()),
            false => (piece.summed.clone(), piece.free.clone()),
        };
        values.clear();
        values.resize(piece.matrices.len() * outer.len() * inner.len(), 0.0);
        let mut lines = values.chunks_exact_mut(inner.len());
        for matrix in piece.matrices.clone() {
            for (index, values) in outer.clone().zip(&mut lines) {
                let start = inner.start;
                let line = Line {
                    matrix,
                    index,
                    start,
                };
                (self.write)(line, values);
            }
        }
        target.convert(values);
        Ok(())
    }
}

/// A part of a line along the dense axis of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// Number of the matrix.
    pub matrix: usize,
    /// Which line it is: its position along the other axis.
    pub index: usize,
    /// Where along the line it begins.
    pub start: usize,
}
