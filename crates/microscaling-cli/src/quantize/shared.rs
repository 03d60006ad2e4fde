//! The tensor scales that fused layers share.

use super::{QuantizeArgs, along};
use crate::checkpoint::Checkpoint;
use crate::done::Done;
use crate::error::Error;
use crate::fused::{Fused, error};
use crate::numbers::{floats, is_matrix};
use microscaling::safetensors::PackedFiles;
use microscaling::{FusedGroup, internal};
use std::collections::{BTreeMap, BTreeSet};

/// The largest magnitudes of groups of fused layers.
pub(super) struct Shared {
    groups: Vec<FusedGroup>,
    /// By the names of the weights.
    largest: BTreeMap<String, f32>,
}

impl Shared {
    /// # Errors
    /// The first group whose layers cannot share a scale, or a group that the user named and that has a NaN or Inf. In other groups, the
    /// error of a NaN or Inf is the tensor's.
    pub(super) fn of(
        args: &QuantizeArgs,
        fused: &Fused,
        input: &Checkpoint,
        read: &PackedFiles<'_>,
        chosen: &[String],
    ) -> Result<Self, Error> {
        let chosen: BTreeSet<&str> = chosen.iter().map(String::as_str).collect();
        let is_layer = |name: &&str| read.tensor(name).is_some_and(|tensor| is_matrix(&tensor));
        let modules = read.names().filter(is_layer);
        let modules = modules.filter_map(|name| name.strip_suffix(".weight"));
        let inputs = |module: &str| inputs(args, input, read, module).ok();
        let groups = fused.groups(modules, inputs).into_iter();
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
                f32::from_bits(internal::largest(&floats(&tensor).unwrap_or_default()))
            });
            let largest: Vec<f32> = largest.collect();
            if let Some(place) = largest.iter().position(|x| !x.is_finite()) {
                if fused.is_named {
                    let reason = format!("`{}` has a NaN or Inf", names[place]);
                    return Err(error(&input.path, &group, reason, "finite weights"));
                }
                continue;
            }
            let largest = largest.into_iter().fold(0.0, f32::max);
            // Zeros have no scale to share.
            if largest > 0.0 {
                shared.groups.push(group);
                shared
                    .largest
                    .extend(names.into_iter().map(|name| (name, largest)));
            }
        }
        Ok(shared)
    }

    /// Adds the groups to the result, without those that stay unchanged as `zeros`.
    pub(super) fn add_to(&self, zeros: &[String], done: &mut Done) {
        let is_zero = |module: &String| zeros.contains(&weight(module));
        let groups = self.groups.iter();
        let groups = groups.filter(|group| !group.members.iter().any(is_zero));
        let groups: Vec<String> = groups.map(FusedGroup::to_string).collect();
        match groups.as_slice() {
            [] => {}
            [one] => done.text(format!(
                "Layers that engines fuse: 1 group shares a tensor scale, {one}\n"
            )),
            [first, ..] => done.text(format!(
                "Layers that engines fuse: {} groups share a tensor scale each, such as {first}\n",
                groups.len()
            )),
        }
        done.fact("fused", groups);
    }

    /// The largest magnitude of the group that a weight belongs to.
    pub(super) fn largest(&self, name: &str) -> Option<f32> {
        self.largest.get(name).copied()
    }
}

fn weight(module: &str) -> String {
    format!("{module}.weight")
}

/// How many inputs the product of a module sums over.
fn inputs(
    args: &QuantizeArgs,
    input: &Checkpoint,
    read: &PackedFiles<'_>,
    module: &str,
) -> Result<usize, Error> {
    let name = weight(module);
    let shape = read.tensor(&name).expect("it is one of the names").shape;
    // A transposed weight has the same length at another place.
    let (axis, is_turned) = along(args, input, &name, &shape)?;
    Ok(shape[axis - usize::from(is_turned)])
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
    let first = inputs(args, input, read, &group.members[0])?;
    for module in &group.members[1..] {
        let other = inputs(args, input, read, module)?;
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
