//! The fields of a case, as a bus and as files have them.

use serde_json::{Value, json};

/// The direction of a field, as the device sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The device reads the field.
    Input,
    /// The device makes the field.
    Output,
}

/// A field of a case: one word, or an array of words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusField {
    /// The name: the column of CSV, the key of JSON Lines, the field of `.npy`.
    pub name: &'static str,
    /// Bits of a word, 1 to 64.
    pub bits: u32,
    /// Words of an array; 0 for a field that is one word.
    pub length: usize,
    /// Input or output.
    pub direction: Direction,
}

impl BusField {
    pub(crate) const fn input(name: &'static str, bits: u32, length: usize) -> Self {
        Self {
            name,
            bits,
            length,
            direction: Direction::Input,
        }
    }

    pub(crate) const fn output(name: &'static str, bits: u32, length: usize) -> Self {
        Self {
            name,
            bits,
            length,
            direction: Direction::Output,
        }
    }

    /// Words of the field.
    pub fn words(&self) -> usize {
        self.length.max(1)
    }

    /// Bits of all words.
    pub fn width(&self) -> usize {
        self.words() * self.bits as usize
    }
}

/// The fields of a case, inputs first.
///
/// On a bus the first field has the highest bits, as in a packed struct of SystemVerilog. Word 0 of an array has the lowest bits of
/// its field, as in `logic [31:0][7:0]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusLayout {
    fields: Vec<BusField>,
}

impl BusLayout {
    pub(crate) fn new(fields: Vec<BusField>) -> Self {
        Self { fields }
    }

    /// The fields.
    pub fn fields(&self) -> &[BusField] {
        &self.fields
    }

    /// The fields of one direction.
    pub fn of(&self, direction: Direction) -> Self {
        let fields = self
            .fields
            .iter()
            .filter(|field| field.direction == direction);
        Self {
            fields: fields.cloned().collect(),
        }
    }

    /// Words of a case.
    pub fn words(&self) -> usize {
        self.fields.iter().map(BusField::words).sum()
    }

    /// Bits of a case.
    pub fn width(&self) -> usize {
        self.fields.iter().map(BusField::width).sum()
    }

    /// Bits of each word of a case, in order.
    pub(crate) fn bits(&self) -> impl Iterator<Item = u32> + '_ {
        self.fields
            .iter()
            .flat_map(|field| std::iter::repeat_n(field.bits, field.words()))
    }

    /// Words and bits in the order of the bus, lowest bits first: positions of words in a case.
    pub(crate) fn lowest_first(&self) -> Vec<(usize, u32)> {
        let mut order = Vec::with_capacity(self.words());
        let mut end = self.words();
        for field in self.fields.iter().rev() {
            let start = end - field.words();
            order.extend((start..end).map(|word| (word, field.bits)));
            end = start;
        }
        order
    }

    /// The names of the fields.
    pub(crate) fn names(&self) -> String {
        let names: Vec<&str> = self.fields.iter().map(|field| field.name).collect();
        names.join(", ")
    }

    /// The layout as JSON: each field with its lowest bit on the bus.
    pub fn to_json(&self) -> Value {
        let mut low = self.width();
        let fields = self.fields.iter().map(|field| {
            low -= field.width();
            let direction = match field.direction {
                Direction::Input => "input",
                Direction::Output => "output",
            };
            json!({
                "name": field.name, "bits": field.bits, "words": field.words(), "lowest_bit": low, "direction": direction,
            })
        });
        Value::Array(fields.collect())
    }

    /// The case as a packed struct of SystemVerilog.
    pub fn to_system_verilog(&self) -> String {
        let mut text = "typedef struct packed {".to_owned();
        for field in &self.fields {
            let array = match field.length {
                0 => String::new(),
                length => format!("[{}:0]", length - 1),
            };
            text += &format!(" logic {array}[{}:0] {};", field.bits - 1, field.name);
        }
        text + " } case_t;"
    }
}
