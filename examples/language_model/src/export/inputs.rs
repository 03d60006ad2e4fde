//! Quantized inputs of linear layers, as a folder for compressed-tensors describes them.

use std::{collections::HashMap, fmt::Display};

use burn_mx::{BlockFormat, Dialect, ResolvedSpecs, Slot, WeightLayout};
use microscaling::{ElementFormat, ScaleFormat};
use safetensors::{Dtype, SafeTensors, serialize, tensor::TensorView};
use serde_json::Value;

use super::Engine;
use crate::Error;

/// NVFP4's blocks without a tensor scale.
const NVFP4_BLOCKS: BlockFormat =
    BlockFormat::float_scale(ElementFormat::FP4_E2M1, ScaleFormat::UE4M3, 16);

/// The format of the inputs of all linear layers with packed weights, in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Inputs(WeightLayout);

impl Inputs {
    /// The inputs of these specs beside weights in this layout. `None` if the engine's files do not describe them.
    ///
    /// compressed-tensors has one format for weights and inputs. The divisor of a whole input is fixed in its files, and 1 in those that are written
    /// here. llama.cpp rounds the inputs of quantized weights to Q8_0 with every file.
    ///
    /// # Errors
    ///
    /// If the engine computes other numbers.
    pub(super) fn of(
        engine: Engine,
        layout: WeightLayout,
        specs: &ResolvedSpecs,
    ) -> Result<Option<Self>, Error> {
        let Some(format) = specs.block_format(Slot::A) else {
            return Ok(None);
        };
        let (dialect, allowed) = match (engine, layout) {
            (Engine::CompressedTensors, WeightLayout::Nvfp4PackQuantized) => {
                (Dialect::CompressedTensors, NVFP4_BLOCKS)
            }
            (Engine::CompressedTensors, layout) => (Dialect::CompressedTensors, layout.format()),
            (Engine::Gguf, _) => {
                let formats = Dialect::Ggml.formats().iter();
                let mut formats = formats.filter_map(|name| name.parse::<BlockFormat>().ok());
                let q8_0 = formats.find(|format| format.element == ElementFormat::INT8);
                (Dialect::Ggml, q8_0.expect("it is one of the dialect's"))
            }
            (Engine::ModelOpt, _) => {
                return Err(Error::Option {
                    option: "--format",
                    value: format!("inputs in {format}"),
                    allowed: "none for this engine".into(),
                });
            }
        };
        let given = specs.dialect(Slot::A);
        if (format, given) != (allowed, Some(dialect)) {
            let name = |dialect: Dialect| dialect.to_string();
            return Err(Error::Option {
                option: "--format",
                value: format!(
                    "inputs in {format}, dialect_a {}",
                    given.map_or_else(|| "none".into(), name)
                ),
                allowed: format!(
                    "none, or {allowed} with dialect_a {dialect}, beside these weights"
                ),
            });
        }
        Ok((engine == Engine::CompressedTensors).then_some(Self(layout)))
    }

    /// The quantization config with the inputs.
    pub(super) fn described(self, mut quantization: Value) -> Value {
        let group = &mut quantization["config_groups"]["group_0"];
        let mut inputs = group["weights"].clone();
        inputs["dynamic"] = match self.0 {
            WeightLayout::Nvfp4PackQuantized => "local".into(),
            _ => true.into(),
        };
        group["input_activations"] = inputs;
        quantization
    }

    /// The checkpoint with what the inputs add: NVFP4's divisor of 1 for each layer.
    pub(super) fn beside(self, checkpoint: &[u8]) -> Result<Vec<u8>, Error> {
        if self.0 != WeightLayout::Nvfp4PackQuantized {
            return Ok(checkpoint.to_vec());
        }
        let other = |error: &dyn Display| Error::Other(error.to_string());
        let read = SafeTensors::deserialize(checkpoint).map_err(|error| other(&error))?;
        let (_, header) = SafeTensors::read_metadata(checkpoint).map_err(|error| other(&error))?;
        let one = 1.0_f32.to_le_bytes();
        let mut tensors = read.tensors();
        let layers: Vec<String> = tensors
            .iter()
            .filter_map(|(name, _)| name.strip_suffix("weight_packed"))
            .map(|layer| format!("{layer}input_global_scale"))
            .collect();
        for name in layers {
            let view = TensorView::new(Dtype::F32, vec![1], &one).map_err(|error| other(&error))?;
            tensors.push((name, view));
        }
        let metadata: Option<HashMap<String, String>> = header.metadata().clone();
        serialize(tensors, metadata).map_err(|error| other(&error))
    }
}
