//! Formats with parameters as text: `family(field=value,…)`.

use crate::format::ParseFormatError;
use alloc::{string::ToString, vec::Vec};
use core::str::FromStr;

/// The parameters of a format that are not yet read.
pub struct Parameters<'a> {
    format: &'static str,
    allowed: &'static [&'static str],
    fields: Vec<(&'a str, &'a str)>,
    /// The parameters that were read.
    read: Vec<&'static str>,
}

impl<'a> Parameters<'a> {
    /// The parameters in `text` if it is `format` or `format(field=value,…)`; `None` if it is another
    /// name. Spaces around fields and values do not matter.
    pub fn of(
        text: &'a str,
        format: &'static str,
        allowed: &'static [&'static str],
    ) -> Option<Result<Self, ParseFormatError>> {
        let rest = text.strip_prefix(format)?;
        if !rest.is_empty() && !rest.starts_with('(') {
            return None;
        }
        let syntax = || match text.matches('(').count() > text.matches(')').count() {
            true => ParseFormatError::Bracket {
                value: text.to_string(),
            },
            false => ParseFormatError::Syntax {
                format,
                value: text.to_string(),
            },
        };
        Some(Self::fields(rest).ok_or_else(syntax).map(|fields| Self {
            format,
            allowed,
            fields,
            read: Vec::new(),
        }))
    }

    /// Splits the text after the name.
    fn fields(rest: &'a str) -> Option<Vec<(&'a str, &'a str)>> {
        if rest.is_empty() {
            return Some(Vec::new());
        }
        let inside = rest.strip_prefix('(')?.strip_suffix(')')?;
        let field = |part: &'a str| {
            let (field, value) = part.split_once('=')?;
            Some((field.trim(), value.trim()))
        };
        let mut depth = 0;
        // The commas of a value in parentheses are its own.
        let between = |letter: char| {
            match letter {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            letter == ',' && depth == 0
        };
        inside.split(between).map(field).collect()
    }

    /// The parameters that are allowed from now on, where one parameter decides about the others.
    pub fn allow(&mut self, allowed: &'static [&'static str]) {
        self.allowed = allowed;
    }

    /// Whether a parameter is given.
    pub fn has(&self, field: &str) -> bool {
        self.fields.iter().any(|(name, _)| *name == field)
    }

    /// Reads a parameter; `default` if it is not given. `expected` describes the allowed values.
    pub fn take<T: FromStr>(
        &mut self,
        field: &'static str,
        default: T,
        expected: impl FnOnce() -> alloc::string::String,
    ) -> Result<T, ParseFormatError> {
        let Some(value) = self.take_text(field, "") else {
            return Ok(default);
        };
        value.parse().map_err(|_| ParseFormatError::FieldValue {
            format: self.format,
            field,
            value: value.to_string(),
            allowed: expected(),
        })
    }

    /// The text of a parameter, which may have an alias (empty for none); `None` if it is not given.
    pub fn take_text(&mut self, field: &'static str, alias: &'static str) -> Option<&'a str> {
        let here =
            |(name, _): &(&str, &str)| *name == field || (*name == alias && !alias.is_empty());
        let at = self.fields.iter().position(here)?;
        self.read.push(field);
        Some(self.fields.remove(at).1)
    }

    /// That nothing is left.
    pub fn finish(self) -> Result<(), ParseFormatError> {
        let Some(&(field, value)) = self.fields.first() else {
            return Ok(());
        };
        let known = |names: &[&'static str]| names.iter().copied().find(|name| *name == field);
        let without_effect = |field, allowed: &str| ParseFormatError::FieldValue {
            format: self.format,
            field,
            value: value.to_string(),
            allowed: allowed.to_string(),
        };
        Err(match (known(&self.read), known(self.allowed)) {
            (Some(field), _) => without_effect(field, "no second value"),
            (None, Some(field)) => without_effect(field, "nothing beside the other parameters"),
            (None, None) => ParseFormatError::UnknownField {
                format: self.format,
                field: field.to_string(),
                allowed: self.allowed,
            },
        })
    }
}
