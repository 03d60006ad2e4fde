//! `config.json` of a Hugging Face folder: which decoder a model is.

mod fields;

use serde_json::{Map, Value, json};

use super::Experts;
use crate::Error;
use fields::{Fields, field};

/// The architectures that this decoder can be, by `model_type`, with the class that transformers loads them by.
const ARCHITECTURES: [(&str, &str); 5] = [
    ("llama", "LlamaForCausalLM"),
    ("mistral", "MistralForCausalLM"),
    ("mixtral", "MixtralForCausalLM"),
    ("qwen2", "Qwen2ForCausalLM"),
    ("qwen3", "Qwen3ForCausalLM"),
];

/// A decoder of Llama's kind.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderConfig {
    /// `llama`, `mistral`, `mixtral`, `qwen2` or `qwen3`. SmolLM's folders say `llama`.
    pub model_type: String,
    /// Number of tokens.
    pub vocabulary: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Width of the feed-forward network.
    pub hidden: usize,
    /// The experts of each layer, each of which is such a network. `None`: one network.
    pub experts: Option<Experts>,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values; each serves `heads / kv_heads` heads of queries.
    pub kv_heads: usize,
    /// Features of a head.
    pub head: usize,
    /// Positions that the model was trained for.
    pub context: usize,
    /// ε of the RMS norms.
    pub epsilon: f64,
    /// The rotary frequencies.
    pub rotary: RotaryConfig,
    /// Whether the head is the table of embeddings.
    pub is_tied: bool,
    /// Whether queries, keys and values have a bias.
    pub has_qkv_bias: bool,
    /// Whether the projection after attention has a bias.
    pub has_output_bias: bool,
    /// Whether queries and keys are normalized, head by head.
    pub has_qk_norm: bool,
    /// For each layer the number of positions that a query sees, its own included. `None`: all before it.
    pub windows: Vec<Option<usize>>,
    /// `bos_token_id`, `eos_token_id` and `pad_token_id` of `config.json`, as far as it has them: a token, several, or null.
    pub special_tokens: Map<String, Value>,
}

/// The frequencies by which positions rotate queries and keys.
#[derive(Clone, Debug, PartialEq)]
pub struct RotaryConfig {
    /// θ: pair i of a head's n pairs rotates by `θ^(-i/n)` a position.
    pub theta: f64,
    /// How the frequencies are stretched for longer texts.
    pub scaling: RotaryScaling,
}

/// How rotary frequencies are stretched.
#[derive(Clone, Debug, PartialEq)]
pub enum RotaryScaling {
    /// Not at all.
    None,
    /// All by this factor.
    Linear(f64),
    /// Llama 3.1: long waves by `factor`, short ones not, those between in part.
    Llama3 {
        /// The factor.
        factor: f64,
        /// A wave that fits less often than this into the old context is long.
        low: f64,
        /// A wave that fits more often than this into the old context is short.
        high: f64,
        /// The old context.
        context: f64,
    },
}

const SPECIAL_TOKENS: [&str; 3] = ["bos_token_id", "eos_token_id", "pad_token_id"];

impl DecoderConfig {
    /// The special tokens of a model that has none.
    pub fn no_special_tokens() -> Map<String, Value> {
        let none = |name: &&str| ((*name).to_owned(), Value::Null);
        SPECIAL_TOKENS[..2].iter().map(none).collect()
    }

    /// Reads the text of a `config.json`.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] names the first field that this decoder cannot honour, its value, and the allowed values.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let mut json: Value =
            serde_json::from_str(text).map_err(|error| field("config.json", error, "JSON"))?;
        let model_type = json["model_type"].as_str().unwrap_or_default();
        if !ARCHITECTURES.iter().any(|(known, _)| *known == model_type) {
            let known = ARCHITECTURES.map(|(known, _)| known).join(", ");
            return Err(field("model_type", format!("`{model_type}`"), known));
        }
        if model_type == "mistral" && json.get("sliding_window").is_none() {
            json["sliding_window"] = json!(fields::MISTRAL_WINDOW);
        }
        let special_tokens = SPECIAL_TOKENS.iter().filter_map(|name| {
            let value = json.get(name)?.clone();
            Some(((*name).to_owned(), value))
        });
        let special_tokens = special_tokens.collect();
        let fields: Fields = serde_json::from_value(json)
            .map_err(|error| field("config.json", error, "the fields of its architecture"))?;
        fields.check()?.config(special_tokens)
    }

    /// The text of a `config.json` that transformers loads.
    pub fn to_json(&self) -> Value {
        let class = ARCHITECTURES
            .iter()
            .find(|(name, _)| *name == self.model_type)
            .map(|(_, class)| *class);
        let mut json = json!({
            "architectures": [class],
            "model_type": self.model_type,
            "vocab_size": self.vocabulary,
            "hidden_size": self.width,
            "intermediate_size": self.hidden,
            "num_hidden_layers": self.windows.len(),
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head,
            "max_position_embeddings": self.context,
            "rms_norm_eps": self.epsilon,
            "rope_theta": self.rotary.theta,
            "tie_word_embeddings": self.is_tied,
            "hidden_act": "silu",
            "torch_dtype": "float32",
        });
        for (name, token) in &self.special_tokens {
            json[name] = token.clone();
        }
        match self.rotary.scaling {
            RotaryScaling::None => {}
            RotaryScaling::Linear(factor) => {
                json["rope_scaling"] = json!({ "rope_type": "linear", "factor": factor });
            }
            RotaryScaling::Llama3 {
                factor,
                low,
                high,
                context,
            } => {
                json["rope_scaling"] = json!({
                    "rope_type": "llama3",
                    "factor": factor,
                    "low_freq_factor": low,
                    "high_freq_factor": high,
                    "original_max_position_embeddings": context,
                });
            }
        }
        match self.model_type.as_str() {
            "mistral" | "mixtral" => json["sliding_window"] = json!(self.windows[0]),
            "qwen2" | "qwen3" => {
                let window = self.windows.iter().flatten().next();
                let full = self.windows.iter().take_while(|window| window.is_none());
                json["use_sliding_window"] = json!(window.is_some());
                json["sliding_window"] = json!(window);
                json["max_window_layers"] = json!(full.count());
            }
            _ => {}
        }
        if let Some(experts) = &self.experts {
            json["num_local_experts"] = json!(experts.count);
            json["num_experts_per_tok"] = json!(experts.per_token);
            if experts.balance != 0.0 {
                json["router_aux_loss_coef"] = json!(experts.balance);
                json["output_router_logits"] = json!(true);
            }
        }
        if matches!(self.model_type.as_str(), "llama" | "qwen3") {
            json["attention_bias"] = json!(self.has_qkv_bias);
        }
        json
    }
}
