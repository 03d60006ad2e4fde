//! Fields that form a group: a struct whose text is `name(field=value,…)`, and enums whose values have names.

use std::fmt::{self, Display};
use std::str::FromStr;

use microscaling::internal::Parameters;
use microscaling::{ParseFormatError, Rounding};
use thiserror::Error;

/// The error for a text that is not a group of fields, such as [`AttentionSpecs`](crate::AttentionSpecs) or
/// [`HotColumns`](crate::HotColumns).
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseGroupError {
    /// Neither `name(field=value,…)` nor a name that stands for values of the fields.
    #[error("{group} `{text}` are unknown; allowed: {allowed}")]
    Unknown {
        /// The group in words.
        group: &'static str,
        /// The text.
        text: String,
        /// The allowed texts.
        allowed: String,
    },
    /// Fields that cannot be told apart, or one that does not exist.
    #[error("{group}: {error}")]
    Fields {
        /// The group's name.
        group: &'static str,
        /// The fault.
        error: ParseFormatError,
    },
    /// A field's value.
    #[error("{group}: `{field}` is `{value}`; {error}")]
    Value {
        /// The group's name.
        group: &'static str,
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// The allowed values.
        error: String,
    },
}

microscaling::debug_is_display!(ParseGroupError);

/// A group of fields.
pub(in crate::specs) trait FieldGroup: Sized + PartialEq {
    /// Its name in texts.
    const NAME: &'static str;
    /// Its name in the error for an unknown text.
    const WORDS: &'static str;
    /// Names that stand for values of the fields.
    const SCHEMES: &'static [&'static str] = &[];

    /// The values of a scheme.
    fn scheme(name: &str) -> Option<Self> {
        let _ = name;
        None
    }
}

/// The table of a group's fields, which [`fields_table`] makes.
pub(in crate::specs) trait FieldsTable: FieldGroup {
    /// The names of the fields.
    const NAMES: &'static [&'static str];

    /// The group with these texts of fields.
    fn of_fields(
        text: impl FnMut(&'static str) -> Option<String>,
    ) -> Result<Self, (&'static str, String, String)>;

    /// The fields that are not at their default, as text.
    fn texts(&self) -> Vec<String>;

    /// The group of a text.
    fn of_text(text: &str) -> Result<Self, ParseGroupError> {
        if let Some(scheme) = Self::scheme(text) {
            return Ok(scheme);
        }
        let group = Self::NAME;
        let unknown = || {
            let fields = format!(
                "{group}(field=value,…) with the fields {}",
                Self::NAMES.join(", ")
            );
            ParseGroupError::Unknown {
                group: Self::WORDS,
                text: text.to_owned(),
                allowed: match Self::SCHEMES {
                    [] => fields,
                    schemes => format!("{}, or {fields}", schemes.join(", ")),
                },
            }
        };
        let fault = |error| ParseGroupError::Fields { group, error };
        let parameters = Parameters::of(text, group, Self::NAMES).ok_or_else(unknown)?;
        let mut parameters = parameters.map_err(fault)?;
        let read = Self::of_fields(|field| parameters.take_text(field, "").map(str::to_owned));
        let read = read.map_err(|(field, value, error)| ParseGroupError::Value {
            group,
            field,
            value,
            error,
        })?;
        parameters.finish().map_err(fault)?;
        Ok(read)
    }

    /// The text of the group, or the name of its scheme.
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut schemes = Self::SCHEMES.iter();
        if let Some(name) = schemes.find(|name| Self::scheme(name).as_ref() == Some(self)) {
            return f.pad(name);
        }
        match self.texts().join(",").as_str() {
            "" => f.pad(Self::NAME),
            texts => f.pad(&format!("{}({texts})", Self::NAME)),
        }
    }
}

/// The text of a field's value.
pub(in crate::specs) trait Text: Sized {
    fn read(text: &str) -> Result<Self, String>;
    fn text(&self) -> String;
}

impl<T: FromStr<Err: Display> + Display> Text for Option<T> {
    fn read(text: &str) -> Result<Self, String> {
        match text {
            "" | "none" => Ok(None),
            _ => text
                .parse()
                .map(Some)
                .map_err(|error| format!("{error}, or none")),
        }
    }

    fn text(&self) -> String {
        self.as_ref().map_or_else(|| "none".into(), T::to_string)
    }
}

impl Text for usize {
    fn read(text: &str) -> Result<Self, String> {
        text.parse()
            .map_err(|_| "allowed: a whole number from 0".into())
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl Text for bool {
    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "allowed: true, false".into())
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl Text for Rounding {
    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error| format!("{error}"))
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

/// Makes a struct of its fields with their defaults. Its text form (`FromStr`, `Display`, serde) is `name(field=value,…)`.
macro_rules! fields_table {
    ($(#[$meta:meta])* $vis:vis struct $Specs:ident; $($(#[doc = $doc:literal])+ $field:ident: $type:ty = $default:expr;)+) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        $vis struct $Specs {
            $($(#[doc = $doc])+ pub $field: $type,)+
        }

        impl Default for $Specs {
            /// Every field at its default.
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl crate::specs::fields::grouped::FieldsTable for $Specs {
            const NAMES: &'static [&'static str] = &[$(stringify!($field)),+];

            fn of_fields(
                mut text: impl FnMut(&'static str) -> Option<String>,
            ) -> Result<Self, (&'static str, String, String)> {
                let mut specs = Self::default();
                $(if let Some(text) = text(stringify!($field)) {
                    specs.$field = crate::specs::fields::grouped::Text::read(&text).map_err(|error| (stringify!($field), text, error))?;
                })+
                Ok(specs)
            }

            fn texts(&self) -> Vec<String> {
                let default = Self::default();
                let mut texts = Vec::new();
                $(if self.$field != default.$field {
                    texts.push(format!("{}={}", stringify!($field), crate::specs::fields::grouped::Text::text(&self.$field)));
                })+
                texts
            }
        }

        impl std::str::FromStr for $Specs {
            type Err = crate::specs::ParseGroupError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                crate::specs::fields::grouped::FieldsTable::of_text(text)
            }
        }

        impl std::fmt::Display for $Specs {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                crate::specs::fields::grouped::FieldsTable::write(self, f)
            }
        }

        impl serde::Serialize for $Specs {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $Specs {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

/// Makes an enum whose values have names.
macro_rules! named {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])+ $value:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$doc])+ $value),+
        }

        impl crate::specs::fields::grouped::Text for $name {
            fn read(text: &str) -> Result<Self, String> {
                match text {
                    $($text => Ok(Self::$value),)+
                    _ => Err(format!("allowed: {}", [$($text),+].join(", "))),
                }
            }

            fn text(&self) -> String {
                match self {
                    $(Self::$value => $text.into()),+
                }
            }
        }
    };
}

pub(super) use {fields_table, named};
