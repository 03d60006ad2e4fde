//! A checkpoint with its options.

use std::path::{Path, PathBuf};

use burn_mx_module::nearest;
use burn_store::{KeyRemapper, ModuleAdapter, PathFilter};
use microscaling::safetensors::CheckpointLayout;
use microscaling::{Dialect, FusedLayers};

use crate::error::CheckpointError;

/// A checkpoint to save or to load, with more options than [`save_checkpoint`](crate::save_checkpoint) and
/// [`load_checkpoint`](crate::load_checkpoint).
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
    pub(crate) path: PathBuf,
    pub(crate) layout: Option<CheckpointLayout>,
    pub(crate) dialect: Option<Dialect>,
    pub(crate) fused: Option<FusedLayers>,
    pub(crate) shard_bytes: Option<u64>,
    pub(crate) unpacked: Vec<String>,
    pub(crate) axes: Vec<(String, usize)>,
    pub(crate) filter: Option<PathFilter>,
    pub(crate) renames: KeyRemapper,
    pub(crate) adapter: Option<Box<dyn ModuleAdapter>>,
    pub(crate) is_partial: bool,
    pub(crate) describes_inputs: bool,
}

impl Checkpoint {
    /// The checkpoint at this path, a safetensors file. For loading, the path may also be the index of several files, or a
    /// folder with either.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            layout: None,
            dialect: None,
            fused: None,
            shard_bytes: None,
            unpacked: Vec::new(),
            axes: Vec::new(),
            filter: None,
            renames: KeyRemapper::new(),
            adapter: None,
            is_partial: false,
            describes_inputs: false,
        }
    }

    /// Saves without the warning that the `quantization_config` describes no activations: the caller adds them, or the engine quantizes them by
    /// itself.
    #[doc(hidden)]
    pub fn describes_inputs(mut self) -> Self {
        self.describes_inputs = true;
        self
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

    /// Sets the linear layers that the engine fuses, by their names in the file. Their weights share a tensor scale, the scale of the largest
    /// magnitude of the group, in formats that have one; the other weights of the file stay as they are. The default is
    /// [`FusedLayers::default`] in the layouts `nvfp4-pack-quantized` and `modelopt-nvfp4`, where layers with another number of inputs
    /// are not fused with the others; else [`FusedLayers::NONE`]. A warning says if the file's values are not those that the model computes with;
    /// [`share_tensor_scales`](burn_mx_module::share_tensor_scales) gives the model these values before.
    pub fn fused(mut self, fused: FusedLayers) -> Self {
        self.fused = Some(fused);
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

    /// Checks the renaming rules, each on the names that the rules before it make.
    ///
    /// # Errors
    ///
    /// If a rule matches no name.
    pub(crate) fn check_renames(
        &self,
        names: impl Iterator<Item = String>,
    ) -> Result<(), CheckpointError> {
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
