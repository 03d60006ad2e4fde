//! What a product shows to the recorder.

use std::cell::RefCell;
use std::sync::Arc;

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use microscaling::{BlockFormat, OperandQuantization, Side, Statistics};

use super::config::Statistic;
use super::running::{self, Running};
use super::stream::Operand as Seen;
use super::{ProductKind, ProductOp};
use crate::kernels::{MxKernels, Operand, OperandForm, Place, product, to_f32};
use crate::random::Draws;
use crate::registry::Interned;
use crate::semantics::Float;
use crate::specs::Slot;

/// An operand before and after quantization.
pub(crate) struct Views<P> {
    pub(crate) original: P,
    /// As the block format was given it.
    pub(crate) in_blocks: P,
    pub(crate) quantized: P,
}

/// The recorder's eye on one product.
pub(crate) struct Observer<B: MxKernels> {
    running: Arc<Running>,
    op: ProductOp,
    kind: ProductKind,
    layer: &'static str,
    /// The operands before quantization, in the order in which they came by.
    originals: RefCell<Vec<(Option<Side>, Operand<FloatTensor<B>>)>>,
}

impl<B: MxKernels> Observer<B> {
    /// `None` if nobody records this product.
    pub(crate) fn of(
        op: ProductOp,
        kind: ProductKind,
        specs: &'static Interned,
        label: Option<&'static str>,
    ) -> Option<Self> {
        let running = running::current()?;
        if !running.is_in_pass() {
            return None;
        }
        let layer = running.with_stream(|stream| {
            stream.begun = true;
            if !stream.recorded {
                return None;
            }
            if let (ProductKind::Forward, Some(label)) = (kind, label) {
                stream.passes(label);
            }
            let unnamed = || running::with_scope(|scope| stream.name(op, scope));
            let layer = label.unwrap_or_else(unnamed);
            let wanted = running.selection.has_product(kind, layer);
            wanted.then(|| {
                stream.used((layer, kind), op, specs);
                layer
            })
        })?;
        Some(Self {
            running,
            op,
            kind,
            layer,
            originals: RefCell::default(),
        })
    }

    /// Whether operands of this slot are recorded.
    pub(crate) fn wants(&self, slot: Slot) -> bool {
        self.running.selection.has_operand(slot)
    }

    /// The specs of the formats that are not in use.
    pub(crate) fn what_if(&self) -> impl Iterator<Item = &'static Interned> {
        let specs = self.running.selection.what_if.iter();
        specs.map(|(_, specs)| *specs)
    }

    /// Random numbers for a format that is not in use: the training must not notice.
    pub(crate) fn draws(&self, specs: &'static Interned) -> Draws {
        let number = self.running.with_stream(|stream| {
            stream.draws += 1;
            stream.draws
        });
        specs.draws_beside(number)
    }

    /// What quantization did to an operand.
    pub(crate) fn statistics(
        &self,
        views: &Views<FloatTensor<B>>,
        axis: usize,
        format: Option<BlockFormat>,
    ) -> Statistics {
        let Views {
            original,
            in_blocks,
            quantized,
        } = views;
        B::quantization_statistics([original, in_blocks, quantized], axis, format)
    }

    /// Records an operand: its statistics as it is, and by each of the formats that are not in use.
    pub(crate) fn operand(&self, slot: Slot, place: Option<Place>, statistics: Vec<Statistics>) {
        let operand = Seen {
            slot,
            name: self.name_of(slot, place.map(|place| place.side)),
            statistics,
        };
        let key = (self.layer, self.kind);
        self.running
            .with_stream(|stream| stream.add_operand(key, operand));
    }

    /// What an operand is to its layer. The gradients of the two activations of a product are one kind of product.
    fn name_of(&self, slot: Slot, side: Option<Side>) -> &'static str {
        let side = side.filter(|_| self.op == ProductOp::Matmul);
        match (slot, side) {
            (Slot::W | Slot::WBp, _) => "weight",
            (Slot::ABpEx, _) => "output gradient",
            (Slot::ABpOs, Some(Side::Rhs)) if self.kind == ProductKind::InputGradient => {
                "output gradient for rhs"
            }
            (Slot::ABpOs, _) => "output gradient",
            (Slot::A | Slot::ABp, Some(Side::Lhs)) => "lhs",
            (Slot::A | Slot::ABp, Some(Side::Rhs)) => "rhs",
            (Slot::A | Slot::ABp, None) => "input",
        }
    }

    fn compares_results(&self) -> bool {
        self.running.selection.has(Statistic::Result)
    }

    /// Keeps an operand as it is before quantization, if the result is to be compared.
    pub(crate) fn keep(&self, tensor: &Float<B>, place: Option<Place>) {
        if !self.compares_results() {
            return;
        }
        let values = to_f32::<B>(tensor.inner.clone());
        let operand = match place {
            Some(place) => product::in_tensor::<B>(
                values,
                OperandForm {
                    place,
                    quantization: OperandQuantization::default(),
                    significant_bits: f32::MANTISSA_DIGITS,
                },
            ),
            None => Operand::of_values(values),
        };
        let side = place.map(|place| place.side);
        self.originals.borrow_mut().push((side, operand));
    }

    /// Records the result of a matrix product.
    pub(crate) fn result(&self, result: &FloatTensor<B>) {
        self.compare(result, |mut originals| {
            originals.sort_by_key(|(side, _)| *side == Some(Side::Rhs));
            let mut operands = originals.into_iter().map(|(_, operand)| operand);
            let (lhs, rhs) = (operands.next()?, operands.next()?);
            Some(product::of_tensors::<B>(lhs, rhs))
        });
    }

    /// Records the result of a product that is another op, which `op` computes of two operands.
    pub(crate) fn result_of(
        &self,
        result: &FloatTensor<B>,
        op: impl FnOnce(FloatTensor<B>, FloatTensor<B>) -> FloatTensor<B>,
    ) {
        self.compare(result, |originals| {
            let mut operands = originals
                .into_iter()
                .map(|(_, operand)| operand.into_values());
            let (first, second) = (operands.next()?, operands.next()?);
            Some(op(first, second))
        });
    }

    #[expect(clippy::type_complexity, reason = "it is the field's")]
    fn compare(
        &self,
        result: &FloatTensor<B>,
        reference: impl FnOnce(Vec<(Option<Side>, Operand<FloatTensor<B>>)>) -> Option<FloatTensor<B>>,
    ) {
        if !self.compares_results() {
            return;
        }
        let Some(reference) = reference(self.originals.take()) else {
            return;
        };
        debug_assert_eq!(reference.shape(), result.shape());
        let statistics = B::quantization_statistics([&reference, &reference, result], 0, None);
        let key = (self.layer, self.kind);
        self.running
            .with_stream(|stream| stream.add_result(key, statistics));
    }
}

impl<B: MxKernels> core::fmt::Debug for Observer<B> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Observer").field(&self.layer).finish()
    }
}
