//! Why an operation cannot be done.

/// A field of [`Communication`](super::Communication), or an argument of an operation, with a value that cannot be used. Every
/// operation returns this error before any work.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("`{field}` is {value}; allowed: {allowed}")]
pub struct CommunicationError {
    /// The field or argument.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// The allowed values.
    pub allowed: String,
}

impl CommunicationError {
    pub(super) fn new(
        field: &'static str,
        value: impl ToString,
        allowed: impl Into<String>,
    ) -> Self {
        Self {
            field,
            value: value.to_string(),
            allowed: allowed.into(),
        }
    }
}

impl core::fmt::Debug for CommunicationError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self, f)
    }
}

/// A result of a check, or of an operation.
pub(super) type Checked<T> = Result<T, CommunicationError>;
