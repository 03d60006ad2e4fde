//! Quantization of operands piece by piece: a piece is copied if it must be, and goes through all steps while it is in
//! the cache.

use microscaling::internal::LineFactors;
use microscaling::{BlockFormat, OperandQuantization, RandomHadamard, Rounding, Signs};

use super::memory::InMemory;
use super::native::{hadamard, in_order, place_of};
use crate::dense::{mask_dense, operand_dense, steps_dense};

/// The tensor after all steps along an axis.
pub(crate) fn quantize<T: InMemory>(
    tensor: T,
    axis: usize,
    quantization: OperandQuantization,
) -> T {
    if quantization.is_empty() {
        return tensor;
    }
    let blocks = quantization.blocks;
    let (tensor, quantization) = match blocks.is_none_or(is_local) {
        true if tensor.is_row_major() => {
            let pieces = Pieces::of(&tensor.dims(), axis, quantization);
            return tensor.change(pieces.unit, |start, piece| pieces.quantize(start, piece));
        }
        true => (tensor, quantization),
        false => {
            let tensor = quantize(tensor, axis, quantization.before_blocks());
            let quantization = OperandQuantization {
                blocks,
                stream: quantization.stream,
                ..OperandQuantization::default()
            };
            (tensor, quantization)
        }
    };
    in_order(tensor, blocks).change_where_it_lies(|data, shape, order| {
        operand_dense(data, shape, place_of(axis, order), quantization);
    })
}

/// Whether pieces of whole blocks can be worked on without knowing of the others.
fn is_local((format, rounding): (BlockFormat, Rounding)) -> bool {
    rounding != Rounding::Stochastic && !format.tensor_scale
}

/// The gradient of values, from a gradient of the quantized values: zero where values are clipped. `transformed` says whether
/// it is in the basis of the transform.
pub(crate) fn mask_clipped<T: InMemory>(
    gradient: T,
    values: T,
    axis: usize,
    quantization: OperandQuantization,
    transformed: bool,
) -> T {
    let shape = gradient.dims();
    let gradient = gradient.row_major();
    let has_tensor_scale = (quantization.blocks).is_some_and(|(format, _)| format.tensor_scale);
    if has_tensor_scale && !quantization.before_blocks().is_empty() {
        // The scale follows from all values, as they are before the blocks.
        let values = quantize(values, axis, quantization.before_blocks());
        let by = |gradient: T, inverse| match quantization.hadamard {
            Some(by) => hadamard(gradient, axis, by, inverse),
            None => gradient,
        };
        let gradient = match transformed {
            true => gradient,
            false => by(gradient, false),
        };
        let blocks = OperandQuantization {
            blocks: quantization.blocks,
            ..OperandQuantization::default()
        };
        return by(mask_clipped(gradient, values, axis, blocks, true), true);
    }
    let values = values.row_major();
    let values = values.values();
    if has_tensor_scale {
        let all = values.len().max(1);
        return gradient.change(all, |_, gradient| {
            mask_dense(gradient, values, &shape, axis, quantization);
        });
    }
    let pieces = Pieces::of(&shape, axis, quantization);
    let back = pieces.factors(true);
    gradient.change(pieces.unit, |start, gradient| {
        let mut values = values[start..start + gradient.len()].to_vec();
        pieces.before_blocks(start, &mut values);
        if !transformed {
            pieces.transform(start, gradient, pieces.forth.as_ref());
        }
        let (shape, axis) = pieces.shape(gradient.len());
        mask_dense(gradient, &values, &shape, axis, quantization);
        pieces.transform(start, gradient, back.as_ref());
    })
}

/// Pieces of a tensor in row-major order. Blocks and transforms of a piece do not go on over its end.
struct Pieces {
    quantization: OperandQuantization,
    /// A piece has a multiple of this number of elements, unless it is the last one.
    unit: usize,
    /// Whether a piece may be a part of a line.
    cuts_lines: bool,
    /// The rows of square blocks or 1, the elements of a line, and how far apart they are.
    lengths: [usize; 3],
    /// The transform.
    forth: Option<(RandomHadamard, LineFactors)>,
}

impl Pieces {
    /// For local steps along an axis of a tensor.
    fn of(shape: &[usize], axis: usize, quantization: OperandQuantization) -> Self {
        let format = quantization.blocks.map(|(format, _)| format);
        let [first, last] =
            (format.and_then(|format| format.square_axes(axis))).unwrap_or([axis; 2]);
        assert!(
            last < shape.len(),
            "burn-mx: square blocks lie along two axes, the tensor of shape {shape:?} has one"
        );
        let rows = if first < last { shape[first] } else { 1 };
        let line = shape[last];
        let inner: usize = shape[last + 1..].iter().product();
        let outer: usize = shape[..first].iter().product();
        // Along the first of the axes.
        let [along, step] = match first < last {
            true => [rows, line * inner],
            false => [line, inner],
        };
        let block = match format.map_or(1, |format| format.group_size()) {
            0 => None,
            block => Some(block),
        };
        let block = match (block, quantization.hadamard) {
            (Some(block), Some((RandomHadamard { block_size }, _))) => {
                let both = block.max(block_size);
                Some(both).filter(|both| both.is_multiple_of(block.min(block_size)))
            }
            _ => block,
        };
        // Where blocks end together with the axis, one may go on over its end; the factors of a transform follow from the place.
        let cut = block.filter(|block| {
            outer == 1 || quantization.hadamard.is_none() && along.is_multiple_of(*block)
        });
        let mut pieces = Self {
            quantization,
            unit: cut.map_or(along, |block| block.min(along)) * step,
            cuts_lines: cut.is_some(),
            lengths: [rows, line, inner],
            forth: None,
        };
        pieces.forth = pieces.factors(false);
        pieces
    }

    /// The transform, or its inverse.
    fn factors(&self, inverse: bool) -> Option<(RandomHadamard, LineFactors)> {
        let (transform, signs) = self.quantization.hadamard?;
        let [_, line, _] = self.lengths;
        Some((transform, transform.line_factors(line, signs, inverse)))
    }

    /// The shape of a piece of this number of elements, and the axis of its blocks.
    fn shape(&self, elements: usize) -> ([usize; 4], usize) {
        let [rows, line, inner] = self.lengths;
        let shape = match self.cuts_lines {
            false => [elements / (rows * line * inner), rows, line, inner],
            true if rows > 1 => [1, elements / (line * inner), line, inner],
            true => [1, 1, elements / inner, inner],
        };
        (shape, 2)
    }

    /// Transforms the piece that begins here.
    fn transform(
        &self,
        start: usize,
        piece: &mut [f32],
        factors: Option<&(RandomHadamard, LineFactors)>,
    ) {
        if let Some((transform, factors)) = factors {
            let [_, line, inner] = self.lengths;
            let places = match self.cuts_lines {
                true => start / inner..(start + piece.len()) / inner,
                false => 0..line,
            };
            transform.transform_part(piece, inner, factors, places);
        }
    }

    /// The steps before blocks of the piece that begins here.
    fn before_blocks(&self, start: usize, piece: &mut [f32]) {
        steps_dense(
            piece,
            self.quantization,
            |piece, _: (RandomHadamard, Signs)| {
                self.transform(start, piece, self.forth.as_ref());
            },
        );
    }

    /// All steps of the piece that begins here.
    fn quantize(&self, start: usize, piece: &mut [f32]) {
        self.before_blocks(start, piece);
        let blocks = OperandQuantization {
            blocks: self.quantization.blocks,
            ..OperandQuantization::default()
        };
        let (shape, axis) = self.shape(piece.len());
        operand_dense(piece, &shape, axis, blocks);
    }
}
