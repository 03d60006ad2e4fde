//! Why settings cannot be used.

/// Declares an error that names a field, its value, and the allowed values.
macro_rules! field_error {
    ($(#[$doc:meta])* $Error:ident, $field:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, thiserror::Error)]
        #[non_exhaustive]
        #[error("`{field}` is {value}; allowed: {allowed}")]
        pub struct $Error {
            #[doc = $field]
            pub field: &'static str,
            /// Its value.
            pub value: String,
            /// The allowed values.
            pub allowed: String,
        }

        impl $Error {
            pub(crate) fn new(
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

        impl core::fmt::Debug for $Error {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(self, f)
            }
        }
    };
}
pub(crate) use field_error;

field_error! {
    /// A field of [`OptimizerStates`](crate::OptimizerStates) with a value that cannot be used. Every function that takes the fields returns
    /// this error before the first step.
    StatesError, "The field."
}
