//! Keys of the elementwise ops of a step.

use std::fmt;

use serde::{Deserialize, Serialize};

use burn_mx_core::hooks;

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

/// The key of an elementwise op in a step: layer, name, and half of the step.
pub(super) type Key = (&'static str, &'static str, Phase);

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
