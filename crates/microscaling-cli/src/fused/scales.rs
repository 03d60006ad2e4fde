//! Whether fused layers share their scales.

use super::Fused;
use crate::companions::INPUT_SCALES;
use crate::formats::table;
use crate::layer::QuantizedLayer;
use crate::layers::QuantizedLayers;
use crate::numbers::floats;
use comfy_table::Table;
use microscaling::safetensors::PackedFiles;
use std::collections::{BTreeMap, BTreeSet};

/// The scales of fused layers.
#[derive(Default)]
pub(crate) struct FusedScales {
    /// How many groups of fused layers have one scale each for a tensor.
    pub(crate) groups: usize,
    /// The groups whose layers have different scales: the modules, which scale, and the numbers.
    differ: Vec<[String; 3]>,
}

impl FusedScales {
    pub(crate) fn of(read: &PackedFiles<'_>, layers: &QuantizedLayers, fused: &Fused) -> Self {
        let known = layers.known.values();
        let known: BTreeMap<&str, _> = known.map(|layer| (layer.module(), layer)).collect();
        let mut scales = Self::default();
        let inputs = |module: &str| known[module].shape.last().copied();
        for group in fused.groups(known.keys().copied(), inputs) {
            let members = group.members.iter();
            let members: Vec<&QuantizedLayer> = members.map(|path| known[path.as_str()]).collect();
            scales.add(read, &group.to_string(), &members);
        }
        scales
    }

    fn add(&mut self, read: &PackedFiles<'_>, modules: &str, group: &[&QuantizedLayer]) {
        if group.iter().any(|layer| layer.layout != group[0].layout) {
            return;
        }
        let mut has_scale = false;
        for (which, number) in [
            (
                "weight",
                tensor_scale as fn(&PackedFiles<'_>, &QuantizedLayer) -> Option<f32>,
            ),
            ("input", input_scale),
        ] {
            let numbers = group.iter().map(|layer| number(read, layer));
            let Some(numbers) = numbers.collect::<Option<Vec<f32>>>() else {
                continue;
            };
            has_scale = true;
            if numbers.iter().any(|x| x.to_bits() != numbers[0].to_bits()) {
                let numbers: Vec<String> = numbers.iter().map(f32::to_string).collect();
                let numbers = numbers.join(", ");
                self.differ
                    .push([modules.to_owned(), which.to_owned(), numbers]);
            }
        }
        self.groups += usize::from(has_scale);
    }

    /// How many groups have layers with different scales.
    pub(crate) fn different_groups(&self) -> usize {
        let groups: BTreeSet<&String> = self.differ.iter().map(|[group, ..]| group).collect();
        groups.len()
    }

    /// The groups whose layers have different scales.
    pub(crate) fn table(&self) -> Table {
        let mut rows = table(["Fused layers with different scales", "Scale of", "Numbers"]);
        for row in &self.differ {
            rows.add_row(row);
        }
        rows
    }
}

/// The scale of a whole weight, if its layout has one.
pub(crate) fn tensor_scale(read: &PackedFiles<'_>, layer: &QuantizedLayer) -> Option<f32> {
    let parts = layer.parts.iter();
    let mut scales = parts.filter_map(|part| {
        let tensor = read.tensor(part)?;
        // Blocks have scales with two axes, even if there is one block.
        let is_one = matches!(tensor.shape[..], [] | [1]) && !part.ends_with(".divisor");
        floats(&tensor).filter(|_| is_one)?.first().copied()
    });
    scales.next()
}

/// The static scale of a layer's input.
fn input_scale(read: &PackedFiles<'_>, layer: &QuantizedLayer) -> Option<f32> {
    let mut names = INPUT_SCALES.iter();
    names.find_map(|end| {
        let tensor = read.tensor(&format!("{}.{end}", layer.module()))?;
        floats(&tensor)?.first().copied()
    })
}
