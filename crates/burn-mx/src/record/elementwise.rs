//! What an elementwise op shows to the recorder.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use burn_backend::tensor::FloatTensor;
use microscaling::FloatFormat;
use serde::{Deserialize, Serialize};

use super::running::{self, Running};
use crate::kernels::MxKernels;
use crate::phase;
use crate::registry;

/// Which half of a step an elementwise op belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The op itself.
    Forward,
    /// Its gradient.
    Backward,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
        })
    }
}

/// What tells elementwise ops of a step apart: layer, name, and half of the step.
pub(super) type Key = (&'static str, &'static str, Phase);

/// The recorder's eye on one elementwise op.
pub(crate) struct ElementwiseObserver {
    running: Arc<Running>,
    key: Key,
}

impl ElementwiseObserver {
    /// `None` if nobody records the roundings of this op, which rounds to `format`. `layer` is the name of a parameter
    /// among the operands, or, of a gradient, what [`layer_of_op`] said in the forward pass.
    pub(crate) fn of(
        op: &'static str,
        layer: Option<&'static str>,
        format: FloatFormat,
    ) -> Option<Self> {
        let running = recording()?;
        let phase = match phase::is_backward() {
            true => Phase::Backward,
            false => Phase::Forward,
        };
        let op = op.strip_prefix("float_").unwrap_or(op);
        let op = op.strip_suffix("_impl").unwrap_or(op);
        let key = running.with_stream(|stream| {
            stream.begun = true;
            if !stream.recorded {
                return None;
            }
            let layer = layer.unwrap_or_else(|| running::with_scope(|scope| stream.place(scope)));
            let key = (layer, op, phase);
            let wanted = running.selection.has_layer(layer.trim_end_matches(AFTER));
            wanted.then(|| {
                stream.computed(key, format);
                key
            })
        })?;
        Some(Self { running, key })
    }

    /// Records a rounding of the op, by its name: an operand, or a result beside what it is without any rounding.
    pub(crate) fn rounding<B: MxKernels>(
        &self,
        name: &'static str,
        before_and_after: [&FloatTensor<B>; 2],
    ) {
        let statistics = B::quantization_statistics(before_and_after, 0, None);
        self.running.with_stream(|stream| {
            let statistics = stream.late.add(statistics);
            stream.add_rounding(self.key, name, statistics);
        });
    }
}

impl fmt::Debug for ElementwiseObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ElementwiseObserver")
            .field(&self.key)
            .finish()
    }
}

/// Ends the name of a layer whose elementwise ops come after it.
pub(super) const AFTER: &str = " >";

/// The layer of an elementwise op of the forward pass, for its gradient: that of its parameter, if it has one with a name.
pub(crate) fn layer_of_op(label: Option<&'static str>) -> Option<&'static str> {
    if label.is_some() {
        return label;
    }
    let running = recording()?;
    running.with_stream(|stream| {
        let recorded = stream.recorded;
        recorded.then(|| running::with_scope(|scope| stream.place(scope)))
    })
}

/// The recorder of this thread, if it records elementwise ops and this is one of the pass that it records.
fn recording() -> Option<Arc<Running>> {
    if !running::any_elementwise() || AGAIN.get() {
        return None;
    }
    let running = running::current()?;
    let wanted = running.selection.elementwise && running.is_in_pass();
    wanted.then_some(running)
}

thread_local! {
    /// Whether this thread computes again what it has computed.
    static AGAIN: Cell<bool> = const { Cell::new(false) };
}

/// Computes again what was computed and seen before.
pub(crate) fn again<R>(work: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            AGAIN.set(self.0);
        }
    }
    let _restore = Restore(AGAIN.replace(true));
    work()
}

/// The place of an op without a name of its own: its scope, or after the last layer with a name; of a gradient whose op
/// burn-autodiff alone knows, none.
pub(super) fn place(scope: Option<&str>, last: Option<&str>) -> &'static str {
    match (scope, last) {
        (Some(scope), _) => registry::label(scope),
        (None, _) if phase::is_backward() => "gradients",
        (None, Some(last)) => registry::label(&format!("{last}{AFTER}")),
        (None, None) => "start",
    }
}
