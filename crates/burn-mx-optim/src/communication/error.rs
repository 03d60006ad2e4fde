//! Why an operation cannot be done.

use crate::error::field_error;

field_error! {
    /// A field of [`Communication`](super::Communication), or an argument of an operation, with a value that cannot be used. Every
    /// operation returns this error before any work.
    CommunicationError, "The field or argument."
}

/// A result of a check, or of an operation.
pub(super) type Checked<T> = Result<T, CommunicationError>;
