//! The parts of a linear layer's product that hot columns have for themselves.

use burn_backend::tensor::FloatTensor;
use microscaling::{FloatFormat, OperandQuantization, RandomStream};

use super::Product;
use crate::specs::{GradientOperands, HotColumns, HotTreatment};
use burn_mx_kernels::MxKernels;
use burn_mx_kernels::internal::{OperandForm, OperandLayout};

/// Hot columns draw no random numbers.
const NO_STREAM: RandomStream = RandomStream::new(0, 0);

impl<B: MxKernels> Product<B> {
    fn hot_columns(&self) -> Option<&HotColumns> {
        self.specs.specs.hot_columns()
    }

    /// Whether columns of the operands may be hot.
    pub(crate) fn has_hot_columns(&self) -> bool {
        self.hot_columns().is_some()
    }

    /// Whether hot columns are a product of their own.
    pub(crate) fn has_parts(&self) -> bool {
        let hot = self.hot_columns();
        hot.is_some_and(|hot| hot.treatment == HotTreatment::Format)
    }

    /// Which operands the gradient products read.
    pub(crate) fn gradient_operands(&self) -> GradientOperands {
        self.specs.specs.gradient_operands()
    }

    /// The elementwise format.
    pub(crate) fn float_format(&self) -> Option<FloatFormat> {
        self.specs.specs.float_format()
    }

    /// # Panics
    ///
    /// If a calibration fixed the scales of the input.
    pub(crate) fn refuse_static_input(&self) {
        assert!(
            self.static_input.is_none(),
            "burn-mx: {self}: static scales cannot be combined with hot columns; allowed: hot_columns none"
        );
    }

    /// Rounded values in the format of hot columns.
    pub(crate) fn in_hot_format(&self, values: FloatTensor<B>, axis: usize) -> FloatTensor<B> {
        match (self.specs.specs.hot_format(), self.hot_columns()) {
            (Some(format), Some(hot)) => {
                B::mx_quantize(values, axis, format, hot.rounding, NO_STREAM)
            }
            _ => values,
        }
    }

    /// The product of rounded operands in the format of hot columns, in `f32`.
    pub(crate) fn multiply_hot(
        &self,
        operands: [(FloatTensor<B>, OperandLayout); 2],
    ) -> FloatTensor<B> {
        let format = self.specs.specs.hot_format();
        let rounding = self.hot_columns().map(|hot| hot.rounding);
        let blocks = format.zip(rounding);
        let bits = match (format, self.float_format()) {
            (Some(format), _) => format.significant_bits(),
            (None, Some(format)) => 1 + format.mantissa_bits(),
            (None, None) => f32::MANTISSA_DIGITS,
        };
        let quantization = OperandQuantization {
            blocks,
            ..OperandQuantization::default()
        };
        Self::multiply_as(operands, quantization, bits)
    }

    /// The product of any values, in `f32`.
    pub(crate) fn multiply_exact(
        &self,
        operands: [(FloatTensor<B>, OperandLayout); 2],
    ) -> FloatTensor<B> {
        let quantization = OperandQuantization::default();
        Self::multiply_as(operands, quantization, f32::MANTISSA_DIGITS)
    }

    fn multiply_as(
        operands: [(FloatTensor<B>, OperandLayout); 2],
        quantization: OperandQuantization,
        significant_bits: u32,
    ) -> FloatTensor<B> {
        let [lhs, rhs] = operands.map(|(values, place)| {
            let form = OperandForm {
                place,
                quantization,
                stream: NO_STREAM,
                tensor_scale: None,
                significant_bits,
            };
            B::kernels().product_operand(values, form)
        });
        B::kernels().product(lhs, rhs)
    }
}
