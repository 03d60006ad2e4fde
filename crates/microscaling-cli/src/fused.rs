//! Layers that engines fuse into one product, and that share the scale of a tensor.

mod scales;

use crate::error::Error;
use microscaling::{FusedGroup, FusedLayers, FusedNames};
use std::path::Path;

pub(crate) use scales::{FusedScales, tensor_scale};

/// The names of fused layers.
#[derive(Debug, clap::Args)]
pub(crate) struct FusedKinds {
    /// Layers that the engine fuses, by the last words of their names: `q_proj,k_proj,v_proj`; may be repeated [default: the names
    /// of many models]
    #[arg(long = "fused", value_name = "NAMES")]
    kinds: Vec<FusedNames>,
}

impl FusedKinds {
    pub(crate) fn layers(&self) -> Result<Fused, Error> {
        let is_named = !self.kinds.is_empty();
        let layers = match is_named {
            false => FusedLayers::default(),
            true => FusedLayers::new(self.kinds.iter().cloned())
                .map_err(|error| Error::Arguments(error.to_string()))?,
        };
        Ok(Fused { layers, is_named })
    }
}

/// Layers that the target's engines fuse.
pub(crate) struct Fused {
    pub(crate) layers: FusedLayers,
    /// Whether the user named the layers, so that layers that differ are an error.
    pub(crate) is_named: bool,
}

impl Fused {
    /// The groups among the modules. `inputs` is the number of inputs of a module, if it is known. Names that the user did not give
    /// may belong to layers with different inputs, as in cross-attention, which no engine fuses.
    pub(crate) fn groups<'a>(
        &self,
        modules: impl IntoIterator<Item = &'a str>,
        inputs: impl Fn(&str) -> Option<usize>,
    ) -> Vec<FusedGroup> {
        let groups = self.layers.groups(modules);
        match self.is_named {
            true => groups,
            false => groups
                .iter()
                .flat_map(|group| group.split(&inputs))
                .collect(),
        }
    }
}

/// Which layers of a written checkpoint share the scale of a tensor.
#[derive(Debug, clap::Args)]
pub(crate) struct FusedArgs {
    #[command(flatten)]
    names: FusedKinds,
    /// Let fused layers keep tensor scales of their own, for an engine that fuses no layers
    #[arg(long, conflicts_with = "kinds")]
    own_scales: bool,
}

impl FusedArgs {
    /// The fused layers of a target; none if the user wants none. `is_default`: the target's engines fuse layers with tensor scales.
    /// `why_none` says why the options have no effect on the target, where they have none.
    pub(crate) fn layers(
        &self,
        is_default: bool,
        why_none: Option<String>,
    ) -> Result<Fused, Error> {
        let is_named = !self.names.kinds.is_empty();
        if let (Some(why), true) = (why_none, is_named || self.own_scales) {
            let option = if is_named { "--fused" } else { "--own-scales" };
            return Err(Error::Arguments(format!(
                "`{option}` has no effect: {why}; allowed: no `{option}`"
            )));
        }
        match (is_default || is_named) && !self.own_scales {
            true => self.names.layers(),
            false => Ok(Fused {
                layers: FusedLayers::NONE,
                is_named,
            }),
        }
    }
}

/// Fused layers that cannot share a scale. `allowed` is what the layers may be.
pub(crate) fn error(path: &Path, group: &FusedGroup, reason: String, allowed: &str) -> Error {
    Error::Fused {
        path: path.to_owned(),
        group: group.to_string(),
        reason,
        allowed: allowed.to_owned(),
    }
}
