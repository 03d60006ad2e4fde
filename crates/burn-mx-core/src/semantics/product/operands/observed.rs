//! The operands of a product as observers see them.

use super::{Along, NO_STREAM};
use crate::hooks::{DialectDifference, ObservedStatistics, OperandView, Original, View};
use crate::semantics::product::{Product, Rounder};
use crate::specs::Slot;
use crate::tensor::shared_specs::SharedSpecs;
use crate::tensor::{Float, MxTensor};
use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, TensorMetadata};
use burn_mx_kernels::internal::in_tensor;
use burn_mx_kernels::internal::{OperandForm, OperandLayout, read_values};
use burn_mx_kernels::{MxKernels, to_f32};
use core::cell::OnceCell;
use microscaling::{
    BlockFormat, Comparison, ErrorParts, OperandQuantization, RandomStream, Rounding,
};
use microscaling_product::Side;

/// Shows operands.
impl<B: MxKernels> Product<B> {
    /// Shows an operand to the product's observers. Where random numbers are drawn they may be used up by that, and this
    /// returns what became of the operand, and the random numbers of its blocks.
    pub(super) fn observe(
        &self,
        slot: Slot,
        tensor: &Float<B>,
        along: Along,
    ) -> Option<(Views<FloatTensor<B>>, RandomStream)> {
        let observers = self.observers.as_ref()?;
        // Where the elementwise rounding is random its numbers are drawn once, for the factor and the number that it is compared with.
        let drawn = self.rounder(slot).filter(|rounder| {
            let (_, rounding) = rounder.format_and_rounding();
            rounding == Rounding::Stochastic && !rounder.has_rounded(&tensor.meta)
        });
        let compares = observers.compare_results() && !self.in_parts.get();
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

    /// The operand before transform and quantization in blocks, rounded to the elementwise format without random
    /// numbers. Also the largest number of significant bits of its elements.
    pub(in crate::semantics::product) fn original(
        &self,
        slot: Slot,
        tensor: Float<B>,
        place: Option<OperandLayout>,
    ) -> Original<B> {
        let rounder = self.rounder(slot).map(Rounder::format_and_rounding);
        let significant_bits = match rounder {
            Some((format, _)) => 1 + format.mantissa_bits(),
            None => f32::MANTISSA_DIGITS,
        };
        let quantization = OperandQuantization {
            elementwise: rounder.filter(|(format, _)| tensor.meta.rounded != Some(*format)),
            ..OperandQuantization::default()
        };
        let values = to_f32::<B>(tensor.inner);
        let form = |place| OperandForm {
            place,
            quantization,
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
}

/// An operand rounded to the elementwise format, before it is quantized in blocks, and after.
pub(super) struct Views<P> {
    pub(super) rounded: P,
    pub(super) original: P,
    pub(super) quantized: P,
    /// The random numbers of its blocks.
    pub(super) stream: RandomStream,
}

/// An operand as observers see it.
struct Look<'a, B: MxKernels> {
    product: &'a Product<B>,
    pub(super) slot: Slot,
    pub(super) tensor: &'a Float<B>,
    pub(super) along: Along,
    /// Computed once: it may draw random numbers.
    pub(super) views: OnceCell<Views<FloatTensor<B>>>,
}

impl<B: MxKernels> Look<'_, B> {
    pub(super) fn views(&self) -> &Views<FloatTensor<B>> {
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

impl<B: MxKernels> Look<'_, B> {
    /// Shows the same operand under other specs.
    fn under<T>(
        &self,
        specs: &'static SharedSpecs,
        number: u64,
        see: impl FnOnce(&Look<'_, B>) -> T,
    ) -> T {
        let Product {
            op, kind, operands, ..
        } = *self.product;
        let product = Product::by(op, kind, specs, specs.draws_beside(number), operands);
        see(&Look {
            product: &product,
            views: OnceCell::new(),
            ..*self
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
        self.under(specs, number, |look| look.statistics())
    }

    fn error_parts(&self) -> Option<ErrorParts> {
        let (format, rounding) = self.product.blocks(self.slot)?;
        let product = self.product;
        if product.has_scales_of_others(self.slot) {
            return None;
        }
        let [original, quantized] = self.values();
        let parts = ErrorParts::of(
            Comparison {
                original: &original,
                quantized: &quantized,
                shape: &self.shape(),
                axis: (self.along).block_axis(Some(format), self.tensor.rank()),
                format: Some(format),
            },
            rounding,
        );
        parts.expect("the format was resolved, and fits the operand")
    }

    fn dialect_difference(&self) -> Option<DialectDifference> {
        let dialect = self.product.dialect(self.slot)?;
        let (format, rounding) = self.product.blocks(self.slot)?;
        let axis = self.along.block_axis(Some(format), self.tensor.rank());
        let original = self.views().original.clone();
        let plain = B::mx_quantize(original, axis, format, rounding, NO_STREAM);
        let [original, by_tool] = self.values();
        let plain = read_values::<B>(plain);
        Some(DialectDifference::of(
            dialect,
            [&original, &by_tool, &plain],
        ))
    }

    fn error_parts_by(&self, specs: &'static SharedSpecs, number: u64) -> Option<ErrorParts> {
        self.under(specs, number, |look| look.error_parts())
    }
}
