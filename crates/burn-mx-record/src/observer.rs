//! The recorder as an observer of products and elementwise ops.

pub(super) mod elementwise;
mod late;
pub(super) mod running;
mod stream;

use std::cell::Cell;
use std::sync::Arc;

use microscaling_product::{Accumulation, Side, SumStatistics};

use crate::config::{Pass, Statistic};
use crate::file::figures::StepHalf;
use burn_mx_core::Slot;
use burn_mx_core::hooks::{
    self, AttentionProduct, ElementwiseCall, Events, ObservedStatistics, Observer, OperandView,
    ProductCall, ProductObserver, ProductSize, RoundingObserver, View,
};
use burn_mx_core::hooks::{ProductKind, ProductOp};
use elementwise::{AFTER, Key as ElementwiseKey};
use running::Running;
use stream::OperandStream;

/// A recorder among the observers.
pub(super) struct Eye(pub(super) Arc<Running>);

impl Observer for Eye {
    fn events(&self) -> Events {
        let always = Events::PRODUCTS | Events::WEIGHTS;
        match self.0.selection.elementwise {
            true => always | Events::ELEMENTWISE,
            false => always,
        }
    }

    fn product(&self, call: &ProductCall) -> Option<Box<dyn ProductObserver>> {
        let running = &self.0;
        if !running.is_in_pass() {
            return None;
        }
        let layer = running.with_stream(|stream| {
            stream.begun = true;
            if !stream.recorded {
                return None;
            }
            if let (ProductKind::Forward, Some(label)) = (call.kind, call.label) {
                stream.passes(label);
            }
            let unnamed = || running::with_scope(|scope| stream.name(call.op, scope));
            let layer = call.label.unwrap_or_else(unnamed);
            let wanted = running.selection.has_product(call.kind, layer);
            wanted.then(|| {
                stream.used((layer, call.kind), call.op, call.specs);
                layer
            })
        })?;
        Some(Box::new(OfProduct {
            running: Arc::clone(running),
            op: call.op,
            kind: call.kind,
            layer,
            first: Cell::default(),
        }))
    }

    fn attention_product(&self, call: &AttentionProduct) -> Option<Box<dyn ProductObserver>> {
        let running = &self.0;
        if !running.is_in_pass() {
            return None;
        }
        let op = ProductOp::Matmul;
        let kind = match call.gradient_of {
            None => ProductKind::Forward,
            Some(_) => ProductKind::InputGradient,
        };
        let layer = running.with_stream(|stream| {
            stream.begun = true;
            if !stream.recorded {
                return None;
            }
            let unnamed = || running::with_scope(|scope| stream.place(scope));
            let place = call.label.unwrap_or_else(unnamed);
            let layer = hooks::label(&format!("{place} {}", call.name()));
            let wanted = running.selection.has_product(kind, layer);
            wanted.then(|| {
                stream.used((layer, kind), op, call.specs);
                stream.is_attention((layer, kind), call.accumulator);
                stream.add_size((layer, kind), call.size);
                layer
            })
        })?;
        Some(Box::new(OfProduct {
            running: Arc::clone(running),
            op,
            kind,
            layer,
            first: Cell::default(),
        }))
    }

    fn elementwise(&self, call: &ElementwiseCall) -> Option<Box<dyn RoundingObserver>> {
        let running = &self.0;
        if !running.is_in_pass() {
            return None;
        }
        let phase = match hooks::in_backward_pass() {
            true => StepHalf::Backward,
            false => StepHalf::Forward,
        };
        let key = running.with_stream(|stream| {
            stream.begun = true;
            if !stream.recorded {
                return None;
            }
            let unnamed = || running::with_scope(|scope| stream.place(scope));
            let layer = call.label.unwrap_or_else(unnamed);
            let key = (layer, call.op, phase);
            let wanted = running.selection.has_layer(layer.trim_end_matches(AFTER));
            wanted.then(|| {
                stream.computed(key, call.format);
                key
            })
        })?;
        Some(Box::new(OfElementwise {
            running: Arc::clone(running),
            key,
        }))
    }

    fn name_product(&self, op: ProductOp) -> Option<&'static str> {
        if self.0.pass() != Pass::Training {
            return None;
        }
        self.0.with_stream(|stream| {
            let recorded = stream.recorded;
            recorded.then(|| running::with_scope(|scope| stream.name(op, scope)))
        })
    }

    fn name_elementwise(&self) -> Option<&'static str> {
        if !self.0.is_in_pass() {
            return None;
        }
        self.0.with_stream(|stream| {
            let recorded = stream.recorded;
            recorded.then(|| running::with_scope(|scope| stream.place(scope)))
        })
    }

    fn weight_used(&self, label: &'static str) {
        if self.0.is_in_pass() && !hooks::in_backward_pass() {
            self.0.uses_weight(label);
        }
    }

    fn end_of_backward_pass(&self) {
        if self.0.pass() == Pass::Training {
            self.0.end_step();
        }
    }
}

/// The recorder's eye on one product.
struct OfProduct {
    running: Arc<Running>,
    op: ProductOp,
    kind: ProductKind,
    layer: &'static str,
    /// The slot of the operand that was seen first.
    first: Cell<Option<Slot>>,
}

impl OfProduct {
    /// The role of an operand in its layer. The gradients of the two activations of a product count as one kind of product.
    fn name_of(&self, slot: Slot, side: Option<Side>) -> &'static str {
        let side = side.filter(|_| self.op == ProductOp::Matmul);
        let is_second = self.first.replace(Some(slot)) == Some(slot);
        match (slot, side) {
            (Slot::W, _) if is_second => "other weight",
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

    /// The role of the hot columns of a linear layer's operand.
    fn name_of_hot(slot: Slot) -> &'static str {
        match slot {
            Slot::W | Slot::WBp => "hot weight",
            Slot::A | Slot::ABp => "hot input",
            Slot::ABpEx | Slot::ABpOs => "hot output gradient",
        }
    }
}

impl ProductObserver for OfProduct {
    fn layer(&self) -> Option<&'static str> {
        Some(self.layer)
    }

    fn wants_operand(&self, slot: Slot) -> bool {
        self.running.selection.has_operand(slot)
    }

    /// Records an operand: its statistics in its own format and in each of the further formats.
    fn operand(&self, operand: &dyn OperandView) {
        let slot = operand.slot();
        let name = match operand.is_hot() {
            true => Self::name_of_hot(slot),
            false => self.name_of(slot, operand.side()),
        };
        let selection = &self.running.selection;
        let own = operand.statistics();
        let difference = operand.dialect_difference();
        let mut error_parts = Vec::new();
        if selection.error_parts {
            error_parts.push(operand.error_parts());
        }
        let others = selection.what_if.iter().map(|(_, specs)| {
            let number = self.running.with_stream(|stream| {
                stream.draws += 1;
                stream.draws
            });
            if selection.error_parts {
                error_parts.push(operand.error_parts_by(specs, number));
            }
            operand.statistics_by(specs, number)
        });
        let statistics: Vec<_> = core::iter::once(own).chain(others).collect();
        let key = (self.layer, self.kind);
        self.running.with_stream(|stream| {
            let statistics = statistics.into_iter().map(|one| stream.late.add(one));
            let statistics = statistics.collect();
            let operand = OperandStream {
                slot,
                name,
                point: operand.point(),
                is_hot: operand.is_hot(),
                statistics,
                error_parts,
                difference,
            };
            stream.add_operand(key, operand);
        });
    }

    fn size(&self, size: ProductSize) {
        let key = (self.layer, self.kind);
        self.running
            .with_stream(|stream| stream.add_size(key, size));
    }

    fn wants_result(&self) -> bool {
        self.running.selection.has(Statistic::Result)
    }

    fn result(&self, statistics: ObservedStatistics) {
        let key = (self.layer, self.kind);
        self.running.with_stream(|stream| {
            let statistics = stream.late.add(statistics);
            stream.add_result(key, statistics);
        });
    }

    fn wants_sums(&self) -> Option<&[Accumulation]> {
        let selection = &self.running.selection;
        let wanted = selection.has(Statistic::Sums);
        wanted.then_some(&selection.accumulators)
    }

    fn sums(&self, statistics: &[Option<SumStatistics>]) {
        let key = (self.layer, self.kind);
        self.running
            .with_stream(|stream| stream.add_sums(key, statistics));
    }
}

/// The recorder's eye on one elementwise op.
struct OfElementwise {
    running: Arc<Running>,
    key: ElementwiseKey,
}

impl RoundingObserver for OfElementwise {
    fn rounding(&self, name: &'static str, view: &dyn View) {
        let statistics = view.statistics();
        self.running.with_stream(|stream| {
            let statistics = stream.late.add(statistics);
            stream.add_rounding(self.key, name, statistics);
        });
    }
}
