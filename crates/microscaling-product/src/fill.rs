//! Quantizing operands straight into panels.

use super::matrices::Matrices;
use super::panels::{Panels, Side};
use super::piece_plan::{PiecePlan, Pieces};
use super::sources::{Line, PieceSource, Quantized, Written};
use super::tiles::{KnownElements, Target, Tiles};
use crate::PanelsError;
use alloc::vec::Vec;
use microscaling::Rounding;
use microscaling::internal::bits::INFINITY;
use microscaling::{OperandQuantization, QuantizeError};
use microscaling_processor::threads::share;

impl Panels {
    /// Quantizes an operand into panels: one pass over memory, and one pass before it for a tensor scale. The threads of
    /// the current rayon pool share the work on large operands (feature `rayon`). The elements are rounded by
    /// [`round_slice`](microscaling::FloatFormat::round_slice), transformed by
    /// [`RandomHadamard::transform`](microscaling::RandomHadamard::transform) with `group` as the length of the axis, multiplied by
    /// the factor, and then quantized by [`BlockFormat::quantize`](microscaling::BlockFormat::quantize). All matrices together have
    /// one tensor scale, which stays beside them and multiplies the product. The draw of an element for stochastic blocks is the word
    /// of the [stream](OperandQuantization::stream) at the element's index in the matrices' [data](Matrices::data).
    ///
    /// # Errors
    /// See [`PanelsError`]. Whether every element is a bfloat16 number is known only after all of them are quantized.
    ///
    /// # Panics
    /// If the panels are larger than all memory.
    pub fn quantize(
        side: Side,
        matrices: Matrices<'_>,
        quantization: OperandQuantization,
    ) -> Result<Self, PanelsError> {
        check(&quantization)?;
        matrices.check()?;
        let lengths = [
            matrices.starts.len(),
            matrices.free.length,
            matrices.summed.length,
        ];
        if lengths.contains(&0) {
            return Ok(Self::with_room(side, lengths));
        }
        let (plan, source) = Quantized::of(side, matrices, quantization)?;
        let scale = source.tensor_scale.unwrap_or(1.0);
        let mut panels = Self::filled(lengths, &plan, &source)?;
        panels.scale = scale;
        Ok(panels)
    }

    /// Panels of values that `write` gives, line by line. `lengths` are the number of matrices, the length of the free axis
    /// and the length of the summed axis. Lines lie along the `dense` axis. `write` gets each line in parts, on any thread;
    /// values that it does not write are zero.
    ///
    /// # Errors
    /// [`PanelsError::Inexact`].
    ///
    /// # Panics
    /// If the panels are larger than all memory.
    pub fn from_lines(
        side: Side,
        dense: DenseAxis,
        lengths: [usize; 3],
        write: impl Fn(Line, &mut [f32]) + Sync,
    ) -> Result<Self, PanelsError> {
        if lengths.contains(&0) {
            return Ok(Self::with_room(side, lengths));
        }
        let rows = dense == DenseAxis::Summed;
        let plan = PiecePlan::new(side, rows, lengths, [1, 1]);
        Self::filled(lengths, &plan, &Written { rows, write })
    }

    /// Panels with what the source gives.
    fn filled(
        lengths: [usize; 3],
        plan: &PiecePlan,
        source: &impl PieceSource,
    ) -> Result<Self, PanelsError> {
        let mut panels = Self::with_room(plan.side, lengths);
        let tiles = Tiles {
            first: panels.room(),
            per_matrix: panels.free_tiles(),
            summed: panels.summed_tiles(),
        };
        let fill = |pieces: Pieces<'_>| fill(pieces, source, tiles);
        let seen = share(plan.all(), &fill, &KnownElements::and)?;
        // SAFETY: every tile is in a piece, and was written in the course of the work on this piece.
        unsafe { panels.set_filled() };
        if seen.low & 0xffff != 0 {
            return Err(PanelsError::Inexact);
        }
        panels.least = seen.least.saturating_add(1).min(INFINITY);
        panels.most = seen.most;
        Ok(panels)
    }
}

/// An error for formats and roundings that panels cannot have.
fn check(quantization: &OperandQuantization) -> Result<(), PanelsError> {
    if let Some((format, _)) = quantization.blocks {
        format.validate().map_err(QuantizeError::from)?;
    }
    if let Some((transform, _)) = quantization.hadamard {
        transform.validate().map_err(QuantizeError::from)?;
    }
    match quantization.elementwise {
        Some((_, Rounding::Stochastic)) => Err(PanelsError::Stochastic),
        _ => Ok(()),
    }
}

/// The axis along which lines of an operand lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenseAxis {
    /// The free axis, which the result has, too.
    Free,
    /// The summed axis.
    Summed,
}

/// Quantizes some pieces and writes their tiles.
fn fill(
    pieces: Pieces<'_>,
    source: &impl PieceSource,
    tiles: Tiles,
) -> Result<KnownElements, QuantizeError> {
    let mut seen = KnownElements::NOTHING;
    let mut values = Vec::new();
    for piece in pieces.each() {
        let mut target = Target {
            plan: pieces.plan,
            piece: &piece,
            tiles,
            seen: &mut seen,
        };
        source.write(&mut target, &mut values)?;
    }
    Ok(seen)
}
