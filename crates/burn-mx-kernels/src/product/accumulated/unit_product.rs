//! A product that a matrix unit sums up.

use microscaling_product::{AccumulateError, Accumulation, Accumulator};

use super::convolution;
use super::form::AccumulatedForm;
use super::layout::{Layout, Results, broadcast};
use super::segment::Segment;
use crate::product::convolution::{Convolution, ConvolutionProduct};

/// A product that a matrix unit sums up.
#[derive(Clone, Debug)]
pub struct AccumulatedProduct {
    /// The unit.
    pub accumulator: Accumulator,
    /// The forms of the operands.
    pub forms: [AccumulatedForm; 2],
    /// The shapes of the operands. A convolution has the tensor with windows, x or the output's gradient, second.
    pub shapes: [Vec<usize>; 2],
    /// The convolution, unless it is a matrix product.
    pub convolution: Option<(Convolution, ConvolutionProduct)>,
    /// Elements of a segment of the summed axis, with the zeros behind it.
    segment: usize,
}

impl AccumulatedProduct {
    /// # Errors
    ///
    /// If the unit does not take the operands.
    pub fn new(
        accumulation: Accumulation,
        forms: [AccumulatedForm; 2],
        shapes: [Vec<usize>; 2],
        convolution: Option<(Convolution, ConvolutionProduct)>,
    ) -> Result<Self, AccumulateError> {
        let accumulator = accumulation.of(forms[0].kind, forms[1].kind)?;
        let Segment {
            length,
            promote_every,
        } = Segment::of(&accumulator, &forms, &shapes, convolution.as_ref());
        let product = Self {
            accumulator: Accumulator {
                promote_every,
                ..accumulator
            },
            forms,
            shapes,
            convolution,
            segment: length,
        };
        let layouts = product.layouts();
        let [lhs, rhs] = [0, 1].map(|i| layouts[i].kind(forms[i].kind));
        product.accumulator.check(lhs, rhs)?;
        Ok(product)
    }

    /// Where the operands lie.
    pub(crate) fn layouts(&self) -> [Layout; 2] {
        let Self {
            forms,
            shapes,
            segment,
            ..
        } = self;
        match &self.convolution {
            Some((convolution, product)) => {
                convolution::layouts(convolution, product, forms, shapes, *segment)
            }
            None => [0, 1].map(|i| Layout::of(&shapes[i], forms[i].kind, forms[i].sums, *segment)),
        }
    }

    /// The shape of the result.
    pub fn shape(&self) -> Vec<usize> {
        if let Some((_, product)) = &self.convolution {
            return product.shape().to_vec();
        }
        let [lhs, rhs] = self.layouts();
        let (mut shape, _) = broadcast([&lhs.leading, &rhs.leading]);
        shape.extend([lhs.lines(), rhs.lines()]);
        shape
    }

    /// Where the elements of the result lie.
    pub(crate) fn results(&self) -> Results {
        let [rows, columns] = self.layouts().map(|layout| layout.lines());
        match &self.convolution {
            Some((convolution, product)) => convolution::results(convolution, product),
            None => Results {
                matrix: rows * columns,
                row: columns,
                column: [0, 1],
            },
        }
    }

    /// The table of the second operand's windows.
    pub(crate) fn windows(&self) -> Option<Vec<u32>> {
        let (convolution, product) = self.convolution.as_ref()?;
        Some(convolution::windows(convolution, product, &self.shapes))
    }
}
