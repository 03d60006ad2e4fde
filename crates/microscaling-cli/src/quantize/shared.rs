//! The tensor scales that fused layers share.

use super::plan::is_matrix;
use super::{QuantizeArgs, along};
use crate::checkpoint::Checkpoint;
use crate::done::Done;
use crate::error::Error;
use crate::fused::error;
use crate::numbers::floats;
use microscaling::safetensors::{CheckpointLayout, PackedFiles};
use microscaling::{FusedGroup, FusedLayers, internal};
use std::collections::{BTreeMap, BTreeSet};

/// The largest magnitudes of groups of fused layers.
pub(super) struct Shared {
    groups: Vec<String>,
    /// By the names of the weights.
    largest: BTreeMap<String, f32>,
}

impl Shared {
    /// # Errors
    /// The first group whose layers cannot share a scale, before a number is read.
    pub(super) fn of(
        args: &QuantizeArgs,
        fused: &FusedLayers,
        input: &Checkpoint,
        read: &PackedFiles<'_>,
        chosen: &[String],
    ) -> Result<Self, Error> {
        let chosen: BTreeSet<&str> = chosen.iter().map(String::as_str).collect();
        let is_layer = |name: &&str| read.tensor(name).is_some_and(|tensor| is_matrix(&tensor));
        let modules = read.names().filter(is_layer);
        let modules = modules.filter_map(|name| name.strip_suffix(".weight"));
        let groups = fused.groups(modules).into_iter();
        let groups =
            groups.filter(|group| group.members.iter().any(|x| chosen.contains(&*weight(x))));
        let groups: Vec<FusedGroup> = groups.collect();
        for group in &groups {
            check(args, input, read, &chosen, group)?;
        }
        let mut shared = Self {
            groups: Vec::new(),
            largest: BTreeMap::new(),
        };
        for group in groups {
            let members = group.members.iter().map(|module| weight(module));
            let names: Vec<String> = members.collect();
            let largest = names.iter().map(|name| {
                let tensor = read.tensor(name).expect("it is one of the names");
                internal::largest(&floats(&tensor).unwrap_or_default())
            });
            let largest = f32::from_bits(largest.max().unwrap_or(0));
            // Other tools have no NaN: the error is the tensor's that has one.
            let has_nan = args.dialect.is_none() && args.layout == CheckpointLayout::Microscaling;
            // Zeros have no scale to share.
            if largest.is_finite() && largest > 0.0 || largest.is_nan() && has_nan {
                shared.groups.push(group.to_string());
                shared
                    .largest
                    .extend(names.into_iter().map(|name| (name, largest)));
            }
        }
        Ok(shared)
    }

    /// Adds the groups to the result.
    pub(super) fn add_to(&self, done: &mut Done) {
        if let Some(first) = self.groups.first() {
            let count = self.groups.len();
            done.text(format!(
                "Layers that engines fuse: {count} groups share a tensor scale each, such as {first}\n"
            ));
        }
        done.fact("fused", self.groups.as_slice());
    }

    /// The largest magnitude of the group that a weight belongs to.
    pub(super) fn largest(&self, name: &str) -> Option<f32> {
        self.largest.get(name).copied()
    }
}

fn weight(module: &str) -> String {
    format!("{module}.weight")
}

/// Checks that all layers of a group are packed, and that their products sum over axes of one length.
fn check(
    args: &QuantizeArgs,
    input: &Checkpoint,
    read: &PackedFiles<'_>,
    chosen: &BTreeSet<&str>,
    group: &FusedGroup,
) -> Result<(), Error> {
    let is_packed = |module: &&String| chosen.contains(&*weight(module));
    let (packed, float): (Vec<_>, Vec<_>) = group.members.iter().partition(is_packed);
    if let Some(float) = float.first() {
        let reason = format!("`{}` is packed, and `{float}` stays in float", packed[0]);
        return Err(error(
            &input.path,
            group,
            reason,
            "all of them packed, or none",
        ));
    }
    let length = |module: &str| -> Result<usize, Error> {
        let name = weight(module);
        let shape = read.tensor(&name).expect("it is one of the names").shape;
        // Of a weight that is transposed, the same length has another place.
        let (axis, is_turned) = along(args, input, &name, &shape)?;
        Ok(shape[axis - usize::from(is_turned)])
    };
    let first = length(&group.members[0])?;
    for module in &group.members[1..] {
        let other = length(module)?;
        if other != first {
            let reason = format!(
                "`{}` sums over {first} inputs, and `{module}` over {other}",
                group.members[0]
            );
            return Err(error(&input.path, group, reason, "one number of inputs"));
        }
    }
    Ok(())
}
