//! The numbers of stored tensors.

use half::{bf16, f16};
use microscaling::safetensors::FileTensor;

/// A tensor of floats, widened to float32, which holds them all exactly; `None` of any other type.
pub(crate) fn floats(tensor: &FileTensor<'_>) -> Option<Vec<f32>> {
    let halves = || tensor.bytes.as_chunks().0.iter().copied();
    Some(match tensor.dtype.as_str() {
        "F32" => {
            let words = tensor.bytes.as_chunks().0.iter();
            words.map(|word| f32::from_le_bytes(*word)).collect()
        }
        "F16" => halves().map(|x| f16::from_le_bytes(x).to_f32()).collect(),
        "BF16" => halves().map(|x| bf16::from_le_bytes(x).to_f32()).collect(),
        _ => return None,
    })
}

/// Whether a tensor has floats, and two axes or more.
pub(crate) fn is_matrix(tensor: &FileTensor<'_>) -> bool {
    ["F32", "F16", "BF16"].contains(&tensor.dtype.as_str()) && tensor.shape.len() >= 2
}
