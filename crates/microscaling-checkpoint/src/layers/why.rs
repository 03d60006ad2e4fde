//! Why a weight in a known layout is not read: the part that is missing, or that has another type or shape.

use microscaling::safetensors::{FileTensor, PackedFiles};

/// The types of scales.
const SCALES: [&str; 4] = ["F32", "BF16", "F16", "F8_E8M0"];

/// The part at fault of the weight with these codes, and the expected type or shape; `None` if the layout is not known.
pub(crate) fn why(read: &PackedFiles<'_>, codes: &str) -> Option<String> {
    let tensor = read.tensor(codes)?;
    let (name, shape) = match tensor.dtype.as_str() {
        "I32" => {
            let name = codes.strip_suffix("_packed")?;
            match said_shape(read, name, &tensor) {
                Ok(shape) => (name, shape),
                Err(reason) => return Some(reason),
            }
        }
        "I8" => (codes, tensor.shape.clone()),
        dtype if dtype.starts_with("F8_E4M3") || dtype.starts_with("F8_E5M2") => {
            (codes, tensor.shape.clone())
        }
        _ => return None,
    };
    let ends = ["_scale", "_scale_inv"].map(|end| format!("{name}{end}"));
    let found = ends.iter().find_map(|end| Some((end, read.tensor(end)?)));
    let Some((scales, stored)) = found else {
        return Some(format!(
            "`{}` is missing; expected the scales of `{codes}`",
            ends[0]
        ));
    };
    if !SCALES.contains(&stored.dtype.as_str()) {
        let (dtype, known) = (&stored.dtype, SCALES.join(", "));
        return Some(format!("`{scales}` is {dtype}; expected {known}"));
    }
    let is_count = |(count, length): (&usize, &usize)| {
        *count == 1 || *count > 0 && length.div_ceil(length.div_ceil(*count).max(1)) == *count
    };
    let fits = match stored.shape[..] {
        [] | [1] => true,
        [rows] => shape.len() == 2 && rows == shape[0],
        _ => stored.shape.len() == shape.len() && stored.shape.iter().zip(&shape).all(is_count),
    };
    (!fits).then(|| {
        format!(
            "`{scales}` has shape {:?}; expected a scale for the tensor, or for each row or block of the weight's {shape:?} \
             elements",
            stored.shape
        )
    })
}

/// The shape that `NAME_shape` has, if the words hold as many integers.
fn said_shape(
    read: &PackedFiles<'_>,
    name: &str,
    codes: &FileTensor<'_>,
) -> Result<Vec<usize>, String> {
    let part = format!("{name}_shape");
    let expected = "expected the weight's shape [out, in] as I64 or I32";
    let Some(stored) = read.tensor(&part) else {
        return Err(format!("`{part}` is missing; {expected}"));
    };
    let width = match stored.dtype.as_str() {
        "I64" => 8,
        "I32" => 4,
        dtype => return Err(format!("`{part}` is {dtype}; {expected}")),
    };
    let number = |bytes: &[u8]| match bytes.try_into() {
        Ok(bytes) => i64::from_le_bytes(bytes),
        Err(_) => bytes.try_into().map_or(0, i32::from_le_bytes).into(),
    };
    let said: Vec<i64> = stored.bytes.chunks(width).map(number).collect();
    let [rows, words] = codes.shape[..] else {
        let shape = &codes.shape;
        return Err(format!("the codes have shape {shape:?}; expected two axes"));
    };
    let shape = said.iter().map(|x| usize::try_from(*x).ok());
    let shape: Option<Vec<usize>> = shape.collect();
    let fits = |shape: &Vec<usize>| match shape[..] {
        [outputs, inputs] => {
            let words_of = |bits| Some(inputs.checked_mul(bits)?.div_ceil(32));
            outputs == rows && (1..=8).any(|bits| words_of(bits) == Some(words))
        }
        _ => false,
    };
    shape.filter(fits).ok_or_else(|| {
        format!(
            "`{part}` is {said:?}; expected [{rows}, in], where {words} words of 32 bits hold in integers of 1 to 8 bits"
        )
    })
}
