//! `config.json` of a Hugging Face folder: which decoder a model is.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Experts;
use crate::Error;

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

/// The fields of `config.json` that determine the computation. Other fields are not read.
#[derive(Deserialize)]
struct Fields {
    model_type: String,
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_local_experts: Option<usize>,
    num_experts_per_tok: Option<usize>,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    max_position_embeddings: usize,
    rms_norm_eps: f64,
    rope_theta: Option<f64>,
    rope_scaling: Option<Value>,
    rope_parameters: Option<Value>,
    tie_word_embeddings: Option<bool>,
    hidden_act: Option<String>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    sliding_window: Option<usize>,
    use_sliding_window: Option<bool>,
    max_window_layers: Option<usize>,
    layer_types: Option<Vec<String>>,
}

/// transformers' default of a field that a folder may leave out.
const THETA: f64 = 10_000.0;
const MISTRAL_WINDOW: usize = 4096;
const MIXTRAL_EXPERTS: usize = 8;
const MIXTRAL_PER_TOKEN: usize = 2;

const SPECIAL_TOKENS: [&str; 3] = ["bos_token_id", "eos_token_id", "pad_token_id"];

fn field(field: &str, value: impl ToString, allowed: impl ToString) -> Error {
    Error::Config {
        field: field.to_owned(),
        value: value.to_string(),
        allowed: allowed.to_string(),
    }
}

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
            json["sliding_window"] = json!(MISTRAL_WINDOW);
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
        }
        if matches!(self.model_type.as_str(), "llama" | "qwen3") {
            json["attention_bias"] = json!(self.has_qkv_bias);
        }
        json
    }
}

impl Fields {
    fn check(self) -> Result<Self, Error> {
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.num_key_value_heads.unwrap_or(1)),
            ("max_position_embeddings", self.max_position_embeddings),
        ];
        for (name, size) in sizes {
            if size == 0 {
                return Err(field(name, size, "1 or more"));
            }
        }
        if let Some(activation) = self.hidden_act.as_ref().filter(|name| *name != "silu") {
            return Err(field("hidden_act", activation, "silu"));
        }
        if self.mlp_bias == Some(true) {
            return Err(field("mlp_bias", true, false));
        }
        if !(self.rms_norm_eps.is_finite() && self.rms_norm_eps > 0.0) {
            return Err(field(
                "rms_norm_eps",
                self.rms_norm_eps,
                "a positive number",
            ));
        }
        Ok(self)
    }

    fn config(self, special_tokens: Map<String, Value>) -> Result<DecoderConfig, Error> {
        let heads = self.num_attention_heads;
        let kv_heads = self.num_key_value_heads.unwrap_or(heads);
        if !heads.is_multiple_of(kv_heads) {
            let allowed = format!("a divisor of num_attention_heads, {heads}");
            return Err(field("num_key_value_heads", kv_heads, allowed));
        }
        let head = match self.head_dim {
            Some(head) => head,
            None if self.hidden_size.is_multiple_of(heads) => self.hidden_size / heads,
            None => {
                let allowed = format!("a multiple of num_attention_heads, {heads}");
                return Err(field("hidden_size", self.hidden_size, allowed));
            }
        };
        if head == 0 || !head.is_multiple_of(2) {
            return Err(field("head_dim", head, "an even number"));
        }
        let has_bias = self.attention_bias == Some(true);
        Ok(DecoderConfig {
            vocabulary: self.vocab_size,
            width: self.hidden_size,
            hidden: self.intermediate_size,
            experts: self.experts()?,
            heads,
            kv_heads,
            head,
            context: self.max_position_embeddings,
            epsilon: self.rms_norm_eps,
            rotary: self.rotary()?,
            is_tied: self.tie_word_embeddings.unwrap_or(false),
            has_qkv_bias: has_bias || self.model_type == "qwen2",
            has_output_bias: has_bias,
            has_qk_norm: self.model_type == "qwen3",
            windows: self.windows()?,
            special_tokens,
            model_type: self.model_type,
        })
    }

    fn experts(&self) -> Result<Option<Experts>, Error> {
        if self.model_type != "mixtral" {
            return Ok(None);
        }
        let count = self.num_local_experts.unwrap_or(MIXTRAL_EXPERTS);
        let per_token = self.num_experts_per_tok.unwrap_or(MIXTRAL_PER_TOKEN);
        if count == 0 {
            return Err(field("num_local_experts", count, "1 or more"));
        }
        if !(1..=count).contains(&per_token) {
            let allowed = format!("1 to num_local_experts, {count}");
            return Err(field("num_experts_per_tok", per_token, allowed));
        }
        Ok(Some(Experts { count, per_token }))
    }

    fn rotary(&self) -> Result<RotaryConfig, Error> {
        // transformers 5 writes one object, earlier ones two fields.
        let scaling = self.rope_parameters.as_ref().or(self.rope_scaling.as_ref());
        let number = |name: &str| {
            let value = scaling.and_then(|scaling| scaling[name].as_f64());
            value.ok_or_else(|| field(&format!("rope_scaling.{name}"), "missing", "a number"))
        };
        let kind = scaling.and_then(|scaling| {
            let kind = scaling.get("rope_type").or(scaling.get("type"));
            kind.and_then(Value::as_str)
        });
        let scaling = match kind.unwrap_or("default") {
            "default" => RotaryScaling::None,
            "linear" => RotaryScaling::Linear(number("factor")?),
            "llama3" => RotaryScaling::Llama3 {
                factor: number("factor")?,
                low: number("low_freq_factor")?,
                high: number("high_freq_factor")?,
                context: number("original_max_position_embeddings")?,
            },
            other => {
                let allowed = "default, linear, llama3";
                return Err(field("rope_scaling.rope_type", other, allowed));
            }
        };
        let theta = self.rope_theta.or_else(|| number("rope_theta").ok());
        Ok(RotaryConfig {
            theta: theta.unwrap_or(THETA),
            scaling,
        })
    }

    /// The windows of all layers, by transformers' rules.
    fn windows(&self) -> Result<Vec<Option<usize>>, Error> {
        let layers = self.num_hidden_layers;
        let first = match self.model_type.as_str() {
            "mistral" | "mixtral" => 0,
            "qwen2" | "qwen3" if self.use_sliding_window == Some(true) => {
                self.max_window_layers.unwrap_or(layers)
            }
            _ => layers,
        };
        let slides = |layer: usize| match &self.layer_types {
            Some(types) if types.len() == layers => match types[layer].as_str() {
                "sliding_attention" => Ok(true),
                "full_attention" => Ok(false),
                other => Err(field(
                    "layer_types",
                    other,
                    "full_attention, sliding_attention",
                )),
            },
            Some(types) => {
                let allowed = format!("{layers}, num_hidden_layers");
                Err(field(
                    "layer_types",
                    format!("{} types", types.len()),
                    allowed,
                ))
            }
            None => Ok(layer >= first),
        };
        let window = |layer| match slides(layer)? {
            true => Ok(self.sliding_window),
            false => Ok(None),
        };
        (0..layers).map(window).collect()
    }
}
