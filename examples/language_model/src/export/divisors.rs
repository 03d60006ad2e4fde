//! NVFP4 of compressed-tensors, which stores the reciprocal of a tensor's scale. Not every scale is the reciprocal of a float32:
//! such a scale becomes its neighbour that is one. Codes and scales of blocks stay.

use std::{collections::HashMap, fmt::Display};

use burn_mx::{Packed, WeightLayout};
use microscaling::safetensors::{CheckpointLayout, DESCRIPTION_KEY, PackedFile, PackedFiles};
use microscaling::{PackedParts, StoredTensor, StoredType};
use safetensors::{Dtype, SafeTensors, serialize, tensor::TensorView};

use crate::Error;

const LAYOUT: WeightLayout = WeightLayout::Nvfp4PackQuantized;

fn other(error: impl Display) -> Error {
    Error::Other(error.to_string())
}

/// A checkpoint of the layout `microscaling` in the layout `nvfp4-pack-quantized`, and the names of layers whose matrices are not
/// packed.
pub(super) fn with_divisors(checkpoint: &[u8]) -> Result<(Vec<u8>, Vec<String>), Error> {
    let file = PackedFile::read(checkpoint).map_err(other)?;
    let described = |text| CheckpointLayout::from(LAYOUT).describe(text).map_err(other);
    let metadata = file.metadata(DESCRIPTION_KEY).map(described).transpose()?;
    let read = PackedFiles::new(vec![file], None).map_err(other)?;
    let mut stored = Vec::new();
    for name in read.weights().keys() {
        let packed = read.packed(name).expect("it is one of the weights");
        stored.extend(parts(name, packed.map_err(other)?)?);
    }
    let all = SafeTensors::deserialize(checkpoint).map_err(other)?;
    let mut tensors = Vec::new();
    let mut ignored = Vec::new();
    for name in read.others() {
        let tensor = all.tensor(name).map_err(other)?;
        if tensor.shape().len() == 2 {
            ignored.extend(name.strip_suffix(".weight").map(str::to_owned));
        }
        tensors.push((name.as_str(), tensor));
    }
    for tensor in &stored {
        let dtype = match tensor.dtype {
            StoredType::F8E4M3 => Dtype::F8_E4M3,
            StoredType::F32 => Dtype::F32,
            _ => Dtype::U8,
        };
        let view = TensorView::new(dtype, tensor.shape.clone(), &tensor.bytes);
        tensors.push((tensor.name.as_str(), view.map_err(other)?));
    }
    let metadata = metadata
        .map(|text| (DESCRIPTION_KEY.to_owned(), text))
        .into_iter();
    let metadata: HashMap<_, _> = metadata.chain([("format".into(), "pt".into())]).collect();
    let file = serialize(tensors, Some(metadata)).map_err(other)?;
    Ok((file, ignored))
}

/// The tensors of a weight.
fn parts(name: &str, weight: Packed) -> Result<Vec<StoredTensor>, Error> {
    let PackedParts {
        format,
        shape,
        axis,
        tensor_scale,
        scales,
        elements,
    } = weight.into_parts();
    let divisor = tensor_scale.unwrap_or(1.0).recip();
    let scale = Some(divisor.recip());
    let weight = Packed::from_parts(format, &shape, axis, scale, scales, elements);
    let weight = weight.map_err(other)?;
    LAYOUT
        .store(name, &weight.view(), Some(divisor))
        .map_err(other)
}
