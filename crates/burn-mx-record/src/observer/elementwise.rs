//! Keys of the elementwise ops of a step.

use burn_mx_core::hooks;

use crate::file::figures::StepHalf;

/// The key of an elementwise op in a step: layer, name, and half of the step.
pub(super) type Key = (&'static str, &'static str, StepHalf);

/// Ends the name of a layer that stands for the elementwise ops after the layer.
pub(super) const AFTER: &str = " >";

/// The place of an op without a named parameter: its scope, or the last named layer before it. A gradient that only
/// burn-autodiff knows has no place.
pub(crate) fn place(scope: Option<&str>, last: Option<&str>) -> &'static str {
    match (scope, last) {
        (Some(scope), _) => hooks::label(scope),
        (None, _) if hooks::in_backward_pass() => "gradients",
        (None, Some(last)) => hooks::label(&format!("{last}{AFTER}")),
        (None, None) => "start",
    }
}
