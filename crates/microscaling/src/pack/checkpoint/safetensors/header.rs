//! The header of a safetensors file.

use super::{FileError, FileTensor};
use ::safetensors::SafeTensors;
use ::safetensors::tensor::{Metadata, SafeTensorError};
use alloc::{borrow::ToOwned, collections::BTreeMap, string::String, string::ToString, vec::Vec};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Types of a byte an element that the crate safetensors does not know. Files of the MI300 have them.
const OTHER_BYTES: [&str; 2] = ["F8_E4M3FNUZ", "F8_E5M2FNUZ"];

type Header<'a> = (BTreeMap<String, FileTensor<'a>>, HashMap<String, String>);

/// A tensor as the header of a file describes it.
#[derive(Clone, Copy, Debug)]
pub struct HeaderEntry<'a> {
    /// The tensor's name.
    pub name: &'a str,
    /// The type of its elements, as files name it: `F32`.
    pub dtype: &'a str,
    /// Its shape.
    pub shape: &'a [usize],
    /// How many bytes it has.
    pub bytes: usize,
}

/// The bytes of a safetensors file before its tensors: the header's length, and the header. The tensors follow without gaps, in the
/// order of `entries`. The header's entries are sorted, so the same tensors and metadata give the same bytes.
///
/// Readers expect each tensor at a multiple of its element's size: put the types with the widest elements first.
///
/// ```
/// use microscaling::safetensors::{HeaderEntry, header};
///
/// let w = HeaderEntry { name: "w", dtype: "F32", shape: &[2], bytes: 8 };
/// let mut file = header([w], &Default::default())?;
/// file.extend([1.0f32, 2.0].map(f32::to_le_bytes).concat());
/// let read = safetensors::SafeTensors::deserialize(&file)?;
/// assert_eq!(read.tensor("w")?.shape(), [2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// If the header has more than 100,000,000 bytes, which readers refuse.
pub fn header<'a>(
    entries: impl IntoIterator<Item = HeaderEntry<'a>>,
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<u8>, FileError> {
    let mut header = BTreeMap::new();
    if !metadata.is_empty() {
        header.insert(METADATA, json!(metadata));
    }
    let mut end = 0;
    for entry in entries {
        let start = end;
        end += entry.bytes;
        let described =
            json!({"dtype": entry.dtype, "shape": entry.shape, "data_offsets": [start, end]});
        header.insert(entry.name, described);
    }
    let header = serde_json::to_string(&header).expect("texts and numbers are JSON");
    let length = header.len().next_multiple_of(8);
    if length > MOST_BYTES {
        return Err(SafeTensorError::HeaderTooLarge.into());
    }
    let mut bytes = (length as u64).to_le_bytes().to_vec();
    bytes.extend(header.into_bytes());
    bytes.resize(8 + length, b' ');
    Ok(bytes)
}

/// The longest header that the crate safetensors reads.
const MOST_BYTES: usize = 100_000_000;

/// The entry of the header that is not a tensor.
const METADATA: &str = "__metadata__";

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
        // A value that is not an object is refused below.
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
    // The crate safetensors reports a file that is too short for its header.
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
            _ => name == METADATA,
        };
        if !within {
            let size = data.len();
            return Err(FileError::Offsets { name, size });
        }
        if let Some(Or::This(dtype)) = dtype
            && OTHER_BYTES.contains(&dtype.as_str())
            && name != METADATA
        {
            other.insert(name, dtype);
        }
    }
    Ok(other)
}
