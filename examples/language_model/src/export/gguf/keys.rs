//! The keys of a GGUF file: the model's sizes, and its tokens.

use tokenizers::Tokenizer;

use super::ALIGNMENT;
use crate::export::special::Special;
use crate::{DecoderConfig, Error};

/// A key's value, with GGUF's number of its type.
pub(super) enum Value {
    U32(u32),
    F32(f32),
    Bool(bool),
    Text(String),
    Texts(Vec<String>),
    I32s(Vec<i32>),
}

/// Writes a text with its length.
pub(super) fn text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

impl Value {
    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        let kind: u32 = match self {
            Self::U32(_) => 4,
            Self::F32(_) => 6,
            Self::Bool(_) => 7,
            Self::Text(_) => 8,
            Self::Texts(_) | Self::I32s(_) => 9,
        };
        bytes.extend(kind.to_le_bytes());
        let array = |bytes: &mut Vec<u8>, kind: u32, length: usize| {
            bytes.extend(kind.to_le_bytes());
            bytes.extend((length as u64).to_le_bytes());
        };
        match self {
            Self::U32(value) => bytes.extend(value.to_le_bytes()),
            Self::F32(value) => bytes.extend(value.to_le_bytes()),
            Self::Bool(value) => bytes.push(u8::from(*value)),
            Self::Text(value) => text(bytes, value),
            Self::Texts(values) => {
                array(bytes, 8, values.len());
                values.iter().for_each(|value| text(bytes, value));
            }
            Self::I32s(values) => {
                array(bytes, 5, values.len());
                bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            }
        }
    }
}

/// The model's tokens, and ggml's types of them.
fn tokens(
    count: usize,
    tokenizer: &Tokenizer,
    json: &serde_json::Value,
) -> (Vec<String>, Vec<i32>) {
    let mut vocabulary: Vec<(String, u32)> = tokenizer.get_vocab(true).into_iter().collect();
    vocabulary.sort_by_key(|(_, token)| *token);
    // The model may have more tokens than the tokenizer.
    let mut tokens: Vec<String> = (0..count).map(|token| format!("[UNUSED{token}]")).collect();
    let mut types = vec![5; count];
    for (name, token) in vocabulary {
        tokens[token as usize] = name;
        types[token as usize] = 1;
    }
    // ggml's types of tokens that a text does not contain (control), and of other tokens that were added.
    for added in json["added_tokens"].as_array().into_iter().flatten() {
        let place = added["id"]
            .as_u64()
            .and_then(|token| types.get_mut(token as usize));
        if let Some(kind) = place {
            *kind = if added["special"] == true { 3 } else { 4 };
        }
    }
    (tokens, types)
}

/// The keys of a model with these tokens.
pub(super) fn keys(
    config: &DecoderConfig,
    tokenizer: &Tokenizer,
    special: Special,
    file_type: u32,
) -> Result<Vec<(String, Value)>, Error> {
    let json = serde_json::to_value(tokenizer).map_err(|error| Error::Other(error.to_string()))?;
    let model = &json["model"];
    if model["type"] != "BPE" || json["pre_tokenizer"]["type"] != "ByteLevel" {
        return Err(Error::Config {
            field: "tokenizer.json".into(),
            value: format!("{} after {}", model["type"], json["pre_tokenizer"]["type"]),
            allowed: "byte-level BPE, in a GGUF file that is written here".into(),
        });
    }
    let (tokens, types) = tokens(config.vocabulary, tokenizer, &json);
    let merge = |pair: &serde_json::Value| match pair {
        serde_json::Value::String(pair) => pair.clone(),
        pair => format!(
            "{} {}",
            pair[0].as_str().unwrap_or(""),
            pair[1].as_str().unwrap_or("")
        ),
    };
    let merges = model["merges"]
        .as_array()
        .map(|merges| merges.iter().map(merge).collect());
    let number = |value: usize| Value::U32(value as u32);
    let llama = |key: &str| format!("llama.{key}");
    let general = |key: &str| format!("general.{key}");
    let ggml = |key: &str| format!("tokenizer.ggml.{key}");
    let mut keys = vec![
        (general("architecture"), Value::Text("llama".into())),
        (general("name"), Value::Text("burn-mx".into())),
        (general("file_type"), Value::U32(file_type)),
        (general("alignment"), number(ALIGNMENT)),
        (llama("vocab_size"), number(config.vocabulary)),
        (llama("context_length"), number(config.context)),
        (llama("embedding_length"), number(config.width)),
        (llama("block_count"), number(config.windows.len())),
        (llama("feed_forward_length"), number(config.hidden)),
        (llama("attention.head_count"), number(config.heads)),
        (llama("attention.head_count_kv"), number(config.kv_heads)),
        (llama("attention.key_length"), number(config.head)),
        (llama("attention.value_length"), number(config.head)),
        (
            llama("attention.layer_norm_rms_epsilon"),
            Value::F32(config.epsilon as f32),
        ),
        (llama("rope.dimension_count"), number(config.head)),
        (
            llama("rope.freq_base"),
            Value::F32(config.rotary.theta as f32),
        ),
        (ggml("model"), Value::Text("gpt2".into())),
        (ggml("pre"), Value::Text("gpt-2".into())),
        (ggml("tokens"), Value::Texts(tokens)),
        (ggml("token_type"), Value::I32s(types)),
        (ggml("merges"), Value::Texts(merges.unwrap_or_default())),
        // Without the key, llama.cpp takes GPT-2's token 11.
        (ggml("bos_token_id"), Value::U32(special.bos.unwrap_or(0))),
        (ggml("eos_token_id"), Value::U32(special.eos.unwrap_or(0))),
        (ggml("add_bos_token"), Value::Bool(special.adds_bos)),
    ];
    keys.extend(
        special
            .pad
            .map(|pad| (ggml("padding_token_id"), Value::U32(pad))),
    );
    let template = special.chat_template.map(Value::Text);
    keys.extend(template.map(|template| ("tokenizer.chat_template".to_owned(), template)));
    Ok(keys)
}
