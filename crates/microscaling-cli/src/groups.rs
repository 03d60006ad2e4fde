//! Layers of one format, as rows of a table.

use crate::formats::table;
use crate::numbers::is_matrix;
use comfy_table::Table;
use microscaling::safetensors::PackedFiles;
use microscaling_checkpoint::{INPUT_SCALES, QuantizedLayer, QuantizedLayers, Schemes};
use serde_json::Value;
use std::collections::BTreeMap;

/// The meaning of a layout's numbers, in the words of its tensors.
fn convention(layer: &QuantizedLayer) -> &'static str {
    let has = |end| layer.parts.iter().any(|part| part.ends_with(end));
    match layer.layout {
        "nvfp4-pack-quantized" => {
            "weight_scale / weight_global_scale; input_global_scale divides, too"
        }
        "modelopt-nvfp4" => "weight_scale · weight_scale_2; input_scale is a factor",
        "float-quantized" => "code · weight_scale; input_scale is a factor",
        "fp8-scale-inv" => "code · weight_scale_inv, a factor in spite of its name",
        "int-quantized" | "pack-quantized" => "(code − zero point) · weight_scale",
        "gptq" => "(code − (stored zero point + 1)) · scale",
        "gptq_v2" | "awq" => "(code − zero point) · scale",
        "microscaling" if has(".divisor") => "scale / divisor",
        "microscaling" if has(".tensor_scale") => "scale · tensor_scale",
        "microscaling" => "code · scale",
        _ => "code · 2^(scale − 127)",
    }
}

/// How a layer's activations are quantized, by config.json and by the layer's tensors.
fn activations(read: &PackedFiles<'_>, schemes: &Schemes, layer: &QuantizedLayer) -> String {
    let group = schemes.group(layer.module());
    let said = group.map_or(Value::Null, |group| group.activations.clone());
    let by_config = match &said {
        Value::String(text) => text.clone(),
        Value::Object(fields) => {
            let text = |key: &str| match fields.get(key) {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Number(number)) => number.to_string(),
                _ => String::new(),
            };
            let dynamic = match fields.get("dynamic") {
                Some(Value::Bool(true)) => "dynamic".to_owned(),
                Some(Value::Bool(false)) => "static".to_owned(),
                _ => format!("dynamic {}", text("dynamic")),
            };
            let each = match (text("strategy"), text("group_size")) {
                (each, size) if size.is_empty() => each,
                (each, size) => format!("{each} {size}"),
            };
            let words = [text("type") + &text("num_bits"), each, dynamic];
            let words: Vec<&str> = words
                .iter()
                .map(|x| x.trim())
                .filter(|x| !x.is_empty())
                .collect();
            words.join(" ")
        }
        _ => "-".to_owned(),
    };
    let has = |end: &&&str| read.file_of(&format!("{}.{end}", layer.module())).is_some();
    match INPUT_SCALES.iter().find(has) {
        Some(scale) => format!("{by_config}, {scale}"),
        None => by_config,
    }
}

/// A row for all layers of one format: their group in config.json, their format, and their number.
pub(crate) fn groups(read: &PackedFiles<'_>, schemes: &Schemes, layers: &QuantizedLayers) -> Table {
    let mut found: BTreeMap<[String; 6], Vec<&str>> = BTreeMap::new();
    for layer in layers.known.values() {
        let group = schemes.group(layer.module());
        let said = group.and_then(|group| group.format());
        let key = [
            group.map_or("-", |group| &group.name).to_owned(),
            match said {
                Some(said) if said != layer.layout => format!("{} ({said})", layer.layout),
                _ => layer.layout.to_owned(),
            },
            layer.format.clone(),
            layer.bits.to_string(),
            activations(read, schemes, layer),
            convention(layer).to_owned(),
        ];
        found.entry(key).or_default().push(layer.module());
    }
    let mut rows = table([
        "Group",
        "Layout",
        "Format",
        "Bits",
        "Activations",
        "Scales",
        "Layers",
        "First layer",
    ]);
    for (key, modules) in found {
        let more = [modules.len().to_string(), modules[0].to_owned()];
        rows.add_row(key.into_iter().chain(more));
    }
    rows
}

/// The weights with two axes or more that are floats, and the pattern of config.json that leaves them so.
pub(crate) fn in_float(
    read: &PackedFiles<'_>,
    schemes: &Schemes,
    layers: &QuantizedLayers,
) -> Table {
    let mut rows = table(["Layer in float", "Type", "Ignored by"]);
    for name in read.others() {
        let tensor = read.tensor(name).expect("it is one of the names");
        let module = name.strip_suffix(".weight");
        let Some(module) = module.filter(|_| is_matrix(&tensor)) else {
            continue;
        };
        if !layers.known.contains_key(name) {
            let by = schemes.ignored(module).unwrap_or("-");
            rows.add_row([module, &tensor.dtype, by]);
        }
    }
    rows
}
