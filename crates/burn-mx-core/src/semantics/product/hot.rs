//! The parts of a linear layer's product that hot columns have for themselves.

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use microscaling::{FloatFormat, OperandQuantization, RandomStream};

use super::Product;
use crate::hooks::RoundedOperand;
use crate::specs::{GradientOperands, HotColumns, HotTreatment, PointFormat, Slot};
use crate::tensor::Float;
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

    /// The product of these operands, which `compute` computes in parts. Observers see the size and the result of the whole.
    pub(crate) fn in_parts(
        &self,
        operands: [(Slot, Float<B>, OperandLayout); 2],
        compute: impl FnOnce() -> FloatTensor<B>,
    ) -> FloatTensor<B> {
        let Some(observers) = &self.observers else {
            return compute();
        };
        let (_, lhs, place) = &operands[0];
        let terms = place.shape_of(lhs.shape());
        let terms = terms[place.summed_axis(terms.num_dims())];
        if observers.compare_results() {
            for (slot, tensor, place) in operands {
                observers.keep(self.original(slot, tensor, Some(place)));
            }
        }
        self.in_parts.set(true);
        let result = compute();
        self.in_parts.set(false);
        self.summed.set(terms);
        self.observe_matrix(&result);
        result
    }

    /// Shows observers hot columns in their format.
    fn observe_hot(&self, slot: Slot, values: &FloatTensor<B>, place: OperandLayout) {
        let observers = self.observers.as_ref();
        let Some(observers) = observers.filter(|observers| observers.want_operand(slot)) else {
            return;
        };
        let rank = values.shape().num_dims();
        let format = self.specs.specs.hot_format();
        let quantized = match format {
            Some(format) => self.in_hot_format(values.clone(), place.block_axis(rank, &format)),
            None => values.clone(),
        };
        observers.rounded_operand(&RoundedOperand::<B> {
            op: self.op,
            slot,
            side: place.side,
            before_and_after: [values, &quantized],
            point: format.map(PointFormat::Block),
            axis: place.summed_axis(rank),
            is_hot: true,
        });
    }

    /// The product of rounded operands in the format of hot columns, in `f32`.
    pub(crate) fn multiply_hot(
        &self,
        operands: [(Slot, FloatTensor<B>, OperandLayout); 2],
    ) -> FloatTensor<B> {
        for (slot, values, place) in &operands {
            self.observe_hot(*slot, values, *place);
        }
        let operands = operands.map(|(_, values, place)| (values, place));
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
                tensor_scale: None,
                significant_bits,
            };
            B::kernels().product_operand(values, form)
        });
        B::kernels().product(lhs, rhs)
    }
}
