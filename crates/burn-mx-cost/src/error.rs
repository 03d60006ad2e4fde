//! The errors of tables and models.

/// An error of a table or a model.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CostError {
    /// The text is not a table.
    #[error("cost tables: {0}")]
    Json(String),
    /// A table has too few points, or a number that is not above 0.
    #[error("cost tables: `{field}` is {got}, expected {allowed}")]
    Field {
        /// The field.
        field: String,
        /// Its value.
        got: String,
        /// The allowed values.
        allowed: &'static str,
    },
    /// No chip has this name.
    #[error("chip is `{got}`, expected one of {}", allowed.join(", "))]
    Chip {
        /// The name that was given.
        got: String,
        /// The allowed names.
        allowed: Vec<String>,
    },
    /// A chip has no unit for such elements.
    #[error("{chip} has no unit for elements of {bits} bits; it has units for {allowed:?}")]
    NoUnit {
        /// The chip.
        chip: String,
        /// Bits of the elements.
        bits: u32,
        /// Bits of the elements that units take.
        allowed: Vec<u32>,
    },
}
