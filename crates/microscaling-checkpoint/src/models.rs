//! The axis of a weight that its products sum over.

use serde_json::Value;

/// Weights whose axis is not the last one of two: the models that have them by `model_type`, the ends of their names, and the axis
/// counted from the last.
struct Known {
    models: &'static [&'static str],
    weights: &'static [&'static str],
    axis: usize,
}

const KNOWN: [Known; 4] = [
    // Experts [expert, in, out].
    Known {
        models: &[
            "gpt_oss",
            "llama4",
            "llama4_text",
            "qwen3_vl_moe",
            "qwen3_vl_moe_text",
        ],
        weights: &["experts.gate_up_proj", "experts.down_proj"],
        axis: 2,
    },
    // Experts [expert, out, in].
    Known {
        models: &[
            "granitemoe",
            "granitemoeshared",
            "granitemoehybrid",
            "jetmoe",
        ],
        weights: &["input_linear.weight", "output_linear.weight"],
        axis: 1,
    },
    // [expert * in, out].
    Known {
        models: &["dbrx"],
        weights: &["experts.mlp.w2"],
        axis: 2,
    },
    // Layers that PyTorch's transformers call `Conv1D`: [in, out].
    Known {
        models: &["gpt2", "openai-gpt", "imagegpt"],
        weights: &[
            "c_attn.weight",
            "q_attn.weight",
            "c_proj.weight",
            "c_fc.weight",
        ],
        axis: 2,
    },
];

/// The axis that the products of this weight sum over, in a model of this `config.json`; `None` where nobody knows. A matrix is
/// [out, in] in nearly all models.
pub fn summed_axis(config: &Value, name: &str, rank: usize) -> Option<usize> {
    let parts = [Some(config), config.get("text_config")];
    let types = parts.into_iter().flatten();
    let types = types.filter_map(|part| part.get("model_type")?.as_str());
    let types: Vec<&str> = types.collect();
    let known = KNOWN.iter().find(|known| {
        let is_model = known.models.iter().any(|model| types.contains(model));
        is_model && known.weights.iter().any(|end| name.ends_with(end))
    });
    match known {
        Some(known) => rank.checked_sub(known.axis),
        None => (rank == 2).then_some(1),
    }
}
