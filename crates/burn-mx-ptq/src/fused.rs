//! Layers that engines fuse, and whose weights share a tensor scale.

use std::collections::BTreeMap;

use burn_backend::DType;
use burn_core::module::{Module, ModuleVisitor, Param};
use burn_core::tensor::Tensor;
use microscaling::{FusedGroup, FusedLayers};

use crate::config::QuantConfig;
use crate::error::PtqError;
use crate::parameters::WEIGHT;
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
            let mut weights = LinearWeights::default();
            Module::<MxBackend<B>>::visit(model, &mut weights);
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
    weights: &LinearWeights,
    is_shared_by_product: bool,
) -> Result<(), PtqError> {
    let error = |reason, allowed| PtqError::Fused {
        group: group.to_string(),
        reason,
        allowed,
    };
    let first = &group.members[0];
    let same = |what: &dyn Fn(&str) -> String, allowed| {
        let expected = what(first);
        let mut members = group.members.iter();
        match members.find(|path| what(path) != expected) {
            None => Ok(()),
            Some(other) => {
                let reason = format!("`{first}` {expected}, and `{other}` {}", what(other));
                Err(error(reason, allowed))
            }
        }
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
    let weight = |path: &str| weights.found.get(path).copied();
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
        if let Some((_, dtype)) = weight(path).filter(|(_, dtype)| *dtype != DType::F32) {
            let reason = format!("`{path}` has type {dtype:?}");
            return Err(error(reason, "f32, or no `fused`"));
        }
    }
    Ok(())
}

/// The number of inputs and the type of the weights of linear layers, by the paths of the layers.
#[derive(Default)]
struct LinearWeights {
    path: Vec<String>,
    found: BTreeMap<String, (usize, DType)>,
}

impl<B: MxKernels> ModuleVisitor<MxBackend<B>> for LinearWeights {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<MxBackend<B>, D>>) {
        if let (Some((WEIGHT, layer)), 2) = (
            self.path
                .split_last()
                .map(|(name, layer)| (name.as_str(), layer)),
            D,
        ) {
            let tensor = param.val();
            let weight = (tensor.dims()[0], tensor.dtype());
            self.found.insert(layer.join("."), weight);
        }
    }
}
