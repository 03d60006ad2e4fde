//! Products that a matrix unit sums up.

use std::sync::Arc;

use burn_backend::tensor::FloatTensor;
use burn_backend::{TensorData, TensorMetadata};
use microscaling_product::{AccumulateError, Accumulation};

use super::Product;
use crate::warnings::warn_without_unit;
use burn_mx_kernels::MxKernels;
use burn_mx_kernels::internal::accumulated;
use burn_mx_kernels::internal::accumulated::{AccumulatedProduct, SumLooks};
use burn_mx_kernels::internal::{Convolution, ConvolutionProduct, Operand, note};

impl<B: MxKernels> Product<B> {
    /// The product of two operands that a matrix unit sums up: a convolution, or a product of matrices.
    ///
    /// # Panics
    ///
    /// If the unit does not take the operands.
    pub(super) fn accumulate(
        &self,
        accumulation: Accumulation,
        convolution: Option<(Convolution, ConvolutionProduct)>,
        operands: [Operand<FloatTensor<B>>; 2],
    ) -> FloatTensor<B> {
        let refused = |error: AccumulateError| -> ! { panic!("burn-mx: {self}: {error}") };
        let [lhs, rhs] = operands.each_ref().map(|operand| match operand {
            Operand::ToAccumulate { values, form } => (*form, values.shape().to_vec()),
            Operand::Accumulated(operand) => (operand.form, operand.shape.clone()),
            _ => unreachable!("both operands are the accumulator's"),
        });
        let (forms, shapes) = ([lhs.0, rhs.0], [lhs.1, rhs.1]);
        let product = AccumulatedProduct::new(accumulation, forms, shapes, convolution);
        let product = product.unwrap_or_else(|error| refused(error));
        let mut looks = self.looks_at_sums(accumulation);
        // Sums that somebody looks at are computed where the operands are looked at.
        let operands = match operands {
            [
                Operand::ToAccumulate { values: lhs, .. },
                Operand::ToAccumulate { values: rhs, .. },
            ] if looks.is_none() && B::kernels().has_accumulated_product(&product) => {
                return B::kernels().accumulated_product(&product, [lhs, rhs]);
            }
            operands => operands,
        };
        let operands = operands.map(|operand| match operand {
            Operand::ToAccumulate { values, form } => {
                note::<B>(
                    &B::float_device(&values),
                    "some products with an accumulator",
                );
                Arc::new(form.on_host::<B>(values))
            }
            Operand::Accumulated(operand) => operand,
            _ => unreachable!("both operands are the accumulator's"),
        });
        let operands = operands.each_ref().map(Arc::as_ref);
        let values = accumulated::multiply(&product, operands, &mut looks);
        let values = values.unwrap_or_else(|error| refused(error));
        self.show_sums(looks);
        let device = self.device.get().expect("the operands had one");
        B::float_from_data(TensorData::new(values, product.shape()), device)
    }

    /// The convolution of operands that a matrix unit sums up, x or the output's gradient first; `None` where none does.
    ///
    /// # Panics
    ///
    /// If the unit does not take the operands.
    pub(crate) fn convolve(
        &self,
        convolution: &Convolution,
        product: impl FnOnce() -> Option<ConvolutionProduct>,
        [first, second]: [&Operand<FloatTensor<B>>; 2],
    ) -> Option<FloatTensor<B>> {
        let accumulation = self.accumulation?;
        let product = product();
        let product =
            product.unwrap_or_else(|| panic!("burn-mx: {self}: no window fits the input"));
        let convolution = Some((convolution.clone(), product));
        let operands = [second, first].map(Clone::clone);
        Some(self.accumulate(accumulation, convolution, operands))
    }

    /// A product whose operands have no blocks may be one that the unit does not take: then the sums are float32.
    pub(super) fn sum_in_float32_without_unit(&mut self) {
        let Some(accumulation) = self.accumulation else {
            return;
        };
        let kind = accumulated::kind_of(None, self.specs.specs.float_format());
        let kind = kind.expect("elements without blocks have a kind");
        if let Err(error) = accumulation.of(kind, kind) {
            warn_without_unit(&*self, &accumulation, &error);
            self.accumulation = None;
        }
    }

    /// Looks at the sums of the product, if any observer wants their errors.
    fn looks_at_sums(&self, accumulation: Accumulation) -> Option<SumLooks> {
        self.observers.as_ref()?.looks_at_sums(accumulation)
    }

    fn show_sums(&self, looks: Option<SumLooks>) {
        if let (Some(observers), Some(looks)) = (&self.observers, looks) {
            observers.sums(&looks.into_statistics());
        }
    }
}
