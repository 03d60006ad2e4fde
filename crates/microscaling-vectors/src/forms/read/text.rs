//! `$readmemh`, CSV and JSON Lines.

use super::{DumpPart, no_part};
use crate::error::VectorsError;
use crate::layout::BusLayout;
use serde_json::Value;
use std::collections::VecDeque;
use std::io::BufRead;

type TextSource = Box<dyn BufRead + Send>;

fn bad_line(name: &str, line: u64, reason: impl ToString) -> VectorsError {
    VectorsError::Line {
        name: name.to_owned(),
        line,
        reason: reason.to_string(),
    }
}

/// The next line, without its end.
fn next_line(from: &mut TextSource, name: &str, line: &mut String) -> Result<bool, VectorsError> {
    line.clear();
    let read = from.read_line(line);
    let length = read.map_err(|source| VectorsError::Io {
        name: name.to_owned(),
        source,
    })?;
    Ok(length > 0)
}

/// The number of a text: `0x` and hexadecimal digits, or decimal digits.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The words of a file that `$readmemh` reads.
pub(super) struct HexWords {
    from: TextSource,
    line: u64,
    text: String,
    in_comment: bool,
    waiting: VecDeque<String>,
    order: Vec<(usize, u32)>,
    digits: usize,
}

impl HexWords {
    pub(super) fn open(
        name: &str,
        from: TextSource,
        parts: &[(DumpPart, BusLayout)],
    ) -> Result<(DumpPart, Self), VectorsError> {
        let mut own = Self {
            from,
            line: 0,
            text: String::new(),
            in_comment: false,
            waiting: VecDeque::new(),
            order: Vec::new(),
            digits: 0,
        };
        own.fill(name, 0)?;
        let Some(first) = own.waiting.front() else {
            let reason = "has no word; expected cases".to_owned();
            return Err(VectorsError::Layout {
                name: name.to_owned(),
                reason,
            });
        };
        let digits = first.len();
        let Some((part, layout)) = parts
            .iter()
            .find(|(_, layout)| layout.width().div_ceil(4) == digits)
        else {
            return Err(no_part(
                name,
                &format!("words of {digits} digits ({} bits)", 4 * digits),
                parts,
            ));
        };
        own.order = layout.lowest_first();
        own.digits = digits;
        Ok((*part, own))
    }

    /// Reads lines until there is a word, or the end.
    fn fill(&mut self, name: &str, cases: u64) -> Result<(), VectorsError> {
        while self.waiting.is_empty() && next_line(&mut self.from, name, &mut self.text)? {
            self.line += 1;
            let text = self.without_comments();
            for token in text.split_whitespace() {
                match token.strip_prefix('@') {
                    None => self.waiting.push_back(token.replace('_', "")),
                    Some(address) => {
                        let next = cases + self.waiting.len() as u64;
                        if u64::from_str_radix(address, 16) != Ok(next) {
                            let reason = format!(
                                "the address is {token}, expected @{next:x}: cases in order"
                            );
                            return Err(bad_line(name, self.line, reason));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn without_comments(&mut self) -> String {
        let mut kept = String::new();
        let mut rest = &self.text[..];
        loop {
            if self.in_comment {
                let Some((_, tail)) = rest.split_once("*/") else {
                    return kept;
                };
                (rest, self.in_comment) = (tail, false);
            }
            let start = rest.find("/*").unwrap_or(rest.len());
            if let Some(line) = rest.find("//").filter(|line| *line < start) {
                return kept + &rest[..line];
            }
            kept += &rest[..start];
            kept.push(' ');
            match rest.get(start + 2..) {
                Some(tail) if start < rest.len() => (rest, self.in_comment) = (tail, true),
                _ => return kept,
            }
        }
    }

    pub(super) fn next(
        &mut self,
        name: &str,
        cases: u64,
        words: &mut Vec<u64>,
    ) -> Result<Option<u64>, VectorsError> {
        if self.waiting.is_empty() {
            self.fill(name, cases)?;
        }
        let Some(token) = self.waiting.pop_front() else {
            return Ok(None);
        };
        let line = self.line;
        if token.len() != self.digits {
            let reason = format!(
                "`{token}` has {} digits, expected {}",
                token.len(),
                self.digits
            );
            return Err(bad_line(name, line, reason));
        }
        let mut limbs = vec![0_u64; self.digits.div_ceil(16) + 1];
        for (i, digit) in token.bytes().rev().enumerate() {
            let Some(value) = char::from(digit).to_digit(16) else {
                let reason = format!(
                    "`{token}` has the digit `{}`; allowed: 0 to f",
                    char::from(digit)
                );
                return Err(bad_line(name, line, reason));
            };
            limbs[i / 16] |= u64::from(value) << (4 * (i % 16));
        }
        words.resize(self.order.len(), 0);
        let mut at = 0;
        for (word, bits) in &self.order {
            let (limb, shift) = (at / 64, at % 64);
            let both = u128::from(limbs[limb]) | u128::from(limbs[limb + 1]) << 64;
            words[*word] = (both >> shift) as u64 & (u64::MAX >> (64 - bits));
            at += *bits as usize;
        }
        if limbs[at / 64] >> (at % 64) != 0 {
            return Err(bad_line(
                name,
                line,
                format!("`{token}` has more than {at} bits"),
            ));
        }
        Ok(Some(line))
    }
}

/// The rows of a CSV file.
pub(super) struct CsvRows {
    rows: csv::StringRecordsIntoIter<TextSource>,
    /// The column of each field.
    columns: Vec<usize>,
}

impl CsvRows {
    pub(super) fn open(
        name: &str,
        from: TextSource,
        parts: &[(DumpPart, BusLayout)],
    ) -> Result<(DumpPart, Self), VectorsError> {
        let mut reader = csv::Reader::from_reader(from);
        let header = reader.headers().map_err(|error| bad_line(name, 1, error))?;
        let header: Vec<String> = header.iter().map(|title| title.trim().to_owned()).collect();
        let is_part = |layout: &BusLayout| {
            let has = |title: &str| header.iter().filter(|own| *own == title).count() == 1;
            layout.fields().len() == header.len()
                && layout.fields().iter().all(|field| has(field.name))
        };
        let Some((part, layout)) = parts.iter().find(|(_, layout)| is_part(layout)) else {
            return Err(no_part(
                name,
                &format!("the columns {}", header.join(", ")),
                parts,
            ));
        };
        let column = |name: &str| header.iter().position(|title| title == name);
        let columns = layout
            .fields()
            .iter()
            .filter_map(|field| column(field.name))
            .collect();
        Ok((
            *part,
            Self {
                rows: reader.into_records(),
                columns,
            },
        ))
    }

    pub(super) fn next(
        &mut self,
        name: &str,
        layout: &BusLayout,
        words: &mut Vec<u64>,
    ) -> Result<Option<u64>, VectorsError> {
        let Some(row) = self.rows.next() else {
            return Ok(None);
        };
        let row = row.map_err(|error| {
            let line = error.position().map_or(0, csv::Position::line);
            bad_line(name, line, error)
        })?;
        let line = row.position().map_or(0, csv::Position::line);
        for (column, field) in self.columns.iter().zip(layout.fields()) {
            let before = words.len();
            for text in row[*column].split_whitespace() {
                let word = number(text);
                words.push(word.ok_or_else(|| {
                    bad_line(
                        name,
                        line,
                        format!("{} is `{text}`, expected a number", field.name),
                    )
                })?);
            }
            let got = words.len() - before;
            if got != field.words() {
                let reason = format!("{} has {got} words, expected {}", field.name, field.words());
                return Err(bad_line(name, line, reason));
            }
        }
        Ok(Some(line))
    }
}

/// The lines of JSON Lines.
pub(super) struct JsonRows {
    from: TextSource,
    line: u64,
    text: String,
    /// Whether the text is the next line already.
    is_ahead: bool,
}

impl JsonRows {
    pub(super) fn open(
        name: &str,
        from: TextSource,
        parts: &[(DumpPart, BusLayout)],
    ) -> Result<(DumpPart, Self), VectorsError> {
        let mut own = Self {
            from,
            line: 0,
            text: String::new(),
            is_ahead: false,
        };
        own.advance(name)?;
        own.is_ahead = true;
        let object = own.object(name)?;
        let is_part = |layout: &BusLayout| {
            layout.fields().len() == object.len()
                && layout
                    .fields()
                    .iter()
                    .all(|field| object.contains_key(field.name))
        };
        let Some((part, _)) = parts.iter().find(|(_, layout)| is_part(layout)) else {
            let keys: Vec<&str> = object.keys().map(String::as_str).collect();
            return Err(no_part(
                name,
                &format!("the keys {}", keys.join(", ")),
                parts,
            ));
        };
        Ok((*part, own))
    }

    /// Whether there is a next line that is not blank.
    fn advance(&mut self, name: &str) -> Result<bool, VectorsError> {
        if std::mem::take(&mut self.is_ahead) {
            return Ok(true);
        }
        while next_line(&mut self.from, name, &mut self.text)? {
            self.line += 1;
            if !self.text.trim().is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn object(&self, name: &str) -> Result<serde_json::Map<String, Value>, VectorsError> {
        serde_json::from_str(&self.text).map_err(|error| bad_line(name, self.line, error))
    }

    pub(super) fn next(
        &mut self,
        name: &str,
        layout: &BusLayout,
        words: &mut Vec<u64>,
    ) -> Result<Option<u64>, VectorsError> {
        if !self.advance(name)? {
            return Ok(None);
        }
        let object = self.object(name)?;
        for field in layout.fields() {
            let values: &[Value] = match object.get(field.name) {
                Some(Value::Array(values)) => values,
                Some(value) => std::slice::from_ref(value),
                None => &[],
            };
            if values.len() != field.words() {
                let reason = format!(
                    "{} has {} words, expected {}",
                    field.name,
                    values.len(),
                    field.words()
                );
                return Err(bad_line(name, self.line, reason));
            }
            for value in values {
                let word = value.as_u64().or_else(|| value.as_str().and_then(number));
                let wrong = || {
                    bad_line(
                        name,
                        self.line,
                        format!("{} is {value}, expected a whole number", field.name),
                    )
                };
                words.push(word.ok_or_else(wrong)?);
            }
        }
        Ok(Some(self.line))
    }
}
