//! The schemes of compressed-tensors: formats of weights and of inputs, by the names that the tool has.

use microscaling::WeightLayout;
use microscaling::internal::{CompressedElement, CompressedNumbers};
use microscaling::safetensors::IntegerLayout;
use serde_json::{Value, json};
use std::str::FromStr;

/// A scheme, by the name in `PRESET_SCHEMES` of compressed-tensors 0.20.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scheme {
    pub(crate) name: &'static str,
    pub(crate) weights: SchemeWeights,
    inputs: SchemeInputs,
}

/// The numbers that weights become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SchemeWeights {
    /// Blocks of 32 or 16, by the dialect of compressed-tensors.
    Blocks(WeightLayout),
    Numbers(CompressedNumbers),
}

/// How the inputs of a layer are quantized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SchemeInputs {
    Float,
    /// Integers with this number of bits, and a scale for each token.
    Integers(u32),
    /// FP8 with a scale for each token.
    Fp8Token,
    /// FP8 with a scale for each group of this number of inputs.
    Fp8Group(usize),
    /// FP8 with a fixed scale.
    Fp8Static,
    /// MX blocks with elements of this number of bits.
    Mx(u32),
    /// NVFP4 with a fixed scale.
    Nvfp4,
}

const fn integers(bits: u32, zero_points: bool, inputs: SchemeInputs) -> SchemeWeights {
    let layout = match inputs {
        SchemeInputs::Float => IntegerLayout::PackQuantized,
        // Without the packing of bits beside quantized inputs.
        _ => IntegerLayout::Bytes,
    };
    SchemeWeights::Numbers(CompressedNumbers {
        element: CompressedElement::Integers {
            bits,
            zero_points,
            layout,
        },
        block: [1, 128],
    })
}

const fn scheme(name: &'static str, weights: SchemeWeights, inputs: SchemeInputs) -> Scheme {
    Scheme {
        name,
        weights,
        inputs,
    }
}

/// Integers in groups of 128, beside inputs of `inputs` bits or of 16.
const fn groups(name: &'static str, bits: u32, inputs: u32) -> Scheme {
    let inputs = match inputs {
        16 => SchemeInputs::Float,
        bits => SchemeInputs::Integers(bits),
    };
    scheme(name, integers(bits, false, inputs), inputs)
}

/// FP8 with a scale for each block of rows and columns.
const fn fp8(name: &'static str, block: [usize; 2], inputs: SchemeInputs) -> Scheme {
    let element = CompressedElement::Fp8;
    let weights = SchemeWeights::Numbers(CompressedNumbers { element, block });
    scheme(name, weights, inputs)
}

const fn int8(name: &'static str) -> Scheme {
    let element = CompressedElement::Integers {
        bits: 8,
        zero_points: false,
        layout: IntegerLayout::Bytes,
    };
    let weights = SchemeWeights::Numbers(CompressedNumbers {
        element,
        block: [1, 0],
    });
    scheme(name, weights, SchemeInputs::Integers(8))
}

const fn blocks(name: &'static str, layout: WeightLayout, inputs: SchemeInputs) -> Scheme {
    scheme(name, SchemeWeights::Blocks(layout), inputs)
}

/// All schemes but `UNQUANTIZED`.
pub(crate) const SCHEMES: [Scheme; 32] = [
    fp8("FP8", [0, 0], SchemeInputs::Fp8Static),
    fp8("FP8_DYNAMIC", [1, 0], SchemeInputs::Fp8Token),
    fp8("FP8_BLOCK", [128, 128], SchemeInputs::Fp8Group(128)),
    blocks(
        "NVFP4A16",
        WeightLayout::Nvfp4PackQuantized,
        SchemeInputs::Float,
    ),
    blocks(
        "NVFP4",
        WeightLayout::Nvfp4PackQuantized,
        SchemeInputs::Nvfp4,
    ),
    blocks(
        "MXFP4A16",
        WeightLayout::Mxfp4PackQuantized,
        SchemeInputs::Float,
    ),
    blocks(
        "MXFP4",
        WeightLayout::Mxfp4PackQuantized,
        SchemeInputs::Mx(4),
    ),
    blocks(
        "MXFP4XFP8",
        WeightLayout::Mxfp4PackQuantized,
        SchemeInputs::Fp8Group(128),
    ),
    blocks(
        "MXFP6A16",
        WeightLayout::Mxfp6PackQuantized,
        SchemeInputs::Float,
    ),
    blocks(
        "MXFP6A8",
        WeightLayout::Mxfp6PackQuantized,
        SchemeInputs::Mx(8),
    ),
    blocks(
        "MXFP8A16",
        WeightLayout::Mxfp8Quantized,
        SchemeInputs::Float,
    ),
    blocks("MXFP8", WeightLayout::Mxfp8Quantized, SchemeInputs::Mx(8)),
    int8("W8A8"),
    int8("INT8"),
    scheme(
        "W4A16_ASYM",
        integers(4, true, SchemeInputs::Float),
        SchemeInputs::Float,
    ),
    scheme(
        "W4AFP8",
        integers(4, false, SchemeInputs::Fp8Token),
        SchemeInputs::Fp8Token,
    ),
    groups("W2A4", 2, 4),
    groups("W2A8", 2, 8),
    groups("W2A16", 2, 16),
    groups("W3A4", 3, 4),
    groups("W3A8", 3, 8),
    groups("W3A16", 3, 16),
    groups("W4A4", 4, 4),
    groups("W4A8", 4, 8),
    groups("W4A16", 4, 16),
    groups("W5A8", 5, 8),
    groups("W5A16", 5, 16),
    groups("W6A8", 6, 8),
    groups("W6A16", 6, 16),
    groups("W7A8", 7, 8),
    groups("W7A16", 7, 16),
    groups("W8A16", 8, 16),
];

impl FromStr for Scheme {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // As compressed-tensors, in letters of either case.
        let known = SCHEMES.iter().find(|x| x.name.eq_ignore_ascii_case(text));
        known.copied().ok_or_else(|| {
            let names = SCHEMES.map(|x| x.name).join(", ");
            format!("scheme is `{text}`; allowed: {names}")
        })
    }
}

impl Scheme {
    /// The name of the weights' format in the config.
    pub(crate) const fn layout(self) -> &'static str {
        match self.weights {
            SchemeWeights::Blocks(layout) => layout.name(),
            SchemeWeights::Numbers(numbers) => match numbers.element {
                CompressedElement::Fp8 => "float-quantized",
                CompressedElement::Integers { layout, .. } => layout.name(),
            },
        }
    }

    /// The end of the name of the tensor that fixes the scale of an input, if there is one.
    pub(crate) const fn input_scale(self) -> Option<&'static str> {
        match self.inputs {
            SchemeInputs::Fp8Static => Some("input_scale"),
            SchemeInputs::Nvfp4 => Some("input_global_scale"),
            _ => None,
        }
    }

    /// The `quantization_config`; `ignore` are the modules of other matrices.
    pub(crate) fn config(self, ignore: &[&str]) -> Value {
        let weights = match self.weights {
            SchemeWeights::Blocks(WeightLayout::Nvfp4PackQuantized) => nvfp4(false.into()),
            SchemeWeights::Blocks(layout) => mx(layout.format().element.bits(), false),
            SchemeWeights::Numbers(numbers) => {
                let CompressedNumbers { element, block } = numbers;
                let (bits, kind, symmetric) = match element {
                    CompressedElement::Fp8 => (8, "float", true),
                    CompressedElement::Integers {
                        bits, zero_points, ..
                    } => (bits, "int", !zero_points),
                };
                let (strategy, more) = match block {
                    [0, 0] => ("tensor", Value::Null),
                    [1, 0] => ("channel", Value::Null),
                    [1, size] => ("group", json!({"group_size": size})),
                    _ => ("block", json!({"block_structure": block})),
                };
                let fields = fields(bits, kind, strategy, false.into(), more);
                with(fields, json!({"symmetric": symmetric}))
            }
        };
        let layout = self.layout();
        let mut group = json!({"targets": ["Linear"], "format": layout, "weights": weights});
        if let Some(inputs) = self.inputs.config() {
            group["input_activations"] = inputs;
        }
        json!({
            "quant_method": "compressed-tensors",
            "format": layout,
            "quantization_status": "compressed",
            "config_groups": {"group_0": group},
            "ignore": ignore,
        })
    }
}

impl SchemeInputs {
    /// The `input_activations` of a layer with quantized inputs.
    pub(crate) fn config(self) -> Option<Value> {
        let fp8 = |strategy, is_dynamic: bool, more| {
            fields(8, "float", strategy, is_dynamic.into(), more)
        };
        Some(match self {
            Self::Float => return None,
            Self::Integers(bits) => fields(bits, "int", "token", true.into(), Value::Null),
            Self::Fp8Token => fp8("token", true, Value::Null),
            Self::Fp8Group(size) => fp8("group", true, json!({"group_size": size})),
            Self::Fp8Static => fp8("tensor", false, Value::Null),
            Self::Mx(bits) => mx(bits, true),
            Self::Nvfp4 => nvfp4("local".into()),
        })
    }
}

fn fields(bits: u32, kind: &str, strategy: &str, dynamic: Value, more: Value) -> Value {
    let fields = json!({
        "num_bits": bits, "type": kind, "symmetric": true, "strategy": strategy, "dynamic": dynamic,
    });
    with(fields, more)
}

fn with(mut fields: Value, more: Value) -> Value {
    if let Value::Object(more) = more {
        more.into_iter()
            .for_each(|(key, value)| fields[key] = value);
    }
    fields
}

fn mx(bits: u32, dynamic: bool) -> Value {
    let more = json!({"group_size": 32, "scale_dtype": "torch.uint8"});
    fields(bits, "float", "group", dynamic.into(), more)
}

fn nvfp4(dynamic: Value) -> Value {
    let more = json!({"group_size": 16, "scale_dtype": "torch.float8_e4m3fn"});
    fields(4, "float", "tensor_group", dynamic, more)
}
