//! Matrix products, and convolutions as implicit ones, in host memory: of operands that are laid out matrix by matrix. The windows
//! of a convolution are laid out part by part.

use std::borrow::Cow;
use std::ops::Range;

use microscaling_product::{AccumulateError, AccumulatorOperand, Axis, OperandKind};
use rayon::prelude::*;

use super::convolution::OUTSIDE;
use super::layout::{Layout, Steps, broadcast};
use super::{Accumulated, AccumulatedProduct, SumLooks};
use crate::product::convolution::ConvolutionProduct;

/// Elements of windows that are laid out at once.
const TOGETHER: usize = 4 << 20;

/// The elements of a product, before they are multiplied by tensor scales.
pub(super) fn multiply(
    product: &AccumulatedProduct,
    operands: [&Accumulated; 2],
    looks: &mut Option<SumLooks>,
) -> Result<Vec<f32>, AccumulateError> {
    let layouts = product.layouts();
    let (windows, results) = (product.windows(), product.results());
    let windows = windows.as_deref();
    // Neighbours in the tensor are neighbours in memory.
    let across = match product.convolution {
        Some((_, ConvolutionProduct::WeightGradient(_))) => Across::Summed,
        _ => Across::Lines,
    };
    let [rows, columns] = layouts.each_ref().map(Layout::lines);
    let (_, matrices) = broadcast(layouts.each_ref().map(|layout| &layout.leading[..]));
    let mut result = vec![0.0; product.shape().iter().product()];
    let together = match windows {
        Some(_) => (TOGETHER / layouts[1].length().max(1)).clamp(1, columns.max(1)),
        None => columns.max(1),
    };
    let parts = columns.div_ceil(together);
    let inner = layouts[1].free[1].count;
    for (at, [of_lhs, of_rhs]) in matrices.iter().enumerate() {
        let lhs = operands[0].laid(&layouts[0], None, *of_lhs, 0..rows, across);
        for part in 0..parts {
            let first = part * together;
            let lines = first..columns.min(first + together);
            let rhs = operands[1].laid(&layouts[1], windows, *of_rhs, lines.clone(), across);
            let (lhs, rhs) = (lhs.operand(), rhs.operand());
            let mut values = vec![0.0; rows * lines.len()];
            product.accumulator.multiply(&lhs, &rhs, &mut values)?;
            if let Some(looks) = looks {
                let place = [at * parts + part, matrices.len() * parts];
                looks.see(product.accumulator, place, [&lhs, &rhs]);
            }
            for (row, values) in values.chunks_exact(lines.len()).enumerate() {
                let row = at * results.matrix + row * results.row;
                for (column, value) in lines.clone().zip(values) {
                    let [outer, inner] = [column / inner, column % inner];
                    result[row + outer * results.column[0] + inner * results.column[1]] = *value;
                }
            }
        }
    }
    Ok(result)
}

/// Which elements are neighbours in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Across {
    Lines,
    Summed,
}

/// Lines of an operand, laid out. A matrix that is laid out already is borrowed.
struct Laid<'a> {
    kind: OperandKind,
    free: Axis,
    summed: Axis,
    elements: Cow<'a, [f32]>,
    scales: Vec<f32>,
}

impl Laid<'_> {
    fn operand(&self) -> AccumulatorOperand<'_> {
        AccumulatorOperand {
            kind: self.kind,
            elements: &self.elements,
            free: self.free,
            summed: self.summed,
            scales: &self.scales,
        }
    }
}

/// How far a line or an element of a line is: in the tensor, and in the table of windows.
#[derive(Clone, Copy)]
struct LineOffset {
    position: usize,
    window: usize,
}

impl LineOffset {
    fn of([outer, inner]: [Steps; 2], at: usize) -> Self {
        let [i, j] = [at / inner.count, at % inner.count];
        Self {
            position: i * outer.stride + j * inner.stride,
            window: i * outer.window + j * inner.window,
        }
    }

    /// The position of an element of a line; `None` outside of the plane.
    fn and(self, other: Self, windows: Option<&[u32]>) -> Option<usize> {
        let position = self.position + other.position;
        match windows.map(|windows| windows[self.window + other.window]) {
            None => Some(position),
            Some(OUTSIDE) => None,
            Some(of_plane) => Some(position + of_plane as usize),
        }
    }
}

impl Accumulated {
    /// Some lines of a matrix.
    fn laid(
        &self,
        layout: &Layout,
        windows: Option<&[u32]>,
        matrix: usize,
        lines: Range<usize>,
        across: Across,
    ) -> Laid<'_> {
        let [length, segment] = [layout.length(), layout.summed[1].count];
        let strides = layout.strides().filter(|_| windows.is_none());
        let free = lines.map(|line| {
            let mut place = LineOffset::of(layout.free, line);
            place.position += matrix * layout.matrix;
            place
        });
        let free: Vec<LineOffset> = free.collect();
        // `None` of the zeros behind a segment.
        let along = |at: usize| {
            let is_given = at % segment < layout.given;
            is_given.then(|| LineOffset::of(layout.summed, at))
        };
        let position = |line: LineOffset, along: Option<LineOffset>| line.and(along?, windows);
        let value = |line: LineOffset, along: Option<LineOffset>| {
            position(line, along).map_or(0.0, |position| self.elements[position])
        };
        let laid = || vec![0.0; free.len() * length];
        let ([of_free, of_summed], elements) = match (strides, across) {
            (Some(strides), _) => {
                // A weight's gradient sums over images, whose other groups lie in between.
                let elements = &self.elements[matrix * layout.matrix..];
                (strides, Cow::Borrowed(elements))
            }
            (None, Across::Lines) => {
                let mut elements = laid();
                let all = elements.par_chunks_exact_mut(free.len().max(1));
                all.enumerate().for_each(|(at, values)| {
                    let along = along(at);
                    let values = values.iter_mut().zip(&free);
                    values.for_each(|(element, line)| *element = value(*line, along));
                });
                ([1, free.len()], elements.into())
            }
            (None, Across::Summed) => {
                let mut elements = laid();
                let along: Vec<_> = (0..length).map(along).collect();
                let all = elements.par_chunks_exact_mut(length.max(1)).zip(&free);
                all.for_each(|(values, line)| {
                    let values = values.iter_mut().zip(&along);
                    values.for_each(|(element, along)| *element = value(*line, *along));
                });
                ([length, 1], elements.into())
            }
        };
        // Each has the scale of its first element; the scale of zeros can be any.
        let blocks = match (self.form.kind.scale, layout.block) {
            (None, _) => 0,
            (Some(_), 0) => length.min(1),
            (Some(_), block) => length.div_ceil(block),
        };
        let starts: Vec<_> = (0..blocks).map(|at| along(at * layout.block)).collect();
        let mut scales = vec![1.0; free.len() * blocks];
        for (scales, line) in scales.chunks_exact_mut(blocks.max(1)).zip(&free) {
            for (scale, start) in scales.iter_mut().zip(&starts) {
                if let Some(position) = position(*line, *start) {
                    *scale = self.scales[self.block_of(position)];
                }
            }
        }
        let axis = |length, stride| Axis { length, stride };
        Laid {
            kind: layout.kind(self.form.kind),
            free: axis(free.len(), of_free),
            summed: axis(length, of_summed),
            elements,
            scales,
        }
    }

    /// The number of the scale of an element.
    fn block_of(&self, position: usize) -> usize {
        let summed = self.form.sums.summed;
        let inner: usize = self.shape[summed + 1..].iter().product();
        let (row, column) = (position / inner, position % inner);
        let [outer, along] = [row / self.shape[summed], row % self.shape[summed]];
        let block = match self.form.kind.block {
            0 => 0,
            size => along / size,
        };
        (outer * self.blocks() + block) * inner + column
    }
}
