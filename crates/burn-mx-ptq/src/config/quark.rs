//! AMD Quark's attributes of a quantization configuration (`extra_options` of its ONNX quantizer).

use microscaling::{BfpFormat, BlockFormat, ElementFormat, MicroexponentFormat, Rounding};
use serde::Deserialize;
use serde_json::Value;

use super::{FastFinetune, QuantConfig};
use crate::error::PtqError;
use burn_mx_core::{MxSpecs, SlotFormat};

/// Quark's `extra_options`, as far as they concern these formats.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QuarkOptions {
    #[serde(rename = "MXAttributes")]
    mx: Option<MxAttributes>,
    #[serde(rename = "BFPAttributes")]
    bfp: Option<BfpAttributes>,
    #[serde(rename = "FastFinetune")]
    fast_finetune: Option<FastFinetuneOnDevices>,
}

/// Attributes of OCP's formats.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct MxAttributes {
    element_dtype: String,
    axis: i64,
    block_size: usize,
    rounding_mode: u32,
}

/// Attributes of block floating point and microexponents.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct BfpAttributes {
    bfp_method: BfpMethod,
    axis: i64,
    bit_width: u32,
    block_size: usize,
    rounding_mode: u32,
    sub_block_size: Option<usize>,
    sub_block_shift_bits: Option<u32>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BfpMethod {
    ToBfp,
    ToBfpPrime,
}

/// [`FastFinetune`] with Quark's devices. Here the model's device computes everything.
#[derive(Deserialize)]
struct FastFinetuneOnDevices {
    #[serde(flatten)]
    fields: serde_json::Map<String, Value>,
}

/// Quark's defaults.
impl Default for MxAttributes {
    fn default() -> Self {
        Self {
            element_dtype: ElementFormat::INT8.to_string(),
            axis: SUMMED_AXIS,
            block_size: 32,
            rounding_mode: 2,
        }
    }
}

impl Default for BfpAttributes {
    fn default() -> Self {
        Self {
            bfp_method: BfpMethod::ToBfp,
            axis: SUMMED_AXIS,
            bit_width: BfpFormat::BFP16.bit_width,
            block_size: BfpFormat::BFP16.block_size,
            rounding_mode: 2,
            sub_block_size: None,
            sub_block_shift_bits: None,
        }
    }
}

/// The channels of a convolution, the columns of a matrix: blocks lie along the summed axis.
const SUMMED_AXIS: i64 = 1;

impl QuarkOptions {
    /// Whether Quark's options have a field with this name.
    pub(super) fn has(field: &str) -> bool {
        matches!(field, "MXAttributes" | "BFPAttributes" | "FastFinetune")
    }

    pub(super) fn config(self) -> Result<QuantConfig, PtqError> {
        let (format, axis, rounding_mode, block_size) = match (self.mx, self.bfp) {
            (Some(mx), None) => mx.format()?,
            (None, Some(bfp)) => bfp.format()?,
            (mx, _) => {
                return Err(PtqError::Field {
                    field: "MXAttributes",
                    value: if mx.is_some() {
                        "beside `BFPAttributes`".into()
                    } else {
                        "missing, as `BFPAttributes` is".into()
                    },
                    allowed: "one of the two",
                });
            }
        };
        if axis != SUMMED_AXIS {
            return Err(PtqError::Field {
                field: "axis",
                value: axis.to_string(),
                allowed: "1, along which products sum",
            });
        }
        let round = match rounding_mode {
            0 => Rounding::NearestAway,
            2 => Rounding::NearestEven,
            _ => {
                return Err(PtqError::Field {
                    field: "rounding_mode",
                    value: rounding_mode.to_string(),
                    allowed: "0 (ties away from zero), 2 (ties to even)",
                });
            }
        };
        let fast_finetune = self
            .fast_finetune
            .map(FastFinetuneOnDevices::tuning)
            .transpose()?;
        Ok(QuantConfig {
            specs: MxSpecs {
                w_elem_format: Some(format),
                a_elem_format: Some(format),
                block_size,
                round,
                ..MxSpecs::default()
            },
            fast_finetune,
            ..QuantConfig::default()
        })
    }
}

/// Format, axis, rounding mode, and the block size if the format is an element format.
type Attributes = (SlotFormat, i64, u32, usize);

impl MxAttributes {
    fn format(self) -> Result<Attributes, PtqError> {
        let element = self.element_dtype.parse::<ElementFormat>();
        let element = element.map_err(|error| PtqError::Json {
            reason: format!("element_dtype: {error}"),
        })?;
        Ok((
            element.into(),
            self.axis,
            self.rounding_mode,
            self.block_size,
        ))
    }
}

impl BfpAttributes {
    fn format(self) -> Result<Attributes, PtqError> {
        let format: BlockFormat = match self.bfp_method {
            BfpMethod::ToBfp => {
                let sub_block = [
                    (
                        "sub_block_size",
                        self.sub_block_size.map(|size| size as u64),
                    ),
                    (
                        "sub_block_shift_bits",
                        self.sub_block_shift_bits.map(u64::from),
                    ),
                ];
                if let Some((field, Some(value))) =
                    sub_block.into_iter().find(|(_, value)| value.is_some())
                {
                    return Err(PtqError::Field {
                        field,
                        value: value.to_string(),
                        allowed: "none where `bfp_method` is `to_bfp`",
                    });
                }
                BfpFormat {
                    bit_width: self.bit_width,
                    block_size: self.block_size,
                }
                .into()
            }
            BfpMethod::ToBfpPrime => MicroexponentFormat {
                bit_width: self.bit_width,
                block_size: self.block_size,
                sub_block_size: self.sub_block_size.unwrap_or(2),
                shift_bits: self.sub_block_shift_bits.unwrap_or(1),
            }
            .into(),
        };
        Ok((format.into(), self.axis, self.rounding_mode, 0))
    }
}

impl FastFinetuneOnDevices {
    fn tuning(mut self) -> Result<FastFinetune, PtqError> {
        for device in ["OptimDevice", "InferDevice"] {
            self.fields.remove(device);
        }
        serde_json::from_value(Value::Object(self.fields)).map_err(|error| PtqError::Json {
            reason: format!("FastFinetune: {error}"),
        })
    }
}
