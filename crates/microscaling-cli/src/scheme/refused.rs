//! Fields of config.json with which the tensors are not the model's weights, or that have words nobody knows.

use serde_json::Value;

/// A field of config.json, and how another file contradicts the field.
pub(crate) type Conflict = (&'static str, String);

/// A field of config.json with which no weight is read.
pub(crate) struct RefusedField {
    pub(crate) field: &'static str,
    pub(crate) reason: String,
    /// Whether the field names the layout, which the user may name instead.
    pub(crate) is_layout: bool,
}

/// The tools whose configs are read, by `quant_method`.
const METHODS: [&str; 7] = [
    "compressed-tensors",
    "modelopt",
    "fp8",
    "fbgemm_fp8",
    "mxfp4",
    "gptq",
    "awq",
];

/// The formats of compressed-tensors.
const FORMATS: [&str; 10] = [
    "dense",
    "mixed-precision",
    "naive-quantized",
    "float-quantized",
    "int-quantized",
    "pack-quantized",
    "nvfp4-pack-quantized",
    "mxfp4-pack-quantized",
    "mxfp6-pack-quantized",
    "mxfp8-quantized",
];

const ACTIVATION_SCHEMES: [&str; 2] = ["dynamic", "static"];

/// The fields of a `quantization_config` with which no weight is read; `conflict` is one that another file contradicts.
pub(super) fn refused(config: &Value, conflict: Option<&Conflict>) -> Vec<RefusedField> {
    let mut found = Vec::new();
    let mut add = |field, reason, is_layout| {
        found.push(RefusedField {
            field,
            reason,
            is_layout,
        });
    };
    if let Some((field, reason)) = conflict {
        add(*field, reason.clone(), false);
    }
    let transform = &config["transform_config"];
    if !is_empty(transform) {
        let reason = format!(
            "{transform}: the weights are those of a transformed model; allowed: null or {{}}"
        );
        add("transform_config", reason, false);
    }
    let sparsity = &config["sparsity_config"];
    if !is_empty(sparsity) && sparsity["format"] != "dense" {
        let reason = format!(
            "{sparsity}: sparse weights are not read; allowed: null, {{}} or the format `dense`"
        );
        add("sparsity_config", reason, false);
    }
    let method = &config["quant_method"];
    let groups = config["config_groups"].as_object();
    let groups = groups
        .into_iter()
        .flatten()
        .map(|(_, group)| &group["format"]);
    let formats = [&config["format"]].into_iter().chain(groups);
    let formats = formats.filter(|_| method == "compressed-tensors");
    let words = [
        (
            "activation_scheme",
            &config["activation_scheme"],
            &ACTIVATION_SCHEMES[..],
        ),
        ("quant_method", method, &METHODS[..]),
    ];
    let words = words
        .into_iter()
        .chain(formats.map(|format| ("format", format, &FORMATS[..])));
    for (field, said, known) in words {
        if !said.is_null() && !said.as_str().is_some_and(|said| known.contains(&said)) {
            let reason = format!("{said}; allowed: {}", known.join(", "));
            add(field, reason, field != "activation_scheme");
        }
    }
    found
}

/// Whether a value says nothing: null, or an object or a list of such values.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Array(values) => values.iter().all(is_empty),
        _ => false,
    }
}
