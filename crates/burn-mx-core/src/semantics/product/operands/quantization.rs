//! How an operand is quantized: rounding, transform, margin, blocks.

use super::{Along, NO_STREAM};
use crate::semantics::product::{Product, Rounder, static_input};
use crate::specs::{ProductOp, Slot, StaticInput};
use crate::tensor::{Float, Meta};
use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, TensorMetadata};
use burn_mx_kernels::internal::{KernelOp, quantized};
use burn_mx_kernels::{MxKernels, to_f32};
use microscaling::{BlockFormat, Dialect, OperandQuantization, RandomStream, Rounding};

/// How an operand is quantized.
impl<B: MxKernels> Product<B> {
    /// The quantization of an operand that the backend [does](Self::is_backends).
    pub(super) fn quantization(&self, slot: Slot, meta: &Meta) -> OperandQuantization {
        let rounder = self.rounder(slot);
        let rounder = rounder.filter(|rounder| !rounder.has_rounded(meta));
        OperandQuantization {
            elementwise: rounder.map(Rounder::format_and_rounding),
            hadamard: (self.hadamard).map(|(transform, signs)| (transform.transform(), signs)),
            factor: self.margin(slot),
            blocks: self.blocks(slot),
            stream: self.stream(slot),
        }
    }

    /// The blocks of a slot's operand, and how they are rounded.
    pub(super) fn blocks(&self, slot: Slot) -> Option<(BlockFormat, Rounding)> {
        let format = self.block_format(slot);
        format.map(|format| (format, self.roundings(slot).mx))
    }

    /// The random numbers of the blocks of a slot's operand: others with each call, where there are any.
    pub(super) fn stream(&self, slot: Slot) -> RandomStream {
        match (self.static_input(slot), self.blocks(slot)) {
            (None, Some((_, rounding))) => self.draws.next(rounding),
            _ => NO_STREAM,
        }
    }

    /// Values that are rounded, as they are quantized in blocks: transformed, divided by the headroom.
    pub(in crate::semantics::product) fn before_blocks(
        &self,
        slot: Slot,
        values: FloatTensor<B>,
        along: Along,
    ) -> FloatTensor<B> {
        let values = self.transformed(values, along);
        match self.margin(slot) {
            Some(margin) => B::float_mul_scalar(values, margin.into()),
            None => values,
        }
    }

    /// The values in the basis of the transform, if there is one.
    pub(in crate::semantics::product) fn transformed(
        &self,
        values: FloatTensor<B>,
        along: Along,
    ) -> FloatTensor<B> {
        self.by_hadamard(values, along, false)
    }

    /// Values in the basis of the transform, if there is one, in their own again.
    pub(in crate::semantics::product) fn transformed_back(
        &self,
        values: FloatTensor<B>,
        along: Along,
    ) -> FloatTensor<B> {
        self.by_hadamard(values, along, true)
    }

    /// The transform along an axis, one way or the other: it must not mix what belongs to different ones of its groups.
    fn by_hadamard(
        &self,
        values: FloatTensor<B>,
        Along { axis, groups, .. }: Along,
        inverse: bool,
    ) -> FloatTensor<B> {
        let Some((transform, signs)) = self.hadamard else {
            return values;
        };
        let shape = values.shape();
        let mut split = shape.clone();
        split[axis] /= groups;
        split.insert(axis, groups);
        let values = B::float_reshape(values, split);
        let op = KernelOp::Hadamard {
            axis: axis + 1,
            transform: transform.transform(),
            signs,
            inverse,
        };
        B::float_reshape(B::kernel(op, [values]), shape)
    }

    /// The quantized values.
    pub(crate) fn values(&self, slot: Slot, tensor: Float<B>, along: Along) -> FloatTensor<B> {
        if self.has_scales_of_others(slot) {
            let rounded = self.rounded(self.rounder(slot), tensor);
            let values = self.before_blocks(slot, rounded, along);
            return self.in_blocks(slot, values, along, self.stream(slot));
        }
        let (values, quantization) = self.for_backend(slot, tensor, along);
        let axis = along.block_axis(self.block_format(slot), values.rank());
        quantized::<B>(values, axis, quantization)
    }

    /// The tensor and the steps that the backend does with the tensor, after the steps that it does not do.
    pub(in crate::semantics::product) fn for_backend(
        &self,
        slot: Slot,
        tensor: Float<B>,
        along: Along,
    ) -> (FloatTensor<B>, OperandQuantization) {
        // No backend knows groups.
        if self.is_backends(slot) && (self.hadamard.is_none() || along.groups == 1) {
            let quantization = self.quantization(slot, &tensor.meta);
            return (to_f32::<B>(tensor.inner), quantization);
        }
        let rounded = self.rounded(self.rounder(slot), tensor);
        let values = self.before_blocks(slot, rounded, along);
        let quantization = OperandQuantization {
            blocks: self.blocks(slot),
            stream: self.stream(slot),
            ..OperandQuantization::default()
        };
        (values, quantization)
    }

    /// Whether a backend can quantize an operand in any order: without random numbers, a transform, a margin or fixed scales.
    pub(super) fn is_plain(&self, slot: Slot) -> bool {
        let is_random = self.roundings(slot).mx == Rounding::Stochastic;
        self.is_by_its_format(slot) && !is_random && !self.is_changed(slot)
    }

    /// Whether the backend does all steps of an operand of a matrix product. Before square blocks no backend transforms.
    pub(super) fn is_backends(&self, slot: Slot) -> bool {
        let has_steps = |format: BlockFormat| !format.square || !self.is_changed(slot);
        let has_blocks = self.block_format(slot).is_some_and(has_steps);
        self.is_plain(slot) || self.is_by_its_format(slot) && has_blocks
    }

    /// Whether there is a transform or a margin.
    fn is_changed(&self, slot: Slot) -> bool {
        self.hadamard.is_some() || self.margin(slot).is_some()
    }

    /// Whether the quantization is the format's rule, without fixed scales and after no stochastic elementwise rounding.
    fn is_by_its_format(&self, slot: Slot) -> bool {
        let is_random = self.roundings(slot).elementwise == Rounding::Stochastic;
        !self.has_scales_of_others(slot) && !is_random
    }

    /// Whether the operand's values are quantized by another rule than the format's own.
    pub(super) fn has_scales_of_others(&self, slot: Slot) -> bool {
        let is_given = self.static_input(slot).is_some() || self.dialect(slot).is_some();
        is_given || self.has_mean_apart(slot)
    }

    /// The scales of the slot's operand, if a calibration fixed them.
    pub(super) fn static_input(&self, slot: Slot) -> Option<&'static StaticInput> {
        self.static_input.filter(|_| slot == Slot::A)
    }

    /// [`significant_bits`](Self::significant_bits) of quantized values, which have their tensor scale in them: any float32.
    pub(crate) fn significant_bits_of_values(&self, slot: Slot) -> u32 {
        match self.block_format(slot) {
            Some(format) if format.tensor_scale || self.has_mean_apart(slot) => {
                f32::MANTISSA_DIGITS
            }
            _ => self.significant_bits(slot),
        }
    }

    /// The tool whose rules quantize the slot's operand.
    pub(super) fn dialect(&self, slot: Slot) -> Option<Dialect> {
        self.specs.specs.dialect(slot)
    }

    /// How many significant bits an element of the slot's operand has at most, beside a tensor scale.
    pub(super) fn significant_bits(&self, slot: Slot) -> u32 {
        match (self.block_format(slot), self.specs.specs.float_format()) {
            (Some(format), _) => format.significant_bits(),
            (None, Some(format)) => 1 + format.mantissa_bits(),
            (None, None) => f32::MANTISSA_DIGITS,
        }
    }

    /// The tensor quantized in blocks, if the slot has a format.
    pub(super) fn in_blocks(
        &self,
        slot: Slot,
        tensor: FloatTensor<B>,
        along: Along,
        stream: RandomStream,
    ) -> FloatTensor<B> {
        let Some((format, rounding)) = self.blocks(slot) else {
            return tensor;
        };
        let axis = along.block_axis(Some(format), tensor.rank());
        if self.has_mean_apart(slot) {
            assert!(
                self.static_input(slot).is_none(),
                "burn-mx: {self}: static scales cannot be combined with a mean apart; allowed: mean_apart false"
            );
            return self.with_mean_apart(tensor, axis, (format, rounding), stream);
        }
        if let Some(input) = self.static_input(slot) {
            assert!(
                self.dialect(slot).is_none(),
                "burn-mx: {self}: static scales cannot be combined with a dialect; allowed: dialect_a none"
            );
            self.check_length(input, &tensor.shape(), axis);
            return static_input::quantize::<B>(tensor, axis, format, rounding, input);
        }
        match self.dialect(slot) {
            Some(dialect) => {
                let op = KernelOp::Dialect {
                    axis,
                    dialect,
                    format,
                };
                B::kernel(op, [to_f32::<B>(tensor)])
            }
            None => B::mx_quantize(tensor, axis, format, rounding, stream),
        }
    }

    /// Whether the mean of the slot's operand is quantized apart.
    pub(super) fn has_mean_apart(&self, slot: Slot) -> bool {
        let is_linear = self.op == ProductOp::Linear && !matches!(slot, Slot::W | Slot::WBp);
        is_linear && self.specs.specs.mean_apart() && self.block_format(slot).is_some()
    }

    /// The mean of all rows, quantized along its channels, plus the rest, quantized along the axis.
    fn with_mean_apart(
        &self,
        tensor: FloatTensor<B>,
        axis: usize,
        (format, rounding): (BlockFormat, Rounding),
        stream: RandomStream,
    ) -> FloatTensor<B> {
        let shape = tensor.shape();
        if shape.num_elements() == 0 {
            return tensor;
        }
        let channels = shape[shape.num_dims() - 1];
        let rows = Shape::new([shape.num_elements() / channels, channels]);
        let mean = B::float_mean_dim(B::float_reshape(tensor.clone(), rows.clone()), 0);
        let in_all_rows = |mean: FloatTensor<B>| {
            B::float_reshape(B::float_expand(mean, rows.clone()), shape.clone())
        };
        let rest = B::float_sub(tensor, in_all_rows(mean.clone()));
        let rest = B::mx_quantize(rest, axis, format, rounding, stream);
        let mean = B::mx_quantize(mean, 1, format, rounding, self.draws.next(rounding));
        B::float_add(rest, in_all_rows(mean))
    }

    /// # Panics
    ///
    /// If an input has not the length that it was calibrated with.
    fn check_length(&self, input: &StaticInput, shape: &[usize], axis: usize) {
        assert!(
            shape[axis] == input.length,
            "burn-mx: {self}: the scales of its input were calibrated for {} elements along the axis that it sums over, and \
             the input has the shape {shape:?} with {} along axis {axis}. Scales that are static belong to one layer, and to \
             inputs as those that it was calibrated with.",
            input.length,
            shape[axis],
        );
    }

    /// The factor of the slot's operand before quantization: 1 / headroom.
    pub(super) fn margin(&self, slot: Slot) -> Option<f32> {
        let headroom = self.specs.specs.headroom_bp();
        let has_margin = self.kind.is_gradient() && !headroom.is_none();
        let has_margin = has_margin && self.block_format(slot).is_some();
        has_margin.then(|| f32::from(headroom.denominator()) / f32::from(headroom.numerator()))
    }

    /// Takes note that the product has to be divided by the margin of this operand.
    pub(super) fn count_margin(&self, slot: Slot) {
        if let Some(margin) = self.margin(slot) {
            self.margins.set(self.margins.get() * margin);
        }
    }
}
