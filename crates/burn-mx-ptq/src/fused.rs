//! Layers that engines fuse, and whose weights share a tensor scale.

use std::collections::BTreeMap;

use microscaling::{FusedGroup, FusedLayers};

use crate::error::PtqError;
use crate::passes::Chosen;
use burn_mx_core::{ResolvedSpecs, Slot};

/// The groups of fused layers whose weights have formats with a tensor scale.
///
/// # Errors
///
/// The first group whose layers have different formats.
pub(crate) fn groups(
    fused: &FusedLayers,
    layers: &[String],
    chosen: &[Chosen],
) -> Result<Vec<FusedGroup>, PtqError> {
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
    Ok(groups)
}
