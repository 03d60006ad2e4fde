//! Operands quantized into elements and block scales.

use crate::Axis;
use crate::accumulate::{AccumulateError, AccumulatorOperand, OperandKind};
use alloc::vec::Vec;
use microscaling::BlockFormat;
use microscaling::Rounder;
use microscaling::{Packed, PackedView};

/// A matrix quantized to a block format, with elements and scales apart, as an accumulator multiplies them.
///
/// ```
/// use microscaling::{BlockFormat, Rounder};
/// use microscaling_product::{Accumulation, AccumulatorMatrix};
///
/// let format: BlockFormat = "mxfp8_e4m3".parse()?;
/// let quantized = |data: &[f32], shape, axis| {
///     AccumulatorMatrix::quantize(&format, data, shape, axis, Rounder::NearestEven)
/// };
/// let x = quantized(&[1.0, 0.5, 3.0, 4.0], [2, 2], 1)?;
/// let w = quantized(&[2.0, 1.0, 0.25, 8.0], [2, 2], 0)?;
/// let (x, w) = (x.operand(), w.operand());
///
/// let hopper: Accumulation = "hopper".parse()?;
/// let mut y = [0.0; 4];
/// hopper.of(x.kind, w.kind)?.multiply(&x, &w, &mut y)?;
/// assert_eq!(y, [2.125, 5.0, 7.0, 35.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct AccumulatorMatrix {
    kind: OperandKind,
    elements: Vec<f32>,
    scales: Vec<f32>,
    tensor_scale: Option<f32>,
    free: Axis,
    summed: Axis,
}

impl AccumulatorMatrix {
    /// Quantizes a row-major matrix in blocks along the axis that is summed over, 0 or 1. The elements, times their scales and the
    /// tensor scale, equal the result of [`BlockFormat::quantize`], except the sign of zeros in elements without a −0.
    ///
    /// # Errors
    /// * [`AccumulateError::BlockFormat`]: the format has [no such elements](OperandKind::of_format).
    /// * [`AccumulateError::Pack`]: what [`Packed::encode`] refuses.
    pub fn quantize(
        format: &BlockFormat,
        data: &[f32],
        shape: [usize; 2],
        axis: usize,
        rounder: Rounder,
    ) -> Result<Self, AccumulateError> {
        if OperandKind::of_format(format).is_none() {
            return Err(AccumulateError::BlockFormat { got: *format });
        }
        let packed = Packed::encode(*format, data, &shape, axis, rounder)?;
        Self::of_packed(&packed.view())
    }

    /// A packed matrix, whose blocks lie along the axis that is summed over.
    ///
    /// # Errors
    /// * [`AccumulateError::Axes`]: the tensor is not a matrix.
    /// * [`AccumulateError::BlockFormat`]: the format has [no such elements](OperandKind::of_format).
    pub fn of_packed(packed: &PackedView<'_>) -> Result<Self, AccumulateError> {
        let format = packed.format();
        let &[rows, columns] = packed.shape() else {
            return Err(AccumulateError::Axes {
                got: packed.shape().to_vec(),
            });
        };
        let Some(kind) = OperandKind::of_format(&format) else {
            return Err(AccumulateError::BlockFormat { got: format });
        };
        let axis = packed.axis();
        let dense = |length| Axis { length, stride: 1 };
        let sparse = |length| Axis {
            length,
            stride: columns,
        };
        let (free, summed) = match axis {
            0 => (dense(columns), sparse(rows)),
            _ => (sparse(rows), dense(columns)),
        };
        let Some([elements, mut scales]) = packed.elements_and_scales(axis) else {
            return Err(AccumulateError::BlockFormat { got: format });
        };
        if axis == 0 {
            let lines = 0..columns;
            scales = lines
                .flat_map(|line| scales.iter().skip(line).step_by(columns).copied())
                .collect();
        }
        Ok(Self {
            kind,
            elements,
            scales,
            tensor_scale: packed.tensor_scale(),
            free,
            summed,
        })
    }

    /// The matrix as an operand: a left one if its axis was 1, a right one if it was 0, or either.
    pub fn operand(&self) -> AccumulatorOperand<'_> {
        AccumulatorOperand {
            kind: self.kind,
            elements: &self.elements,
            free: self.free,
            summed: self.summed,
            scales: &self.scales,
        }
    }

    /// The factor of all elements, of formats that have one. No accumulator knows it: it multiplies the product. Multiply by the
    /// factors of two operands in float64: their product may be less than any float32.
    pub const fn tensor_scale(&self) -> Option<f32> {
        self.tensor_scale
    }
}
