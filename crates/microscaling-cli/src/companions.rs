//! Weights that other tools quantized, in the layouts that this program does not pack: by the names of their tensors.

use microscaling::safetensors::PackedFiles;
use serde_json::Value;
use std::collections::BTreeMap;

/// The names of the scales of a layer's input.
pub(crate) const INPUT_SCALES: [&str; 2] = ["input_global_scale", "input_scale"];

/// The ends that the names of codes add to the name of their weight.
const CODES: [&str; 3] = ["", "_packed", "_blocks"];

/// The ends that tensors beside the codes add to the name of the weight: compressed-tensors, Model Optimizer, block FP8, gpt-oss,
/// bitsandbytes.
const OF_WEIGHT: [&str; 13] = [
    "_scale",
    "_scale_inv",
    "_scale_2",
    "_scales",
    "_global_scale",
    "_zero_point",
    "_g_idx",
    "_shape",
    "_input_scale",
    ".absmax",
    ".quant_map",
    ".nested_absmax",
    ".nested_quant_map",
];

/// The same for tensors beside `NAME.weight` or `NAME.qweight`, after `NAME`: GPTQ, AWQ, DeepSeek, ComfyUI, bitsandbytes, and the
/// scales of a layer's input and output.
const OF_LAYER: [&str; 15] = [
    ".scale",
    ".scales",
    ".zeros",
    ".qzeros",
    ".g_idx",
    ".SCB",
    ".scale_weight",
    ".scale_input",
    ".input_scale",
    ".input_global_scale",
    ".input_zero_point",
    ".output_scale",
    ".output_zero_point",
    ".pre_quant_scale",
    ".weight_format",
];

/// Last words of names that no float model has: the tensor belongs to a quantized weight, even if the weight is in another file.
const SURE: [&str; 19] = [
    "weight_scale",
    "weight_scale_inv",
    "weight_scale_2",
    "weight_global_scale",
    "weight_zero_point",
    "weight_g_idx",
    "weight_shape",
    "input_scale",
    "input_global_scale",
    "input_zero_point",
    "output_scale",
    "output_zero_point",
    "pre_quant_scale",
    "k_scale",
    "v_scale",
    "q_scale",
    "qzeros",
    "scale_weight",
    "scale_input",
];

/// The weights of a checkpoint that another tool quantized and that are not [packed](PackedFiles::weights): each weight's name,
/// and the tensor with its codes.
pub(crate) fn quantized(read: &PackedFiles<'_>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for codes in read.others() {
        let is_codes = is_low_bit(read, codes) && !is_sure(codes);
        for weight in weights_of(codes).into_iter().filter(|_| is_codes) {
            let layer = weight.strip_suffix(".weight");
            let of_layer = OF_LAYER
                .iter()
                .filter_map(|end| Some(format!("{}{end}", layer?)));
            let of_weight = OF_WEIGHT.iter().map(|end| format!("{weight}{end}"));
            let mut companions = of_weight.chain(of_layer);
            if companions.any(|name| name != *codes && read.file_of(&name).is_some()) {
                found.insert(weight, codes.clone());
                break;
            }
        }
    }
    found
}

/// The weights that have a part and no codes: the name of the weight, the first of the parts, and the reason in words.
pub(crate) fn without_codes(read: &PackedFiles<'_>) -> BTreeMap<String, (String, String)> {
    let mut found = BTreeMap::new();
    let parts = OF_WEIGHT.iter().filter(|end| end.starts_with('_'));
    let parts: Vec<String> = parts.map(|end| format!(".weight{end}")).collect();
    for part in read.names() {
        let end = parts.iter().find_map(|end| part.strip_suffix(end.as_str()));
        let zeros = part.strip_suffix(".qzeros");
        let Some(layer) = end.or(zeros) else {
            continue;
        };
        let name = format!("{layer}.weight");
        let codes = CODES.map(|end| format!("{name}{end}"));
        let codes = [&codes[..], &[format!("{layer}.qweight")]].concat();
        let has_codes = codes.iter().any(|codes| read.file_of(codes).is_some());
        if has_codes || read.weights().contains_key(&name) {
            continue;
        }
        let expected = match zeros {
            Some(_) => format!("`{}`", codes[3]),
            None => format!("`{}` or `{}`", codes[0], codes[1]),
        };
        let reason = format!(
            "`{part}` has no codes: there is no tensor {expected}; a file of the checkpoint may be missing"
        );
        found.entry(name).or_insert((part.to_owned(), reason));
    }
    found
}

/// The weights whose codes a tensor of this name may be.
fn weights_of(codes: &str) -> Vec<String> {
    if let Some(layer) = codes.strip_suffix(".qweight") {
        return vec![format!("{layer}.weight")];
    }
    let ends = CODES.iter().rev();
    let weights = ends.filter_map(|end| codes.strip_suffix(end));
    weights.map(str::to_owned).collect()
}

/// Whether a tensor belongs to the codes of a quantized weight, and is not itself a weight.
pub(crate) fn is_companion(read: &PackedFiles<'_>, name: &str) -> bool {
    let has = |name: String| read.file_of(&name).is_some();
    let of_weight = OF_WEIGHT.iter().filter_map(|end| name.strip_suffix(end));
    let mut of_weight = of_weight.filter(|weight| !weight.is_empty());
    let mut of_layer = OF_LAYER.iter().filter_map(|end| name.strip_suffix(end));
    is_sure(name)
        || of_weight.any(|weight| CODES.iter().any(|end| has(format!("{weight}{end}"))))
        || of_layer.any(|layer| has(format!("{layer}.weight")) || has(format!("{layer}.qweight")))
}

/// Whether a tensor is of no float model: a part of a quantized layer beside its weight, such as the scale of its input, or the
/// scale of a cache. `is_weight` says which names are quantized weights.
pub(crate) fn companion_of(name: &str, is_weight: impl Fn(&str) -> bool) -> bool {
    let mut of_weight = OF_WEIGHT.iter().filter_map(|end| name.strip_suffix(end));
    let mut of_layer = OF_LAYER.iter().filter_map(|end| name.strip_suffix(end));
    is_sure(name)
        || of_weight.any(&is_weight)
        || of_layer.any(|layer| is_weight(&format!("{layer}.weight")))
}

fn is_sure(name: &str) -> bool {
    let word = name.rsplit('.').next().unwrap_or_default();
    SURE.contains(&word)
}

/// Whether a tensor has two axes or more, and elements that are not floats of 16 bits or more.
pub(crate) fn is_low_bit(read: &PackedFiles<'_>, name: &str) -> bool {
    const OTHERS: [&str; 6] = ["F64", "F32", "F16", "BF16", "BOOL", "I64"];
    let tensor = read.tensor(name);
    tensor.is_some_and(|tensor| tensor.shape.len() >= 2 && !OTHERS.contains(&tensor.dtype.as_str()))
}

/// The name that `config.json` has for the quantization of a weight, if there is one.
pub(crate) fn called(config: &Value, weight: &str) -> Option<String> {
    let config = config.get("quantization_config")?.as_object()?;
    let text = |value: &Value, key: &str| Some(value.get(key)?.as_str()?.to_owned());
    let layer = weight.strip_suffix(".weight").unwrap_or(weight);
    let of_layer = config
        .get("quantized_layers")
        .and_then(|layers| layers.get(layer));
    if let Some(algorithm) = of_layer.and_then(|layer| text(layer, "quant_algo")) {
        return Some(algorithm);
    }
    let groups = config.get("config_groups").and_then(Value::as_object);
    let groups = groups.into_iter().flatten().filter_map(|(_, group)| {
        let weights = group.get("weights")?;
        let bits = weights.get("num_bits")?;
        let format = text(group, "format").map(|format| format!("{format}, "));
        let (format, kind) = (format.unwrap_or_default(), text(weights, "type")?);
        Some(format!("{format}{kind} of {bits} bits"))
    });
    let mut groups: Vec<String> = groups.collect();
    groups.dedup();
    let named = ["quant_method", "quant_algo", "format"];
    let named = named.iter().filter_map(|key| config.get(*key)?.as_str());
    let named: Vec<&str> = named.collect();
    let bits = config.get("bits").and_then(Value::as_u64);
    let bits = bits.map(|bits| format!("{bits} bits"));
    let named = named.join(" ");
    let parts = [
        Some(named),
        bits,
        (!groups.is_empty()).then(|| groups.join(" or ")),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .flatten()
        .filter(|part| !part.is_empty())
        .collect();
    (!parts.is_empty()).then(|| parts.join(": "))
}
