//! How the points of attention are rounded, and its products with an accumulator.

use std::sync::Arc;

use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, Slice, TensorData, TensorMetadata, get_device_settings};
use microscaling::{BlockFormat, ElementFormat, RandomStream, Rounding};
use microscaling_product::{Accumulation, Side};

use super::scope::AttentionMatmul;
use crate::hooks::{
    self, AttentionProduct, Original, ProductObservers, ProductSize, RoundedOperand,
};
use crate::semantics::elementwise::Rounder;
use crate::specs::{PointFormat, ProductOp, Slot, kind_of_point};
use crate::tensor::Float;
use crate::tensor::random_streams::{Draws, OpNumber};
use crate::tensor::shared_specs::SharedSpecs;
use burn_mx_kernels::internal::accumulated::{
    AccumulatedForm, AccumulatedProduct, SumLooks, Sums, multiply,
};
use burn_mx_kernels::internal::{Operand, OperandLayout, in_float32};
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

/// A product of attention: one of the forward pass, or the gradient of one of its operands.
#[derive(Clone, Copy)]
pub(super) struct PointProduct {
    which: AttentionMatmul,
    gradient_of: Option<Side>,
}

impl PointProduct {
    /// q·kᵀ, whose right operand comes transposed.
    pub(super) const QK: Self = Self::new(AttentionMatmul::Scores, None);
    /// p·v.
    pub(super) const PV: Self = Self::new(AttentionMatmul::Value, None);
    /// dS·k.
    pub(super) const DQ: Self = Self::new(AttentionMatmul::Scores, Some(Side::Lhs));
    /// dSᵀ·q.
    pub(super) const DK: Self = Self::new(AttentionMatmul::Scores, Some(Side::Rhs));
    /// dO·vᵀ.
    pub(super) const DP: Self = Self::new(AttentionMatmul::Value, Some(Side::Lhs));
    /// pᵀ·dO.
    pub(super) const DV: Self = Self::new(AttentionMatmul::Value, Some(Side::Rhs));

    const fn new(which: AttentionMatmul, gradient_of: Option<Side>) -> Self {
        Self { which, gradient_of }
    }

    /// The axes of both operands that are summed over.
    fn summed(self) -> [usize; 2] {
        match (self.which, self.gradient_of) {
            (_, None) | (AttentionMatmul::Scores, Some(Side::Lhs)) => [LAST, POSITIONS],
            (AttentionMatmul::Value, Some(Side::Lhs)) => [LAST, LAST],
            (_, Some(Side::Rhs)) => [POSITIONS, POSITIONS],
        }
    }

    /// The slots that observers see for the operands.
    fn slots(self) -> [Slot; 2] {
        match (self.which, self.gradient_of) {
            (_, None) => [Slot::A, Slot::A],
            (AttentionMatmul::Value, Some(Side::Rhs)) => [Slot::ABp, Slot::ABpOs],
            (_, Some(_)) => [Slot::ABpOs, Slot::ABp],
        }
    }

    /// Both operands as a matrix product takes them, which sums over the last axis of the left one.
    pub(super) fn laid<B: MxKernels>(self, [lhs, rhs]: [FloatTensor<B>; 2]) -> [FloatTensor<B>; 2] {
        let [of_lhs, of_rhs] = self.summed();
        let turned = |tensor, summed, place| match summed == place {
            true => tensor,
            false => B::float_transpose(tensor),
        };
        [turned(lhs, of_lhs, LAST), turned(rhs, of_rhs, POSITIONS)]
    }
}

/// A tensor as a product takes it.
#[derive(Clone)]
pub(super) struct PointOperand<B: MxKernels> {
    /// Rounded.
    pub(super) values: FloatTensor<B>,
    /// Before it was rounded to blocks.
    pub(super) before: FloatTensor<B>,
    format: Option<PointFormat>,
    /// The rounding of blocks.
    rounding: Rounding,
    stream: RandomStream,
}

impl<B: MxKernels> PointOperand<B> {
    /// A tensor that no point rounds.
    pub(super) fn unrounded(tensor: FloatTensor<B>) -> Self {
        Self {
            values: tensor.clone(),
            before: tensor,
            format: None,
            rounding: Rounding::NearestEven,
            stream: RandomStream::new(0, 0),
        }
    }

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
    ) -> PointOperand<B> {
        let specs = &self.shared.specs;
        let of_blocks = specs.round_mx_grad_output_grad_input();
        let roundings = [specs.round_grad_input(), of_blocks];
        self.rounded_by::<B>(roundings, name, format, gradient, axis)
    }

    /// As [`operand`](Self::operand), for a gradient product that reads the operand in another format.
    pub(super) fn operand_bp<B: MxKernels>(
        &self,
        name: &'static str,
        format: PointFormat,
        tensor: FloatTensor<B>,
        axis: usize,
    ) -> PointOperand<B> {
        let specs = &self.shared.specs;
        let roundings = [specs.round_output(), specs.round_mx_input_grad_input()];
        self.rounded_by::<B>(roundings, name, Some(format), tensor, axis)
    }

    /// A gradient as two products take it, which sum over these axes. A format without blocks along an axis rounds once.
    pub(super) fn gradient_of_products<B: MxKernels>(
        &self,
        name: &'static str,
        format: Option<PointFormat>,
        gradient: FloatTensor<B>,
        summed: [usize; 2],
    ) -> [PointOperand<B>; 2] {
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
            rounding: of_blocks,
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

    /// The product of two operands, in float32 or as the unit sums up.
    pub(super) fn product<B: MxKernels>(
        &self,
        which: PointProduct,
        accumulation: Option<Accumulation>,
        operands: [PointOperand<B>; 2],
    ) -> FloatTensor<B> {
        let Some(observers) = self.observers::<B>(which, accumulation, &operands) else {
            return self.multiply::<B>(which, accumulation, operands, &mut None);
        };
        for (at, side) in [Side::Lhs, Side::Rhs].into_iter().enumerate() {
            let operand = &operands[at];
            observers.rounded_operand(&RoundedOperand::<B> {
                op: ProductOp::Matmul,
                slot: which.slots()[at],
                side,
                before_and_after: [&operand.before, &operand.values],
                point: operand.format,
                axis: which.summed()[at],
                is_hot: false,
            });
            if observers.compare_results() {
                observers.keep(Original {
                    side: Some(side),
                    operand: Operand::of_values(operand.before.clone()),
                    significant_bits: f32::MANTISSA_DIGITS,
                });
            }
        }
        let mut looks = accumulation.and_then(|unit| observers.looks_at_sums(unit));
        let product = self.multiply::<B>(which, accumulation, operands, &mut looks);
        observers.result_of(&product, |lhs, rhs, _| {
            let [lhs, rhs] = which.laid::<B>([lhs, rhs]);
            float32::<B>(lhs, rhs)
        });
        if let Some(looks) = looks {
            observers.sums(&looks.into_statistics());
        }
        product
    }

    /// The observers of a product, if there are any.
    fn observers<B: MxKernels>(
        &self,
        product: PointProduct,
        accumulator: Option<Accumulation>,
        operands: &[PointOperand<B>; 2],
    ) -> Option<ProductObservers<B>> {
        let layer = self.seen_in?;
        let shapes = operands.each_ref().map(|operand| operand.values.shape());
        let [lhs, rhs] = &shapes;
        let batch = [0, 1].map(|axis| match lhs[axis] {
            1 => rhs[axis],
            length => length,
        });
        let [summed, of_rhs] = product.summed();
        let free = |shape: &Shape, summed: usize| shape[LAST + POSITIONS - summed];
        let result = batch[0] * batch[1] * free(lhs, summed) * free(rhs, of_rhs);
        ProductObservers::of_attention(&AttentionProduct {
            which: product.which,
            gradient_of: product.gradient_of,
            label: layer,
            specs: self.shared,
            formats: operands.each_ref().map(|operand| operand.format),
            accumulator,
            elements: shapes.each_ref().map(|shape| shape.num_elements() as u64),
            size: ProductSize {
                macs: (result * lhs[summed]) as u64,
                result_elements: result as u64,
            },
        })
    }

    /// The product, with looks at its sums if somebody wants them.
    fn multiply<B: MxKernels>(
        &self,
        which: PointProduct,
        accumulation: Option<Accumulation>,
        operands: [PointOperand<B>; 2],
        looks: &mut Option<SumLooks>,
    ) -> FloatTensor<B> {
        let is_empty = |operand: &PointOperand<B>| operand.values.shape().num_elements() == 0;
        let Some(accumulation) = accumulation.filter(|_| !operands.iter().any(is_empty)) else {
            let [lhs, rhs] = which.laid::<B>(operands.map(|operand| operand.values));
            return float32::<B>(lhs, rhs);
        };
        let [lhs, rhs] = operands;
        let device = B::float_device(&lhs.values);
        let [of_lhs, of_rhs] = which.summed();
        let [lhs, rhs] = [(lhs, of_lhs), (rhs, of_rhs)]
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
            Some(PointFormat::Block(format)) => Some((format, operand.rounding)),
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
