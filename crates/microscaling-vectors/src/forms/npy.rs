//! NumPy's arrays of records.

use crate::layout::{BusField, BusLayout};

/// Bytes of a word in an array.
pub(super) fn bytes(bits: u32) -> usize {
    match bits {
        0..=8 => 1,
        9..=16 => 2,
        17..=32 => 4,
        _ => 8,
    }
}

fn type_of(bits: u32) -> String {
    let bytes = bytes(bits);
    let order = if bytes == 1 { '|' } else { '<' };
    format!("{order}u{bytes}")
}

/// The type of a record, as NumPy writes it.
pub(super) fn record(layout: &BusLayout) -> String {
    let field = |field: &BusField| {
        let array = match field.length {
            0 => String::new(),
            length => format!(", ({length},)"),
        };
        format!("('{}', '{}'{array})", field.name, type_of(field.bits))
    };
    let fields: Vec<String> = layout.fields().iter().map(field).collect();
    format!("[{}]", fields.join(", "))
}

/// The type and the inner shape of a plain array, for a layout with one field.
pub(super) fn plain(layout: &BusLayout) -> Option<(String, usize)> {
    match layout.fields() {
        [field] => Some((format!("'{}'", type_of(field.bits)), field.length)),
        _ => None,
    }
}

/// The bytes before the records.
pub(super) fn header(layout: &BusLayout, cases: u64) -> Vec<u8> {
    let mut text = format!(
        "{{'descr': {}, 'fortran_order': False, 'shape': ({cases},), }}",
        record(layout)
    );
    // The header ends with a line feed at a multiple of 64 bytes.
    let length = (text.len() + 1 + 10).next_multiple_of(64) - 10;
    text += &" ".repeat(length - 1 - text.len());
    text.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((length as u16).to_le_bytes());
    bytes.extend(text.bytes());
    bytes
}
