//! Layers that engines fuse, and whose weights share a tensor scale.

use std::collections::BTreeMap;

use burn_core::module::Module;
use microscaling::{FusedGroup, FusedLayers};

use crate::config::QuantConfig;
use crate::error::PtqError;
use crate::passes::Chosen;
use burn_mx_core::{MxBackend, MxKernels, ResolvedSpecs, Slot};
use burn_mx_module::share_tensor_scales;

/// The fused layers of a model that is quantized.
pub(crate) struct Fused {
    layers: FusedLayers,
    /// The groups whose weights have formats with a tensor scale.
    pub(crate) groups: Vec<FusedGroup>,
}

impl Fused {
    /// # Errors
    ///
    /// The first group whose layers have different formats.
    pub(crate) fn of(
        config: &QuantConfig,
        layers: &[String],
        chosen: &[Chosen],
    ) -> Result<Self, PtqError> {
        let fused = config.fused_layers()?;
        let specs = chosen.iter().map(|x| (x.layer.as_str(), &x.specs));
        let specs: BTreeMap<&str, &ResolvedSpecs> = specs.collect();
        let format = |path: &String| specs.get(path.as_str())?.block_format(Slot::W);
        let mut groups = fused.groups(layers.iter().map(String::as_str));
        groups.retain(|group| {
            let mut formats = group.members.iter().filter_map(format);
            formats.any(|format| format.tensor_scale)
        });
        for group in &groups {
            let text = |path: &String| match format(path) {
                Some(format) => format!("is {format}"),
                None => "has no format".to_owned(),
            };
            let first = &group.members[0];
            let expected = text(first);
            if let Some(other) = group.members.iter().find(|path| text(path) != expected) {
                return Err(PtqError::Fused {
                    group: group.to_string(),
                    reason: format!("`{first}` {expected}, and `{other}` {}", text(other)),
                    allowed: "one format for all layers of a group, or other names in `fused`",
                });
            }
        }
        Ok(Self {
            layers: fused,
            groups,
        })
    }

    /// Gives the weights of each group one scale.
    pub(crate) fn share<B: MxKernels, M: Module<MxBackend<B>>>(
        &self,
        model: M,
    ) -> Result<M, PtqError> {
        if self.groups.is_empty() {
            return Ok(model);
        }
        let (model, _) = share_tensor_scales(model, &self.layers)?;
        Ok(model)
    }
}
