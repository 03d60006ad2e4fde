//! How the points of attention are rounded, and its products with an accumulator.

use std::sync::Arc;

use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, Slice, TensorData, TensorMetadata, get_device_settings};
use microscaling::{BlockFormat, ElementFormat, ErrorParts, RandomStream, Rounding};
use microscaling_product::{Accumulation, Side};

use super::scope::AttentionMatmul;
use crate::hooks::{
    self, AttentionProduct, DialectDifference, ObservedStatistics, OperandView, Original,
    ProductObservers, ProductSize, View,
};
use crate::semantics::elementwise::Rounder;
use crate::specs::{PointFormat, Slot, kind_of_point};
use crate::tensor::Float;
use crate::tensor::random_streams::{Draws, OpNumber};
use crate::tensor::shared_specs::SharedSpecs;
use burn_mx_kernels::internal::accumulated::{
    AccumulatedForm, AccumulatedProduct, SumLooks, Sums, multiply,
};
use burn_mx_kernels::internal::{Operand, OperandLayout, in_float32, read_values};
use burn_mx_kernels::{MxKernels, to_f32};

/// The last axis of tensors of attention: features, or keys.
pub(super) const LAST: usize = 3;
/// The axis of positions: queries, or keys.
pub(super) const POSITIONS: usize = 2;

/// Rounds the points of one attention, in the order of its formula.
pub(crate) struct Points {
    shared: &'static SharedSpecs,
    draws: Draws,
    /// Whether observers see the points, in this layer.
    seen_in: Option<Option<&'static str>>,
}

/// A tensor as a product takes it.
#[derive(Clone)]
pub(super) struct PointOperand<B: MxKernels> {
    /// Rounded.
    pub(super) values: FloatTensor<B>,
    /// Before it was rounded to blocks.
    before: FloatTensor<B>,
    format: Option<PointFormat>,
    stream: RandomStream,
}

impl<B: MxKernels> PointOperand<B> {
    /// With another view of the tensors.
    pub(super) fn map(self, view: impl Fn(FloatTensor<B>) -> FloatTensor<B>) -> Self {
        Self {
            values: view(self.values),
            before: view(self.before),
            ..self
        }
    }
}

impl Points {
    /// The points of the attention with this number: the same random numbers in each pass.
    pub(super) fn replay(shared: &'static SharedSpecs, number: OpNumber) -> Self {
        let draws = Draws::replay(number);
        Self {
            shared,
            draws,
            seen_in: None,
        }
    }

    /// The same points, which observers see in this layer.
    pub(super) fn seen_in(self, layer: Option<&'static str>) -> Self {
        Self {
            seen_in: Some(layer),
            ..self
        }
    }

    /// Shows a rounding of this op, by its name.
    fn show<B: MxKernels>(
        &self,
        (op, name): (&'static str, &'static str),
        format: PointFormat,
        before_and_after: [&FloatTensor<B>; 2],
    ) {
        let Some(layer) = self.seen_in else { return };
        if let Some(observers) = hooks::elementwise(op, layer, format) {
            observers.rounding::<B>(name, before_and_after);
        }
    }

    /// A tensor in float32, rounded to the elementwise format.
    pub(super) fn elementwise<B: MxKernels>(
        &self,
        name: &'static str,
        rounding: Rounding,
        tensor: Float<B>,
    ) -> FloatTensor<B> {
        let Some(rounder) = Rounder::new(self.shared, rounding) else {
            return to_f32::<B>(tensor.inner);
        };
        let is_rounded = rounder.has_rounded(&tensor.meta);
        let before = to_f32::<B>(tensor.inner.clone());
        let rounded = rounder.operand::<B>(tensor, &self.draws);
        if !is_rounded {
            let (format, _) = rounder.format_and_rounding();
            self.show::<B>(("attention", name), format.into(), [&before, &rounded]);
        }
        rounded
    }

    /// The tensor at a point of this format, with blocks along an axis.
    pub(super) fn round<B: MxKernels>(
        &self,
        name: &'static str,
        format: Option<PointFormat>,
        tensor: FloatTensor<B>,
        axis: usize,
    ) -> FloatTensor<B> {
        self.operand::<B>(name, format, tensor, axis).values
    }

    /// As [`round`](Self::round), along the keys. Scores of −Inf, which masks hide, count as 0 and stay.
    pub(super) fn round_shown<B: MxKernels>(
        &self,
        name: &'static str,
        format: Option<PointFormat>,
        scores: FloatTensor<B>,
    ) -> FloatTensor<B> {
        if format.is_none() {
            return scores;
        }
        let settings = get_device_settings::<B>(&B::float_device(&scores));
        let infinity = f32::NEG_INFINITY;
        let hidden = B::float_equal_elem(scores.clone(), infinity.into(), settings.bool_dtype);
        let shown = B::float_mask_fill(scores, hidden.clone(), 0.0.into());
        let rounded = self.round::<B>(name, format, shown, LAST);
        B::float_mask_fill(rounded, hidden, infinity.into())
    }

    /// As [`round`](Self::round), for a product.
    pub(super) fn operand<B: MxKernels>(
        &self,
        name: &'static str,
        format: Option<PointFormat>,
        tensor: FloatTensor<B>,
        axis: usize,
    ) -> PointOperand<B> {
        let specs = &self.shared.specs;
        let roundings = [specs.round_output(), specs.round_mx_output()];
        self.rounded_by::<B>(roundings, name, format, tensor, axis)
    }

    /// A gradient at a point of this format, with blocks along an axis.
    pub(super) fn gradient<B: MxKernels>(
        &self,
        name: &'static str,
        format: Option<PointFormat>,
        gradient: FloatTensor<B>,
        axis: usize,
    ) -> FloatTensor<B> {
        let specs = &self.shared.specs;
        let of_blocks = specs.round_mx_grad_output_grad_input();
        let roundings = [specs.round_grad_input(), of_blocks];
        let rounded = self.rounded_by::<B>(roundings, name, format, gradient, axis);
        rounded.values
    }

    /// A gradient as two products take it, which sum over these axes. A format without blocks along an axis rounds once.
    pub(super) fn gradient_of_products<B: MxKernels>(
        &self,
        name: &'static str,
        format: Option<PointFormat>,
        gradient: FloatTensor<B>,
        summed: [usize; 2],
    ) -> [FloatTensor<B>; 2] {
        match format {
            Some(PointFormat::Block(blocks)) if !blocks.square => {
                summed.map(|axis| self.gradient::<B>(name, format, gradient.clone(), axis))
            }
            _ => {
                let rounded = self.gradient::<B>(name, format, gradient, LAST);
                [rounded.clone(), rounded]
            }
        }
    }

    /// As [`operand`](Self::operand), by the rounding of floats and the rounding of blocks and elements.
    fn rounded_by<B: MxKernels>(
        &self,
        [of_floats, of_blocks]: [Rounding; 2],
        name: &'static str,
        format: Option<PointFormat>,
        tensor: FloatTensor<B>,
        axis: usize,
    ) -> PointOperand<B> {
        let rounding = match format {
            Some(PointFormat::Float(_)) => of_floats,
            _ => of_blocks,
        };
        let stream = match format {
            Some(_) => self.draws.next(rounding),
            None => RandomStream::new(0, 0),
        };
        let before = tensor.clone();
        let values = match format {
            _ if tensor.shape().num_elements() == 0 => tensor,
            None => tensor,
            Some(PointFormat::Float(format)) => B::float_round_to(tensor, format, rounding, stream),
            Some(PointFormat::Element(element)) => {
                without_scale::<B>(tensor, element, rounding, stream)
            }
            Some(PointFormat::Block(format)) => {
                let axis = if format.square { LAST } else { axis };
                B::mx_quantize(tensor, axis, format, rounding, stream)
            }
        };
        if let Some(format) = format {
            self.show::<B>((name, "output"), format, [&before, &values]);
        }
        PointOperand {
            values,
            before,
            format,
            stream,
        }
    }

    /// As [`operand`](Self::operand), with this many positions in one line of blocks along the features.
    pub(super) fn operand_in_lines<B: MxKernels>(
        &self,
        name: &'static str,
        format: Option<PointFormat>,
        tensor: FloatTensor<B>,
        rows: usize,
    ) -> PointOperand<B> {
        let shape = tensor.shape();
        let [batch, heads, length, features] = [0, 1, 2, 3].map(|axis| shape[axis]);
        if rows == 0 || shape.num_elements() == 0 {
            return self.operand::<B>(name, format, tensor, LAST);
        }
        let lines = length.div_ceil(rows);
        let missing = Shape::new([batch, heads, lines * rows - length, features]);
        let zeros = TensorData::new(vec![0.0_f32; missing.num_elements()], missing.clone());
        let padded = match missing.num_elements() {
            0 => tensor,
            _ => {
                let zeros = B::float_from_data(zeros, &B::float_device(&tensor));
                B::float_cat(vec![tensor, zeros], POSITIONS)
            }
        };
        let lines_of = Shape::new([batch, heads, lines, rows * features]);
        let operand = self.operand::<B>(name, format, B::float_reshape(padded, lines_of), LAST);
        operand.map(|tensor| {
            let all = Shape::new([batch, heads, lines * rows, features]);
            part::<B>(B::float_reshape(tensor, all), POSITIONS, 0..length)
        })
    }

    /// `lhs · rhs` over the last axis of `lhs` and the axis before of `rhs`.
    pub(super) fn product<B: MxKernels>(
        &self,
        which: AttentionMatmul,
        accumulation: Option<Accumulation>,
        lhs: PointOperand<B>,
        rhs: PointOperand<B>,
    ) -> FloatTensor<B> {
        let Some(observers) = self.observers::<B>(which, accumulation, [&lhs, &rhs]) else {
            return self.multiply::<B>(accumulation, [lhs, rhs], &mut None);
        };
        for (side, operand) in [(Side::Lhs, &lhs), (Side::Rhs, &rhs)] {
            if observers.want_operand(Slot::A) {
                observers.operand(&PointView::<B> { side, operand });
            }
            if observers.compare_results() {
                observers.keep(Original {
                    side: Some(side),
                    operand: Operand::of_values(operand.before.clone()),
                    significant_bits: f32::MANTISSA_DIGITS,
                });
            }
        }
        let mut looks = accumulation.and_then(|unit| observers.looks_at_sums(unit));
        let product = self.multiply::<B>(accumulation, [lhs, rhs], &mut looks);
        observers.result_of(&product, |lhs, rhs, _| float32::<B>(lhs, rhs));
        if let Some(looks) = looks {
            observers.sums(&looks.into_statistics());
        }
        product
    }

    /// The observers of a product, if there are any.
    fn observers<B: MxKernels>(
        &self,
        which: AttentionMatmul,
        accumulator: Option<Accumulation>,
        operands: [&PointOperand<B>; 2],
    ) -> Option<ProductObservers<B>> {
        self.seen_in?;
        let shapes = operands.map(|operand| operand.values.shape());
        let [lhs, rhs] = &shapes;
        let batch = [0, 1].map(|axis| match lhs[axis] {
            1 => rhs[axis],
            length => length,
        });
        let result = batch[0] * batch[1] * lhs[POSITIONS] * rhs[LAST];
        ProductObservers::of_attention(&AttentionProduct {
            which,
            specs: self.shared,
            formats: operands.map(|operand| operand.format),
            accumulator,
            elements: shapes.each_ref().map(|shape| shape.num_elements() as u64),
            size: ProductSize {
                macs: (result * lhs[LAST]) as u64,
                result_elements: result as u64,
            },
        })
    }

    /// The product, with looks at its sums if somebody wants them.
    fn multiply<B: MxKernels>(
        &self,
        accumulation: Option<Accumulation>,
        [lhs, rhs]: [PointOperand<B>; 2],
        looks: &mut Option<SumLooks>,
    ) -> FloatTensor<B> {
        let Some(accumulation) = accumulation else {
            return float32::<B>(lhs.values, rhs.values);
        };
        let device = B::float_device(&lhs.values);
        let [lhs, rhs] = [(lhs, LAST), (rhs, POSITIONS)]
            .map(|(operand, summed)| self.accumulated(operand, summed));
        let shapes = [&lhs.0, &rhs.0].map(|tensor| tensor.shape().to_vec());
        let product = AccumulatedProduct::new(accumulation, [lhs.1, rhs.1], shapes, None);
        let product = product.unwrap_or_else(|error| panic!("burn-mx: attention: {error}"));
        let on_device =
            B::kernels().has_accumulators() && B::kernels().has_accumulated_product(&product);
        if looks.is_none() && on_device {
            return B::kernels().accumulated_product(&product, [lhs.0, rhs.0]);
        }
        let [lhs, rhs] = [lhs, rhs].map(|(tensor, form)| Arc::new(form.on_host::<B>(tensor)));
        let values = multiply(&product, [&lhs, &rhs], looks);
        let values = values.unwrap_or_else(|error| panic!("burn-mx: attention: {error}"));
        B::float_from_data(TensorData::new(values, product.shape()), &device)
    }

    /// An operand with its summed axis, as a matrix unit takes it.
    fn accumulated<B: MxKernels>(
        &self,
        operand: PointOperand<B>,
        summed: usize,
    ) -> (FloatTensor<B>, AccumulatedForm) {
        let blocks = match operand.format {
            Some(PointFormat::Block(format)) => Some((format, self.shared.specs.round_mx_output())),
            _ => None,
        };
        let form = AccumulatedForm {
            kind: kind_of_point(operand.format).expect("the specs were resolved"),
            blocks,
            stream: operand.stream,
            sums: Sums {
                summed,
                free: LAST + POSITIONS - summed,
                flat: false,
            },
        };
        match blocks {
            Some(_) => (operand.before, form),
            None => (operand.values, form),
        }
    }
}

/// An operand as observers see it.
struct PointView<'a, B: MxKernels> {
    side: Side,
    operand: &'a PointOperand<B>,
}

impl<B: MxKernels> PointView<'_, B> {
    fn figures(before_and_after: [&FloatTensor<B>; 2]) -> ObservedStatistics {
        ObservedStatistics::of(B::kernels().quantization_statistics(before_and_after, 0, None))
    }
}

impl<B: MxKernels> View for PointView<'_, B> {
    fn shape(&self) -> Shape {
        self.operand.values.shape()
    }

    fn statistics(&self) -> ObservedStatistics {
        Self::figures([&self.operand.before, &self.operand.values])
    }

    fn values(&self) -> [Vec<f32>; 2] {
        [&self.operand.before, &self.operand.values].map(|x| read_values::<B>(x.clone()))
    }
}

impl<B: MxKernels> OperandView for PointView<'_, B> {
    fn slot(&self) -> Slot {
        Slot::A
    }

    fn side(&self) -> Option<Side> {
        Some(self.side)
    }

    fn format(&self) -> Option<BlockFormat> {
        match self.operand.format {
            Some(PointFormat::Block(format)) => Some(format),
            _ => None,
        }
    }

    fn point(&self) -> Option<PointFormat> {
        self.operand.format
    }

    /// In the format of activations of these specs, with blocks along the summed axis.
    fn statistics_by(&self, specs: &'static SharedSpecs, number: u64) -> ObservedStatistics {
        let before = &self.operand.before;
        let Some(format) = specs.specs.block_format(Slot::A) else {
            return Self::figures([before, before]);
        };
        let axis = match self.side {
            Side::Rhs if !format.square => POSITIONS,
            _ => LAST,
        };
        let rounding = specs.specs.round_mx_output();
        let stream = specs.draws_beside(number).next(rounding);
        let values = B::mx_quantize(before.clone(), axis, format, rounding, stream);
        Self::figures([before, &values])
    }

    fn error_parts(&self) -> Option<ErrorParts> {
        None
    }

    fn dialect_difference(&self) -> Option<DialectDifference> {
        None
    }

    fn error_parts_by(&self, _: &'static SharedSpecs, _: u64) -> Option<ErrorParts> {
        None
    }
}

/// `lhs · rhs` in float32.
pub(super) fn float32<B: MxKernels>(lhs: FloatTensor<B>, rhs: FloatTensor<B>) -> FloatTensor<B> {
    let places = [OperandLayout::LHS, OperandLayout::RHS];
    in_float32::<B>([&lhs, &rhs], places).unwrap_or_else(|| B::float_matmul(lhs, rhs))
}

/// These positions of an axis.
pub(super) fn part<B: MxKernels>(
    tensor: FloatTensor<B>,
    axis: usize,
    positions: core::ops::Range<usize>,
) -> FloatTensor<B> {
    let shape = tensor.shape();
    if positions == (0..shape[axis]) {
        return tensor;
    }
    let mut slices = [0, 1, 2, 3].map(|axis| Slice::from(0..shape[axis]));
    slices[axis] = Slice::from(positions);
    B::float_slice(tensor, &slices)
}

/// Rounded to elements without a scale. A block rounds them: its first element is the largest one of the format, which makes the
/// scale 1.
fn without_scale<B: MxKernels>(
    tensor: FloatTensor<B>,
    element: ElementFormat,
    rounding: Rounding,
    stream: RandomStream,
) -> FloatTensor<B> {
    let shape = tensor.shape();
    let (device, length) = (B::float_device(&tensor), shape[LAST]);
    let max = element.max();
    let mut pins = shape.clone();
    pins[LAST] = 1;
    let pins = TensorData::new(vec![max; pins.num_elements()], pins);
    let limited = B::float_clamp(tensor.clone(), (-max).into(), max.into());
    // Some devices' `clamp` makes a number of a NaN.
    let nan = B::float_is_nan(tensor, get_device_settings::<B>(&device).bool_dtype);
    let limited = B::float_mask_fill(limited, nan, f32::NAN.into());
    let pinned = B::float_cat(vec![B::float_from_data(pins, &device), limited], LAST);
    let line = BlockFormat::mx(element, 0);
    let rounded = B::mx_quantize(pinned, LAST, line, rounding, stream);
    part::<B>(rounded, LAST, 1..length + 1)
}
