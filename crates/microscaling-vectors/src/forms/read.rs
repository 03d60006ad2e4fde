//! Reading dumps: the form is told by the first bytes.

mod binary;
mod text;

use super::VectorForm;
use crate::error::VectorsError;
use crate::layout::{BusLayout, Direction};
use std::io::{BufRead, BufReader, Read};

/// Which fields a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DumpPart {
    /// All of them.
    Whole,
    /// The inputs alone.
    Inputs,
    /// The outputs alone.
    Outputs,
}

impl DumpPart {
    fn of(self, layout: &BusLayout) -> BusLayout {
        match self {
            Self::Whole => layout.clone(),
            Self::Inputs => layout.of(Direction::Input),
            Self::Outputs => layout.of(Direction::Output),
        }
    }
}

/// Reads the cases of a file one by one.
pub struct DumpReader {
    name: String,
    form: VectorForm,
    part: DumpPart,
    layout: BusLayout,
    cases: u64,
    /// The line of the last case.
    line: u64,
    kind: DumpKind,
}

enum DumpKind {
    Hex(text::HexWords),
    Csv(text::CsvRows),
    JsonLines(text::JsonRows),
    Npy(binary::Records),
}

impl DumpReader {
    /// A file of a set with this layout, with the fields of one of `allowed`.
    ///
    /// # Errors
    /// [`VectorsError::Layout`] and [`VectorsError::Line`] name the fields that the file should have; or reading fails.
    pub fn new(
        name: &str,
        from: impl Read + Send + 'static,
        layout: &BusLayout,
        allowed: &[DumpPart],
    ) -> Result<Self, VectorsError> {
        let mut from = BufReader::with_capacity(1 << 16, from);
        let io = |source| VectorsError::Io {
            name: name.to_owned(),
            source,
        };
        let start = from.fill_buf().map_err(io)?;
        if start.is_empty() {
            return Err(VectorsError::Layout {
                name: name.to_owned(),
                reason: "is empty; expected cases".to_owned(),
            });
        }
        let form = form_of(start, layout);
        let from: Box<dyn BufRead + Send> = Box::new(from);
        let parts: Vec<(DumpPart, BusLayout)> = allowed
            .iter()
            .map(|part| (*part, part.of(layout)))
            .collect();
        let (part, kind) = match form {
            VectorForm::Hex => {
                let (part, words) = text::HexWords::open(name, from, &parts)?;
                (part, DumpKind::Hex(words))
            }
            VectorForm::Csv => {
                let (part, rows) = text::CsvRows::open(name, from, &parts)?;
                (part, DumpKind::Csv(rows))
            }
            VectorForm::JsonLines => {
                let (part, rows) = text::JsonRows::open(name, from, &parts)?;
                (part, DumpKind::JsonLines(rows))
            }
            VectorForm::Npy => {
                let (part, records) = binary::Records::open(name, from, &parts)?;
                (part, DumpKind::Npy(records))
            }
        };
        Ok(Self {
            name: name.to_owned(),
            form,
            part,
            layout: part.of(layout),
            cases: 0,
            line: 0,
            kind,
        })
    }

    /// The form of the file.
    pub const fn form(&self) -> VectorForm {
        self.form
    }

    /// Which fields it has.
    pub const fn part(&self) -> DumpPart {
        self.part
    }

    /// Cases that were read.
    pub const fn cases(&self) -> u64 {
        self.cases
    }

    /// The line of the last case that was read, from 1 on; in `.npy`, the number of the case.
    pub const fn line(&self) -> u64 {
        self.line
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The words of the next case; false at the end.
    ///
    /// # Errors
    /// [`VectorsError::Line`]: the line is not a case, or a word has too many bits; or reading fails.
    pub fn next(&mut self, words: &mut Vec<u64>) -> Result<bool, VectorsError> {
        words.clear();
        let found = match &mut self.kind {
            DumpKind::Hex(reader) => reader.next(&self.name, self.cases, words)?,
            DumpKind::Csv(reader) => reader.next(&self.name, &self.layout, words)?,
            DumpKind::JsonLines(reader) => reader.next(&self.name, &self.layout, words)?,
            DumpKind::Npy(reader) => reader.next(&self.name, words)?,
        };
        let Some(line) = found else {
            return Ok(false);
        };
        let mut words = words.iter().zip(self.layout.bits());
        if let Some((word, bits)) = words.find(|(word, bits)| *bits < 64 && **word >> bits != 0) {
            let reason = format!("the word {word:#x} has more than {bits} bits");
            return Err(VectorsError::Line {
                name: self.name.clone(),
                line,
                reason,
            });
        }
        (self.cases, self.line) = (self.cases + 1, line);
        Ok(true)
    }
}

/// The form that a file has, by its first bytes.
fn form_of(start: &[u8], layout: &BusLayout) -> VectorForm {
    let text = start.trim_ascii_start();
    let begins_with_a_name = || {
        let names = layout.fields().iter().map(|field| field.name.as_bytes());
        names.clone().any(|name| {
            text.strip_prefix(name)
                .is_some_and(|rest| rest.first().is_none_or(|byte| b",\r\n".contains(byte)))
        })
    };
    if start.starts_with(b"\x93NUMPY") {
        VectorForm::Npy
    } else if text.starts_with(b"{") {
        VectorForm::JsonLines
    } else if begins_with_a_name() {
        VectorForm::Csv
    } else {
        VectorForm::Hex
    }
}

/// The error of a file that has none of the expected fields.
fn no_part(name: &str, got: &str, parts: &[(DumpPart, BusLayout)]) -> VectorsError {
    let parts = parts
        .iter()
        .map(|(_, layout)| format!("{} ({} bits)", layout.names(), layout.width()));
    let expected = parts.collect::<Vec<_>>().join(", or ");
    VectorsError::Layout {
        name: name.to_owned(),
        reason: format!("has {got}; expected {expected}"),
    }
}
