//! Enums with names, and serde by text.

use alloc::{string::String, vec::Vec};
use thiserror::Error;

/// A name without a value in its enum.
#[derive(Clone, PartialEq, Eq, Error)]
#[error("unknown {kind} `{value}`: expected one of {}", .allowed.join(", "))]
#[non_exhaustive]
pub struct NameError {
    /// The kind of name that was expected, for example "element format".
    pub kind: &'static str,
    /// The given name.
    pub value: String,
    /// The names that are allowed.
    pub allowed: Vec<&'static str>,
}

impl NameError {
    /// The error for an enum of another crate, whose names are parsed like the names of this crate's enums.
    pub fn new(kind: &'static str, value: impl Into<String>, allowed: Vec<&'static str>) -> Self {
        Self {
            kind,
            value: value.into(),
            allowed,
        }
    }
}

crate::error::debug_is_display!(NameError);

/// The value called `name`, exactly, of those in `names`.
pub fn parse<T: Copy>(
    kind: &'static str,
    names: &[(&'static str, T)],
    name: &str,
) -> Result<T, NameError> {
    let found = names.iter().find(|(own, _)| *own == name);
    let allowed = || names.iter().map(|(own, _)| *own).collect();
    found
        .map(|(_, value)| *value)
        .ok_or_else(|| NameError::new(kind, name, allowed()))
}

/// The names of an enum's values, and possibly aliases: `ALL`, `name`, `FromStr`, `Display` and serde.
#[doc(hidden)]
#[macro_export]
macro_rules! impl_by_name {
    ($name:ident, $kind:literal, $($value:ident: $own:literal $(| $alias:literal)*),+ $(,)?) => {
        impl $name {
            /// Every value.
            pub const ALL: [Self; [$($own),+].len()] = [$(Self::$value),+];

            #[doc = concat!("The name, one of `", stringify!($($own),+), "`: what `Display`, `FromStr` and serde use.")]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $own),+
                }
            }
        }

        impl core::str::FromStr for $name {
            type Err = $crate::NameError;
            /// The value with this name or alias, spelled exactly.
            fn from_str(name: &str) -> Result<Self, Self::Err> {
                let names = [$(($own, Self::$value), $(($alias, Self::$value),)*)+];
                $crate::internal::parse($kind, &names, name)
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(self.name())
            }
        }

        $crate::impl_serde_by_text!($name, concat!("the name of a ", $kind));
    };
}
pub(crate) use impl_by_name;

/// Serde by `Display` and `FromStr`.
#[doc(hidden)]
#[macro_export]
macro_rules! impl_serde_by_text {
    ($name:ident, $expected:expr) => {
        #[cfg(feature = "serde")]
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        #[cfg(feature = "serde")]
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str($crate::internal::TextVisitor {
                    expected: $expected,
                    value: core::marker::PhantomData,
                })
            }
        }
    };
}
pub(crate) use impl_serde_by_text;

/// Reads a value from a string, borrowed or not.
#[cfg(feature = "serde")]
pub struct TextVisitor<T> {
    /// The kind of value that a message names.
    pub expected: &'static str,
    /// The type of the value.
    pub value: core::marker::PhantomData<T>,
}

#[cfg(feature = "serde")]
impl<T: core::str::FromStr<Err: core::fmt::Display>> serde::de::Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}
