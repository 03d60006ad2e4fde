//! Models as Hugging Face's folders on disk: `config.json`, `tokenizer.json`, safetensors in one file or in shards.

use std::{
    fs,
    path::{Path, PathBuf},
};

use burn::tensor::backend::Backend;
use burn_mx::MxSpecs;
use burn_mx::checkpoint::Checkpoint;
use burn_mx::module::{ColumnRecord, MxTensorOps, set_specs};
use burn_store::{BurnToPyTorchAdapter, PyTorchToBurnAdapter};
use microscaling::safetensors::DESCRIPTION_KEY;
use safetensors::SafeTensors;
use tokenizers::Tokenizer;

use crate::{Decoder, DecoderConfig, Error, export::COMPANIONS, export::WEIGHTS, text};

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

    /// The files of the model, which are read.
    pub fn files(&self) -> Vec<PathBuf> {
        let is_own = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let weights = [".safetensors", ".safetensors.index.json"];
            ["config.json", "tokenizer.json", COLUMNS].contains(&&*name)
                || COMPANIONS.contains(&&*name)
                || weights.iter().any(|end| name.ends_with(end))
        };
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(is_own).collect()
    }

    /// The model with the folder's weights.
    ///
    /// # Errors
    ///
    /// If a file or a tensor is missing, has another shape, or does not belong to the architecture.
    pub fn load<B: MxTensorOps>(&self, device: &B::Device) -> Result<Decoder<B>, Error> {
        load_weights(&self.path, &self.config, device)
    }

    /// The ranking of columns that a training run with hot columns has left. `None`: the folder has none.
    ///
    /// # Errors
    ///
    /// If the file is not such a ranking.
    pub fn columns(&self) -> Result<Option<ColumnRecord>, Error> {
        let file = self.path.join(COLUMNS);
        if !file.exists() {
            return Ok(None);
        }
        let text = fs::read(&file).map_err(Error::io(&file))?;
        let record = serde_json::from_slice(&text);
        record
            .map(Some)
            .map_err(|error| Error::io(&file)(error.into()))
    }
}

/// The file of a ranking of columns.
pub(crate) const COLUMNS: &str = "columns.json";

/// Writes what [`Folder::columns`] reads.
///
/// # Errors
///
/// If the file cannot be written.
pub fn save_columns(path: &Path, record: &ColumnRecord) -> Result<(), Error> {
    let file = path.join(COLUMNS);
    let text = serde_json::to_vec(record).expect("a ranking is JSON");
    fs::write(&file, text).map_err(Error::io(&file))
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
    let ones = ones(path, &loaded.unused);
    // A head beside a tied table is the table again; tables of rotary frequencies are computed here.
    let is_known = |name: &&String| {
        name.ends_with("rotary_emb.inv_freq")
            || (config.is_tied && *name == "lm_head.weight")
            || ones.contains(name)
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

/// The end of the name of a divisor of a layer's inputs.
const DIVISOR: &str = ".input_global_scale";

/// The divisors of inputs that are 1 in an exported file: these change no number. The file has the specs, which quantize the inputs. In a
/// file of another tool nothing would quantize them.
fn ones(path: &Path, unused: &[String]) -> Vec<String> {
    let mut names = unused
        .iter()
        .filter(|name| name.ends_with(DIVISOR))
        .peekable();
    if names.peek().is_none() {
        return Vec::new();
    }
    let file = fs::read(path.join(WEIGHTS)).unwrap_or_default();
    let read = SafeTensors::read_metadata(&file).ok();
    let is_own = read.is_some_and(|(_, header)| {
        let metadata = header.metadata().as_ref();
        metadata.is_some_and(|metadata| metadata.contains_key(DESCRIPTION_KEY))
    });
    let Some(tensors) = SafeTensors::deserialize(&file).ok().filter(|_| is_own) else {
        return Vec::new();
    };
    let one = 1.0_f32.to_le_bytes();
    let is_one = |name: &&String| {
        tensors
            .tensor(name)
            .is_ok_and(|tensor| tensor.data() == one)
    };
    names.filter(is_one).cloned().collect()
}

/// The checkpoint of a folder, by the names that transformers has.
///
/// # Errors
///
/// None that a call can cause; the rules are constant.
pub fn checkpoint(path: &Path) -> Result<Checkpoint, Error> {
    Ok(Checkpoint::new(path.join(WEIGHTS))
        .adapter(BurnToPyTorchAdapter)
        .rename(r"norm\.gamma$", "norm.weight")?)
}

/// The files beside the weights that all kinds of folders have.
pub(crate) const DESCRIPTION: [&str; 3] =
    ["config.json", "tokenizer.json", "tokenizer_config.json"];

/// The texts of [`DESCRIPTION`].
///
/// # Errors
///
/// If the tokenizer cannot be written as JSON.
pub(crate) fn description(
    config: &serde_json::Value,
    tokenizer: &Tokenizer,
) -> Result<[String; 3], Error> {
    let json = tokenizer.to_string(true);
    let json = json.map_err(|error| Error::Other(error.to_string()))?;
    // transformers' class for any tokenizer.json.
    let class = "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n";
    Ok([format!("{config:#}\n"), json, class.to_owned()])
}

/// The checkpoint of a folder that packs the linear layers of this model which have a format, but for its head and the routers of experts.
///
/// # Errors
///
/// None that a call can cause; the rules are constant.
pub(crate) fn packing_checkpoint<B: Backend>(
    path: &Path,
    model: &Decoder<B>,
) -> Result<Checkpoint, Error> {
    let head = model.lm_head.iter().map(|_| "lm_head".to_owned());
    let float = head.chain(model.routers());
    Ok(float.fold(checkpoint(path)?, Checkpoint::leave_unpacked))
}

fn describe(path: &Path, config: &DecoderConfig, tokenizer: &Tokenizer) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(Error::io(path))?;
    let texts = description(&config.to_json(), tokenizer)?;
    for (name, text) in DESCRIPTION.iter().zip(texts) {
        let file = path.join(name);
        fs::write(&file, text).map_err(Error::io(file))?;
    }
    Ok(())
}

/// Writes a model with packed weights as a folder that [`Folder::open`] reads.
///
/// # Errors
///
/// If a file cannot be written.
pub fn save_packed<B: MxTensorOps>(
    path: &Path,
    config: &DecoderConfig,
    tokenizer: &Tokenizer,
    model: &Decoder<B>,
) -> Result<(), Error> {
    describe(path, config, tokenizer)?;
    packing_checkpoint(path, model)?.save(model)?;
    Ok(())
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
    describe(path, config, tokenizer)?;
    // Weights with a format would be packed, and so lose what training goes on with.
    let float = set_specs(model.clone(), &MxSpecs::none().resolve()?);
    checkpoint(path)?.save(&float)?;
    Ok(())
}
