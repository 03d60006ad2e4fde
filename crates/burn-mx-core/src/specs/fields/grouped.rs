//! Fields that form a group: a struct whose text is `name(field=value,…)`, and enums whose values have names.

use std::fmt::Display;
use std::str::FromStr;

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

/// Makes a struct of its fields with their defaults. Its text form is `name(field=value,…)`.
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

        impl $Specs {
            /// The names of the fields.
            const NAMES: &'static [&'static str] = &[$(stringify!($field)),+];

            /// The specs of these texts of fields.
            fn of_fields(
                mut text: impl FnMut(&'static str) -> Option<String>,
            ) -> Result<Self, (&'static str, String, String)> {
                let mut specs = Self::default();
                $(if let Some(text) = text(stringify!($field)) {
                    specs.$field = crate::specs::fields::grouped::Text::read(&text).map_err(|error| (stringify!($field), text, error))?;
                })+
                Ok(specs)
            }

            /// The fields that are not at their default, as text.
            fn texts(&self) -> Vec<String> {
                let default = Self::default();
                let mut texts = Vec::new();
                $(if self.$field != default.$field {
                    texts.push(format!("{}={}", stringify!($field), crate::specs::fields::grouped::Text::text(&self.$field)));
                })+
                texts
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
