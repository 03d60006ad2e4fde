//! The description of a layout in a model's `config.json`.

use super::WeightLayout;
use serde_json::{Value, json};

impl WeightLayout {
    /// The value of `quantization_config` in a model's `config.json`, as readers of the layout expect it; `None` for GGUF,
    /// whose files have no such value. `ignore` are the names of the linear layers that are not quantized.
    ///
    /// The config describes weights alone, and leaves activations to the engine (W4A16 and W8A16 in compressed-tensors and Model
    /// Optimizer). The `quant_algo` of `modelopt-nvfp4` is `W4A16_NVFP4`, as in Model Optimizer from 0.45 on. Until 0.44 Model
    /// Optimizer wrote `NVFP4`, which describes activations in NVFP4, too. (Feature `safetensors`.)
    pub fn quantization_config(self, ignore: &[&str]) -> Option<Value> {
        let group = |bits: u32, strategy: &str, size: u32, scale: &str| {
            json!({
                "num_bits": bits,
                "type": "float",
                "symmetric": true,
                "strategy": strategy,
                "group_size": size,
                "dynamic": false,
                "scale_dtype": scale,
            })
        };
        let compressed = |weights: Value| {
            json!({
                "quant_method": "compressed-tensors",
                "format": self.name(),
                "quantization_status": "compressed",
                "config_groups": {
                    "group_0": {"targets": ["Linear"], "format": self.name(), "weights": weights},
                },
                "ignore": ignore,
            })
        };
        Some(match self {
            Self::Mxfp4PackQuantized => compressed(group(4, "group", 32, "torch.uint8")),
            Self::Mxfp6PackQuantized => compressed(group(6, "group", 32, "torch.uint8")),
            Self::Mxfp8Quantized => compressed(group(8, "group", 32, "torch.uint8")),
            Self::Nvfp4PackQuantized => {
                compressed(group(4, "tensor_group", 16, "torch.float8_e4m3fn"))
            }
            Self::ModelOptNvfp4 => json!({
                "quant_method": "modelopt",
                "quant_algo": "W4A16_NVFP4",
                "config_groups": {
                    "group_0": {
                        "targets": ["Linear"],
                        "weights": {"dynamic": false, "num_bits": 4, "type": "float", "group_size": 16},
                    },
                },
                "ignore": ignore,
            }),
            Self::GptOss => json!({"quant_method": "mxfp4", "modules_to_not_convert": ignore}),
            Self::GgufMxfp4 => return None,
        })
    }
}
