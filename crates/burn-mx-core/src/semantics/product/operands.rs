//! The operands of a product, on their way to it.

use core::cell::OnceCell;
use std::sync::Arc;

use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, TensorMetadata};
use microscaling::{BlockFormat, OperandQuantization, RandomStream, Rounding, Side};

use super::{Product, Rounder, Roundings, static_input};
use crate::hooks::{ObservedStatistics, OperandView, Original, View};
use crate::kernels::accumulated::Sums;
use crate::kernels::product::in_tensor;
use crate::kernels::{
    KernelOp, MxKernels, Operand, OperandForm, OperandLayout, accumulated, read_values, to_f32,
};
use crate::semantics::Float;
use crate::shared_specs::SharedSpecs;
use crate::specs::{Slot, StaticInput};
use crate::tensor::{Meta, MxTensor};
use crate::weight_cache::{CopyKey, Unpacked};

/// In the place of random numbers where none are drawn.
const NO_STREAM: RandomStream = RandomStream::new(0, 0);

/// Which of its elements a product sums over: along them an operand is transformed and has its blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Along {
    /// The axis.
    pub(crate) axis: usize,
    /// How many sums its elements belong to, one after another. A transform must not mix them.
    pub(crate) groups: usize,
    /// Where the operand stands in a matrix product.
    pub(crate) place: Option<OperandLayout>,
}

impl Along {
    /// The summed axis of an operand of a matrix product, of this rank.
    pub(crate) fn of(place: OperandLayout, rank: usize) -> Self {
        Self {
            axis: place.summed_axis(rank),
            groups: 1,
            place: Some(place),
        }
    }

    /// An axis of an operand of another op.
    pub(crate) fn axis(axis: usize, groups: usize) -> Self {
        Self {
            axis,
            groups,
            place: None,
        }
    }

    /// The axes of a tensor of this rank in its product. The first two axes of a convolution's weight are outputs and inputs.
    fn sums(self, rank: usize) -> Sums {
        let (free, flat) = match self.place {
            Some(place) => (2 * rank - 3 - self.axis, place.flat && rank > 2),
            None => (1 - self.axis, false),
        };
        Sums {
            summed: self.axis,
            free,
            flat,
        }
    }

    /// The axis along which blocks of this format lie. Square blocks also lie along the axis of a weight's outputs. The
    /// result is then the later of the two axes, and the other axis is the one before.
    pub(super) fn block_axis(self, format: Option<BlockFormat>, rank: usize) -> usize {
        match (self.place, format) {
            (Some(place), Some(format)) => place.block_axis(rank, &format),
            // Of a convolution's weight, inputs and outputs are the first two axes.
            (None, Some(format)) if format.is_square() => self.axis.max(1),
            _ => self.axis,
        }
    }
}

impl<B: MxKernels> Product<B> {
    /// The tensor as a matrix product takes it: `f32`, rounded elementwise, transformed if the specs have a transform, then
    /// quantized in blocks along the summed axis. A weight may have kept a copy of this operand.
    pub(crate) fn operand(
        &self,
        slot: Slot,
        tensor: Float<B>,
        place: OperandLayout,
    ) -> Operand<FloatTensor<B>> {
        let along = Along::of(place, tensor.rank());
        self.count_margin(slot);
        let observed = self.observe(slot, &tensor, along);
        if self.accumulation.is_some() {
            return self.accumulated_operand(slot, tensor, along, observed);
        }
        self.kept_or_made(slot, tensor, along, |tensor, unpacked| {
            let form = |quantization, stream| OperandForm {
                place,
                quantization,
                stream,
                tensor_scale: None,
                significant_bits: self.significant_bits(slot),
            };
            let as_it_is = form(OperandQuantization::default(), NO_STREAM);
            if let Some(unpacked) = unpacked {
                let form = OperandForm {
                    tensor_scale: unpacked.tensor_scale,
                    ..as_it_is
                };
                return B::kernels().product_operand(to_f32::<B>(tensor.inner), form);
            }
            if self.is_plain(slot) {
                let quantization = self.quantization(slot, &tensor.meta);
                let form = form(quantization, NO_STREAM);
                return B::kernels().product_operand(to_f32::<B>(tensor.inner), form);
            }
            if self.static_input(slot).is_some() {
                let observed = observed.map(|(views, _)| views.quantized);
                let values = observed.unwrap_or_else(|| self.values(slot, tensor, along));
                return B::kernels().product_operand(values, as_it_is);
            }
            let (values, stream) = match observed {
                Some((views, stream)) => (views.original, stream),
                None => {
                    let rounded = self.rounded(self.rounder(slot), tensor);
                    let values = self.before_blocks(slot, rounded, along);
                    (values, self.stream(slot))
                }
            };
            let quantization = OperandQuantization {
                elementwise: None,
                blocks: self.blocks(slot),
            };
            B::kernels().product_operand(values, form(quantization, stream))
        })
    }

    /// The tensor as a matrix unit takes it, elements and scales apart.
    fn accumulated_operand(
        &self,
        slot: Slot,
        tensor: Float<B>,
        along: Along,
        observed: Option<(Views<FloatTensor<B>>, RandomStream)>,
    ) -> Operand<FloatTensor<B>> {
        assert!(
            self.static_input(slot).is_none(),
            "burn-mx: {self}: static scales cannot be combined with an accumulator; allowed: accumulator none"
        );
        self.device.get_or_init(|| B::float_device(&tensor.inner));
        self.kept_or_made(slot, tensor, along, |tensor, _| {
            let elementwise = self.specs.specs.float_format();
            let kind = accumulated::kind_of(self.block_format(slot).as_ref(), elementwise);
            let kind = kind.expect("the specs were resolved with an accumulator");
            let (values, stream) = match observed {
                Some((views, stream)) => (views.original, stream),
                None => {
                    let rounded = self.rounded(self.rounder(slot), tensor);
                    (self.before_blocks(slot, rounded, along), self.stream(slot))
                }
            };
            let sums = along.sums(values.rank());
            accumulated::operand::<B>(values, self.blocks(slot), stream, kind, sums)
        })
    }

    /// The tensor as a convolution takes it: as [`operand`](Self::operand).
    pub(crate) fn convolution_operand(
        &self,
        slot: Slot,
        tensor: Float<B>,
        along: Along,
    ) -> Operand<FloatTensor<B>> {
        self.count_margin(slot);
        let observed = self.observe(slot, &tensor, along);
        if self.accumulation.is_some() {
            return self.accumulated_operand(slot, tensor, along, observed);
        }
        if let Some((views, _)) = observed {
            return Operand::of_values(views.quantized);
        }
        self.kept_or_made(slot, tensor, along, |tensor, unpacked| {
            Operand::of_values(match unpacked {
                Some(_) => to_f32::<B>(tensor.inner),
                None => self.values(slot, tensor, along),
            })
        })
    }

    /// The tensor as a product takes it that is another op than a matrix product or a convolution: as [`operand`](Self::operand).
    ///
    /// # Panics
    ///
    /// If the specs have an accumulator for it.
    pub(crate) fn tensor_operand(
        &self,
        slot: Slot,
        tensor: Float<B>,
        along: Along,
    ) -> FloatTensor<B> {
        self.refuse_accumulator();
        self.convolution_operand(slot, tensor, along).into_values()
    }

    /// # Panics
    ///
    /// If the specs have an accumulator for the product.
    pub(crate) fn refuse_accumulator(&self) {
        if let Some(accumulation) = self.accumulation {
            panic!(
                "burn-mx: {self}: its accumulator is {accumulation}, which only matrix products and convolutions have; allowed: exempt \
                 the layer, or accumulator none"
            );
        }
    }

    /// The quantization of a [plain](Self::is_plain) operand.
    fn quantization(&self, slot: Slot, meta: &Meta) -> OperandQuantization {
        let rounder = self.rounder(slot);
        let rounder = rounder.filter(|rounder| !rounder.has_rounded(meta));
        OperandQuantization {
            elementwise: rounder.map(Rounder::format_and_rounding),
            blocks: self.blocks(slot),
        }
    }

    /// The blocks of a slot's operand, and how they are rounded.
    fn blocks(&self, slot: Slot) -> Option<(BlockFormat, Rounding)> {
        let format = self.block_format(slot);
        format.map(|format| (format, self.roundings(slot).mx))
    }

    /// Shows an operand to the product's observers. Where random numbers are drawn they may be used up by that, and this
    /// returns what became of the operand, and the random numbers of its blocks.
    fn observe(
        &self,
        slot: Slot,
        tensor: &Float<B>,
        along: Along,
    ) -> Option<(Views<FloatTensor<B>>, RandomStream)> {
        let observers = self.observers.as_ref()?;
        // Where the elementwise rounding is random its numbers are drawn once, for what is multiplied and what it is
        // compared with.
        let drawn = self.rounder(slot).filter(|rounder| {
            let (_, rounding) = rounder.format_and_rounding();
            rounding == Rounding::Stochastic && !rounder.has_rounded(&tensor.meta)
        });
        let compares = observers.compare_results();
        if compares && drawn.is_none() {
            observers.keep(self.original(slot, tensor.clone(), along.place));
        }
        let look = Look {
            product: self,
            slot,
            tensor,
            along,
            views: OnceCell::new(),
        };
        if let Some(rounder) = drawn.filter(|_| compares) {
            let mut rounded = MxTensor::new(look.views().rounded.clone(), tensor.meta);
            rounded.meta.storage = None;
            rounded.meta.rounded = Some(rounder.format_and_rounding().0);
            observers.keep(self.original(slot, rounded, along.place));
        }
        if observers.want_operand(slot) {
            observers.operand(&look);
        }
        // The values that a plain operand shows are not in the form in which it is multiplied.
        let views = look.views.into_inner().filter(|_| !self.is_plain(slot))?;
        let stream = views.stream;
        Some((views, stream))
    }

    /// The random numbers of the blocks of a slot's operand: others with each call, where there are any.
    fn stream(&self, slot: Slot) -> RandomStream {
        match (self.static_input(slot), self.blocks(slot)) {
            (None, Some((_, rounding))) => self.draws.next(rounding),
            _ => NO_STREAM,
        }
    }

    /// Values that are rounded, as they are quantized in blocks: transformed, divided by the headroom.
    pub(super) fn before_blocks(
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
    pub(super) fn transformed(&self, values: FloatTensor<B>, along: Along) -> FloatTensor<B> {
        self.by_hadamard(values, along, false)
    }

    /// Values in the basis of the transform, if there is one, in their own again.
    pub(super) fn transformed_back(&self, values: FloatTensor<B>, along: Along) -> FloatTensor<B> {
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

    /// The operand before transform and quantization in blocks, rounded to the elementwise format without random
    /// numbers. Also the largest number of significant bits of its elements.
    fn original(&self, slot: Slot, tensor: Float<B>, place: Option<OperandLayout>) -> Original<B> {
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
            stream: NO_STREAM,
            tensor_scale: None,
            significant_bits,
        };
        let operand = match place {
            Some(place) => B::kernels().product_operand(values, form(place)),
            None => in_tensor::<B>(values, form(OperandLayout::LHS)),
        };
        Original {
            side: place.map(|place| place.side),
            operand,
            significant_bits,
        }
    }

    /// The copy that a weight has kept, or what `make` makes of the tensor, which may be quantized already.
    fn kept_or_made(
        &self,
        slot: Slot,
        mut tensor: Float<B>,
        along: Along,
        make: impl FnOnce(Float<B>, Option<&Unpacked>) -> Operand<FloatTensor<B>>,
    ) -> Operand<FloatTensor<B>> {
        debug_assert!(along.axis < tensor.rank(), "{self}: {along:?}");
        match tensor.kept.take() {
            // Of a parameter that is an input the copies would be those of any scales.
            Some(kept)
                if self.static_input(slot).is_none()
                    && self
                        .hadamard
                        .is_none_or(|(transform, _)| transform.is_fixed()) =>
            {
                let key = self.key(slot, along);
                let unpacked = kept.unpacked_by(key).map(Arc::as_ref);
                kept.get(key, || make(tensor, unpacked))
            }
            _ => make(tensor, None),
        }
    }

    /// How this product quantizes an operand.
    fn key(&self, slot: Slot, along: Along) -> CopyKey {
        let with_groups = |(transform, signs)| (transform, signs, along.groups);
        CopyKey {
            elementwise: self.rounder(slot).map(Rounder::format_and_rounding),
            hadamard: self.hadamard.map(with_groups),
            margin: self.margin(slot),
            format: self.block_format(slot),
            rounding: self.roundings(slot).mx,
            axis: along.axis,
            place: along.place,
            accumulated: self.accumulation.is_some(),
        }
    }

    /// Whether the values equal this product's quantization of them.
    pub(super) fn is_quantized(&self, slot: Slot, tensor: &Float<B>, along: Along) -> bool {
        let kept = tensor.kept.as_ref();
        kept.is_some_and(|kept| kept.unpacked_by(self.key(slot, along)).is_some())
    }

    /// The quantized values.
    pub(super) fn values(&self, slot: Slot, tensor: Float<B>, along: Along) -> FloatTensor<B> {
        let format = self.block_format(slot);
        match (self.rounder(slot), format) {
            (Some(rounder), Some(block_format))
                if self.is_plain(slot) && !rounder.has_rounded(&tensor.meta) =>
            {
                let axis = along.block_axis(format, tensor.rank());
                let (elementwise, mx) = (rounder.format_and_rounding(), self.roundings(slot).mx);
                let tensor = to_f32::<B>(tensor.inner);
                B::kernel(
                    KernelOp::round_and_quantize(elementwise, axis, block_format, mx),
                    [tensor],
                )
            }
            _ => {
                let rounded = self.rounded(self.rounder(slot), tensor);
                let values = self.before_blocks(slot, rounded, along);
                self.in_blocks(slot, values, along, self.stream(slot))
            }
        }
    }

    /// Whether a backend can quantize an operand in any order: without random numbers, a transform, a margin or fixed scales.
    fn is_plain(&self, slot: Slot) -> bool {
        let Roundings { elementwise, mx } = self.roundings(slot);
        let is_random = [elementwise, mx].contains(&Rounding::Stochastic);
        let is_free = self.static_input(slot).is_none();
        is_free && self.hadamard.is_none() && self.margin(slot).is_none() && !is_random
    }

    /// The scales of the slot's operand, if a calibration fixed them.
    fn static_input(&self, slot: Slot) -> Option<&'static StaticInput> {
        self.static_input.filter(|_| slot == Slot::A)
    }

    /// [`significant_bits`](Self::significant_bits) of quantized values, which have their tensor scale in them: any float32.
    pub(crate) fn significant_bits_of_values(&self, slot: Slot) -> u32 {
        match self.block_format(slot) {
            Some(format) if format.has_tensor_scale() => f32::MANTISSA_DIGITS,
            _ => self.significant_bits(slot),
        }
    }

    /// How many significant bits an element of the slot's operand has at most, beside a tensor scale.
    fn significant_bits(&self, slot: Slot) -> u32 {
        match (self.block_format(slot), self.specs.specs.float_format()) {
            (Some(format), _) => format.significant_bits(),
            (None, Some(format)) => 1 + format.mantissa_bits(),
            (None, None) => f32::MANTISSA_DIGITS,
        }
    }

    /// The tensor quantized in blocks, if the slot has a format.
    fn in_blocks(
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
        if let Some(input) = self.static_input(slot) {
            self.check_length(input, &tensor.shape(), axis);
            return static_input::quantize::<B>(tensor, axis, format, rounding, input);
        }
        B::mx_quantize(tensor, axis, format, rounding, stream)
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
    fn count_margin(&self, slot: Slot) {
        if let Some(margin) = self.margin(slot) {
            self.margins.set(self.margins.get() * margin);
        }
    }
}

/// An operand rounded to the elementwise format, before it is quantized in blocks, and after.
struct Views<P> {
    rounded: P,
    original: P,
    quantized: P,
    /// The random numbers of its blocks.
    stream: RandomStream,
}

/// An operand as observers see it.
struct Look<'a, B: MxKernels> {
    product: &'a Product<B>,
    slot: Slot,
    tensor: &'a Float<B>,
    along: Along,
    /// Computed once: it may draw random numbers.
    views: OnceCell<Views<FloatTensor<B>>>,
}

impl<B: MxKernels> Look<'_, B> {
    fn views(&self) -> &Views<FloatTensor<B>> {
        let Self {
            product,
            slot,
            tensor,
            along,
            ..
        } = *self;
        self.views.get_or_init(|| {
            let rounded = product.rounded(product.rounder(slot), tensor.clone());
            let original = product.before_blocks(slot, rounded.clone(), along);
            let stream = product.stream(slot);
            let quantized = product.in_blocks(slot, original.clone(), along, stream);
            Views {
                rounded,
                original,
                quantized,
                stream,
            }
        })
    }
}

impl<B: MxKernels> View for Look<'_, B> {
    fn shape(&self) -> Shape {
        self.tensor.shape()
    }

    fn statistics(&self) -> ObservedStatistics {
        let product = self.product;
        let format = product.block_format(self.slot);
        let axis = self.along.block_axis(format, self.tensor.rank());
        ObservedStatistics::of(match product.is_plain(self.slot) {
            true => {
                let tensor = to_f32::<B>(self.tensor.inner.clone());
                let quantization = product.quantization(self.slot, &self.tensor.meta);
                B::kernels().quantizing_statistics(&tensor, axis, quantization)
            }
            false => {
                let Views {
                    original,
                    quantized,
                    ..
                } = self.views();
                B::kernels().quantization_statistics([original, quantized], axis, format)
            }
        })
    }

    fn values(&self) -> [Vec<f32>; 2] {
        let views = self.views();
        [&views.original, &views.quantized].map(|tensor| read_values::<B>(tensor.clone()))
    }
}

impl<B: MxKernels> OperandView for Look<'_, B> {
    fn slot(&self) -> Slot {
        self.slot
    }

    fn side(&self) -> Option<Side> {
        self.along.place.map(|place| place.side)
    }

    fn format(&self) -> Option<BlockFormat> {
        self.product.block_format(self.slot)
    }

    fn statistics_by(&self, specs: &'static SharedSpecs, number: u64) -> ObservedStatistics {
        let Product {
            op, kind, operands, ..
        } = *self.product;
        let product = Product::by(op, kind, specs, specs.draws_beside(number), operands);
        let look = Look {
            product: &product,
            views: OnceCell::new(),
            ..*self
        };
        look.statistics()
    }
}
