//! Checkpoints with packed weights (feature `checkpoint`): one or several safetensors files, in this project's layout or in
//! another tool's.
//!
//! A [`CheckpointLayout`] stores the weights of linear layers and convolutions as codes and scales of the forward product's
//! format. All other tensors keep their type. A decoded weight equals the operand of the forward product bit for bit, so a
//! loaded model computes the same bits as the saved one.

mod archive;
mod columns;
mod error;
mod file;
mod inspect;
mod load;
mod save;
mod types;
mod weights;
mod write;

use std::path::{Path, PathBuf};

use burn_core::module::Module;
use burn_store::{KeyRemapper, ModuleAdapter, PathFilter};
use microscaling::Dialect;

use burn_mx_core::MxTensorOps;
use burn_mx_module::nearest;
pub use error::CheckpointError;
pub use inspect::{
    CheckpointContents, StoredWeight, TensorInfo, WeightDifference, difference, inspect,
};
pub use load::Loaded;
pub use microscaling::safetensors::CheckpointLayout;
pub use save::{PackedWeight, Saved};

/// A checkpoint to save or to load, with more options than [`save_checkpoint`] and [`load_checkpoint`].
///
/// ```
/// # mod burn_mx { pub use burn_mx_core::*; pub use burn_mx_checkpoint as checkpoint; pub use burn_mx_module as module; }
/// # use burn_core::module::Module;
/// # use burn_flex::Flex;
/// # use burn_mx::MxBackend;
/// # use burn_mx::checkpoint::{Checkpoint, CheckpointError, CheckpointLayout};
/// # fn example<M: Module<MxBackend<Flex>>>(model: M) -> Result<(), CheckpointError> {
/// let saved = Checkpoint::new("model.safetensors")
///     .layout(CheckpointLayout::Microscaling)
///     .shards(5 << 30)
///     .save(&model)?;
/// println!("{} weights, {} bytes", saved.packed.len(), saved.bytes);
///
/// let loaded = Checkpoint::new("model.safetensors").rename(r"^encoder\.", "body.")?.load(model)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Checkpoint {
    path: PathBuf,
    layout: Option<CheckpointLayout>,
    dialect: Option<Dialect>,
    shard_bytes: Option<u64>,
    unpacked: Vec<String>,
    axes: Vec<(String, usize)>,
    filter: Option<PathFilter>,
    renames: KeyRemapper,
    adapter: Option<Box<dyn ModuleAdapter>>,
    is_partial: bool,
}

impl Checkpoint {
    /// The checkpoint at this path, a safetensors file. For loading, the path may also be the index of several files, or a
    /// folder with either.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            layout: None,
            dialect: None,
            shard_bytes: None,
            unpacked: Vec::new(),
            axes: Vec::new(),
            filter: None,
            renames: KeyRemapper::new(),
            adapter: None,
            is_partial: false,
        }
    }

    /// Sets the layout of packed weights. The default for saving is [`CheckpointLayout::Microscaling`]. Loading finds the
    /// layout by names and types of the tensors, except `gguf-mxfp4` from another tool.
    pub fn layout(mut self, layout: CheckpointLayout) -> Self {
        self.layout = Some(layout);
        self
    }

    /// Packs the weights of linear layers by the rules of another tool, in the tool's format of this name. The dialect packs
    /// the values that the forward product would quantize. The file has the tool's bytes, so a model that loads it
    /// multiplies by other values than the saved model. [Leave convolutions unpacked](Self::leave_unpacked).
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = Some(dialect);
        self
    }

    /// Saves in several files of at most about `bytes` bytes each, with an index `NAME.index.json` beside them. A weight is
    /// never split.
    pub fn shards(mut self, bytes: u64) -> Self {
        self.shard_bytes = Some(bytes);
        self
    }

    /// Stores the weights whose path matches unpacked, in their own type. `pattern` is a pattern as for
    /// [`set_specs_at`](burn_mx_module::set_specs_at).
    pub fn leave_unpacked(mut self, pattern: impl Into<String>) -> Self {
        self.unpacked.push(pattern.into());
        self
    }

    /// Names the axis that products of the matching weights sum over, so that weights of your own modules are packed.
    /// `pattern` is a pattern as for [`leave_unpacked`](Self::leave_unpacked). Axis 0: the weight is `[in, out]` and is stored
    /// as `[out, in]`, like a linear layer's. Axis 1: the weight is `[out, in]` and keeps its shape. If several patterns
    /// match, the last one counts. Burn's linear layers and convolutions need no such call.
    ///
    /// ```
    /// # mod burn_mx { pub use burn_mx_core::*; pub use burn_mx_checkpoint as checkpoint; pub use burn_mx_module as module; }
    /// # use burn_core::module::Module;
    /// # use burn_flex::Flex;
    /// # use burn_mx::MxBackend;
    /// # use burn_mx::checkpoint::{Checkpoint, CheckpointError};
    /// # fn example<M: Module<MxBackend<Flex>>>(model: M) -> Result<(), CheckpointError> {
    /// let checkpoint = Checkpoint::new("model.safetensors").summed_axis("blocks.*.gate", 1);
    /// checkpoint.save(&model)?;
    /// let loaded = checkpoint.load(model)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn summed_axis(mut self, pattern: impl Into<String>, axis: usize) -> Self {
        self.axes.push((pattern.into(), axis));
        self
    }

    /// Saves or loads only the tensors that burn-store's filter accepts, by their paths in the model.
    pub fn filter(mut self, filter: PathFilter) -> Self {
        self.filter = Some(filter);
        self
    }

    /// Renames tensors, as burn-store does: the match of the regular expression `from` becomes `to`. For saving, `to` is the
    /// name in the file; for loading, `from` matches the name in the file. Further calls add rules, which apply in order.
    ///
    /// # Errors
    ///
    /// If `from` is not a regular expression. [`save`](Self::save) and [`load`](Self::load) fail later if it matches no name.
    pub fn rename(
        mut self,
        from: impl AsRef<str>,
        to: impl Into<String>,
    ) -> Result<Self, CheckpointError> {
        let pattern = from.as_ref();
        let renames = core::mem::take(&mut self.renames);
        self.renames =
            renames
                .add_pattern(pattern, to)
                .map_err(|error| CheckpointError::Rename {
                    pattern: pattern.to_owned(),
                    reason: error.to_string(),
                })?;
        Ok(self)
    }

    /// Sets burn-store's adapter for unpacked tensors and for the names of packed ones. The default for
    /// [`CheckpointLayout::Microscaling`], which has Burn's names, is none. The default for other layouts converts between
    /// Burn's and PyTorch's conventions.
    pub fn adapter(mut self, adapter: impl ModuleAdapter + 'static) -> Self {
        self.adapter = Some(Box::new(adapter));
        self
    }

    /// Allows missing tensors when loading. Missing tensors keep their values.
    pub fn partial(mut self) -> Self {
        self.is_partial = true;
        self
    }

    /// Saves the model. All checks come before the first byte is written. The folder is created if it is missing. The new file replaces the old one when it is
    /// complete, even if the process is killed. The save removes the shards of the old index, and no other file. Saving
    /// needs memory for one tensor beside the model.
    ///
    /// # Errors
    ///
    /// See [`CheckpointError`].
    pub fn save<B: MxTensorOps, M: Module<B>>(&self, model: &M) -> Result<Saved, CheckpointError> {
        self.save_with_progress(model, |_, _| ())
    }

    /// Like [`save`](Self::save). Calls `progress(done, all)` with the number of bytes.
    ///
    /// # Errors
    ///
    /// See [`CheckpointError`].
    pub fn save_with_progress<B: MxTensorOps, M: Module<B>>(
        &self,
        model: &M,
        progress: impl Fn(u64, u64),
    ) -> Result<Saved, CheckpointError> {
        save::save::<B, M>(self, model, &progress)
    }

    /// Loads the checkpoint into the model. A packed weight becomes its values and gets its own specs, as by
    /// [`set_specs_at`](burn_mx_module::set_specs_at). These are the specs that it was saved with. If the file has none, they
    /// are the model's specs with the layout's format for the weight. The forward product takes the values unchanged until an
    /// optimizer changes them. Files are mapped. Loading needs memory for one tensor beside the model.
    ///
    /// # Errors
    ///
    /// See [`CheckpointError`].
    pub fn load<B: MxTensorOps, M: Module<B>>(
        &self,
        model: M,
    ) -> Result<Loaded<M>, CheckpointError> {
        load::load::<B, M>(self, model)
    }

    /// Checks the renaming rules, each on the names that the rules before it make.
    ///
    /// # Errors
    ///
    /// If a rule matches no name.
    fn check_renames(&self, names: impl Iterator<Item = String>) -> Result<(), CheckpointError> {
        let mut names: Vec<String> = names.collect();
        for (pattern, to) in &self.renames.patterns {
            if !names.iter().any(|name| pattern.is_match(name)) {
                let pattern = pattern.to_string();
                let names = nearest(&pattern, names.iter().map(String::as_str));
                return Err(CheckpointError::RenamesNothing { pattern, names });
            }
            for name in &mut names {
                *name = pattern.replace_all(name, to).into_owned();
            }
        }
        Ok(())
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Saves a model with packed weights in one file. [`Checkpoint`] has more options.
///
/// # Errors
///
/// See [`CheckpointError`].
pub fn save_checkpoint<B: MxTensorOps, M: Module<B>>(
    model: &M,
    path: impl Into<PathBuf>,
    layout: CheckpointLayout,
) -> Result<Saved, CheckpointError> {
    Checkpoint::new(path).layout(layout).save(model)
}

/// Loads a checkpoint into a model. Every tensor of the model must be in the checkpoint. [`Checkpoint`] has more options.
///
/// # Errors
///
/// See [`CheckpointError`].
pub fn load_checkpoint<B: MxTensorOps, M: Module<B>>(
    model: M,
    path: impl Into<PathBuf>,
) -> Result<M, CheckpointError> {
    Ok(Checkpoint::new(path).load(model)?.model)
}
