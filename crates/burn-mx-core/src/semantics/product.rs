//! The seam of all products: every emulated matrix product and convolution is one [`Product`], and each of its operands
//! passes here.

mod accumulated;
mod hot;
mod operands;
mod roundings;
mod static_input;
mod straight_through;

use core::cell::{Cell, OnceCell};
use core::fmt::{self, Display};

use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, TensorMetadata};
use microscaling::{BlockFormat, Signs};
use microscaling_product::Accumulation;

use super::elementwise::Rounder;
use super::stored;
use crate::hooks::{self, ProductCall, ProductObservers, ProductSize, RoundingObservers};
use crate::phase;
use crate::specs::{Hadamard, ProductKind, ProductOp, ResolvedSpecs, Slot, StaticInput};
use crate::tensor::random_streams::Draws;
use crate::tensor::shared_specs::SharedSpecs;
use crate::tensor::{Float, Meta};
use burn_mx_kernels::internal::{BinaryOp, KernelOp, OpRounding, Operand};
use burn_mx_kernels::{MxKernels, to_f32};
pub(crate) use operands::Along;
pub(crate) use straight_through::ForwardOperand;

/// The kinds of a product's operands. The kinds decide whether operands have blocks if their slots have a format.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operands {
    /// At least one is a weight.
    WithWeight,
    /// Two activations.
    Activations,
    /// An activation and a constant.
    WithConstant,
}

impl Operands {
    fn have_blocks(self, specs: &ResolvedSpecs) -> bool {
        match self {
            Self::WithWeight => true,
            Self::Activations => specs.quantize_matmul(),
            Self::WithConstant => specs.quantize_matmul() && specs.quantize_constants(),
        }
    }
}

/// One emulated product: its op, its layer, and the data that its two operands share.
#[derive(Debug)]
pub(crate) struct Product<B: MxKernels> {
    op: ProductOp,
    kind: ProductKind,
    specs: &'static SharedSpecs,
    /// Path of the parameter whose layer the product belongs to, where one is known.
    label: Option<&'static str>,
    operands: Operands,
    /// The Hadamard transform of both operands, by signs that are drawn once: others for the second operand would make it
    /// another product.
    hadamard: Option<(Hadamard, Signs)>,
    /// The margins' factor in both operands together; the product is divided by this factor.
    margins: Cell<f32>,
    /// The scales of the input, if a calibration fixed them for the layer whose weight this is. Activations may carry a layer's
    /// specs on to other products, which do not read this input.
    static_input: Option<&'static StaticInput>,
    /// The matrix unit that sums up, if it is not the backend's own float32.
    accumulation: Option<Accumulation>,
    /// Where the result goes that is computed in host memory.
    device: OnceCell<B::Device>,
    /// The random numbers of every rounding.
    draws: Draws,
    /// The observers of this product.
    observers: Option<ProductObservers<B>>,
    /// How many products are in each sum of a matrix product that is observed.
    summed: Cell<usize>,
    /// Whether operands and results are parts of others, which observers see as a whole.
    in_parts: Cell<bool>,
    /// The observers of the result's rounding to the elementwise format.
    rounding_observers: Option<RoundingObservers>,
}

impl<B: MxKernels> Product<B> {
    /// A product with a weight.
    pub(crate) fn new(
        op: ProductOp,
        kind: ProductKind,
        specs: &'static SharedSpecs,
        label: Option<&'static str>,
    ) -> Self {
        Self::of(op, kind, specs, label, Operands::WithWeight)
    }

    /// A product of these operands.
    pub(crate) fn of(
        op: ProductOp,
        kind: ProductKind,
        specs: &'static SharedSpecs,
        label: Option<&'static str>,
        operands: Operands,
    ) -> Self {
        let specs = hooks::specs_of_product(kind, specs);
        let draws = specs.draws_of_product(kind.is_gradient());
        let mut product = Self::by(op, kind, specs, draws, operands);
        product.label = label;
        product.observers = ProductObservers::of(&ProductCall {
            op,
            kind,
            specs,
            label,
        });
        let observers = product.observers.as_ref();
        let layer = observers.and_then(ProductObservers::layer).or(label);
        let format = specs.specs.float_format();
        product.rounding_observers =
            format.and_then(|format| hooks::elementwise(op.name(), layer, format));
        log::trace!(target: "burn_mx::product", "{product}");
        product
    }

    /// A forward product that nobody observes, to quantize its operands alone; nothing is drawn for them.
    pub(crate) fn unobserved(op: ProductOp, specs: &'static SharedSpecs) -> Self {
        let mut product = Self::by(
            op,
            ProductKind::Forward,
            specs,
            specs.common_draws(),
            Operands::WithWeight,
        );
        product.static_input = specs.specs.static_input();
        product
    }

    /// The forward product of a layer with this weight, by the scales of its input that the weight's own specs have.
    pub(crate) fn of_weight(mut self, weight: Meta) -> Self {
        self.static_input = weight.specs.and_then(|shared| shared.specs.static_input());
        self
    }

    /// A product that nobody observes.
    fn by(
        op: ProductOp,
        kind: ProductKind,
        specs: &'static SharedSpecs,
        draws: Draws,
        operands: Operands,
    ) -> Self {
        let mut product = Self {
            op,
            kind,
            specs,
            label: None,
            operands,
            hadamard: None,
            static_input: None,
            margins: Cell::new(1.0),
            accumulation: specs.specs.accumulator(kind),
            device: OnceCell::new(),
            draws,
            observers: None,
            summed: Cell::new(0),
            in_parts: Cell::new(false),
            rounding_observers: None,
        };
        if operands.have_blocks(&specs.specs) {
            let with_signs =
                |transform: Hadamard| (transform, product.draws.signs(transform.signs));
            product.hadamard = specs.specs.hadamard(kind).map(with_signs);
        } else {
            product.sum_in_float32_without_unit();
        }
        product
    }

    /// The block format of a slot's operand, if it is quantized in blocks.
    fn block_format(&self, slot: Slot) -> Option<BlockFormat> {
        let format = self.specs.specs.block_format(slot);
        format.filter(|_| self.operands.have_blocks(&self.specs.specs))
    }

    /// The tensor in `f32`, rounded to the elementwise format if there is one.
    fn rounded(&self, rounder: Option<Rounder>, tensor: Float<B>) -> FloatTensor<B> {
        match rounder {
            Some(rounder) => rounder.operand::<B>(tensor, &self.draws),
            None => to_f32::<B>(tensor.inner),
        }
    }

    /// A tensor beside the operands that is only rounded to the elementwise format: a bias, rounded like a weight, or a
    /// deformable convolution's mask, rounded like an activation.
    pub(crate) fn elementwise_operand(&self, slot: Slot, tensor: Float<B>) -> FloatTensor<B> {
        self.rounded(self.rounder(slot), tensor)
    }

    /// `lhs · rhs` over the last two axes, in `f32`; the others broadcast.
    pub(crate) fn multiply(
        &self,
        lhs: Operand<FloatTensor<B>>,
        rhs: Operand<FloatTensor<B>>,
    ) -> FloatTensor<B> {
        let result = match self.accumulation {
            Some(accumulation) => self.accumulate(accumulation, None, [lhs, rhs]),
            None => B::kernels().product(lhs, rhs),
        };
        let result = self.without_margins(result);
        if !self.in_parts.get() {
            self.observe_matrix(&result);
        }
        result
    }

    /// Shows observers the result of a matrix product.
    fn observe_matrix(&self, result: &FloatTensor<B>) {
        if let Some(observers) = &self.observers {
            let result_elements = result.shape().num_elements();
            observers.size(ProductSize {
                macs: (result_elements * self.summed.get()) as u64,
                result_elements: result_elements as u64,
            });
            observers.result(result);
        }
    }

    /// The bias [1, N] of a linear layer, rounded like a weight. Where the result is rounded so, too, the kernel that adds the
    /// bias rounds it.
    pub(crate) fn bias(&self, bias: Float<B>) -> FloatTensor<B> {
        let columns = bias.shape()[0];
        let rounder = self.rounder(Slot::W);
        let with_result = rounder.is_some()
            && rounder == Rounder::new(self.specs, self.result_rounding())
            && self.result_in_one_pass().is_some()
            && !self.observes_roundings();
        let bias = match with_result {
            true => to_f32::<B>(bias.inner),
            false => self.rounded(rounder, bias),
        };
        B::float_reshape(bias, Shape::new([1, columns]))
    }

    /// `lhs · rhs`, rounded, plus a [bias](Self::bias), rounded again.
    pub(crate) fn multiply_rounded(
        &self,
        lhs: Operand<FloatTensor<B>>,
        rhs: Operand<FloatTensor<B>>,
        bias: Option<FloatTensor<B>>,
    ) -> FloatTensor<B> {
        let is_seen = self.observers.is_some() || self.rounding_observers.is_some();
        let is_sum_alone = self.accumulation.is_none() && self.margins.get() == 1.0;
        match self
            .result_in_one_pass()
            .filter(|_| is_sum_alone && !is_seen)
        {
            Some(rounding) => B::kernels().rounded_product(lhs, rhs, rounding, bias),
            None => {
                let result = self.multiply(lhs, rhs);
                self.round_with_bias(result, bias)
            }
        }
    }

    /// A result, rounded, plus a [bias](Self::bias), rounded again.
    pub(crate) fn round_with_bias(
        &self,
        result: FloatTensor<B>,
        bias: Option<FloatTensor<B>>,
    ) -> FloatTensor<B> {
        match bias {
            Some(bias) => self.add_rounded(result, bias),
            None => self.round(result),
        }
    }

    /// How the result is rounded, if no random numbers are drawn.
    fn result_in_one_pass(&self) -> Option<OpRounding> {
        Rounder::new(self.specs, self.result_rounding())?.in_one_pass(true)
    }

    /// A product, rounded, plus a [bias](Self::bias), rounded again.
    fn add_rounded(&self, result: FloatTensor<B>, bias: FloatTensor<B>) -> FloatTensor<B> {
        const WITH_BIAS: &str = "output with bias";
        match self.result_in_one_pass() {
            Some(rounding) => {
                let shown = self.observes_roundings().then(|| result.clone());
                let op = KernelOp::Binary(BinaryOp::Add, rounding);
                let sum = B::kernel(op, [result, bias.clone()]);
                if let Some(result) = shown {
                    let unrounded = B::float_add(self.round(result), bias);
                    self.observe_rounding(WITH_BIAS, || [unrounded, sum.clone()]);
                }
                sum
            }
            None => {
                let result = self.round(result);
                self.round_as(WITH_BIAS, B::float_add(result, bias))
            }
        }
    }

    /// The product of the operands as they were before they were multiplied by their margins.
    pub(crate) fn without_margins(&self, result: FloatTensor<B>) -> FloatTensor<B> {
        match self.margins.get() {
            1.0 => result,
            margins => B::float_div_scalar(result, margins.into()),
        }
    }

    /// Shows observers the result of a product that is not a matrix product, and has this number of multiplications. `op` computes the
    /// product from two operands with at most this number of significant bits.
    pub(crate) fn observe_result(
        &self,
        result: &FloatTensor<B>,
        macs: usize,
        op: impl FnOnce(FloatTensor<B>, FloatTensor<B>, u32) -> FloatTensor<B>,
    ) {
        if let Some(observers) = &self.observers {
            observers.size(ProductSize {
                macs: macs as u64,
                result_elements: result.shape().num_elements() as u64,
            });
            observers.result_of(result, op);
        }
    }

    /// The product of the operands, rounded to the elementwise format.
    pub(crate) fn round(&self, result: FloatTensor<B>) -> FloatTensor<B> {
        self.round_as(self.kind.result(), result)
    }

    /// The result, rounded to the elementwise format, under the name that observers see.
    pub(crate) fn round_as(&self, name: &'static str, result: FloatTensor<B>) -> FloatTensor<B> {
        let Some(rounder) = Rounder::new(self.specs, self.result_rounding()) else {
            return result;
        };
        if self.rounding_observers.is_none() {
            return rounder.round::<B>(result, &self.draws);
        }
        let rounded = rounder.round::<B>(result.clone(), &self.draws);
        self.observe_rounding(name, || [result, rounded.clone()]);
        rounded
    }

    /// Shows a rounding to the elementwise format to the product's observers.
    pub(crate) fn observe_rounding(
        &self,
        name: &'static str,
        before_and_after: impl FnOnce() -> [FloatTensor<B>; 2],
    ) {
        if let Some(observers) = &self.rounding_observers {
            observers.rounding::<B>(name, before_and_after().each_ref());
        }
    }

    /// Whether anybody sees roundings to the elementwise format.
    pub(crate) fn observes_roundings(&self) -> bool {
        self.rounding_observers.is_some()
    }

    /// The product of the operands, rounded to the elementwise format, as a tensor with this meta.
    pub(crate) fn finish(&self, result: FloatTensor<B>, meta: Meta) -> Float<B> {
        let rounded = self.round(result);
        self.finish_rounded(rounded, meta)
    }

    /// [`finish`](Self::finish) for a result that is rounded already.
    pub(crate) fn finish_rounded(&self, result: FloatTensor<B>, mut meta: Meta) -> Float<B> {
        meta.rounded = self.specs.specs.float_format();
        stored::<B>(result, meta)
    }
}

impl<B: MxKernels> Display for Product<B> {
    /// The product's name in the log: `weight gradient of linear blocks.0.expand.weight`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.kind.result(), self.op)?;
        match self.label {
            Some(label) => write!(f, " {label}"),
            None => Ok(()),
        }
    }
}

/// Whether a backward product is to be quantized.
///
/// # Panics
///
/// If the backward product of emulated tensors arrives outside of `MxAutodiff`'s backward pass. Then plain `Autodiff`
/// drives the graph, and its forward products may be backward ones.
pub(crate) fn quantize_backward(shared: &'static SharedSpecs, operation: &str) -> bool {
    assert!(
        phase::is_backward(),
        "burn-mx: `{operation}` was called outside of MxAutodiff's backward pass. `Autodiff<MxBackend<B>>` cannot \
         tell backward products from forward ones, so it does not train in MX formats: use `MxAutodiff<B>` \
         instead of `Autodiff<MxBackend<B>>`."
    );
    shared.specs.quantize_backprop()
}
