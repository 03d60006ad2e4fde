//! The parts of an operand's squared error in `records.jsonl`.

use microscaling::ErrorParts;
use serde::{Deserialize, Serialize};

/// The parts of an operand's squared error, see [`ErrorParts`]. A figure that is not defined is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartFigures {
    /// Squared error by the scale, over all of the squared error.
    pub scale: Option<f64>,
    /// The same of the dead zone.
    pub dead_zone: Option<f64>,
    /// The same of the noise of the grid.
    pub grid: Option<f64>,
    /// Cosine of the angle between the errors by scale and grid.
    pub cosine: Option<f64>,
    /// Mean of log₂(s / s\*): the scales over the scales that are not rounded.
    pub scale_bias: Option<f64>,
    /// Percentage of elements in the dead zone.
    #[serde(rename = "dead_zone_elements%")]
    pub dead_zone_elements: Option<f64>,
}

impl PartFigures {
    /// `None` without an element.
    pub(crate) fn of(parts: &ErrorParts) -> Option<Self> {
        let share = 100.0 * parts.dead_zone_elements() as f64 / parts.elements() as f64;
        (parts.elements() > 0).then(|| Self {
            scale: parts.scale(),
            dead_zone: parts.dead_zone(),
            grid: parts.grid(),
            cosine: parts.cosine(),
            scale_bias: parts.scale_bias(),
            dead_zone_elements: Some(share),
        })
    }
}
