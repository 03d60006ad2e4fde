//! How the points of attention are rounded, and its products with an accumulator.

use std::sync::Arc;

use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, Slice, TensorData, TensorMetadata, get_device_settings};
use microscaling::{BlockFormat, ElementFormat, RandomStream, Rounding};
use microscaling_product::Accumulation;

use crate::hooks;
use crate::semantics::elementwise::Rounder;
use crate::specs::{PointFormat, kind_of_point};
use crate::tensor::Float;
use crate::tensor::random_streams::{Draws, OpNumber};
use crate::tensor::shared_specs::SharedSpecs;
use burn_mx_kernels::internal::accumulated::{AccumulatedForm, AccumulatedProduct, Sums, multiply};
use burn_mx_kernels::internal::{OperandLayout, in_float32};
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

    /// As [`round`](Self::round), for a product.
    pub(super) fn operand<B: MxKernels>(
        &self,
        name: &'static str,
        format: Option<PointFormat>,
        tensor: FloatTensor<B>,
        axis: usize,
    ) -> PointOperand<B> {
        let rounding = match format {
            Some(PointFormat::Float(_)) => self.shared.specs.round_output(),
            _ => self.shared.specs.round_mx_output(),
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
        accumulation: Option<Accumulation>,
        lhs: PointOperand<B>,
        rhs: PointOperand<B>,
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
        if B::kernels().has_accumulators() && B::kernels().has_accumulated_product(&product) {
            return B::kernels().accumulated_product(&product, [lhs.0, rhs.0]);
        }
        let [lhs, rhs] = [lhs, rhs].map(|(tensor, form)| Arc::new(form.on_host::<B>(tensor)));
        let values = multiply(&product, [&lhs, &rhs], &mut None);
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
