//! Layers that engines fuse, and whose weights share a tensor scale.

use std::collections::BTreeMap;

use burn_backend::DType;
use burn_core::module::Module;
use burn_core::tensor::Tensor;
use microscaling::{FusedGroup, FusedLayers};

use crate::config::QuantConfig;
use crate::error::PtqError;
use crate::passes::Chosen;
use burn_mx_core::{MxBackend, MxKernels, ResolvedSpecs, Slot};
use burn_mx_module::internal::linear_weights;
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
    /// The first group whose layers cannot share a scale, as far as this is known before the calibration.
    pub(crate) fn of<B: MxKernels, M: Module<MxBackend<B>>>(
        config: &QuantConfig,
        model: &M,
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
        if !groups.is_empty() {
            let weight = |weight: Tensor<MxBackend<B>, 2>| (weight.dims()[0], weight.dtype());
            let weights = linear_weights(model, weight);
            for group in &groups {
                // GPTQ rounds by itself, and shares no scales in a transformed basis.
                let is_shared_by_product = config.gptq.is_none();
                check(group, &specs, &weights, is_shared_by_product)?;
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

fn check(
    group: &FusedGroup,
    specs: &BTreeMap<&str, &ResolvedSpecs>,
    weights: &BTreeMap<String, (usize, DType)>,
    is_shared_by_product: bool,
) -> Result<(), PtqError> {
    let error = |reason, allowed| PtqError::Fused {
        group: group.to_string(),
        reason,
        allowed,
    };
    let same = |what: &dyn Fn(&str) -> String, allowed| {
        let difference = group.difference(what);
        difference.map_or(Ok(()), |reason| Err(error(reason, allowed)))
    };
    let format = |path: &str| {
        let specs = specs.get(path);
        let format = specs.and_then(|specs| specs.block_format(Slot::W));
        let dialect = specs.and_then(|specs| specs.dialect(Slot::W));
        match (format, dialect) {
            (None, _) => "has no format".to_owned(),
            (Some(format), None) => format!("is {format}"),
            (Some(format), Some(dialect)) => format!("is {format} by {dialect}"),
        }
    };
    same(
        &format,
        "one format for all layers of a group, or other names in `fused`",
    )?;
    let weight = |path: &str| weights.get(path).copied();
    same(
        &|path| {
            format!(
                "has {} inputs",
                weight(path).map_or(0, |(inputs, _)| inputs)
            )
        },
        "one number of inputs for all layers of a group, or other names in `fused`",
    )?;
    if !is_shared_by_product {
        return Ok(());
    }
    for path in &group.members {
        let specs = specs[path.as_str()];
        if specs.hadamard_forward().is_some() {
            let reason = format!("the forward product transforms `{path}`");
            return Err(error(reason, "no `hadamard_forward`, or no `fused`"));
        }
        if specs.hot_columns().is_some() {
            let reason = format!("the forward product keeps columns of `{path}` apart");
            return Err(error(reason, "no `hot_columns`, or no `fused`"));
        }
        if let Some((_, dtype)) = weight(path).filter(|(_, dtype)| *dtype != DType::F32) {
            let reason = format!("`{path}` has type {dtype:?}");
            return Err(error(reason, "f32, or no `fused`"));
        }
    }
    Ok(())
}
