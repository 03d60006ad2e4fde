//! Quantized models for other engines: whole folders and files, with config and tokenizer.

mod divisors;
mod gguf;
mod special;

use std::{fs, path::Path};

use burn::backend::Flex;
use burn_mx::{FusedLayers, MxBackend, WeightLayout};
use microscaling::safetensors::CheckpointLayout;
use safetensors::SafeTensors;

use crate::{Decoder, DecoderConfig, Error, Folder, folder};
use burn_mx_lab::own_files;
pub(crate) use special::COMPANIONS;

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

/// The name of the weights' file in an exported folder.
const WEIGHTS: &str = "model.safetensors";

/// Checks, before any work, that an export replaces nothing but what an earlier one wrote.
///
/// # Errors
///
/// If a file of the output is one of the source's, or somebody else's.
pub fn check_output(out: &Path, source: &Folder, layout: WeightLayout) -> Result<(), Error> {
    let files = match layout {
        WeightLayout::GgufMxfp4 => vec![out.to_owned()],
        _ => {
            // An index would be of other weights, whose files a checkpoint replaces.
            let weights = [WEIGHTS, "model.config.json", "model.safetensors.index.json"];
            let names = weights.into_iter().chain(folder::DESCRIPTION);
            let companions = COMPANIONS.into_iter();
            let companions = companions.filter(|name| source.path().join(name).exists());
            names.chain(companions).map(|name| out.join(name)).collect()
        }
    };
    for file in &files {
        own_files::not_an_input("--out", file, source.files()).map_err(Error::Other)?;
        own_files::check(file).map_err(|error| Error::Other(format!("--out: {error}")))?;
    }
    Ok(())
}

/// Writes a quantized model. `out` is a folder, or for GGUF a file. The head stays float32. A folder has the source's special tokens,
/// generation config and chat template; a GGUF file has the tokens and the template.
///
/// NVFP4 of compressed-tensors stores the reciprocal of a tensor's scale. The written scale is the reciprocal of that number, which
/// may be a neighbour of the model's scale in float32; codes and scales of blocks are the model's.
///
/// # Errors
///
/// If the layout does not have the weights' format, [`check_output`] fails, or a file cannot be written.
pub fn export(
    out: &Path,
    source: &Folder,
    model: &Decoder<B>,
    layout: WeightLayout,
) -> Result<(), Error> {
    check_output(out, source, layout)?;
    let description = DecoderConfig {
        is_tied: model.lm_head.is_none(),
        ..source.config.clone()
    };
    let temporary = tempfile::tempdir().map_err(Error::io(std::env::temp_dir()))?;
    let stored_as = match layout {
        WeightLayout::Nvfp4PackQuantized => CheckpointLayout::Microscaling,
        layout => layout.into(),
    };
    let checkpoint = folder::checkpoint(temporary.path())?
        .layout(stored_as)
        .fused(match layout.format().tensor_scale {
            true => FusedLayers::default(),
            false => FusedLayers::NONE,
        })
        .leave_unpacked_if(model.lm_head.is_some(), "lm_head");
    let saved = (model.routers().iter())
        .fold(checkpoint, |checkpoint, router| {
            checkpoint.leave_unpacked_if(true, router)
        })
        .save(model)?;
    let mut quantization = saved.quantization_config;
    let file = temporary.path().join(WEIGHTS);
    let mut weights = fs::read(&file).map_err(Error::io(file))?;
    if layout == WeightLayout::GgufMxfp4 {
        let tensors =
            SafeTensors::deserialize(&weights).map_err(|error| Error::Other(error.to_string()))?;
        return gguf::write(out, &tensors, &description, source);
    }
    if layout == WeightLayout::Nvfp4PackQuantized {
        let (file, ignored) = divisors::with_divisors(&weights)?;
        let ignored: Vec<&str> = ignored.iter().map(String::as_str).collect();
        quantization = layout.quantization_config(&ignored);
        weights = file;
    }
    fs::create_dir_all(out).map_err(Error::io(out))?;
    let write = |name: &str, contents: &[u8]| {
        own_files::write(&out.join(name), contents).map_err(Error::Other)
    };
    write(WEIGHTS, &weights)?;
    let mut config = description.to_json();
    if let Some(mut quantization) = quantization {
        let fragment = serde_json::json!({ "quantization_config": quantization });
        write("model.config.json", format!("{fragment:#}").as_bytes())?;
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
    let texts = folder::description(&config, &source.tokenizer)?;
    for (name, text) in folder::DESCRIPTION.iter().zip(texts) {
        // The source's own says which class its tokenizer has, which tokens are special, and how a chat is written.
        if !source.path().join(name).exists() || *name != "tokenizer_config.json" {
            write(name, text.as_bytes())?;
        }
    }
    for name in COMPANIONS {
        let file = source.path().join(name);
        if file.exists() {
            write(name, &fs::read(&file).map_err(Error::io(file))?)?;
        }
    }
    Ok(())
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
