//! Layers that engines fuse, and that share a tensor scale in a file.

use std::collections::BTreeMap;

use burn_mx_core::Slot;
use burn_mx_core::internal::warn;
use burn_store::TensorSnapshot;
use microscaling::safetensors::CheckpointLayout;
use microscaling::{FusedGroup, FusedLayers};

use crate::checkpoint::Checkpoint;
use crate::error::CheckpointError;
use crate::weights::Weight;
use crate::write::Named;

/// Why layers cannot share a scale, and the layers that are allowed.
type Reason = (String, &'static str);

/// Sets the largest magnitudes of the groups of fused layers, by the names in the file.
pub(super) fn share(
    checkpoint: &Checkpoint,
    layout: CheckpointLayout,
    named: &mut [Named],
    others: &[(String, TensorSnapshot)],
) -> Result<(), CheckpointError> {
    let fused = match (&checkpoint.fused, layout) {
        (Some(fused), _) => fused.clone(),
        (None, CheckpointLayout::Weights(layout)) if layout.format().tensor_scale => {
            FusedLayers::default()
        }
        (None, _) => return Ok(()),
    };
    let places = named.iter().enumerate();
    let places: BTreeMap<String, usize> = places
        .filter_map(|(i, x)| Some((x.name.strip_suffix(".weight")?.to_owned(), i)))
        .collect();
    let floats = others.iter().filter(|(_, tensor)| tensor.shape.len() > 1);
    let floats =
        floats.filter_map(|(name, tensor)| Some((name.strip_suffix(".weight")?, tensor.shape[1])));
    let floats: BTreeMap<&str, usize> = floats.collect();
    let modules = places.keys().map(String::as_str);
    let mut groups = fused.groups(modules.chain(floats.keys().copied()));
    if checkpoint.fused.is_none() {
        // Layers with default names may have different inputs, as in cross-attention: no engine fuses these.
        let inputs = |path: &str| match places.get(path) {
            Some(i) => named[*i].weight.inputs(),
            None => floats[path],
        };
        let split = groups.iter().flat_map(|group| group.split(inputs));
        groups = split.collect();
    }
    let mut changed = Vec::new();
    for group in groups {
        let weights = group.members.iter().filter_map(|path| places.get(path));
        let has_scale = |i: &usize| named[*i].weight.format().tensor_scale;
        if !weights.clone().any(has_scale) {
            continue;
        }
        let weight = |path: &str| places.get(path).map(|i| &named[*i].weight);
        let largest = largest(checkpoint, &group, &weight);
        let largest = largest.map_err(|(reason, allowed)| CheckpointError::Fused {
            group: group.to_string(),
            reason,
            allowed,
        })?;
        let Some((largest, is_same)) = largest else {
            continue;
        };
        for i in weights {
            named[*i].largest = Some(largest);
        }
        if !is_same && checkpoint.dialect.is_none() {
            changed.push(group.to_string());
        }
    }
    if let Some(first) = changed.first() {
        warn(format_args!(
            "burn-mx: {}: {} in the file, such as `{first}`: engines need this, and the file's \
             values are not the values that the model computes with. `share_tensor_scales` gives the model the file's values.",
            checkpoint.path.display(),
            match changed.len() {
                1 => "1 group of fused layers shares a tensor scale".to_owned(),
                count => format!("{count} groups of fused layers share a tensor scale"),
            }
        ));
    }
    Ok(())
}

/// The largest magnitude of layers whose weights are packed with one scale, and whether this is the largest magnitude of each; `None` if they
/// have one scale already.
fn largest<'a>(
    checkpoint: &Checkpoint,
    group: &FusedGroup,
    weight: &dyn Fn(&str) -> Option<&'a Weight>,
) -> Result<Option<(f32, bool)>, Reason> {
    let same = |what: &dyn Fn(Option<&Weight>) -> String, allowed| {
        let difference = group.difference(|path| what(weight(path)));
        difference.map_or(Ok(()), |reason| Err((reason, allowed)))
    };
    let format = |weight: Option<&Weight>| match weight {
        None => "is not packed".to_owned(),
        Some(weight) => match weight.specs.dialect(Slot::W) {
            Some(dialect) => format!("is {} by {dialect}", weight.format()),
            None => format!("is {}", weight.format()),
        },
    };
    same(&format, "one format")?;
    let weights: Vec<&Weight> = group
        .members
        .iter()
        .filter_map(|path| weight(path))
        .collect();
    let inputs = |weight: Option<&Weight>| {
        let count = weight.map_or(0, Weight::inputs);
        format!("sums over {count} inputs")
    };
    same(&inputs, "one number of inputs")?;
    if checkpoint.dialect.is_none() && weights.iter().any(|weight| weight.is_quantized()) {
        let scale = |weight: Option<&Weight>| {
            let packed = weight.and_then(|weight| weight.pack(None, None).ok());
            let scale = packed.and_then(|(packed, _)| packed.tensor_scale());
            let scale = scale.map_or_else(|| "none".to_owned(), |scale| scale.to_string());
            format!("has the tensor scale {scale}")
        };
        let allowed = "weights that are not quantized yet, or with one tensor scale (`fused` of a `QuantConfig`)";
        same(&scale, allowed)?;
        return Ok(None);
    }
    let own: Vec<f32> = weights.iter().map(|weight| weight.largest()).collect();
    if let Some(place) = own.iter().position(|x| !x.is_finite()) {
        // By default, the error of a NaN or Inf is its weight's.
        return match &checkpoint.fused {
            Some(_) => Err((
                format!("`{}` has a NaN or Inf", group.members[place]),
                "finite weights",
            )),
            None => Ok(None),
        };
    }
    let largest = own.iter().copied().fold(0.0, f32::max);
    // Zeros have no scale to share.
    Ok((largest > 0.0).then(|| (largest, own.iter().all(|x| *x == largest))))
}
