//! The `quantization_config` of a converted checkpoint: each layer's format, and how its activations are quantized.

mod config;
mod fused;
mod integers;

use crate::checkpoint::Checkpoint;
use crate::error::Error;
use crate::fused::Fused;
use crate::scheme::SchemeInputs;
use crate::target::{Retold, ToLayout, Tool, WrittenForm, tool_of};
pub(crate) use fused::FusedResult;
pub(crate) use integers::{IntegerLayer, integers_config};
use microscaling::WeightLayout;
use microscaling::safetensors::{CheckpointLayout, PackedFiles};
use microscaling_checkpoint::{INPUT_SCALES, QuantizedLayer, QuantizedLayers, Schemes, WeightKind};
use serde_json::{Value, json};

/// A layer of the converted checkpoint.
pub(crate) struct Exported<'a> {
    pub(crate) layer: &'a QuantizedLayer,
    pub(crate) form: WrittenForm,
    /// The scale of the layer's input, as the target has it.
    pub(crate) input_scale: Option<Retold>,
    /// How the layer's activations are quantized, in the words of compressed-tensors; null if they are not.
    activations: Value,
    /// The format and the weights' fields, in the words of the target's tool.
    said: (String, Value),
}

/// A conversion: the checkpoint, and the options of the command.
pub(crate) struct Export<'a> {
    pub(crate) input: &'a Checkpoint,
    pub(crate) read: &'a PackedFiles<'a>,
    pub(crate) layers: &'a QuantizedLayers,
    pub(crate) schemes: &'a Schemes,
    pub(crate) target: ToLayout,
    /// The layers that the target's engines fuse.
    pub(crate) fused: &'a Fused,
    /// Whether the activations' part is left out.
    pub(crate) weights_only: bool,
}

impl<'a> Export<'a> {
    /// Every layer as the target has it.
    ///
    /// # Errors
    /// The first layer that the target cannot hold.
    pub(crate) fn layers(&self) -> Result<Vec<Exported<'a>>, Error> {
        let layers = self.layers.known.values();
        let layers = layers.map(|layer| {
            let unheld = |what: String| Error::Unheld {
                path: self.input.path.clone(),
                layer: layer.name.clone(),
                what,
                target: self.target.to_string(),
            };
            let format = || format!("{} ({})", layer.format, layer.layout);
            let doubt = self.schemes.activation_doubt(self.read, layer);
            if let Some(doubt) = doubt.filter(|_| !self.weights_only) {
                return Err(unheld(format!(
                    "{}: {doubt}; `--weights-only` leaves the activations to the engine", format()
                )));
            }
            let form = self.target.form(self.read, layer);
            let form = form.ok_or_else(|| unheld(format() + &self.why_not(layer)))?;
            let activations = match self.weights_only {
                true => Value::Null,
                false => self.activations(layer),
            };
            let said = self.said(layer, &form, &activations);
            let said = said.ok_or_else(|| {
                let and = match activations.is_null() {
                    true => "without quantized activations".to_owned(),
                    false => format!(
                        "with activations {}; `--weights-only` leaves the activations to the engine",
                        compact(&activations)
                    ),
                };
                unheld(format!("{}, {and}", format()))
            })?;
            let input_scale = match self.weights_only {
                true => None,
                false => self.input_scale(layer, &form),
            };
            Ok(Exported { layer, form, input_scale, activations, said })
        });
        layers.collect()
    }

    /// Why the target cannot hold a weight of integers.
    fn why_not(&self, layer: &QuantizedLayer) -> String {
        let fits = || {
            let (weight, layout) = (
                self.read.integers().get(&layer.name)?,
                self.target.of_integers()?,
            );
            Some(weight.fits(layout, &layer.name, |name| self.read.tensor(name)))
        };
        match fits() {
            Some(Err(reason)) => format!("; {reason}"),
            _ => String::new(),
        }
    }

    /// How a layer's activations are quantized, by config.json, or else by the scale of the layer's input.
    fn activations(&self, layer: &QuantizedLayer) -> Value {
        let group = self.schemes.group(layer.module());
        let said = group.map(|group| &group.activations);
        let has_scale = INPUT_SCALES.iter().any(|end| self.has(layer, end));
        let by_format = || {
            let inputs = match (layer.bits, &layer.kind) {
                (4, _) => SchemeInputs::Nvfp4,
                (_, WeightKind::Packed(_)) => SchemeInputs::Mx(8),
                (_, WeightKind::Scaled { block, .. }) if !has_scale && block[0] == 1 => {
                    SchemeInputs::Fp8Token
                }
                (_, WeightKind::Scaled { block, .. }) if !has_scale => {
                    SchemeInputs::Fp8Group(block[1])
                }
                _ => SchemeInputs::Fp8Static,
            };
            inputs.config().unwrap_or_default()
        };
        match said {
            Some(said @ Value::Object(fields)) if fields.contains_key("strategy") => said.clone(),
            // Model Optimizer's words.
            Some(Value::Object(_)) => by_format(),
            Some(Value::String(scheme)) if scheme == "dynamic" => {
                let WeightKind::Scaled { block, .. } = &layer.kind else {
                    return Value::Null;
                };
                SchemeInputs::Fp8Group(block[1])
                    .config()
                    .unwrap_or_default()
            }
            _ if has_scale => by_format(),
            _ => Value::Null,
        }
    }

    fn has(&self, layer: &QuantizedLayer, end: &str) -> bool {
        let name = format!("{}.{end}", layer.module());
        self.read.file_of(&name).is_some()
    }

    /// The scale of a layer's input under the target's name: Model Optimizer has factors; compressed-tensors has factors for FP8 and
    /// divisors for NVFP4.
    fn input_scale(&self, layer: &QuantizedLayer, form: &WrittenForm) -> Option<Retold> {
        let is_nvfp4 = matches!(
            form,
            WrittenForm::Packed(CheckpointLayout::Weights(
                WeightLayout::Nvfp4PackQuantized | WeightLayout::ModelOptNvfp4
            ))
        );
        let (to, shape) = match self.target.tool() {
            Tool::CompressedTensors if is_nvfp4 => (INPUT_SCALES[0], vec![1]),
            Tool::CompressedTensors => (INPUT_SCALES[1], vec![1]),
            Tool::ModelOpt => (INPUT_SCALES[1], vec![]),
            _ => return None,
        };
        let from = INPUT_SCALES.into_iter().find(|end| self.has(layer, end))?;
        let name = |end: &str| format!("{}.{end}", layer.module());
        let number = match from == to {
            true => None,
            false => {
                let tensor = self.read.tensor(&name(from))?;
                let numbers = crate::numbers::floats(&tensor)?;
                let [number] = numbers[..].try_into().ok()?;
                Some(reciprocal(number))
            }
        };
        Some(Retold {
            from: name(from),
            to: name(to),
            shape,
            number,
        })
    }

    /// The format and the weights' fields in the config; `None` if the target's tool cannot say the activations.
    fn said(
        &self,
        layer: &QuantizedLayer,
        form: &WrittenForm,
        activations: &Value,
    ) -> Option<(String, Value)> {
        let fields = ActivationKind::of(activations);
        match self.target.tool() {
            Tool::CompressedTensors => Some(self.compressed(layer, form)),
            Tool::ModelOpt => match (layer.bits, fields) {
                (4, ActivationKind::None) => Some(("W4A16_NVFP4", 16)),
                (4, ActivationKind::Nvfp4) => Some(("NVFP4", 16)),
                (8, ActivationKind::Fp8) if self.has(layer, INPUT_SCALES[1]) => Some(("FP8", 0)),
                (8, ActivationKind::Fp8Token) => Some(("FP8_PER_CHANNEL_PER_TOKEN", 0)),
                (8, ActivationKind::DynamicGroup(128))
                    if !matches!(form, WrittenForm::Packed(_)) =>
                {
                    Some(("FP8_PB_WO", 0))
                }
                (8, ActivationKind::DynamicGroup(32)) if matches!(form, WrittenForm::Packed(_)) => {
                    Some(("MXFP8", 32))
                }
                _ => None,
            }
            .map(|(algorithm, size)| {
                let mut weights =
                    json!({"dynamic": false, "num_bits": layer.bits, "type": "float"});
                if size > 0 {
                    weights["group_size"] = size.into();
                }
                match algorithm {
                    "FP8_PER_CHANNEL_PER_TOKEN" => weights["strategy"] = "channel".into(),
                    "FP8_PB_WO" => weights["strategy"] = "block".into(),
                    _ => {}
                }
                (algorithm.to_owned(), weights)
            }),
            Tool::Fp8 => {
                let WeightKind::Scaled { block, .. } = &layer.kind else {
                    return None;
                };
                match fields {
                    ActivationKind::DynamicGroup(size) if size == block[1] as u64 => {
                        Some("dynamic")
                    }
                    _ => None,
                }
                .map(|scheme| (scheme.to_owned(), Value::Null))
            }
            Tool::GptOss | Tool::Integers | Tool::None => {
                let is_kept = matches!(
                    self.target,
                    ToLayout::Layout(CheckpointLayout::Microscaling)
                );
                (is_kept || activations.is_null()).then(|| (String::new(), Value::Null))
            }
        }
    }

    /// The format and the weights' fields of compressed-tensors, taken from the input's config where compressed-tensors wrote the input.
    fn compressed(&self, layer: &QuantizedLayer, form: &WrittenForm) -> (String, Value) {
        let group = self.schemes.group(layer.module());
        let known = group.map(|group| &group.weights);
        let is_modelopt = tool_of(self.schemes) == Some(Tool::ModelOpt);
        let known = known.filter(|weights| weights.get("strategy").is_some() && !is_modelopt);
        let float = |bits: u32, strategy: &str| json!({"num_bits": bits, "type": "float", "symmetric": true, "strategy": strategy, "dynamic": false});
        let with = |mut fields: Value, key: &str, value: Value| {
            fields[key] = value;
            fields
        };
        let (format, weights) = match (form, &layer.kind) {
            (WrittenForm::Packed(layout), _)
                if *layout == WeightLayout::Nvfp4PackQuantized.into() =>
            {
                let fields = with(float(4, "tensor_group"), "group_size", 16.into());
                let fields = with(fields, "scale_dtype", "torch.float8_e4m3fn".into());
                (layout.name(), fields)
            }
            (_, WeightKind::Scaled { scales, block, .. }) => {
                let axes = self
                    .read
                    .tensor(scales)
                    .map_or(0, |scales| scales.shape.len());
                let weights = match (block[0], axes) {
                    (1, _) if block[1] >= layer.shape[1] => float(8, "channel"),
                    (_, 2 | 4) => with(float(8, "block"), "block_structure", json!(block)),
                    _ => float(8, "tensor"),
                };
                ("float-quantized", weights)
            }
            (
                _,
                WeightKind::Integers {
                    block,
                    is_symmetric,
                },
            ) => {
                let (layout, is_symmetric) = match form {
                    WrittenForm::Repacked { is_symmetric, .. } => ("pack-quantized", is_symmetric),
                    _ => (layer.layout, is_symmetric),
                };
                let strategy = match block[1] >= layer.shape[1] {
                    true if block[0] == 1 => "channel",
                    true => "tensor",
                    false => "group",
                };
                let fields = with(float(layer.bits, strategy), "type", "int".into());
                let fields = with(fields, "symmetric", (*is_symmetric).into());
                let fields = match strategy {
                    "group" => with(fields, "group_size", block[1].into()),
                    _ => fields,
                };
                (layout, fields)
            }
            // Packed in blocks of 32.
            (_, WeightKind::Packed(_)) => {
                let fields = with(float(layer.bits, "group"), "group_size", 32.into());
                let layout = match form {
                    WrittenForm::Packed(layout) => layout.name(),
                    _ => layer.layout,
                };
                (layout, with(fields, "scale_dtype", "torch.uint8".into()))
            }
        };
        (format.to_owned(), known.cloned().unwrap_or(weights))
    }

    /// The `quantization_config` of the converted checkpoint, where the target has one; `ignore` are the modules of other matrices.
    ///
    /// # Errors
    /// If the target cannot say the layers together.
    pub(crate) fn config(
        &self,
        exported: &[Exported<'_>],
        ignore: &[&str],
    ) -> Result<Option<Value>, Error> {
        let unheld = |what: String| Error::Unheld {
            path: self.input.path.clone(),
            layer: exported[0].layer.name.clone(),
            what,
            target: self.target.to_string(),
        };
        let kept = self.input.config.quantization().cloned();
        let tool = self.target.tool();
        if !self.weights_only
            && !self.schemes.kv_cache.is_null()
            && Some(tool) != tool_of(self.schemes)
            && tool != Tool::None
        {
            let what = format!(
                "quantized with a cache of keys and values ({}); `--weights-only` leaves the cache to the engine",
                compact(&self.schemes.kv_cache)
            );
            return Err(unheld(what));
        }
        Ok(match tool {
            Tool::None => match self.target {
                ToLayout::Layout(CheckpointLayout::Microscaling) if !self.weights_only => kept,
                _ => None,
            },
            Tool::GptOss => WeightLayout::GptOss.quantization_config(ignore),
            Tool::Fp8 => {
                let block = ToLayout::one_block(self.layers);
                let block = block.ok_or_else(|| {
                    unheld("quantized in blocks of another size than other layers".into())
                })?;
                Some(json!({
                    "quant_method": "fp8", "activation_scheme": exported[0].said.0, "weight_block_size": block,
                    "modules_to_not_convert": ignore,
                }))
            }
            Tool::Integers => Some(self.integers_config(exported, ignore)?),
            Tool::CompressedTensors => Some(self.compressed_config(exported, ignore)),
            Tool::ModelOpt => Some(self.modelopt_config(exported, ignore)),
        })
    }
}

/// The kinds of quantized activations that tools other than compressed-tensors have words for.
enum ActivationKind {
    None,
    Nvfp4,
    /// FP8 with one static scale.
    Fp8,
    /// FP8 with a scale for each token, computed by the engine.
    Fp8Token,
    /// FP8 with a scale for as many inputs, computed by the engine.
    DynamicGroup(u64),
    Other,
}

impl ActivationKind {
    fn of(activations: &Value) -> Self {
        let Value::Object(fields) = activations else {
            return Self::None;
        };
        let text = |key: &str| fields.get(key).and_then(Value::as_str);
        let number = |key: &str| fields.get(key).and_then(Value::as_u64);
        let dynamic = fields.get("dynamic").and_then(Value::as_bool);
        match (
            number("num_bits"),
            text("type"),
            text("strategy"),
            number("group_size"),
            dynamic,
        ) {
            (Some(4), Some("float"), Some("tensor_group"), Some(16), _) => Self::Nvfp4,
            (Some(8), Some("float"), Some("tensor"), None, Some(false)) => Self::Fp8,
            (Some(8), Some("float"), Some("token"), None, Some(true)) => Self::Fp8Token,
            (Some(8), Some("float"), Some("group"), Some(size), Some(true)) => {
                Self::DynamicGroup(size)
            }
            _ => Self::Other,
        }
    }
}

/// 1 / x, or a neighbour whose reciprocal is x.
fn reciprocal(x: f32) -> f32 {
    let near = 1.0 / x;
    let neighbours = [near, near.next_down(), near.next_up()];
    let exact = neighbours.into_iter().find(|y| 1.0 / y == x);
    exact.unwrap_or(near)
}

/// Whether the scale of an input became a reciprocal whose own reciprocal is another number.
pub(crate) fn is_rounded(read: &PackedFiles<'_>, scale: &Retold) -> bool {
    let stored = || {
        crate::numbers::floats(&read.tensor(&scale.from)?)?
            .first()
            .copied()
    };
    let numbers = scale.number.zip(stored());
    numbers.is_some_and(|(number, stored)| number == reciprocal(stored) && 1.0 / number != stored)
}

/// JSON in one line.
fn compact(value: &Value) -> String {
    let Value::Object(fields) = value else {
        return value.to_string();
    };
    let fields = fields.iter().filter(|(_, value)| !value.is_null());
    let fields: Vec<String> = fields
        .map(|(key, value)| format!("{key} {value}"))
        .collect();
    fields.join(", ").replace('"', "")
}
