//! The fields of `config.json`, checked by transformers' rules.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{DecoderConfig, RotaryConfig, RotaryScaling};
use crate::Error;
use crate::model::Experts;

/// The fields of `config.json` that determine the computation. Other fields are not read.
#[derive(Deserialize)]
pub(super) struct Fields {
    model_type: String,
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_local_experts: Option<usize>,
    num_experts_per_tok: Option<usize>,
    router_aux_loss_coef: Option<f64>,
    output_router_logits: Option<bool>,
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
pub(super) const MISTRAL_WINDOW: usize = 4096;
const MIXTRAL_EXPERTS: usize = 8;
const MIXTRAL_PER_TOKEN: usize = 2;
const MIXTRAL_BALANCE: f64 = 0.001;

/// The error of a field with this value.
pub(super) fn field(field: &str, value: impl ToString, allowed: impl ToString) -> Error {
    Error::Config {
        field: field.to_owned(),
        value: value.to_string(),
        allowed: allowed.to_string(),
    }
}

impl Fields {
    /// Refuses a value that no field of the decoder stands for.
    pub(super) fn check(self) -> Result<Self, Error> {
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

    /// The decoder with these fields.
    pub(super) fn config(self, special_tokens: Map<String, Value>) -> Result<DecoderConfig, Error> {
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
        let balance = self.router_aux_loss_coef.unwrap_or(MIXTRAL_BALANCE);
        if !(balance.is_finite() && balance >= 0.0) {
            let allowed = "0, or a positive number";
            return Err(field("router_aux_loss_coef", balance, allowed));
        }
        // transformers computes the term where it returns the routers' logits.
        let is_on = self.output_router_logits == Some(true);
        Ok(Some(Experts {
            count,
            per_token,
            balance: if is_on { balance } else { 0.0 },
        }))
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
