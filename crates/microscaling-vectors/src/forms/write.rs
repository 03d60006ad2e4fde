//! Writing vectors, case by case.

use super::{VectorForm, npy};
use crate::layout::BusLayout;
use std::io::{self, Write};

/// Writes cases to a stream.
#[derive(Debug)]
pub struct VectorWriter<W> {
    form: VectorForm,
    layout: BusLayout,
    bits: Vec<u32>,
    order: Vec<(usize, u32)>,
    bus: Vec<u64>,
    line: Vec<u8>,
    to: W,
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

fn digits(line: &mut Vec<u8>, word: u64, count: u32) {
    line.extend(
        (0..count)
            .rev()
            .map(|digit| DIGITS[(word >> (4 * digit) & 15) as usize]),
    );
}

impl<W: Write> VectorWriter<W> {
    /// Writes the header. The name stands in `hex` as a comment.
    ///
    /// # Errors
    /// The stream's.
    pub fn new(
        form: VectorForm,
        layout: &BusLayout,
        name: &str,
        cases: u64,
        mut to: W,
    ) -> io::Result<Self> {
        match form {
            VectorForm::Hex => {
                writeln!(to, "// {name}")?;
                writeln!(to, "// {}", layout.to_system_verilog())?;
            }
            VectorForm::Csv => writeln!(to, "{}", layout.names().replace(", ", ","))?,
            VectorForm::JsonLines => {}
            VectorForm::Npy => to.write_all(&npy::header(layout, cases))?,
        }
        Ok(Self {
            form,
            layout: layout.clone(),
            bits: layout.bits().collect(),
            order: layout.lowest_first(),
            bus: vec![0; layout.width().div_ceil(64)],
            line: Vec::new(),
            to,
        })
    }

    /// Writes a case: the words of all fields.
    ///
    /// # Errors
    /// The stream's.
    pub fn case(&mut self, words: &[u64]) -> io::Result<()> {
        self.line.clear();
        match self.form {
            VectorForm::Hex => self.hex(words),
            VectorForm::Csv => self.csv(words),
            VectorForm::JsonLines => self.json(words)?,
            VectorForm::Npy => {
                for (word, bits) in words.iter().zip(&self.bits) {
                    self.line.extend(&word.to_le_bytes()[..npy::bytes(*bits)]);
                }
            }
        }
        self.to.write_all(&self.line)
    }

    fn hex(&mut self, words: &[u64]) {
        self.bus.fill(0);
        let mut at = 0;
        for (word, bits) in &self.order {
            let (limb, shift) = (at / 64, at % 64);
            let word = words[*word];
            self.bus[limb] |= word << shift;
            if shift + *bits as usize > 64 {
                self.bus[limb + 1] |= word >> (64 - shift);
            }
            at += *bits as usize;
        }
        let count = at.div_ceil(4);
        for (i, limb) in self.bus.iter().enumerate().rev() {
            digits(&mut self.line, *limb, (count - 16 * i).min(16) as u32);
        }
        self.line.push(b'\n');
    }

    fn csv(&mut self, words: &[u64]) {
        let mut words = words.iter();
        for (i, field) in self.layout.fields().iter().enumerate() {
            if i > 0 {
                self.line.push(b',');
            }
            for (j, word) in words.by_ref().take(field.words()).enumerate() {
                if j > 0 {
                    self.line.push(b' ');
                }
                self.line.extend(b"0x");
                digits(&mut self.line, *word, field.bits.div_ceil(4));
            }
        }
        self.line.push(b'\n');
    }

    fn json(&mut self, words: &[u64]) -> io::Result<()> {
        let mut words = words.iter();
        for (i, field) in self.layout.fields().iter().enumerate() {
            write!(
                self.line,
                "{}\"{}\":",
                if i == 0 { "{" } else { "," },
                field.name
            )?;
            let own = words.by_ref().take(field.words()).map(u64::to_string);
            let own = own.collect::<Vec<_>>().join(",");
            match field.length {
                0 => write!(self.line, "{own}")?,
                _ => write!(self.line, "[{own}]")?,
            }
        }
        self.line.extend(b"}\n");
        Ok(())
    }

    /// Ends the stream.
    ///
    /// # Errors
    /// The stream's.
    pub fn finish(mut self) -> io::Result<W> {
        self.to.flush()?;
        Ok(self.to)
    }
}
