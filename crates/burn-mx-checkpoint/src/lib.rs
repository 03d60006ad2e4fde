//! Checkpoints with packed weights: one safetensors file, or several, that others read, and what they write (feature
//! `checkpoint`).
//!
//! The weights of linear layers and convolutions are stored as the codes and scales of the format that quantizes them in the
//! forward product, in a [`CheckpointLayout`]; everything else as it is. Decoded they are, bit for bit, what that product
//! multiplies with: a model that is loaded computes what the one that was saved did.

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
pub use error::CheckpointError;
pub use inspect::{
    CheckpointContents, StoredWeight, TensorInfo, WeightDifference, difference, inspect,
};
pub use load::Loaded;
pub use microscaling::safetensors::CheckpointLayout;
pub use save::{PackedWeight, Saved};

/// A checkpoint to save or to load, where [`save_checkpoint`] and [`load_checkpoint`] leave something open.
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
    /// The checkpoint at this path: a safetensors file; to load, also the index of several, or a folder with one of either.
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

    /// The layout of packed weights. To save it is [`CheckpointLayout::Microscaling`] unless it is set here; to load it is
    /// found by the tensors' names and types, but for `gguf-mxfp4` of somebody else's.
    pub fn layout(mut self, layout: CheckpointLayout) -> Self {
        self.layout = Some(layout);
        self
    }

    /// Packs the weights of linear layers as another tool does, in its format of that name, from what the forward product
    /// quantizes: the bytes are the tool's then, and the values no longer those that the product multiplies with. Convolutions
    /// have to be [left out](Self::leave_unpacked).
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = Some(dialect);
        self
    }

    /// Saves in several files of about so many bytes at most, with an index `NAME.index.json` beside. A weight is never cut
    /// in two.
    pub fn shards(mut self, bytes: u64) -> Self {
        self.shard_bytes = Some(bytes);
        self
    }

    /// Leaves the weights unpacked whose path matches, a pattern as for [`set_specs_at`](burn_mx_module::set_specs_at): they are
    /// stored as they are.
    pub fn leave_unpacked(mut self, pattern: impl Into<String>) -> Self {
        self.unpacked.push(pattern.into());
        self
    }

    /// Says which axis of the weights whose path matches their products sum over, a pattern as for
    /// [`leave_unpacked`](Self::leave_unpacked): 0 of a weight `[in, out]`, which is stored `[out, in]` as a linear layer's, 1 of
    /// one `[out, in]`, which is stored as it is. Where several patterns match, the last one counts. So the weights of modules
    /// of yours are packed; of Burn's linear layers and convolutions it is known.
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

    /// Saves or loads only what this filter of burn-store's lets through, by paths in the model.
    pub fn filter(mut self, filter: PathFilter) -> Self {
        self.filter = Some(filter);
        self
    }

    /// Renames tensors, as burn-store's stores do: what the regular expression matches in a name becomes `to`; to save in what
    /// the file is to have, to load in what it has. May be called again, rules apply in order.
    ///
    /// # Errors
    ///
    /// If `from` is no regular expression.
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

    /// What burn-store's adapter makes of the tensors that are not packed, and of the names of those that are. Unless one is set
    /// it is none for [`CheckpointLayout::Microscaling`], which has Burn's names, and the one from Burn's conventions to
    /// PyTorch's, or back, for the other layouts.
    pub fn adapter(mut self, adapter: impl ModuleAdapter + 'static) -> Self {
        self.adapter = Some(Box::new(adapter));
        self
    }

    /// Loads also where tensors of the model are missing, which stay as they are.
    pub fn partial(mut self) -> Self {
        self.is_partial = true;
        self
    }

    /// Saves the model. The file is there when all of it is written, and what was there before is until then, also if the
    /// process is killed; everything is checked before a byte is written. Of other files those are removed that the index of
    /// shards before named, and no others. In memory there is one tensor beside the model.
    ///
    /// # Errors
    ///
    /// See [`CheckpointError`].
    pub fn save<B: MxTensorOps, M: Module<B>>(&self, model: &M) -> Result<Saved, CheckpointError> {
        self.save_with_progress(model, |_, _| ())
    }

    /// [`save`](Self::save), which calls `progress(done, all)` with bytes as it goes.
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

    /// The model with what the checkpoint has. Packed weights become their values, and get specs of their own, as by
    /// [`set_specs_at`](burn_mx_module::set_specs_at): those that they were saved with, or, where the file does not say, the
    /// model's with the layout's format for the weight. Until an optimizer changes them the forward product takes them as they
    /// are. Files are mapped; in memory there is one tensor beside the model.
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

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Saves a model with packed weights in one file; [`Checkpoint`] can do more.
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

/// The model with the tensors of a checkpoint, each of which must be there; [`Checkpoint`] can do more.
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
