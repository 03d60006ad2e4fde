//! Calls of a model's layers, as observed during a pass.
//!
//! The labels of weights identify layers, so models need no change.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn_backend::Shape;
use burn_backend::tensor::FloatTensor;

use burn_mx_core::MxKernels;
use burn_mx_core::hooks::{self, Events, LayerCall, LayerOp, Observer};

/// The side of a call that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeptSide {
    Input,
    Output,
}

/// One call of a layer.
#[derive(Clone, Debug)]
pub(super) struct Call<B: MxKernels> {
    pub(super) op: LayerOp,
    /// The input, or the output, in `f32`.
    pub(super) value: FloatTensor<B>,
    pub(super) output: Shape,
    /// Whether the weight is the layer's parameter itself, not a view.
    pub(super) is_plain: bool,
    pub(super) has_bias: bool,
    /// The number of leading entries of the first axis that count.
    pub(super) samples: usize,
}

/// The facts about a layer that folding needs.
#[derive(Clone, Debug)]
pub(super) struct Given {
    /// The label of its weight.
    pub(super) label: &'static str,
    pub(super) op: LayerOp,
    /// The shape of its weight.
    pub(super) weight: Shape,
    /// Whether the weight is the layer's parameter itself, not a view.
    pub(super) is_plain: bool,
    pub(super) has_bias: bool,
}

/// The labels of the weights that `pass` uses, in the order of their first use.
pub(super) fn order(pass: impl FnOnce() + Send) -> Vec<&'static str> {
    let is_new = |order: &Vec<&'static str>, label| !order.contains(&label);
    listen(is_new, |order, call| order.push(call.label), pass)
}

/// One side of the calls of the layer whose weight has this label.
pub(super) fn calls<B: MxKernels>(
    label: &'static str,
    side: KeptSide,
    pass: impl FnOnce() + Send,
) -> Vec<Call<B>> {
    let hear = move |calls: &mut Vec<Call<B>>, call: &LayerCall<'_>| {
        let value = match side {
            KeptSide::Input => call.input::<B>(),
            KeptSide::Output => call.output::<B>(),
        };
        let Some(value) = value else {
            return;
        };
        calls.push(Call {
            op: call.op.clone(),
            value,
            output: call.output_shape.clone(),
            is_plain: call.is_plain,
            has_bias: call.has_bias,
            samples: call.input_shape[0],
        });
    };
    listen(move |_, called| called == label, hear, pass)
}

/// The layers that a pass calls, each once.
pub(super) fn layers(pass: impl FnOnce() + Send) -> Vec<Given> {
    let is_new = |layers: &Vec<Given>, label| layers.iter().all(|given| given.label != label);
    let hear = |layers: &mut Vec<Given>, call: &LayerCall<'_>| {
        layers.push(Given {
            label: call.label,
            op: call.op.clone(),
            weight: call.weight.clone(),
            is_plain: call.is_plain,
            has_bias: call.has_bias,
        });
    };
    listen(is_new, hear, pass)
}

/// Runs `pass` and collects with `hear` the calls that `wants` accepts.
pub(super) fn listen<T: Default + Send + 'static>(
    wants: impl Fn(&T, &'static str) -> bool + Send + Sync + 'static,
    hear: impl Fn(&mut T, &LayerCall<'_>) + Send + Sync + 'static,
    pass: impl FnOnce() + Send,
) -> T {
    let listener = Arc::new(Listener {
        heard: Mutex::new(T::default()),
        wants,
        hear,
    });
    hooks::alone(|| {
        let _installed = hooks::install_on_this_thread(listener.clone());
        pass();
    });
    core::mem::take(&mut listener.heard())
}

struct Listener<T, W, H> {
    heard: Mutex<T>,
    wants: W,
    hear: H,
}

impl<T, W, H> Listener<T, W, H> {
    fn heard(&self) -> MutexGuard<'_, T> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T, W, H> Observer for Listener<T, W, H>
where
    T: Send,
    W: Fn(&T, &'static str) -> bool + Send + Sync,
    H: Fn(&mut T, &LayerCall<'_>) + Send + Sync,
{
    fn events(&self) -> Events {
        Events::LAYERS
    }

    fn wants_layer(&self, label: &'static str) -> bool {
        (self.wants)(&self.heard(), label)
    }

    fn layer(&self, call: &LayerCall<'_>) {
        (self.hear)(&mut self.heard(), call);
    }
}
