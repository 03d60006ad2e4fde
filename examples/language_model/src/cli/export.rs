//! `export`

use std::{error::Error, path::PathBuf};

use clap::ValueEnum;
use language_model::{
    Folder,
    export::{Engine, Target, check_output, export},
    quantize,
    train::Format,
};

use super::evaluate::B;
use super::quantize::Options;

/// Quantize a trained model and write it for another engine
#[derive(Debug, clap::Args)]
pub(super) struct Export {
    /// The folder of a model: config.json, tokenizer.json, safetensors
    model: PathBuf,
    /// Which engine reads it
    #[arg(long)]
    engine: EngineName,
    /// A configuration, such as MXFP4E2M1_GPTQ or NVFP4
    #[arg(long, value_name = "NAME", default_value = "MXFP4E2M1_GPTQ")]
    config: String,
    /// Write the numbers of the training in this format, without another quantization: a preset, or a recipe as JSON
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with_all = [
            "config", "seed", "text", "context", "scope", "calibration", "act_order", "iterations", "learning_rate", "resume"
        ]
    )]
    format: Option<String>,
    /// A folder, or for gguf a file
    #[arg(long, value_name = "PATH")]
    out: PathBuf,
    /// Seed of the calibration data
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    options: Options,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum EngineName {
    /// transformers and vLLM: MXFP4, MXFP8 E4M3, NVFP4
    CompressedTensors,
    /// TensorRT-LLM and vLLM: NVFP4
    Modelopt,
    /// llama.cpp: MXFP4, NVFP4
    Gguf,
}

impl Export {
    pub(super) fn run(self) -> Result<(), Box<dyn Error>> {
        let folder = Folder::open(&self.model)?;
        let engine = match self.engine {
            EngineName::CompressedTensors => Engine::CompressedTensors,
            EngineName::Modelopt => Engine::ModelOpt,
            EngineName::Gguf => Engine::Gguf,
        };
        let target = match &self.format {
            Some(name) => self.as_trained(&folder, engine, name),
            None => self.quantized(&folder, engine),
        }?;
        println!("{}: {}", target.layout.name(), self.out.display());
        Ok(())
    }

    fn as_trained(
        &self,
        folder: &Folder,
        engine: Engine,
        name: &str,
    ) -> Result<Target, Box<dyn Error>> {
        let format = Format::named("--format", name)?;
        let target = Target::of(engine, &format)?;
        check_output(&self.out, folder, target)?;
        let model = format.served(folder, &target.fused())?;
        export(&self.out, folder, &model, target)?;
        Ok(target)
    }

    fn quantized(&self, folder: &Folder, engine: Engine) -> Result<Target, Box<dyn Error>> {
        let config = self.options.config(&self.config, &folder.config)?;
        let specs = config.specs.resolve()?;
        if specs.hadamard_forward().is_some() {
            let name = &self.config;
            return Err(format!(
                "--config '{name}'; allowed: one without a Hadamard transform, which these engines do not have"
            )
            .into());
        }
        if specs.hot_columns().is_some() {
            let name = &self.config;
            return Err(format!("--config '{name}'; allowed: one without hot columns, which these engines do not have").into());
        }
        // An engine's files do not say how the scope of post-training quantization computes inputs.
        let target = Target::of_weights(engine, &specs)?;
        check_output(&self.out, folder, target)?;
        let texts = self.options.texts(folder)?;
        let bar = super::bar(&self.config, 1)?;
        let device = Format::named("--format", "fp32")?.device()?;
        let model = folder.load::<B>(&device)?;
        let calibration = texts.calibration(self.seed, &device);
        let resume = self.options.resume(&self.config, &config, self.seed);
        let progress = |done, all| {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
        };
        let quantized =
            quantize::quantize(model, config, &calibration, resume.as_deref(), progress)?;
        bar.finish_and_clear();
        export(&self.out, folder, &quantized.model, target)?;
        Ok(target)
    }
}
