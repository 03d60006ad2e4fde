//! The header of a safetensors file.

use super::{FileError, FileTensor};
use ::safetensors::SafeTensors;
use ::safetensors::tensor::{Metadata, SafeTensorError};
use alloc::{borrow::ToOwned, collections::BTreeMap, string::String, string::ToString};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Types of a byte an element that the crate safetensors does not know. Files of the MI300 have them.
const OTHER_BYTES: [&str; 2] = ["F8_E4M3FNUZ", "F8_E5M2FNUZ"];

type Header<'a> = (BTreeMap<String, FileTensor<'a>>, HashMap<String, String>);

/// The tensors of a file, and its metadata.
pub(super) fn read(file: &[u8]) -> Result<Header<'_>, FileError> {
    let other = check_tensors(file)?;
    let (header, data) = match other.is_empty() {
        true => {
            let (length, header) = SafeTensors::read_metadata(file)?;
            (header, &file[8 + length..])
        }
        false => with_bytes(file, &other)?,
    };
    let tensors = header.tensors().into_iter().map(|(name, info)| {
        let dtype = other.get(&name).cloned();
        let (start, end) = info.data_offsets;
        let tensor = FileTensor {
            dtype: dtype.unwrap_or_else(|| info.dtype.to_string()),
            shape: info.shape.clone(),
            bytes: &data[start..end],
        };
        (name, tensor)
    });
    let tensors = tensors.collect();
    Ok((tensors, header.metadata().clone().unwrap_or_default()))
}

/// The header and the data of a file, with U8 for the types of these tensors, which has as many bytes.
fn with_bytes<'a>(
    file: &'a [u8],
    other: &BTreeMap<String, String>,
) -> Result<(Metadata, &'a [u8]), FileError> {
    let fail = |source| FileError::Json {
        part: "header",
        source,
    };
    let (header, data) = split(file).expect("the tensors were found in it");
    let mut header: Map<String, Value> = serde_json::from_slice(header).map_err(fail)?;
    for name in other.keys() {
        // What is no object is refused below.
        if let Some(Value::Object(tensor)) = header.get_mut(name) {
            tensor.insert("dtype".to_owned(), "U8".into());
        }
    }
    let header: Metadata = serde_json::from_value(header.into()).map_err(fail)?;
    match header.data_len() == data.len() {
        true => Ok((header, data)),
        false => Err(SafeTensorError::MetadataIncompleteBuffer.into()),
    }
}

/// The header and the data of a file; `None` of a file that is too short for its header.
fn split(file: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = file.split_first_chunk()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    rest.split_at_checked(length)
}

/// The expected JSON, or any other in its place.
#[derive(Deserialize)]
#[serde(untagged)]
enum Or<T> {
    This(T),
    Other(IgnoredAny),
}

/// That all tensors lie within the file. The crate safetensors checks so only after adding up, which overflows for some files.
/// Gives the tensors of [`OTHER_BYTES`].
fn check_tensors(file: &[u8]) -> Result<BTreeMap<String, String>, FileError> {
    #[derive(Deserialize)]
    struct Stored {
        dtype: Option<Or<String>>,
        data_offsets: Option<Or<(u64, u64)>>,
    }
    let mut other = BTreeMap::new();
    // What is too short for its header is told by the crate safetensors.
    let Some((header, data)) = split(file) else {
        return Ok(other);
    };
    let header: BTreeMap<String, Option<Stored>> =
        serde_json::from_slice(header).map_err(|source| FileError::Json {
            part: "header",
            source,
        })?;
    for (name, stored) in header {
        let (dtype, offsets) = stored.map_or((None, None), |x| (x.dtype, x.data_offsets));
        let within = match offsets {
            Some(Or::This((start, end))) => start <= end && end <= data.len() as u64,
            _ => name == "__metadata__",
        };
        if !within {
            let size = data.len();
            return Err(FileError::Offsets { name, size });
        }
        if let Some(Or::This(dtype)) = dtype
            && OTHER_BYTES.contains(&dtype.as_str())
            && name != "__metadata__"
        {
            other.insert(name, dtype);
        }
    }
    Ok(other)
}
