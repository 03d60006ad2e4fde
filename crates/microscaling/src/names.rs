//! Enums with names: the parsing that they share.

use alloc::{
    string::{String, ToString},
    vec::Vec,
};
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

/// A closed set of values, each with one name and possibly aliases.
pub(crate) trait Named: Copy + 'static {
    /// The kind of value, for error messages.
    const KIND: &'static str;
    /// Every value.
    const VALUES: &'static [Self];
    /// The name, and what else is understood.
    fn names(self) -> (&'static str, &'static [&'static str]);
}

/// The value called `name`, exactly.
pub(crate) fn parse<T: Named>(name: &str) -> Result<T, NameError> {
    T::VALUES
        .iter()
        .copied()
        .find(|value| {
            let (own, aliases) = value.names();
            own == name || aliases.contains(&name)
        })
        .ok_or_else(|| NameError {
            kind: T::KIND,
            value: name.to_string(),
            allowed: T::VALUES
                .iter()
                .flat_map(|value| {
                    let (own, aliases) = value.names();
                    core::iter::once(own).chain(aliases.iter().copied())
                })
                .collect(),
        })
}

/// `FromStr`, `Display` and serde by name for a [`Named`] enum.
macro_rules! impl_by_name {
    ($name:ident, $kind:literal) => {
        impl $crate::names::Named for $name {
            const KIND: &'static str = $kind;
            const VALUES: &'static [Self] = &Self::ALL;
            fn names(self) -> (&'static str, &'static [&'static str]) {
                (self.name(), self.aliases())
            }
        }

        impl core::str::FromStr for $name {
            type Err = $crate::NameError;
            /// The value with this name or alias, spelled exactly.
            fn from_str(name: &str) -> Result<Self, Self::Err> {
                $crate::names::parse(name)
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(self.name())
            }
        }

        #[cfg(feature = "serde")]
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        #[cfg(feature = "serde")]
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str($crate::names::NameVisitor(core::marker::PhantomData))
            }
        }
    };
}
pub(crate) use impl_by_name;

/// Reads a [`Named`] value from a string, borrowed or not.
#[cfg(feature = "serde")]
pub(crate) struct NameVisitor<T>(pub(crate) core::marker::PhantomData<T>);

#[cfg(feature = "serde")]
impl<T: Named> serde::de::Visitor<'_> for NameVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "the name of a {}", T::KIND)
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<T, E> {
        parse(name).map_err(E::custom)
    }
}
