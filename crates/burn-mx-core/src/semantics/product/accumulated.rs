//! Products that a matrix unit sums up.

use std::sync::Arc;

use burn_backend::tensor::FloatTensor;
use burn_backend::{TensorData, TensorMetadata};
use microscaling::{AccumulateError, Accumulation};

use super::Product;
use crate::kernels::product::accumulated;
use crate::kernels::product::accumulated::{AccumulatedForm, AccumulatedProduct, SumLooks};
use crate::kernels::{Convolution, ConvolutionProduct, MxKernels, Operand, note};

impl<B: MxKernels> Product<B> {
    /// The product of two operands that a matrix unit sums up.
    ///
    /// # Panics
    ///
    /// If the unit does not take the operands.
    pub(super) fn accumulate(
        &self,
        accumulation: Accumulation,
        operands: [Operand<FloatTensor<B>>; 2],
    ) -> FloatTensor<B> {
        let refused = |error: AccumulateError| -> ! { panic!("burn-mx: {self}: {error}") };
        let mut looks = self.looks_at_sums(accumulation);
        let operands = match operands {
            [
                Operand::ToAccumulate {
                    values: lhs,
                    form: lhs_form,
                },
                Operand::ToAccumulate {
                    values: rhs,
                    form: rhs_form,
                },
            ] => {
                let shapes = [&lhs, &rhs].map(|values| values.shape().to_vec());
                let product = AccumulatedProduct::new(accumulation, [lhs_form, rhs_form], shapes);
                let product = product.unwrap_or_else(|error| refused(error));
                // Sums that somebody looks at are computed where the operands are looked at.
                if looks.is_none() && B::kernels().has_accumulated_product(&product) {
                    return B::kernels().accumulated_product(&product, [lhs, rhs]);
                }
                let on_host = |form: AccumulatedForm, values| {
                    note::<B>(
                        &B::float_device(&values),
                        "some products with an accumulator",
                    );
                    Arc::new(form.on_host::<B>(values))
                };
                [on_host(lhs_form, lhs), on_host(rhs_form, rhs)]
            }
            [Operand::Accumulated(lhs), Operand::Accumulated(rhs)] => [lhs, rhs],
            _ => unreachable!("both operands are the accumulator's"),
        };
        let operands = operands.each_ref().map(Arc::as_ref);
        let product = accumulated::product(accumulation, operands, &mut looks);
        let (values, shape) = product.unwrap_or_else(|error| refused(error));
        self.show_sums(looks);
        self.on_device(values, shape)
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
        operands: [&Operand<FloatTensor<B>>; 2],
    ) -> Option<FloatTensor<B>> {
        let [Operand::Accumulated(first), Operand::Accumulated(second)] = operands else {
            return None;
        };
        let product = product();
        let product =
            product.unwrap_or_else(|| panic!("burn-mx: {self}: no window fits the input"));
        let accumulation = self.accumulation?;
        let mut looks = self.looks_at_sums(accumulation);
        let operands = [first.as_ref(), second.as_ref()];
        let values =
            accumulated::convolve(accumulation, convolution, &product, operands, &mut looks);
        let values = values.unwrap_or_else(|error| panic!("burn-mx: {self}: {error}"));
        self.show_sums(looks);
        Some(self.on_device(values, product.shape().to_vec()))
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

    /// A result that was computed in host memory.
    fn on_device(&self, values: Vec<f32>, shape: Vec<usize>) -> FloatTensor<B> {
        let device = self.device.get().expect("the operands had one");
        B::float_from_data(TensorData::new(values, shape), device)
    }
}
