//! The configs of compressed-tensors and of Model Optimizer.

use super::{Export, Exported};
use serde_json::{Map, Value, json};

impl Export<'_> {
    pub(super) fn compressed_config(&self, exported: &[Exported<'_>], ignore: &[&str]) -> Value {
        let groups = grouped(exported);
        let one = groups.len() == 1;
        let formats: Vec<&str> = groups.iter().map(|group| group.0.said.0.as_str()).collect();
        let same = formats.iter().all(|format| *format == formats[0]);
        let described = groups.iter().enumerate().map(|(number, (first, modules))| {
            let targets = if one { vec!["Linear"] } else { modules.clone() };
            let (format, weights) = &first.said;
            let mut group = json!({"targets": targets, "format": format, "weights": weights});
            if !first.activations.is_null() {
                group["input_activations"] = first.activations.clone();
            }
            (format!("group_{number}"), group)
        });
        let described: Map<String, Value> = described.collect();
        let mut config = json!({
            "quant_method": "compressed-tensors",
            "format": if same { formats[0] } else { "mixed-precision" },
            "quantization_status": "compressed",
            "config_groups": described,
            "ignore": ignore,
        });
        if !self.weights_only && !self.schemes.kv_cache.is_null() {
            config["kv_cache_scheme"] = self.schemes.kv_cache.clone();
        }
        config
    }

    pub(super) fn modelopt_config(&self, exported: &[Exported<'_>], ignore: &[&str]) -> Value {
        let groups = grouped(exported);
        let one = groups.len() == 1;
        let described = groups.iter().enumerate().map(|(number, (first, modules))| {
            let targets = if one { vec!["Linear"] } else { modules.clone() };
            let mut group = json!({"targets": targets, "weights": first.said.1});
            if !first.activations.is_null() {
                group["input_activations"] = first.said.1.clone();
                if let Some(fields) = group["input_activations"].as_object_mut() {
                    fields.remove("strategy");
                }
            }
            (format!("group_{number}"), group)
        });
        let described: Map<String, Value> = described.collect();
        let algorithm = if one {
            &groups[0].0.said.0
        } else {
            "MIXED_PRECISION"
        };
        let mut config = json!({
            "quant_method": "modelopt", "quant_algo": algorithm, "config_groups": described, "ignore": ignore,
        });
        if !one {
            let layers = exported.iter().map(|exported| {
                let mut said = json!({"quant_algo": exported.said.0});
                if let Some(size) = exported.said.1.get("group_size") {
                    said["group_size"] = size.clone();
                }
                (exported.layer.module().to_owned(), said)
            });
            config["quantized_layers"] = Value::Object(layers.collect());
        }
        if !self.weights_only && !self.schemes.kv_cache.is_null() {
            config["kv_cache_quant_algo"] = self.schemes.kv_cache.clone();
        }
        config
    }
}

/// The layers that have the same words in the config: the first of them, and the names of all.
fn grouped<'a>(exported: &'a [Exported<'_>]) -> Vec<(&'a Exported<'a>, Vec<&'a str>)> {
    let mut groups: Vec<(&Exported<'_>, Vec<&str>)> = Vec::new();
    for layer in exported {
        let same = |(first, _): &&mut (&Exported<'_>, Vec<&str>)| {
            first.said == layer.said && first.activations == layer.activations
        };
        match groups.iter_mut().find(same) {
            Some((_, modules)) => modules.push(layer.layer.module()),
            None => groups.push((layer, vec![layer.layer.module()])),
        }
    }
    groups
}
