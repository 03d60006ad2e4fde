//! Quantized models for other engines: whole folders and files, with config and tokenizer.

mod gguf;

use std::{fs, path::Path};

use burn::backend::Flex;
use burn_mx::{MxBackend, WeightLayout};
use safetensors::SafeTensors;

use crate::{Decoder, DecoderConfig, Error, Folder, folder};

type B = MxBackend<Flex>;

/// The files of an inference engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// A folder for transformers and vLLM with compressed-tensors.
    CompressedTensors,
    /// A folder for TensorRT-LLM and vLLM, by NVIDIA Model Optimizer.
    ModelOpt,
    /// A file for llama.cpp.
    Gguf,
}

impl Engine {
    /// The layout for weights in this format.
    ///
    /// # Errors
    ///
    /// If the engine has none.
    pub fn layout(self, format: burn_mx::BlockFormat) -> Result<WeightLayout, Error> {
        let layouts = match self {
            Self::CompressedTensors => &[
                WeightLayout::Mxfp4PackQuantized,
                WeightLayout::Nvfp4PackQuantized,
                WeightLayout::Mxfp8Quantized,
            ][..],
            Self::ModelOpt => &[WeightLayout::ModelOptNvfp4],
            Self::Gguf => &[WeightLayout::GgufMxfp4],
        };
        let layout = layouts.iter().find(|layout| layout.has(format));
        layout.copied().ok_or_else(|| {
            let formats = layouts.iter().map(|layout| layout.format().to_string());
            Error::Option {
                option: "--config",
                value: format.to_string(),
                allowed: format!(
                    "for this engine: {}",
                    formats.collect::<Vec<_>>().join(", ")
                ),
            }
        })
    }
}

/// Writes a quantized model. `out` is a folder, or for GGUF a file. The head stays float32.
///
/// # Errors
///
/// If the layout does not have the weights' format, or a file cannot be written.
pub fn export(
    out: &Path,
    source: &Folder,
    model: &Decoder<B>,
    layout: WeightLayout,
) -> Result<(), Error> {
    let description = DecoderConfig {
        is_tied: model.lm_head.is_none(),
        ..source.config.clone()
    };
    if layout != WeightLayout::GgufMxfp4 {
        fs::create_dir_all(out).map_err(Error::io(out))?;
        let saved = folder::checkpoint(out)?
            .layout(layout.into())
            .leave_unpacked_if(model.lm_head.is_some(), "lm_head")
            .save(model)?;
        let mut config = description.to_json();
        if let Some(mut quantization) = saved.quantization_config {
            // A tied head is a linear layer to these engines, and has no weight here.
            let names = ["ignore", "exclude_modules"];
            let lists = names.map(|name| quantization.get(name).map(|_| name));
            for name in lists.into_iter().flatten() {
                let list = quantization[name].as_array_mut();
                let list = list.filter(|list| !list.iter().any(|layer| layer == "lm_head"));
                if let Some(list) = list {
                    list.push("lm_head".into());
                }
            }
            config["quantization_config"] = quantization;
        }
        return folder::save_description(out, &config, &source.tokenizer);
    }
    let temporary = tempfile::tempdir().map_err(Error::io(std::env::temp_dir()))?;
    folder::checkpoint(temporary.path())?
        .layout(layout.into())
        .leave_unpacked_if(model.lm_head.is_some(), "lm_head")
        .save(model)?;
    let file = temporary.path().join("model.safetensors");
    let bytes = fs::read(&file).map_err(Error::io(&file))?;
    let tensors =
        SafeTensors::deserialize(&bytes).map_err(|error| Error::Other(error.to_string()))?;
    gguf::write(out, &tensors, &description, &source.tokenizer)
}

/// An option of a checkpoint for models that have a certain layer.
trait Optional: Sized {
    fn leave_unpacked_if(self, is_there: bool, pattern: &str) -> Self;
}

impl Optional for burn_mx::checkpoint::Checkpoint {
    fn leave_unpacked_if(self, is_there: bool, pattern: &str) -> Self {
        match is_there {
            true => self.leave_unpacked(pattern),
            false => self,
        }
    }
}
