//! Arrays that NumPy saved, as safetensors files with one tensor.

use crate::error::Error;
use memmap2::Mmap;
use microscaling::safetensors::{HeaderEntry, header};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::Path;

/// The ending of NumPy's files.
pub(crate) const ENDING: &str = "npy";

/// The types of NumPy's arrays, and of safetensors.
const TYPES: [(&str, &str); 12] = [
    ("<f4", "F32"),
    ("<f2", "F16"),
    ("<f8", "F64"),
    ("|b1", "BOOL"),
    ("|i1", "I8"),
    ("|u1", "U8"),
    ("<i2", "I16"),
    ("<u2", "U16"),
    ("<i4", "I32"),
    ("<u4", "U32"),
    ("<i8", "I64"),
    ("<u8", "U64"),
];

/// The bytes of a safetensors file.
pub(crate) enum Contents {
    Mapped(Mmap),
    Made(Vec<u8>),
}

impl Deref for Contents {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Made(bytes) => bytes,
        }
    }
}

/// The array as a safetensors file. The tensor has the file's name without its ending.
pub(crate) fn as_safetensors(path: &Path, npy: &[u8]) -> Result<Contents, Error> {
    let fail = |reason: String| Error::NoCheckpoint {
        path: path.to_owned(),
        reason,
    };
    let (text, data) =
        split(npy).ok_or_else(|| fail("no array of NumPy, or one that is cut off".into()))?;
    let field = |name: &str| {
        let value = text.split_once(&format!("'{name}':"));
        let value = value.map(|(_, value)| value.trim_start());
        value.ok_or_else(|| fail(format!("the header has no `{name}`")))
    };
    let descr = field("descr")?;
    let descr = descr.split('\'').nth(1).unwrap_or(descr);
    let dtype = TYPES.iter().find(|(name, _)| *name == descr);
    let Some((_, dtype)) = dtype else {
        let allowed = TYPES.map(|(name, _)| name).join(", ");
        return Err(fail(format!(
            "the type `descr` is `{descr}`; allowed: {allowed}"
        )));
    };
    let shape = field("shape")?.trim_start_matches('(').split_once(')');
    let shape = shape.map_or("", |(shape, _)| shape).split(',');
    let lengths = shape.map(str::trim).filter(|length| !length.is_empty());
    let shape: Result<Vec<usize>, _> = lengths.map(str::parse).collect();
    let shape = shape.map_err(|error| fail(format!("the shape: {error}")))?;
    let size: usize = descr[2..].parse().expect("each type ends in its bytes");
    let wanted = shape.iter().try_fold(size, |all, n| all.checked_mul(*n));
    if wanted != Some(data.len()) {
        return Err(fail(format!(
            "{} bytes for shape {shape:?} of `{descr}`",
            data.len()
        )));
    }
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let entry = HeaderEntry {
        name: &name,
        dtype,
        shape: &shape,
        bytes: data.len(),
    };
    let mut file = header([entry], &BTreeMap::new()).map_err(|error| fail(error.to_string()))?;
    match field("fortran_order")?.starts_with("True") {
        false => file.extend(data),
        true => rows_first(data, &shape, size, &mut file),
    }
    Ok(Contents::Made(file))
}

/// The header and the elements.
fn split(npy: &[u8]) -> Option<(&str, &[u8])> {
    let rest = npy.strip_prefix(b"\x93NUMPY")?;
    let ([major, _], rest) = rest.split_first_chunk()?;
    let (length, rest) = match major {
        1 => {
            let (length, rest) = rest.split_first_chunk()?;
            (u16::from_le_bytes(*length).into(), rest)
        }
        _ => {
            let (length, rest) = rest.split_first_chunk()?;
            (u32::from_le_bytes(*length) as usize, rest)
        }
    };
    let (header, data) = rest.split_at_checked(length)?;
    Some((str::from_utf8(header).ok()?, data))
}

/// Adds elements that lie with the first axis fastest, in the order with the last axis fastest.
fn rows_first(data: &[u8], shape: &[usize], size: usize, file: &mut Vec<u8>) {
    for number in 0..data.len() / size {
        let (mut rest, mut place) = (number, 0);
        for axis in (0..shape.len()).rev() {
            let stride: usize = shape[..axis].iter().product();
            place += rest % shape[axis] * stride;
            rest /= shape[axis];
        }
        file.extend(&data[place * size..][..size]);
    }
}
