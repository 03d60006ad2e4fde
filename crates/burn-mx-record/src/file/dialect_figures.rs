//! The change of an operand by its dialect, in `records.jsonl`.

use burn_mx_core::hooks::DialectDifference;
use microscaling::Dialect;
use serde::{Deserialize, Serialize};

/// An operand by the rules of another tool beside the same operand by its format's own rule, see [`DialectDifference`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DialectFigures {
    /// The tool.
    pub dialect: Dialect,
    /// Number of elements whose value differs. Zeros of either sign are equal.
    pub differing: u64,
    /// The same as a percentage; `None` without an element.
    #[serde(rename = "differing%")]
    pub differing_share: Option<f64>,
    /// Mean of the squared error by the format's own rule; `None` without an element.
    pub plain_mse: Option<f64>,
    /// Signal-to-quantization-noise ratio by the format's own rule in dB; `None` if the error or the signal is 0.
    pub plain_sqnr: Option<f64>,
    /// The tool's squared error over the error by the format's own rule: above 1 the dialect costs accuracy. `None` if the own rule
    /// has no error.
    pub error_ratio: Option<f64>,
}

impl DialectFigures {
    pub(crate) fn of(difference: &DialectDifference) -> Self {
        let DialectDifference {
            dialect,
            elements,
            differing,
            power,
            error,
            plain_error,
            ..
        } = *difference;
        let mean = |sum: f64| (elements > 0).then(|| sum / elements as f64);
        let has_error = plain_error > 0.0;
        Self {
            dialect,
            differing,
            differing_share: mean(100.0 * differing as f64),
            plain_mse: mean(plain_error),
            plain_sqnr: (has_error && power > 0.0).then(|| 10.0 * (power / plain_error).log10()),
            error_ratio: has_error.then(|| error / plain_error),
        }
    }
}
