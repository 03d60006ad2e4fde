//! Operands that are rounded before anybody sees them.

use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, TensorMetadata};
use microscaling::{BlockFormat, ErrorParts};
use microscaling_product::Side;

use super::{DialectDifference, ObservedStatistics, OperandView, View};
use crate::specs::{PointFormat, ProductOp, Slot};
use crate::tensor::shared_specs::SharedSpecs;
use burn_mx_kernels::MxKernels;
use burn_mx_kernels::internal::read_values;

/// An operand of attention whose points have formats, or the hot columns of an operand.
pub(crate) struct RoundedOperand<'a, B: MxKernels> {
    pub(crate) op: ProductOp,
    pub(crate) slot: Slot,
    pub(crate) side: Side,
    pub(crate) before_and_after: [&'a FloatTensor<B>; 2],
    pub(crate) point: Option<PointFormat>,
    /// The summed axis.
    pub(crate) axis: usize,
    pub(crate) is_hot: bool,
}

impl<B: MxKernels> RoundedOperand<'_, B> {
    fn figures(before_and_after: [&FloatTensor<B>; 2]) -> ObservedStatistics {
        ObservedStatistics::of(B::kernels().quantization_statistics(before_and_after, 0, None))
    }

    /// The axis along which blocks of this format lie, as formats count it.
    fn block_axis(&self, format: &BlockFormat) -> usize {
        match format.square {
            true => self.shape().num_dims() - 1,
            false => self.axis,
        }
    }
}

impl<B: MxKernels> View for RoundedOperand<'_, B> {
    fn shape(&self) -> Shape {
        self.before_and_after[0].shape()
    }

    fn statistics(&self) -> ObservedStatistics {
        let pair = self.before_and_after;
        match self.format().filter(|_| self.is_hot) {
            Some(format) => {
                let axis = self.block_axis(&format);
                let figures = B::kernels().quantization_statistics(pair, axis, Some(format));
                ObservedStatistics::of(figures)
            }
            // Blocks of attention's operands may lie in lines of several rows.
            None => Self::figures(pair),
        }
    }

    fn values(&self) -> [Vec<f32>; 2] {
        self.before_and_after.map(|x| read_values::<B>(x.clone()))
    }
}

impl<B: MxKernels> OperandView for RoundedOperand<'_, B> {
    fn slot(&self) -> Slot {
        self.slot
    }

    fn side(&self) -> Option<Side> {
        Some(self.side)
    }

    fn format(&self) -> Option<BlockFormat> {
        match self.point {
            Some(PointFormat::Block(format)) => Some(format),
            _ => None,
        }
    }

    fn point(&self) -> Option<PointFormat> {
        self.point
    }

    fn is_hot(&self) -> bool {
        self.is_hot
    }

    /// In the format that these specs have for the slot, with blocks along the summed axis.
    fn statistics_by(&self, specs: &'static SharedSpecs, number: u64) -> ObservedStatistics {
        let [before, _] = self.before_and_after;
        let Some(format) = specs.specs.block_format(self.slot) else {
            return Self::figures([before, before]);
        };
        let axis = self.block_axis(&format);
        let rounding = specs.specs.rounding_of_blocks(self.op, self.slot);
        let stream = specs.draws_beside(number).next(rounding);
        let values = B::mx_quantize(before.clone(), axis, format, rounding, stream);
        Self::figures([before, &values])
    }

    fn error_parts(&self) -> Option<ErrorParts> {
        None
    }

    fn dialect_difference(&self) -> Option<DialectDifference> {
        None
    }

    fn error_parts_by(&self, _: &'static SharedSpecs, _: u64) -> Option<ErrorParts> {
        None
    }
}
