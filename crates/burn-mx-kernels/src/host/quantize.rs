//! Quantization of operands piece by piece: a piece is copied if it must be, rounded and quantized while it is in
//! the cache.

use microscaling::{BlockFormat, FloatFormat, RandomStream, Rounding};

use super::memory::InMemory;
use crate::dense::quantize_dense;

/// The quantization steps of a product's operand.
#[derive(Clone, Copy)]
pub(crate) struct Quantization {
    /// Rounding to the elementwise format, which comes first.
    pub(crate) elementwise: Option<(FloatFormat, Rounding)>,
    pub(crate) axis: usize,
    pub(crate) format: BlockFormat,
    pub(crate) rounding: Rounding,
}

impl Quantization {
    /// Whether pieces of whole blocks can be worked on without knowing of the others.
    pub(crate) fn is_local(&self) -> bool {
        self.rounding != Rounding::Stochastic && !self.format.tensor_scale
    }

    /// Quantizes a tensor in row-major order.
    pub(crate) fn in_pieces<T: InMemory>(self, tensor: T) -> T {
        let shape = tensor.dims();
        if let Some([first, second]) = self.format.square_axes(self.axis) {
            return self.square_in_pieces(tensor, &shape, [first, second]);
        }
        let axis = shape[self.axis];
        let inner: usize = shape[self.axis + 1..].iter().product();
        let outer: usize = shape[..self.axis].iter().product();
        let block = self.format.group_size();
        // Where blocks end together with the axis, one may go on over its end.
        let flat = block > 0 && axis.is_multiple_of(block);
        let (axis, unit) = match outer == 1 || flat {
            true if block > 0 => (None, block.min(axis) * inner),
            true => (None, axis * inner),
            false => (Some(axis), axis * inner),
        };
        tensor.change(unit, |_, piece| {
            let shape = match axis {
                Some(axis) => [piece.len() / unit, axis, inner],
                None => [1, piece.len() / inner, inner],
            };
            self.at_once(piece, &shape, 1);
        })
    }

    /// [`in_pieces`](Self::in_pieces), of square blocks along two axes, one after the other.
    fn square_in_pieces<T: InMemory>(self, tensor: T, shape: &[usize], axes: [usize; 2]) -> T {
        let [first, second] = axes;
        assert!(
            second < shape.len(),
            "burn-mx: square blocks lie along two axes, the tensor of shape {shape:?} has one"
        );
        let [rows, columns] = axes.map(|axis| shape[axis]);
        let inner: usize = shape[second + 1..].iter().product();
        let outer: usize = shape[..first].iter().product();
        let block = self.format.group_size();
        let row = columns * inner;
        // Where blocks end together with the axis, one may go on over its end.
        let is_flat = outer == 1 || rows.is_multiple_of(block);
        let unit = if is_flat {
            block.min(rows) * row
        } else {
            rows * row
        };
        tensor.change(unit, |_, piece| {
            let rows = if is_flat { piece.len() / row } else { rows };
            let shape = [piece.len() / (rows * row), rows, columns, inner];
            self.at_once(piece, &shape, 2);
        })
    }

    /// Quantizes values along `axis` of `shape`.
    pub(crate) fn at_once(self, data: &mut [f32], shape: &[usize], axis: usize) {
        let stream = RandomStream::new(0, 0);
        if let Some((format, rounding)) = self.elementwise {
            format.round_slice(data, rounding.with(stream));
        }
        quantize_dense(data, shape, axis, self.format, self.rounding, stream);
    }
}
