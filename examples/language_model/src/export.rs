//! Quantized models for other engines: whole folders and files, with config and tokenizer.

mod divisors;
mod gguf;
mod inputs;
mod special;

use std::{fs, path::Path};

use burn::backend::Flex;
use burn_mx::{Dialect, FusedLayers, MxBackend, ResolvedSpecs, Slot, WeightLayout};
use microscaling::safetensors::CheckpointLayout;
use safetensors::SafeTensors;

use crate::{Decoder, DecoderConfig, Error, Folder, folder, train::Format};
use burn_mx_lab::own_files;
use inputs::Inputs;
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
            // The blocks of llama.cpp's NVFP4 are made of this layout's bytes.
            Self::Gguf => &[WeightLayout::GgufMxfp4, WeightLayout::ModelOptNvfp4],
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

/// The kind of files that an export writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The layout of the weights.
    pub layout: WeightLayout,
    /// Whether a file for llama.cpp has them, in place of a folder.
    pub is_gguf: bool,
    /// Whether the weights' own rule gives the divisors that compressed-tensors stores.
    has_divisors: bool,
    /// Whether the engine computes the inputs as the model does.
    has_inputs_of_model: bool,
    inputs: Option<Inputs>,
}

impl Target {
    /// The files of an engine for a model that was trained in a format.
    ///
    /// # Errors
    ///
    /// If the engine does not have the format of the weights, or computes other numbers of the inputs or in attention. If the recipe gives a
    /// layer other formats, unless the layer has none.
    pub fn of(engine: Engine, format: &Format) -> Result<Self, Error> {
        let target = Self::of_specs(engine, &format.specs()?)?;
        let files = |target: Self| (target.layout, target.inputs);
        for (path, specs) in format.layers()? {
            let has_format = |slot| specs.block_format(slot).is_some();
            let is_quantized = has_format(Slot::W) || has_format(Slot::A);
            if is_quantized && files(Self::of_specs(engine, &specs)?) != files(target) {
                return Err(Error::Option {
                    option: "--format",
                    value: format!("`{path}` in {specs}"),
                    allowed: "for a layer of its own: the formats of the other layers, or none"
                        .into(),
                });
            }
        }
        Ok(target)
    }

    fn of_specs(engine: Engine, specs: &ResolvedSpecs) -> Result<Self, Error> {
        let target = Self::of_weights(engine, specs)?;
        let inputs = Inputs::of(engine, target.layout, specs)?;
        let of_activations = specs
            .block_format(Slot::A)
            .filter(|_| specs.quantize_matmul());
        let attention = match specs.attention() {
            Some(attention) => Some(format!("attention in {attention}")),
            None => {
                of_activations.map(|format| format!("quantize_matmul true, attention in {format}"))
            }
        };
        match attention {
            Some(value) => Err(Error::Option {
                option: "--format",
                value,
                allowed: "quantize_matmul false, and no attention: engines multiply queries, keys and values in floats".into(),
            }),
            None => Ok(Self {
                inputs,
                has_inputs_of_model: true,
                ..target
            }),
        }
    }

    /// The layers that the engine computes with one tensor scale.
    pub fn fused(self) -> FusedLayers {
        // llama.cpp multiplies by each weight on its own.
        match self.layout.format().tensor_scale && !self.is_gguf {
            true => FusedLayers::default(),
            false => FusedLayers::NONE,
        }
    }

    /// The same files, which say nothing of inputs.
    ///
    /// # Errors
    ///
    /// If the engine does not have the format of the weights.
    pub fn of_weights(engine: Engine, specs: &ResolvedSpecs) -> Result<Self, Error> {
        let format = specs.block_format(Slot::W).ok_or_else(|| Error::Option {
            option: "--format",
            value: specs.to_string(),
            allowed: "specs with a format for weights".into(),
        })?;
        Ok(Self {
            layout: engine.layout(format)?,
            is_gguf: engine == Engine::Gguf,
            has_divisors: specs.dialect(Slot::W) == Some(Dialect::CompressedTensors),
            has_inputs_of_model: false,
            inputs: None,
        })
    }
}

impl From<WeightLayout> for Target {
    /// Weights alone: for `gguf-mxfp4` a file for llama.cpp, for other layouts a folder.
    fn from(layout: WeightLayout) -> Self {
        Self {
            layout,
            is_gguf: layout == WeightLayout::GgufMxfp4,
            has_divisors: false,
            has_inputs_of_model: false,
            inputs: None,
        }
    }
}

/// The name of the weights' file in an exported folder.
pub(crate) const WEIGHTS: &str = "model.safetensors";

/// Checks, before any work, that an export replaces nothing but what an earlier one wrote.
///
/// # Errors
///
/// If a file of the output is one of the source's, or somebody else's, or llama.cpp lacks a part of the model.
pub fn check_output(out: &Path, source: &Folder, target: impl Into<Target>) -> Result<(), Error> {
    let target = target.into();
    if target.is_gguf {
        gguf::check(&source.config, target.layout)?;
    }
    let files = match target.is_gguf {
        true => vec![out.to_owned()],
        false => {
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

/// Writes a quantized model. `out` is a folder, or for a [`Target`] of llama.cpp a file. The head stays float32. A folder has the source's special tokens,
/// generation config and chat template; a GGUF file has the tokens and the template.
///
/// NVFP4 of compressed-tensors stores the reciprocal of a tensor's scale. Weights that were trained by this dialect have it. For others the written scale is the reciprocal of that number, which
/// may be a neighbour of the model's scale in float32; codes and scales of blocks are the model's.
///
/// # Errors
///
/// If the layout does not have the weights' format, [`check_output`] fails, or a file cannot be written.
pub fn export(
    out: &Path,
    source: &Folder,
    model: &Decoder<B>,
    target: impl Into<Target>,
) -> Result<(), Error> {
    let target = target.into();
    let layout = target.layout;
    check_output(out, source, target)?;
    let description = DecoderConfig {
        is_tied: model.lm_head.is_none(),
        ..source.config.clone()
    };
    let temporary = tempfile::tempdir().map_err(Error::io(std::env::temp_dir()))?;
    let computes_divisors = layout == WeightLayout::Nvfp4PackQuantized && !target.has_divisors;
    let stored_as = match computes_divisors {
        true => CheckpointLayout::Microscaling,
        false => layout.into(),
    };
    let checkpoint = folder::packing_checkpoint(temporary.path(), model)?
        .layout(stored_as)
        .fused(target.fused());
    let checkpoint = match target.has_inputs_of_model {
        true => checkpoint.describes_inputs(),
        false => checkpoint,
    };
    let saved = checkpoint.save(model)?;
    let mut quantization = saved.quantization_config;
    let file = temporary.path().join(WEIGHTS);
    let mut weights = fs::read(&file).map_err(Error::io(file))?;
    if target.is_gguf {
        let tensors =
            SafeTensors::deserialize(&weights).map_err(|error| Error::Other(error.to_string()))?;
        return gguf::write(out, &tensors, &description, source);
    }
    if computes_divisors {
        let (file, ignored) = divisors::with_divisors(&weights)?;
        let ignored: Vec<&str> = ignored.iter().map(String::as_str).collect();
        quantization = layout.quantization_config(&ignored);
        weights = file;
    }
    if let Some(inputs) = target.inputs {
        weights = inputs.beside(&weights)?;
        quantization = quantization.map(|quantization| inputs.described(quantization));
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
