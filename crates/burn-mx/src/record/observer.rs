//! What a product shows to the recorder.

use std::cell::RefCell;
use std::sync::Arc;

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use microscaling::{BlockFormat, Side};

use super::config::Statistic;
use super::running::{self, Running};
use super::stream::Operand as Seen;
use super::{ProductKind, ProductOp};
use crate::kernels::{MxKernels, Operand, Place, TensorStatistics};
use crate::random::Draws;
use crate::registry::Interned;
use crate::specs::Slot;

/// An operand before it was quantized in blocks, and after.
pub(crate) struct Views<P> {
    pub(crate) original: P,
    pub(crate) quantized: P,
}

/// The recorder's eye on one product.
pub(crate) struct Observer<B: MxKernels> {
    running: Arc<Running>,
    op: ProductOp,
    kind: ProductKind,
    layer: &'static str,
    /// The operands before quantization, in the order in which they came by.
    originals: RefCell<Vec<Original<B>>>,
}

/// An operand of a product before quantization.
struct Original<B: MxKernels> {
    side: Option<Side>,
    operand: Operand<FloatTensor<B>>,
    significant_bits: u32,
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

    /// The layer's name.
    pub(crate) fn layer(&self) -> &'static str {
        self.layer
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
    ) -> TensorStatistics<B> {
        B::quantization_statistics([&views.original, &views.quantized], axis, format)
    }

    /// Records an operand: its statistics as it is, and by each of the formats that are not in use.
    pub(crate) fn operand(
        &self,
        slot: Slot,
        place: Option<Place>,
        statistics: Vec<TensorStatistics<B>>,
    ) {
        let name = self.name_of(slot, place.map(|place| place.side));
        let key = (self.layer, self.kind);
        self.running.with_stream(|stream| {
            let statistics = statistics.into_iter().map(|one| stream.late.add(one));
            let statistics = statistics.collect();
            let operand = Seen {
                slot,
                name,
                statistics,
            };
            stream.add_operand(key, operand);
        });
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

    /// Whether the result is compared with that of the operands before quantization.
    pub(crate) fn compares_results(&self) -> bool {
        self.running.selection.has(Statistic::Result)
    }

    /// Keeps an operand as it is before quantization in blocks.
    pub(crate) fn keep(
        &self,
        place: Option<Place>,
        operand: Operand<FloatTensor<B>>,
        significant_bits: u32,
    ) {
        self.originals.borrow_mut().push(Original {
            side: place.map(|place| place.side),
            operand,
            significant_bits,
        });
    }

    /// Records the result of a matrix product, if its operands were [kept](Self::keep).
    pub(crate) fn result(&self, result: &FloatTensor<B>) {
        let mut originals = self.originals.take();
        originals.sort_by_key(|original| original.side == Some(Side::Rhs));
        let operands = originals.into_iter().map(|original| original.operand);
        if let Ok([lhs, rhs]) = <[_; 2]>::try_from(operands.collect::<Vec<_>>()) {
            self.add_result(B::product_statistics(lhs, rhs, result));
        }
    }

    /// Records the result of a product that is another op, which `op` computes of two operands of so many significant bits
    /// at most, if they were [kept](Self::keep).
    pub(crate) fn result_of(
        &self,
        result: &FloatTensor<B>,
        op: impl FnOnce(FloatTensor<B>, FloatTensor<B>, u32) -> FloatTensor<B>,
    ) {
        let originals = self.originals.take();
        if let Ok([first, second]) = <[_; 2]>::try_from(originals) {
            let bits = first.significant_bits.max(second.significant_bits);
            let [first, second] = [first, second].map(|original| original.operand.into_values());
            let reference = op(first, second, bits);
            debug_assert_eq!(reference.shape(), result.shape());
            self.add_result(B::quantization_statistics([&reference, result], 0, None));
        }
    }

    fn add_result(&self, statistics: TensorStatistics<B>) {
        let key = (self.layer, self.kind);
        self.running.with_stream(|stream| {
            let statistics = stream.late.add(statistics);
            stream.add_result(key, statistics);
        });
    }
}

impl<B: MxKernels> core::fmt::Debug for Observer<B> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Observer").field(&self.layer).finish()
    }
}
