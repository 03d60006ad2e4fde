//! Reading dumps: the form is told by the first bytes.

mod binary;
mod text;

use super::VectorForm;
use crate::error::VectorsError;
use crate::layout::{BusField, BusLayout, Direction};
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
    /// [`VectorsError::Layout`]: the file has no form of vectors. This error and [`VectorsError::Line`] name the fields that the file
    /// should have. Or reading fails.
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
        if start.starts_with(BYTE_ORDER_MARK) {
            from.consume(BYTE_ORDER_MARK.len());
        }
        let start = from.fill_buf().map_err(io)?;
        let form = form_of(start, layout).ok_or_else(|| no_form(name, start))?;
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

/// The bytes that some programs write before a text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The form that a file has, by its first bytes; `None` for any other file.
fn form_of(start: &[u8], layout: &BusLayout) -> Option<VectorForm> {
    let text = start.trim_ascii_start();
    let first = *text.first()?;
    let line = text.split(|byte| *byte == b'\n').next()?.trim_ascii_end();
    let word = line.split(u8::is_ascii_whitespace).next()?;
    let is_digit = |byte: &u8| byte.is_ascii_hexdigit() || b"xXzZ_".contains(byte);
    let title = str::from_utf8(line).unwrap_or_default().trim_matches('"');
    let is_name = |field: &BusField| title == field.name;
    let has_columns = (first.is_ascii_alphanumeric() || first == b'"') && line.contains(&b',');
    if start.starts_with(b"\x93NUMPY") {
        Some(VectorForm::Npy)
    } else if first == b'{' {
        Some(VectorForm::JsonLines)
    } else if has_columns || layout.fields().iter().any(is_name) {
        Some(VectorForm::Csv)
    } else if b"/@".contains(&first) || word.iter().all(is_digit) {
        Some(VectorForm::Hex)
    } else {
        None
    }
}

/// The error of a file in no form.
fn no_form(name: &str, start: &[u8]) -> VectorsError {
    let start: String = String::from_utf8_lossy(start).chars().take(16).collect();
    let reason = format!(
        "begins with `{}`, as no form does; allowed: hex (a digit, `@` or a comment), csv (the names of the columns), jsonl (`{{`), npy",
        start.escape_debug()
    );
    VectorsError::Layout {
        name: name.to_owned(),
        reason,
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
