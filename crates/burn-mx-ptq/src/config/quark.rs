//! AMD Quark's `extra_options` of its ONNX quantizer as a configuration.

use microscaling::internal::quark;
use serde_json::{Map, Value};

use super::{FastFinetune, QuantConfig};
use crate::error::PtqError;
use burn_mx_core::MxSpecs;

/// The options that concern these formats.
pub(super) const OPTIONS: [&str; 3] = ["MXAttributes", "BFPAttributes", FAST_FINETUNE];

const FAST_FINETUNE: &str = "FastFinetune";

pub(super) fn config(mut options: Map<String, Value>) -> Result<QuantConfig, PtqError> {
    let fast_finetune = options.remove(FAST_FINETUNE);
    let (format, round) = quark::read_attributes(options).map_err(|error| PtqError::Json {
        reason: error.to_string(),
    })?;
    let (format, block_size) = match format.is_mx() {
        true => (format.element.into(), format.block_size),
        false => (format.into(), 0),
    };
    Ok(QuantConfig {
        specs: MxSpecs {
            w_elem_format: Some(format),
            a_elem_format: Some(format),
            block_size,
            round,
            ..MxSpecs::default()
        },
        fast_finetune: fast_finetune.map(tuning).transpose()?,
        ..QuantConfig::default()
    })
}

/// Quark's settings of tuning, without its devices. Here the model's device computes everything.
fn tuning(mut settings: Value) -> Result<FastFinetune, PtqError> {
    if let Value::Object(fields) = &mut settings {
        for device in ["OptimDevice", "InferDevice"] {
            fields.remove(device);
        }
    }
    serde_json::from_value(settings).map_err(|error| PtqError::Json {
        reason: format!("{FAST_FINETUNE}: {error}"),
    })
}
