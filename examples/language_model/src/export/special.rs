//! The tokens that begin and end a text, and the chat template: engines need them beside the weights.

use std::fs;

use serde_json::Value;

use crate::Folder;

/// Files of a folder that do not depend on the weights. An export copies them.
pub(crate) const COMPANIONS: [&str; 9] = [
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
];

/// The special tokens of a folder, as a GGUF file has them.
#[derive(Debug, Default)]
pub(super) struct Special {
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
    pub(super) pad: Option<u32>,
    pub(super) adds_bos: bool,
    pub(super) chat_template: Option<String>,
}

impl Special {
    /// By `tokenizer_config.json`, else `config.json`, else `generation_config.json`, in the order of llama.cpp's converter.
    pub(super) fn of(source: &Folder) -> Self {
        let read = |name: &str| fs::read_to_string(source.path().join(name)).ok();
        let json = |name: &str| -> Value {
            let text = read(name).unwrap_or_default();
            serde_json::from_str(&text).unwrap_or_default()
        };
        let tokenizer = json("tokenizer_config.json");
        let generation = json("generation_config.json");
        let token = |name: &str| {
            // A text, or an object with the text.
            let text = &tokenizer[format!("{name}_token")];
            let text = text.as_str().or_else(|| text["content"].as_str());
            let by_text = text.and_then(|text| source.tokenizer.token_to_id(text));
            let key = format!("{name}_token_id");
            by_text
                .or_else(|| first(source.config.special_tokens.get(&key)?))
                .or_else(|| first(&generation[&key]))
        };
        let template = &tokenizer["chat_template"];
        // One template, or several by name.
        let named = template.as_array().into_iter().flatten();
        let named = named.clone().find(|entry| entry["name"] == "default");
        let template = template.as_str().or_else(|| named?["template"].as_str());
        Self {
            bos: token("bos"),
            eos: token("eos"),
            pad: token("pad"),
            adds_bos: tokenizer["add_bos_token"] == true,
            chat_template: read("chat_template.jinja").or_else(|| template.map(str::to_owned)),
        }
    }
}

/// A token, or the first of several.
fn first(value: &Value) -> Option<u32> {
    let value = value.as_array().map_or(Some(value), |all| all.first())?;
    value.as_u64()?.try_into().ok()
}
