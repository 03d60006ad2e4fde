//! The operands of a product, on their way to it.

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use microscaling::{OperandQuantization, RandomHadamard, RandomStream, Rounding, Statistics};

use super::{Product, Rounder, Roundings};
use crate::kept::CopyKey;
use crate::kernels::product::in_tensor;
use crate::kernels::{MxKernels, Operand, OperandForm, Place, to_f32};
use crate::record::Views;
use crate::semantics::Float;
use crate::specs::Slot;
use crate::tensor::{Meta, MxTensor};

impl<B: MxKernels> Product<B> {
    /// The tensor as a matrix product takes it: `f32`, elementwise-rounded, transformed if the specs say so, then quantized
    /// in blocks along the axis that is summed over. A weight may have kept a copy that is just this.
    pub(crate) fn operand(
        &self,
        slot: Slot,
        tensor: Float<B>,
        place: Place,
    ) -> Operand<FloatTensor<B>> {
        let axis = place.summed_axis(tensor.rank());
        let observed = self.observe(slot, &tensor, Some(place), axis, 1);
        self.kept_or_made(slot, tensor, axis, Some(place), |tensor| {
            let form = |quantization, significant_bits| OperandForm {
                place,
                quantization,
                significant_bits,
            };
            let significant_bits = self.significant_bits(slot);
            if self.is_plain(slot) {
                let quantization = self.quantization(slot, &tensor.meta);
                return B::product_operand(
                    to_f32::<B>(tensor.inner),
                    form(quantization, significant_bits),
                );
            }
            let significant_bits = self.significant_bits_of_values(slot);
            let values = observed.unwrap_or_else(|| self.values(slot, tensor, axis, 1));
            B::product_operand(
                values,
                form(OperandQuantization::default(), significant_bits),
            )
        })
    }

    /// The tensor as a product takes it that is another op than a matrix product: as [`operand`](Self::operand), with blocks
    /// along `axis`, which has the elements of `groups` sums, one after another.
    pub(crate) fn tensor_operand(
        &self,
        slot: Slot,
        tensor: Float<B>,
        axis: usize,
        groups: usize,
    ) -> FloatTensor<B> {
        if let Some(observed) = self.observe(slot, &tensor, None, axis, groups) {
            return observed;
        }
        let made = |tensor| Operand::of_values(self.values(slot, tensor, axis, groups));
        let operand = self.kept_or_made(slot, tensor, axis, None, made);
        operand.into_values()
    }

    /// What is done to an operand where it is [plain](Self::is_plain).
    fn quantization(&self, slot: Slot, meta: &Meta) -> OperandQuantization {
        let rounder = self.rounder(slot);
        let rounder = rounder.filter(|rounder| !rounder.has_rounded(meta));
        let format = self.specs.specs.block_format(slot);
        OperandQuantization {
            elementwise: rounder.map(Rounder::format_and_rounding),
            blocks: format.map(|format| (format, self.roundings(slot).mx)),
        }
    }

    /// Shows an operand to the recorder, if that looks at it. Where random numbers are drawn they are used up by that, and
    /// this returns the [`values`](Self::values) that they gave.
    fn observe(
        &self,
        slot: Slot,
        tensor: &Float<B>,
        place: Option<Place>,
        axis: usize,
        groups: usize,
    ) -> Option<FloatTensor<B>> {
        let observer = self.observer.as_ref()?;
        // Where the elementwise rounding is random its numbers are drawn once, for what is multiplied and what it is
        // compared with.
        let drawn = self.rounder(slot).filter(|rounder| {
            let (_, rounding) = rounder.format_and_rounding();
            rounding == Rounding::Stochastic && !rounder.has_rounded(&tensor.meta)
        });
        let compares = observer.compares_results();
        if compares && drawn.is_none() {
            let (original, bits) = self.original(slot, tensor.clone(), place);
            observer.keep(place, original, bits);
        }
        let draws = compares && drawn.is_some();
        if !observer.wants(slot) && !draws {
            return None;
        }
        let look = |product: &Self, keep: bool| {
            if product.is_plain(slot) {
                let tensor_f32 = to_f32::<B>(tensor.inner.clone());
                let quantization = product.quantization(slot, &tensor.meta);
                let statistics = B::quantizing_statistics(&tensor_f32, axis, quantization);
                return (None, statistics);
            }
            let (rounded, views) = product.views(slot, tensor.clone(), axis, groups);
            if let Some(rounder) = drawn.filter(|_| keep) {
                let mut rounded = MxTensor::new(rounded, tensor.meta);
                rounded.meta.storage = None;
                rounded.meta.rounded = Some(rounder.format_and_rounding().0);
                let (original, bits) = product.original(slot, rounded, place);
                observer.keep(place, original, bits);
            }
            let format = product.specs.specs.block_format(slot);
            let statistics = observer.statistics(&views, axis, format);
            (Some(views.quantized), statistics)
        };
        let (quantized, own) = look(self, compares);
        if !observer.wants(slot) {
            return quantized;
        }
        let others = observer.what_if().map(|specs| {
            let product = Self::by(self.op, self.kind, specs, observer.draws(specs));
            look(&product, false).1
        });
        let statistics: Vec<Statistics> = [own].into_iter().chain(others).collect();
        observer.operand(slot, place, statistics);
        quantized
    }

    /// The values rounded to the elementwise format; and before they are quantized in blocks, in the transform's basis if
    /// there is one, and after.
    fn views(
        &self,
        slot: Slot,
        tensor: Float<B>,
        axis: usize,
        groups: usize,
    ) -> (FloatTensor<B>, Views<FloatTensor<B>>) {
        let rounded = self.rounded(self.rounder(slot), tensor);
        let original = match self.hadamard {
            Some((transform, signs)) => {
                transform_groups::<B>(rounded.clone(), axis, groups, transform, signs)
            }
            None => rounded.clone(),
        };
        let quantized = self.in_blocks(slot, original.clone(), axis);
        let views = Views {
            original,
            quantized,
        };
        (rounded, views)
    }

    /// The operand as it is before it is transformed and quantized in blocks, and how many significant bits its elements
    /// have at most: rounded to the elementwise format, which does not take random numbers here.
    fn original(
        &self,
        slot: Slot,
        tensor: Float<B>,
        place: Option<Place>,
    ) -> (Operand<FloatTensor<B>>, u32) {
        let rounder = self.rounder(slot).map(Rounder::format_and_rounding);
        let significant_bits = match rounder {
            Some((format, _)) => 1 + format.mantissa_bits(),
            None => f32::MANTISSA_DIGITS,
        };
        let quantization = OperandQuantization {
            elementwise: rounder.filter(|(format, _)| tensor.meta.rounded != Some(*format)),
            blocks: None,
        };
        let values = to_f32::<B>(tensor.inner);
        let form = |place| OperandForm {
            place,
            quantization,
            significant_bits,
        };
        let operand = match place {
            Some(place) => B::product_operand(values, form(place)),
            None => in_tensor::<B>(values, form(Place::LHS)),
        };
        (operand, significant_bits)
    }

    /// The copy that a weight has kept, or what `make` makes of the tensor.
    fn kept_or_made(
        &self,
        slot: Slot,
        mut tensor: Float<B>,
        axis: usize,
        place: Option<Place>,
        make: impl FnOnce(Float<B>) -> Operand<FloatTensor<B>>,
    ) -> Operand<FloatTensor<B>> {
        debug_assert!(axis < tensor.rank(), "{self}: axis {axis}");
        match tensor.kept.take() {
            // A transform has other signs each time.
            Some(kept) if self.hadamard.is_none() => {
                let key = CopyKey {
                    elementwise: self.rounder(slot).map(Rounder::format_and_rounding),
                    format: self.specs.specs.block_format(slot),
                    rounding: self.roundings(slot).mx,
                    axis,
                    place,
                };
                kept.get(key, || make(tensor))
            }
            _ => make(tensor),
        }
    }

    /// The quantized values.
    fn values(&self, slot: Slot, tensor: Float<B>, axis: usize, groups: usize) -> FloatTensor<B> {
        let rounder = self.rounder(slot);
        if let Some((transform, signs)) = self.hadamard {
            let rounded = self.rounded(rounder, tensor);
            let transformed = transform_groups::<B>(rounded, axis, groups, transform, signs);
            return self.in_blocks(slot, transformed, axis);
        }
        let is_plain = self.is_plain(slot);
        match (rounder, self.specs.specs.block_format(slot)) {
            (Some(rounder), Some(format)) if is_plain && !rounder.has_rounded(&tensor.meta) => {
                let (elementwise, mx) = (rounder.format_and_rounding(), self.roundings(slot).mx);
                B::round_and_quantize(to_f32::<B>(tensor.inner), elementwise, axis, format, mx)
            }
            _ => self.in_blocks(slot, self.rounded(rounder, tensor), axis),
        }
    }

    /// Whether a backend can quantize an operand in any order: without random numbers or a transform.
    fn is_plain(&self, slot: Slot) -> bool {
        let Roundings { elementwise, mx } = self.roundings(slot);
        self.hadamard.is_none() && ![elementwise, mx].contains(&Rounding::Stochastic)
    }

    /// [`significant_bits`](Self::significant_bits) of quantized values, which have their tensor scale in them: any float32.
    pub(crate) fn significant_bits_of_values(&self, slot: Slot) -> u32 {
        match self.specs.specs.block_format(slot) {
            Some(format) if format.has_tensor_scale() => f32::MANTISSA_DIGITS,
            _ => self.significant_bits(slot),
        }
    }

    /// How many significant bits an element of the slot's operand has at most, beside a tensor scale.
    fn significant_bits(&self, slot: Slot) -> u32 {
        let specs = &self.specs.specs;
        match (specs.block_format(slot), specs.float_format()) {
            (Some(format), _) => format.significant_bits(),
            (None, Some(format)) => 1 + format.mantissa_bits(),
            (None, None) => f32::MANTISSA_DIGITS,
        }
    }

    /// The tensor quantized in blocks, if the slot has a format.
    fn in_blocks(&self, slot: Slot, tensor: FloatTensor<B>, axis: usize) -> FloatTensor<B> {
        let Some(format) = self.specs.specs.block_format(slot) else {
            return tensor;
        };
        let rounding = self.roundings(slot).mx;
        let stream = self.draws.next(rounding);
        B::mx_quantize(tensor, axis, format, rounding, stream)
    }
}

/// The random Hadamard transform along `axis`, which must not mix what belongs to different ones of `groups` sums.
fn transform_groups<B: MxKernels>(
    tensor: FloatTensor<B>,
    axis: usize,
    groups: usize,
    transform: RandomHadamard,
    signs: RandomStream,
) -> FloatTensor<B> {
    let shape = tensor.shape();
    let mut split = shape.clone();
    split[axis] /= groups;
    split.insert(axis, groups);
    let tensor = B::float_reshape(tensor, split);
    let tensor = B::random_hadamard(tensor, axis + 1, transform, signs);
    B::float_reshape(tensor, shape)
}
