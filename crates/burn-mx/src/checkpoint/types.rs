//! The types of tensors, Burn's and safetensors'.

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

/// What a tensor of this type is stored as, if a file can have it.
pub(super) fn stored_as(dtype: DType) -> Option<Dtype> {
    let dtype = match dtype {
        DType::Flex32 => DType::F32,
        dtype => dtype,
    };
    let mut types = TYPES.into_iter();
    types.find_map(|(own, stored)| (own == dtype).then_some(stored))
}

/// What a stored tensor of the type of this name becomes, if Burn has it.
pub(super) fn of_stored(name: &str) -> Option<DType> {
    let mut types = TYPES.into_iter();
    types.find_map(|(own, stored)| (stored.to_string() == name).then_some(own))
}
