//! A whole model as a GGUF file, version 3, for llama.cpp.
//!
//! All numbers are little-endian. The file consists of:
//!
//! * the magic `GGUF`, the version (u32), and the number of tensors and of keys (u64 each),
//! * the keys,
//! * the tensors' descriptions, and zeros up to a multiple of 32 bytes,
//! * the tensors' bytes. Each tensor begins at a multiple of 32 bytes from the start of this part.
//!
//! A text is its length (u64) and UTF-8. A description is the name, the number of axes (u32), the length
//! of each (u64), the fastest first, the type (u32), and the place of the bytes (u64).

mod keys;

use std::path::Path;

use burn_mx::WeightLayout;
use keys::{keys, text};
use safetensors::{Dtype, SafeTensors};

use super::special::Special;
use crate::{DecoderConfig, Error, Folder, RotaryScaling};
use burn_mx_lab::own_files;

const ALIGNMENT: usize = 32;

/// ggml's types of tensors.
const F32: u32 = 0;
const MXFP4: u32 = 39;
const NVFP4: u32 = 40;

/// Elements that ggml's NVFP4 stores together: four blocks.
const NVFP4_ELEMENTS: usize = 64;

/// Refuses a model with parts that llama.cpp's architecture `llama` does not have, and rows that its blocks do not divide.
///
/// # Errors
///
/// [`Error::Config`] names the field.
pub(super) fn check(config: &DecoderConfig, layout: WeightLayout) -> Result<(), Error> {
    let refuse = |field: &str, value: String, allowed: &str| {
        Err(Error::Config {
            field: field.to_owned(),
            value,
            allowed: format!("{allowed}, in a GGUF file that is written here"),
        })
    };
    if !matches!(config.model_type.as_str(), "llama" | "mistral") {
        return refuse("model_type", config.model_type.clone(), "llama or mistral");
    }
    if config.windows.iter().any(Option::is_some) {
        return refuse("sliding_window", format!("{:?}", config.windows), "null");
    }
    if config.rotary.scaling != RotaryScaling::None {
        return refuse(
            "rope_scaling",
            format!("{:?}", config.rotary.scaling),
            "none",
        );
    }
    if config.has_qkv_bias {
        return refuse("attention_bias", "true".into(), "false");
    }
    let inputs = [
        ("hidden_size", config.width),
        ("intermediate_size", config.hidden),
        ("head_dim", config.heads * config.head),
    ];
    for (field, inputs) in inputs {
        if layout == WeightLayout::ModelOptNvfp4 && !inputs.is_multiple_of(NVFP4_ELEMENTS) {
            let allowed = "inputs of a layer in multiples of 64 for NVFP4";
            return refuse(field, format!("of a layer with {inputs} inputs"), allowed);
        }
    }
    Ok(())
}

/// llama.cpp's name of a tensor, and the heads that its rows have to be in another order for.
fn name(name: &str, config: &DecoderConfig) -> Option<(String, Option<usize>)> {
    let rest = match name {
        "model.embed_tokens.weight" => return Some(("token_embd.weight".into(), None)),
        "model.norm.weight" => return Some(("output_norm.weight".into(), None)),
        "lm_head.weight" => return Some(("output.weight".into(), None)),
        name => name.strip_prefix("model.layers.")?,
    };
    let (layer, rest) = rest.split_once('.')?;
    let (part, heads) = match rest {
        "input_layernorm.weight" => ("attn_norm", None),
        "post_attention_layernorm.weight" => ("ffn_norm", None),
        "self_attn.q_proj.weight" => ("attn_q", Some(config.heads)),
        "self_attn.k_proj.weight" => ("attn_k", Some(config.kv_heads)),
        "self_attn.v_proj.weight" => ("attn_v", None),
        "self_attn.o_proj.weight" => ("attn_output", None),
        "mlp.gate_proj.weight" => ("ffn_gate", None),
        "mlp.up_proj.weight" => ("ffn_up", None),
        "mlp.down_proj.weight" => ("ffn_down", None),
        _ => return None,
    };
    Some((format!("blk.{layer}.{part}.weight"), heads))
}

/// The rows of queries or keys in llama.cpp's order: the two features of a pair lie side by side, not half a head apart.
fn in_pairs(rows: &[u8], count: usize, heads: usize) -> Vec<u8> {
    let size = rows.len() / count;
    let head = count / heads;
    let row = |row: usize| {
        let (start, place) = (row / head * head, row % head);
        let from = start + place % 2 * (head / 2) + place / 2;
        &rows[from * size..(from + 1) * size]
    };
    (0..count).flat_map(row).copied().collect()
}

/// A tensor as GGUF stores it.
struct Stored {
    name: String,
    /// The fastest axis first.
    shape: Vec<usize>,
    kind: u32,
    bytes: Vec<u8>,
}

/// A tensor of a checkpoint in the layout `gguf-mxfp4` or `modelopt-nvfp4`. `None` if another tensor's blocks have its bytes.
fn stored(
    name_here: &str,
    tensors: &SafeTensors<'_>,
    config: &DecoderConfig,
) -> Result<Option<Stored>, Error> {
    let other = |error: safetensors::SafeTensorError| Error::Other(error.to_string());
    let unknown = || {
        Error::Other(format!(
            "`{name_here}` has no name in GGUF's architecture llama"
        ))
    };
    let view = tensors.tensor(name_here).map_err(other)?;
    if let Some(weight) = name_here.strip_suffix("_scale_2") {
        let (weight, _) = name(weight, config).ok_or_else(unknown)?;
        let layer = weight.strip_suffix("weight").ok_or_else(unknown)?;
        return Ok(Some(Stored {
            name: format!("{layer}scale"),
            shape: vec![1],
            kind: F32,
            bytes: view.data().to_vec(),
        }));
    }
    if name_here.ends_with("_scale") {
        return Ok(None);
    }
    let (name, heads) = name(name_here, config).ok_or_else(unknown)?;
    let mut shape = view.shape().to_vec();
    let last = shape.len() - 1;
    let scales = tensors.tensor(&format!("{name_here}_scale"));
    let (kind, bytes) = match (view.dtype(), scales) {
        (Dtype::F32, _) => (F32, view.data().to_vec()),
        (Dtype::U8, Ok(scales)) => {
            shape[last] *= 2;
            (NVFP4, nvfp4(view.data(), scales.data()))
        }
        // Blocks of 32 elements in 17 bytes.
        (Dtype::U8, Err(_)) => {
            shape[last] = shape[last] / 17 * 32;
            (MXFP4, view.data().to_vec())
        }
        (dtype, _) => {
            return Err(Error::Other(format!(
                "`{name_here}` is {dtype:?}, which is not written to GGUF"
            )));
        }
    };
    let bytes = match heads {
        Some(heads) => in_pairs(&bytes, shape[0], heads),
        None => bytes,
    };
    shape.reverse();
    Ok(Some(Stored {
        name,
        shape,
        kind,
        bytes,
    }))
}

/// Codes in pairs and the scale of each 16 elements, as ggml's NVFP4: the scales of four blocks, then 8 bytes for each block. Byte j of a
/// block has elements j and j + 8.
fn nvfp4(codes: &[u8], scales: &[u8]) -> Vec<u8> {
    let (codes, _) = codes.as_chunks::<8>();
    let block = |codes: &[u8; 8]| -> [u8; 8] {
        let code = |i: usize| codes[i / 2] >> (4 * (i % 2)) & 15;
        core::array::from_fn(|j| code(j) | code(j + 8) << 4)
    };
    let together = codes.chunks(4).zip(scales.chunks(4));
    let bytes = together.flat_map(|(codes, scales)| {
        let codes = codes.iter().flat_map(block);
        scales.iter().copied().chain(codes)
    });
    bytes.collect()
}

/// Writes a GGUF file of the tensors in a safetensors file that has the layout `gguf-mxfp4` or `modelopt-nvfp4`, and that [`check`] accepts.
///
/// # Errors
///
/// If the tokenizer is not a byte-level BPE, or a file cannot be written.
pub(super) fn write(
    file: &Path,
    tensors: &SafeTensors<'_>,
    config: &DecoderConfig,
    source: &Folder,
) -> Result<(), Error> {
    let mut all = Vec::new();
    for name in tensors.names() {
        all.extend(stored(name, tensors, config)?);
    }
    // "mostly MXFP4", "mostly NVFP4" and "all F32".
    let file_type = all.iter().map(|tensor| match tensor.kind {
        MXFP4 => 38,
        NVFP4 => 39,
        _ => 0,
    });
    let file_type = file_type.max().unwrap_or(0);
    let keys = keys(config, &source.tokenizer, Special::of(source), file_type)?;
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3_u32.to_le_bytes());
    bytes.extend((all.len() as u64).to_le_bytes());
    bytes.extend((keys.len() as u64).to_le_bytes());
    for (key, value) in keys {
        text(&mut bytes, &key);
        value.write(&mut bytes);
    }
    let mut place = 0_usize;
    for tensor in &all {
        text(&mut bytes, &tensor.name);
        bytes.extend((tensor.shape.len() as u32).to_le_bytes());
        for length in &tensor.shape {
            bytes.extend((*length as u64).to_le_bytes());
        }
        bytes.extend(tensor.kind.to_le_bytes());
        bytes.extend((place as u64).to_le_bytes());
        place += tensor.bytes.len().next_multiple_of(ALIGNMENT);
    }
    for tensor in all {
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        bytes.extend(tensor.bytes);
    }
    own_files::write(file, bytes).map_err(Error::Other)
}

#[cfg(test)]
mod tests {
    use super::{in_pairs, nvfp4};

    /// As `_nvfp4_pack` of llama.cpp's converter: the low halves of 8 elements, then the high ones.
    #[test]
    fn four_blocks_of_nvfp4_lie_together() {
        // Element i of block b has code (i + b) mod 16.
        let codes: Vec<u8> = (0..4_u8)
            .flat_map(|b| {
                (0..8_u8).map(move |j| ((2 * j + b) % 16) | (((2 * j + 1 + b) % 16) << 4))
            })
            .collect();
        let bytes = nvfp4(&codes, &[10, 20, 30, 40]);
        assert_eq!(bytes.len(), 36);
        assert_eq!(bytes[..4], [10, 20, 30, 40]);
        for (i, byte) in bytes[4..].iter().enumerate() {
            let (block, j) = (i / 8, i % 8);
            assert_eq!(usize::from(byte & 15), (j + block) % 16);
            assert_eq!(usize::from(byte >> 4), (j + 8 + block) % 16);
        }
    }

    /// As `LlamaModel.permute` of llama.cpp's converter: `reshape(heads, 2, head / 2).swapaxes(1, 2)`.
    #[test]
    fn pairs_lie_side_by_side() {
        let rows: Vec<u8> = (0..12).collect();
        assert_eq!(
            in_pairs(&rows, 12, 2),
            [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]
        );
        let rows: Vec<u8> = (0..8).collect();
        assert_eq!(in_pairs(&rows, 4, 1), [0, 1, 4, 5, 2, 3, 6, 7]);
    }
}
