//! The part that the forward product's quantization plays in a gradient product: whether the gradient reads the quantized
//! or the original operand, and which elements its mask passes.

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;

use super::{Along, Operands, Product};
use crate::semantics::stored;
use crate::specs::{GradientOperands, ProductKind, ProductOp, Slot};
use crate::tensor::shared_specs::SharedSpecs;
use crate::tensor::{Float, Meta, MxTensor};
use burn_mx_kernels::internal::KernelOp;
use burn_mx_kernels::{MxKernels, to_f32};

/// The place of an operand in the forward product of its op.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForwardOperand {
    pub(crate) slot: Slot,
    pub(crate) along: Along,
}

impl<B: MxKernels> Product<B> {
    /// A gradient product of a backward pass that is not quantized, for the part of the forward product's quantization alone. The
    /// product itself is the wrapped backend's.
    pub(crate) fn in_float32(
        op: ProductOp,
        kind: ProductKind,
        specs: &'static SharedSpecs,
        operands: Operands,
    ) -> Self {
        Self::by(op, kind, specs, specs.common_draws(), operands)
    }

    /// The operand of a gradient product that is not quantized.
    pub(crate) fn float_operand(&self, tensor: Float<B>) -> FloatTensor<B> {
        match self.has_straight_through() {
            true => to_f32::<B>(tensor.inner),
            false => tensor.inner,
        }
    }

    /// [`straight_through`](Self::straight_through) of a gradient product that is not quantized, with the meta `meta`.
    pub(crate) fn finish_float(
        &self,
        operand: ForwardOperand,
        tensor: Option<Float<B>>,
        gradient: FloatTensor<B>,
        meta: Meta,
    ) -> Float<B> {
        match self.has_straight_through() {
            true => stored::<B>(self.straight_through(operand, tensor, gradient), meta),
            false => MxTensor::new(gradient, meta),
        }
    }

    /// The forward product of the op again, whose operands draw nothing: specs that would have them to are refused.
    fn forward(&self) -> Self {
        let draws = self.specs.common_draws();
        Self::by(
            self.op,
            ProductKind::Forward,
            self.specs,
            draws,
            self.operands,
        )
    }

    /// A saved operand as a gradient product reads it before quantization: the original, or the forward product's
    /// quantized operand.
    pub(crate) fn saved(&self, operand: ForwardOperand, tensor: Float<B>) -> Float<B> {
        match self.specs.specs.gradient_operands() {
            GradientOperands::Original => tensor,
            GradientOperands::Forward => {
                let mut meta = tensor.meta;
                // To round quantized values again would be another quantization.
                meta.rounded = self.specs.specs.float_format();
                let forward = self.forward();
                let values = match forward.is_quantized(operand.slot, &tensor, operand.along) {
                    true => to_f32::<B>(tensor.inner),
                    false => forward.values(operand.slot, tensor, operand.along),
                };
                MxTensor::new(values, meta)
            }
        }
    }

    /// Whether [`straight_through`](Self::straight_through) changes a gradient.
    pub(crate) fn has_straight_through(&self) -> bool {
        let specs = &self.specs.specs;
        specs.gradient_operands() == GradientOperands::Forward || specs.mask_clipped()
    }

    /// The gradient of an operand of the forward product, of which a gradient product is `gradient`: zero where that operand
    /// was clipped, and in the operand's own basis. A mask needs the operand.
    pub(crate) fn straight_through(
        &self,
        operand: ForwardOperand,
        tensor: Option<Float<B>>,
        gradient: FloatTensor<B>,
    ) -> FloatTensor<B> {
        if !self.has_straight_through() {
            return gradient;
        }
        let specs = &self.specs.specs;
        let of_forward = specs.gradient_operands() == GradientOperands::Forward;
        let ForwardOperand { slot, along } = operand;
        let forward = self.forward();
        let format = forward.block_format(slot);
        let masked = tensor.zip(format).filter(|_| specs.mask_clipped());
        let Some((tensor, format)) = masked else {
            return match of_forward {
                true => forward.transformed_back(gradient, along),
                false => gradient,
            };
        };
        let (values, quantization) = forward.for_backend(slot, tensor, along);
        let by_backend = quantization.hadamard.is_some();
        let gradient = match of_forward || by_backend {
            true => gradient,
            false => forward.transformed(gradient, along),
        };
        let op = KernelOp::MaskClipped {
            axis: along.block_axis(Some(format), values.rank()),
            quantization,
            transformed: of_forward,
        };
        let gradient = B::kernel(op, [gradient, values]);
        match by_backend {
            true => gradient,
            false => forward.transformed_back(gradient, along),
        }
    }
}
