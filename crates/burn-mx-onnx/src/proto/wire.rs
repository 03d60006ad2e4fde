//! The wire format of protobuf messages ([encoding](https://protobuf.dev/programming-guides/encoding/)), read without a copy.
//!
//! A model is taken apart only where something changes. All other bytes of a file are written as they were read, also fields
//! that this crate does not know. Crates that generate types for messages copy every weight and drop unknown fields.

use std::borrow::Cow;

/// A field of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<'a> {
    pub(crate) number: u32,
    pub(crate) value: WireValue<'a>,
    /// The field's bytes in the file, with its tag.
    pub(crate) raw: &'a [u8],
}

/// The value of a field.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WireValue<'a> {
    Varint(u64),
    Fixed32([u8; 4]),
    Fixed64,
    Bytes(&'a [u8]),
}

/// The bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The fields of a message.
pub(crate) fn fields(message: &[u8]) -> Result<Vec<Field<'_>>, Malformed> {
    let mut rest = message;
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let from = rest;
        let tag = varint(&mut rest)?;
        let number = u32::try_from(tag >> 3).map_err(|_| Malformed)?;
        let value = match tag & 7 {
            0 => WireValue::Varint(varint(&mut rest)?),
            1 => {
                take(&mut rest, 8)?;
                WireValue::Fixed64
            }
            2 => {
                let length = usize::try_from(varint(&mut rest)?).map_err(|_| Malformed)?;
                WireValue::Bytes(take(&mut rest, length)?)
            }
            5 => {
                let bytes = take(&mut rest, 4)?;
                WireValue::Fixed32(bytes.try_into().map_err(|_| Malformed)?)
            }
            _ => return Err(Malformed),
        };
        if number == 0 {
            return Err(Malformed);
        }
        let raw = &from[..from.len() - rest.len()];
        fields.push(Field { number, value, raw });
    }
    Ok(fields)
}

/// Adds packed floats.
pub(crate) fn put_floats(packed: &[u8], to: &mut Vec<f32>) -> Result<(), Malformed> {
    let (floats, rest) = packed.as_chunks();
    to.extend(floats.iter().map(|bytes| f32::from_le_bytes(*bytes)));
    match rest {
        [] => Ok(()),
        _ => Err(Malformed),
    }
}

impl<'a> Field<'a> {
    /// The bytes of a text, a message or packed numbers.
    pub(crate) fn bytes(&self) -> Result<&'a [u8], Malformed> {
        match self.value {
            WireValue::Bytes(bytes) => Ok(bytes),
            _ => Err(Malformed),
        }
    }

    pub(crate) fn text(&self) -> Result<&'a str, Malformed> {
        str::from_utf8(self.bytes()?).map_err(|_| Malformed)
    }

    /// An integer.
    pub(crate) fn integer(&self) -> Result<i64, Malformed> {
        match self.value {
            WireValue::Varint(value) => Ok(value as i64),
            _ => Err(Malformed),
        }
    }

    /// Adds the floats of a repeated field, packed or not.
    pub(crate) fn floats(&self, to: &mut Vec<f32>) -> Result<(), Malformed> {
        match self.value {
            WireValue::Bytes(packed) => put_floats(packed, to),
            WireValue::Fixed32(bytes) => {
                to.push(f32::from_le_bytes(bytes));
                Ok(())
            }
            _ => Err(Malformed),
        }
    }

    /// Adds the integers of a repeated field, packed or not.
    pub(crate) fn integers(&self, to: &mut Vec<i64>) -> Result<(), Malformed> {
        match self.value {
            WireValue::Bytes(mut packed) => {
                while !packed.is_empty() {
                    to.push(varint(&mut packed)? as i64);
                }
                Ok(())
            }
            _ => {
                to.push(self.integer()?);
                Ok(())
            }
        }
    }
}

fn varint(rest: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = 0;
    for at in 0..10 {
        let (byte, after) = rest.split_first().ok_or(Malformed)?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Malformed)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], Malformed> {
    let (taken, after) = rest.split_at_checked(length).ok_or(Malformed)?;
    *rest = after;
    Ok(taken)
}

/// A message to be written: pieces of the file that was read, and new ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message<'a> {
    pieces: Vec<Cow<'a, [u8]>>,
    length: usize,
}

impl<'a> Message<'a> {
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().map(|piece| &**piece)
    }

    /// Bytes of the whole.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Appends the bytes of a field that was read.
    pub(crate) fn raw(&mut self, field: &'a [u8]) {
        self.push(Cow::Borrowed(field));
    }

    pub(crate) fn integer(&mut self, number: u32, value: i64) {
        let piece = self.owned();
        put_varint(piece, u64::from(number) << 3);
        put_varint(piece, value as u64);
        self.count();
    }

    pub(crate) fn text(&mut self, number: u32, text: &str) {
        self.small(number, text.as_bytes());
    }

    /// Bytes that are moved here.
    pub(crate) fn bytes(&mut self, number: u32, bytes: Cow<'a, [u8]>) {
        self.head(number, bytes.len());
        self.push(bytes);
    }

    pub(crate) fn message(&mut self, number: u32, message: Message<'a>) {
        self.head(number, message.length);
        for piece in message.pieces {
            self.push(piece);
        }
    }

    fn small(&mut self, number: u32, bytes: &[u8]) {
        self.head(number, bytes.len());
        self.owned().extend_from_slice(bytes);
        self.count();
    }

    fn head(&mut self, number: u32, length: usize) {
        let piece = self.owned();
        put_varint(piece, u64::from(number) << 3 | 2);
        put_varint(piece, length as u64);
        self.count();
    }

    /// The last piece, if it is new and small; else another one.
    fn owned(&mut self) -> &mut Vec<u8> {
        const SMALL: usize = 1 << 12;
        if !matches!(self.pieces.last(), Some(Cow::Owned(piece)) if piece.len() < SMALL) {
            self.pieces.push(Cow::Owned(Vec::new()));
        }
        match self.pieces.last_mut() {
            Some(Cow::Owned(piece)) => {
                self.length -= piece.len();
                piece
            }
            _ => unreachable!("it was pushed"),
        }
    }

    /// Counts the last piece, which [`owned`](Self::owned) took out of the length.
    fn count(&mut self) {
        self.length += self.pieces.last().map_or(0, |piece| piece.len());
    }

    fn push(&mut self, piece: Cow<'a, [u8]>) {
        self.length += piece.len();
        self.pieces.push(piece);
    }
}

fn put_varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut inner = Message::default();
        inner.text(1, "name");
        inner.integer(2, -1);
        let mut message = Message::default();
        message.raw(&[0x08, 0x96, 0x01]); // protobuf's own example: field 1 is 150
        message.message(3, inner);
        let mut packed = Vec::new();
        for value in [1, 300, -2_i64] {
            put_varint(&mut packed, value as u64);
        }
        message.bytes(4, Cow::Owned(packed));
        message.raw(&[0x2d, 0, 0, 0, 0x3f]); // field 5 is 0.5
        message.bytes(1000, Cow::Owned(vec![7; 300]));
        let bytes: Vec<u8> = message.pieces().flatten().copied().collect();
        assert_eq!(bytes.len(), message.len());
        let read = fields(&bytes).unwrap();
        assert_eq!(read[0].integer(), Ok(150));
        let inner = fields(read[1].bytes().unwrap()).unwrap();
        assert_eq!((inner[0].text(), inner[1].integer()), (Ok("name"), Ok(-1)));
        let mut integers = Vec::new();
        read[2].integers(&mut integers).unwrap();
        assert_eq!(integers, [1, 300, -2]);
        assert!(
            matches!(read[3].value, WireValue::Fixed32(bytes) if f32::from_le_bytes(bytes) == 0.5)
        );
        assert_eq!((read[4].number, read[4].bytes()), (1000, Ok(&[7; 300][..])));
        let all: Vec<u8> = read.iter().flat_map(|field| field.raw).copied().collect();
        assert_eq!(all, bytes);
        // Cut off anywhere inside of a field, it is none.
        assert!((bytes.len() - 300..bytes.len()).all(|end| fields(&bytes[..end]).is_err()));
    }

    #[test]
    fn no_messages() {
        for bytes in [
            &[0x0b][..],
            &[0x00, 0x00],
            &[0x08],
            &[0xff; 11],
            &[0x12, 0x05, 0],
        ] {
            assert_eq!(fields(bytes).unwrap_err(), Malformed, "{bytes:?}");
        }
    }
}
