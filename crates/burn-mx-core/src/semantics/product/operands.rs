//! The operands of a product, on their way to it.

mod observed;
mod quantization;

use std::sync::Arc;

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use microscaling::{BlockFormat, OperandQuantization, RandomStream};

use super::{Operands, Product, Rounder};
use crate::specs::{ProductKind, ProductOp, Slot};
use crate::tensor::Float;
use crate::tensor::shared_specs::SharedSpecs;
use crate::tensor::weight_cache::{CopyKey, Unpacked, WeightCache};
use burn_mx_kernels::internal::accumulated;
use burn_mx_kernels::internal::accumulated::{AccumulatedForm, Sums};
use burn_mx_kernels::internal::{Operand, OperandForm, OperandLayout};
use burn_mx_kernels::{MxKernels, to_f32};
use observed::Views;

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
            // The first two axes of a convolution's weight are inputs and outputs.
            (None, Some(format)) if format.square => self.axis.max(1),
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
        if self.observers.is_some() {
            let shape = place.shape_of(tensor.shape());
            self.summed.set(shape[place.summed_axis(shape.num_dims())]);
        }
        self.count_margin(slot);
        let observed = self.observe(slot, &tensor, along);
        if self.accumulation.is_some() {
            return self.accumulated_operand(slot, tensor, along, observed);
        }
        self.kept_or_made(slot, tensor, along, |tensor, unpacked| {
            let form = |quantization| self.form(slot, place, quantization);
            let as_it_is = form(OperandQuantization::default());
            if let Some(unpacked) = unpacked {
                let form = OperandForm {
                    tensor_scale: unpacked.tensor_scale,
                    ..as_it_is
                };
                return B::kernels().product_operand(to_f32::<B>(tensor.inner), form);
            }
            if self.has_scales_of_others(slot) {
                let observed = observed.map(|(views, _)| views.quantized);
                let values = observed.unwrap_or_else(|| self.values(slot, tensor, along));
                let form = OperandForm {
                    significant_bits: self.significant_bits_of_values(slot),
                    ..as_it_is
                };
                return B::kernels().product_operand(values, form);
            }
            let (values, quantization) = match observed.filter(|_| !self.is_plain(slot)) {
                Some((views, stream)) => {
                    let quantization = OperandQuantization {
                        blocks: self.blocks(slot),
                        stream,
                        ..OperandQuantization::default()
                    };
                    (views.original, quantization)
                }
                None => self.for_backend(slot, tensor, along),
            };
            B::kernels().product_operand(values, form(quantization))
        })
    }

    /// The output's gradient as both gradient products of an op take the tensor, each in its place and slot, if the backend makes both
    /// operands in one reading. Nothing random is shared: each product draws its own numbers.
    pub(crate) fn read_once(
        op: ProductOp,
        specs: &'static SharedSpecs,
        operands: Operands,
        gradient: &Float<B>,
        uses: [(ProductKind, Slot, OperandLayout); 2],
    ) -> Option<WeightCache<Operand<FloatTensor<B>>>> {
        let rank = gradient.rank();
        let of_use = |(kind, slot, place)| {
            let product = Self::by(op, kind, specs, specs.common_draws(), operands);
            let is_plain = product.is_plain(slot) && product.accumulation.is_none();
            is_plain.then(|| {
                let form = product.form(slot, place, product.quantization(slot, &gradient.meta));
                (product.key(slot, Along::of(place, rank)), form)
            })
        };
        let [first, second] = uses.map(of_use);
        let [(first, first_form), (second, second_form)] = [first?, second?];
        let forms = [first_form, second_form];
        let (kernels, device) = (B::kernels(), B::float_device(&gradient.inner));
        if !kernels.has_operand_pair(&device, &gradient.shape(), forms) {
            return None;
        }
        let pair = kernels.operand_pair(to_f32::<B>(gradient.inner.clone()), forms);
        let [of_first, of_second] = pair;
        let copies = [(first, of_first), (second, of_second)];
        Some(WeightCache::of_copies(copies))
    }

    /// The form of a slot's operand that is quantized so.
    fn form(
        &self,
        slot: Slot,
        place: OperandLayout,
        quantization: OperandQuantization,
    ) -> OperandForm {
        OperandForm {
            place,
            quantization,
            tensor_scale: None,
            significant_bits: self.significant_bits(slot),
        }
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
        self.kept_or_made(slot, tensor, along, |tensor, unpacked| {
            // A transform leaves no numbers of the elementwise format.
            let elementwise = self.specs.specs.float_format();
            let elementwise = elementwise.filter(|_| self.hadamard.is_none());
            let kind = accumulated::kind_of(self.block_format(slot).as_ref(), elementwise);
            let kind = kind.expect("the specs were resolved with an accumulator");
            let sums = along.sums(tensor.rank());
            let form = |stream| AccumulatedForm {
                kind,
                blocks: self.blocks(slot),
                stream,
                sums,
            };
            if let Some(unpacked) = unpacked.filter(|_| !B::kernels().has_accumulators()) {
                let operand = form(NO_STREAM).of_packed(&unpacked.packed, &tensor.shape());
                return Operand::Accumulated(Arc::new(operand));
            }
            let (form, values) = match observed {
                Some((views, stream)) => (form(stream), views.original),
                None => {
                    // In the order of other operands' random numbers.
                    let rounded = self.rounded(self.rounder(slot), tensor);
                    (
                        form(self.stream(slot)),
                        self.before_blocks(slot, rounded, along),
                    )
                }
            };
            match B::kernels().has_accumulators() {
                true => Operand::ToAccumulate { values, form },
                false => Operand::Accumulated(Arc::new(form.on_host::<B>(values))),
            }
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
            // A parameter that is an input would keep copies with any scales.
            Some(kept)
                if self.static_input(slot).is_none()
                    && !self.has_mean_apart(slot)
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
            dialect: self.dialect(slot),
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
}
