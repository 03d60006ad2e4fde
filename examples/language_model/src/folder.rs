//! Models as Hugging Face's folders on disk: `config.json`, `tokenizer.json`, safetensors in one file or in shards.

use std::{
    fs,
    path::{Path, PathBuf},
};

use burn_mx::MxSpecs;
use burn_mx::checkpoint::Checkpoint;
use burn_mx::module::{MxTensorOps, set_specs};
use burn_store::{BurnToPyTorchAdapter, PyTorchToBurnAdapter};
use tokenizers::Tokenizer;

use crate::{Decoder, DecoderConfig, Error, text};

/// A model out of a folder.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// The model's dimensions.
    pub config: DecoderConfig,
    /// The model's tokenizer.
    pub tokenizer: Tokenizer,
}

impl Folder {
    /// Reads config and tokenizer, and checks that they belong together.
    ///
    /// # Errors
    ///
    /// If one is missing, cannot be used, or belongs to another model.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = path.into();
        let file = path.join("config.json");
        let config = fs::read_to_string(&file).map_err(Error::io(file))?;
        let config = DecoderConfig::from_json(&config)?;
        let file = path.join("tokenizer.json");
        let tokenizer = text::tokenizer(&file, config.vocabulary)?;
        Ok(Self {
            path,
            config,
            tokenizer,
        })
    }

    /// The folder's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The model with the folder's weights.
    ///
    /// # Errors
    ///
    /// If a file or a tensor is missing, has another shape, or does not belong to the architecture.
    pub fn load<B: MxTensorOps>(&self, device: &B::Device) -> Result<Decoder<B>, Error> {
        load_weights(&self.path, &self.config, device)
    }
}

/// The model of this config with the weights of this folder.
///
/// # Errors
///
/// As [`Folder::load`].
pub fn load_weights<B: MxTensorOps>(
    path: &Path,
    config: &DecoderConfig,
    device: &B::Device,
) -> Result<Decoder<B>, Error> {
    let checkpoint = Checkpoint::new(path)
        .adapter(PyTorchToBurnAdapter)
        .rename(r"norm\.weight$", "norm.gamma")?;
    let loaded = checkpoint.load(config.init::<B>(device))?;
    // A head beside a tied table is the table again; tables of rotary frequencies are computed here.
    let is_known = |name: &&String| {
        name.ends_with("rotary_emb.inv_freq") || (config.is_tied && *name == "lm_head.weight")
    };
    let unexpected: Vec<String> = loaded
        .unused
        .iter()
        .filter(|name| !is_known(name))
        .cloned()
        .collect();
    match unexpected.is_empty() {
        true => Ok(loaded.model),
        false => Err(Error::Unexpected {
            path: path.to_owned(),
            model_type: config.model_type.clone(),
            names: unexpected.join(", "),
        }),
    }
}

/// The checkpoint of a folder, by the names that transformers has.
///
/// # Errors
///
/// None that a call can cause; the rules are constant.
pub fn checkpoint(path: &Path) -> Result<Checkpoint, Error> {
    Ok(Checkpoint::new(path.join("model.safetensors"))
        .adapter(BurnToPyTorchAdapter)
        .rename(r"norm\.gamma$", "norm.weight")?)
}

/// Writes config and tokenizer, which all kinds of folders have.
///
/// # Errors
///
/// If a file cannot be written.
pub fn save_description(
    path: &Path,
    config: &serde_json::Value,
    tokenizer: &Tokenizer,
) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(Error::io(path))?;
    let file = path.join("config.json");
    fs::write(&file, format!("{config:#}\n")).map_err(Error::io(file))?;
    let file = path.join("tokenizer.json");
    let json = tokenizer.to_string(true);
    let json = json.map_err(|error| Error::Other(error.to_string()))?;
    fs::write(&file, json).map_err(Error::io(file))?;
    // transformers' class for any tokenizer.json.
    let file = path.join("tokenizer_config.json");
    let class = "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n";
    fs::write(&file, class).map_err(Error::io(file))
}

/// Writes a model as a folder that [`Folder::open`] and transformers read. Weights are float32 for every format of the
/// training.
///
/// # Errors
///
/// If a file cannot be written.
pub fn save<B: MxTensorOps>(
    path: &Path,
    config: &DecoderConfig,
    tokenizer: &Tokenizer,
    model: &Decoder<B>,
) -> Result<(), Error> {
    save_description(path, &config.to_json(), tokenizer)?;
    // Weights with a format would be packed, and so lose what training goes on with.
    let float = set_specs(model.clone(), &MxSpecs::none().resolve()?);
    checkpoint(path)?.save(&float)?;
    Ok(())
}
