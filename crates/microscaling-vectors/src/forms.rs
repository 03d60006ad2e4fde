//! The forms of files: `$readmemh`, CSV, JSON Lines, `.npy`.

mod npy;
mod read;
mod write;

pub use read::{DumpPart, DumpReader};
pub use write::VectorWriter;

use crate::error::VectorsError;
use std::fmt;
use std::str::FromStr;

/// The form of a file of vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VectorForm {
    /// `hex`: a line of hexadecimal digits for each case, which `$readmemh` reads; all fields on one bus.
    Hex,
    /// `csv`: a column for each field; the words of an array have blanks between them.
    Csv,
    /// `jsonl`: a JSON object on each line, with whole numbers.
    JsonLines,
    /// `npy`: an array of NumPy, with a field for each field.
    Npy,
}

const FORMS: [(&str, VectorForm); 4] = [
    ("hex", VectorForm::Hex),
    ("csv", VectorForm::Csv),
    ("jsonl", VectorForm::JsonLines),
    ("npy", VectorForm::Npy),
];

impl FromStr for VectorForm {
    type Err = VectorsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = FORMS.iter().find(|(name, _)| *name == text);
        let allowed = || FORMS.map(|(name, _)| name).join(", ");
        found
            .map(|(_, own)| *own)
            .ok_or_else(|| VectorsError::option("form", text, allowed()))
    }
}

impl fmt::Display for VectorForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = FORMS.iter().find(|(_, own)| own == self);
        f.pad(found.map_or("", |(name, _)| name))
    }
}
