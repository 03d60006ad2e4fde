//! Types of tensors in Burn and in safetensors.

use burn_backend::{BoolStore, DType};
use safetensors::tensor::Dtype;

const TYPES: [(DType, Dtype); 13] = [
    (DType::F64, Dtype::F64),
    (DType::F32, Dtype::F32),
    (DType::F16, Dtype::F16),
    (DType::BF16, Dtype::BF16),
    (DType::I64, Dtype::I64),
    (DType::I32, Dtype::I32),
    (DType::I16, Dtype::I16),
    (DType::I8, Dtype::I8),
    (DType::U64, Dtype::U64),
    (DType::U32, Dtype::U32),
    (DType::U16, Dtype::U16),
    (DType::U8, Dtype::U8),
    (DType::Bool(BoolStore::Native), Dtype::BOOL),
];

/// Checks that the bytes are valid values of this type. All bytes are valid numbers; a bool must be 0 or 1.
pub(super) fn check(bytes: &[u8], dtype: DType) -> Result<(), String> {
    let is_one = |byte: &u8| *byte <= 1;
    match bytes
        .iter()
        .position(|byte| !is_one(byte))
        .filter(|_| dtype.is_bool())
    {
        None => Ok(()),
        Some(at) => Err(format!(
            "is BOOL and byte {at} is {}; allowed: 0 and 1",
            bytes[at]
        )),
    }
}

/// Whether a stored tensor may become another type: bools stay bools, and floats do not become integers.
pub(super) fn converts(stored: DType, wanted: DType) -> bool {
    stored.is_bool() == wanted.is_bool() && (wanted.is_float() || !stored.is_float())
}

/// The stored type of a tensor of this type, if a file can have it.
pub(super) fn stored_as(dtype: DType) -> Option<Dtype> {
    let dtype = match dtype {
        DType::Flex32 => DType::F32,
        dtype => dtype,
    };
    let mut types = TYPES.into_iter();
    types.find_map(|(own, stored)| (own == dtype).then_some(stored))
}

/// Burn's type for a stored tensor, by the name of the stored type, if Burn has it.
pub(super) fn of_stored(name: &str) -> Option<DType> {
    let mut types = TYPES.into_iter();
    types.find_map(|(own, stored)| (stored.to_string() == name).then_some(own))
}
