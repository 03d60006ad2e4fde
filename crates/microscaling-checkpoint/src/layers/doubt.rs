//! Contradictions between config.json and the tensors of a weight.

use super::{QuantizedLayer, WeightKind};
use crate::parts::INPUT_SCALES;
use crate::scheme::{LayerGroup, Schemes};
use microscaling::safetensors::PackedFiles;
use serde_json::Value;

impl Schemes {
    /// Why the config contradicts what a layer's tensors are; `None` if the two agree.
    pub(crate) fn doubt(&self, layer: &QuantizedLayer) -> Option<String> {
        let module = layer.module();
        if let Some(pattern) = self.ignored(module) {
            return Some(format!(
                "config.json says by `{pattern}` that the layer is not quantized; its tensors are {}",
                layer.layout
            ));
        }
        if let (Some(reason), "gptq" | "gptq_v2" | "awq") = (&self.other_version, layer.layout) {
            return Some(reason.clone());
        }
        let group = self.group(module)?;
        let of = |field: &str| group.weights.get(field).filter(|value| !value.is_null());
        if let Some(bits) = of("num_bits") {
            let Some(number) = bits.as_u64() else {
                return contradicts(
                    group,
                    "num_bits",
                    bits,
                    &format!("the number {}", layer.bits),
                );
            };
            // A byte holds integers of fewer bits.
            let is_within = layer.layout == "int-quantized" && (1..=8).contains(&number);
            if number != u64::from(layer.bits) && !is_within {
                return contradicts(group, "num_bits", bits, &layer.bits.to_string());
            }
        }
        let kind = of("type").and_then(Value::as_str);
        if let Some(kind) = kind.filter(|kind| (*kind == "int") != layer.is_integer) {
            let found = if layer.is_integer { "int" } else { "float" };
            return contradicts(group, "type", kind, found);
        }
        let found = self.block_doubt(group, layer);
        found.or_else(|| strategy_doubt(group, layer))
    }

    /// Why the config of compressed-tensors, which quantizes no activations of a layer, contradicts the layer's tensors; `None` if the two agree.
    pub fn activation_doubt(
        &self,
        read: &PackedFiles<'_>,
        layer: &QuantizedLayer,
    ) -> Option<String> {
        let group = self.group(layer.module())?;
        let is_said = self.method.as_deref() == Some("compressed-tensors");
        let scales = INPUT_SCALES.map(|end| format!("{}.{end}", layer.module()));
        let found = scales.into_iter().find(|name| read.file_of(name).is_some());
        let found = found.filter(|_| is_said && group.activations.is_null())?;
        contradicts(group, "input_activations", "null", &format!("`{found}`"))
    }

    fn block_doubt(&self, group: &LayerGroup, layer: &QuantizedLayer) -> Option<String> {
        if let Some(size) = group.weights.get("group_size")
            && let (Some(said), Some(found)) = (size.as_u64().filter(|x| *x > 0), layer.group)
            && said != found as u64
        {
            return contradicts(group, "group_size", size, &found.to_string());
        }
        let block = layer.block()?;
        let said = self.block(layer.module(), layer.shape.len())?;
        let Some(lengths) = said.lengths else {
            let name = &group.name;
            return Some(format!(
                "config.json has {} {} in `{name}`; allowed: two positive numbers",
                said.field, said.said
            ));
        };
        let (expected, found) = (counts(&layer.shape, &lengths), counts(&layer.shape, block));
        if expected == found {
            return None;
        }
        let found = format!(
            "{found:?} scales for a weight of shape {:?}, and this size would give {expected:?}",
            layer.shape
        );
        contradicts(group, said.field, said.said, &found)
    }
}

/// How many blocks each axis has.
fn counts(shape: &[usize], block: &[usize]) -> Vec<usize> {
    let axes = shape.iter().zip(block);
    axes.map(|(length, block)| length.div_ceil(*block))
        .collect()
}

/// Why `strategy` or `symmetric` contradicts the tensors; `None` if they agree.
fn strategy_doubt(group: &LayerGroup, layer: &QuantizedLayer) -> Option<String> {
    const KNOWN: [&str; 6] = [
        "tensor",
        "channel",
        "group",
        "block",
        "token",
        "tensor_group",
    ];
    let symmetric = group.weights.get("symmetric").and_then(Value::as_bool);
    if let (
        Some(false),
        WeightKind::Integers {
            is_symmetric: true, ..
        },
    ) = (symmetric, &layer.kind)
    {
        return contradicts(group, "symmetric", false, "no zero points");
    }
    let said = group.weights.get("strategy").filter(|x| !x.is_null())?;
    let Some(word) = said.as_str().filter(|word| KNOWN.contains(word)) else {
        let (name, known) = (&group.name, KNOWN.join(", "));
        return Some(format!(
            "config.json has strategy {said} in `{name}`; allowed: {known}"
        ));
    };
    let Some(block) = layer.block() else {
        let found = match layer.group {
            Some(16) => "tensor_group",
            _ => "group",
        };
        return match word == found {
            true => None,
            false => contradicts(
                group,
                "strategy",
                said,
                &format!("scales of strategy {found}"),
            ),
        };
    };
    let counts = counts(&layer.shape, block);
    let (last, rows) = counts.split_last()?;
    let of_rows = || rows.iter().eq(layer.shape.iter().take(rows.len()));
    let agrees = match word {
        "tensor" => counts.iter().rev().take(2).all(|count| *count == 1),
        "channel" => *last == 1 && of_rows(),
        "group" => of_rows(),
        "block" => true,
        _ => false,
    };
    if agrees {
        return None;
    }
    let found = format!("{counts:?} scales for a weight of shape {:?}", layer.shape);
    contradicts(group, "strategy", said, &found)
}

fn contradicts(
    group: &LayerGroup,
    field: &str,
    said: impl std::fmt::Display,
    found: &str,
) -> Option<String> {
    Some(format!(
        "config.json has {field} {said} in `{}`; the tensors have {found}",
        group.name
    ))
}
