//! Layers that engines fuse into one product: whether they share the scale of a tensor.

use crate::formats::table;
use crate::layers::{QuantizedLayer, QuantizedLayers};
use crate::numbers::floats;
use comfy_table::Table;
use microscaling::safetensors::PackedFiles;
use std::collections::{BTreeMap, BTreeSet};

/// The last words of modules that Llama-like models have beside one another, and that engines fuse.
const FUSED: [&[&str]; 4] = [
    &["q_proj", "k_proj", "v_proj"],
    &["gate_proj", "up_proj"],
    &["q_a_proj", "kv_a_proj_with_mqa"],
    &["w1", "w3"],
];

/// The scales of fused layers.
#[derive(Default)]
pub(crate) struct FusedScales {
    /// How many groups of fused layers have one scale each for a tensor.
    pub(crate) groups: usize,
    /// The groups whose layers have different scales: the modules, which scale, and the numbers.
    differ: Vec<[String; 3]>,
}

impl FusedScales {
    pub(crate) fn of(read: &PackedFiles<'_>, layers: &QuantizedLayers) -> Self {
        let mut found: BTreeMap<(&str, usize), Vec<(&str, &QuantizedLayer)>> = BTreeMap::new();
        for layer in layers.known.values() {
            let Some((parent, word)) = layer.module().rsplit_once('.') else {
                continue;
            };
            let fused = FUSED.iter().position(|words| words.contains(&word));
            if let Some(fused) = fused {
                let group = found.entry((parent, fused)).or_default();
                group.push((word, layer));
            }
        }
        let mut scales = Self::default();
        for ((parent, fused), mut group) in found {
            group.sort_by_key(|(word, _)| FUSED[fused].iter().position(|x| x == word));
            scales.add(read, parent, &group);
        }
        scales
    }

    fn add(&mut self, read: &PackedFiles<'_>, parent: &str, group: &[(&str, &QuantizedLayer)]) {
        let one_layout = group.iter().all(|(_, x)| x.layout == group[0].1.layout);
        if group.len() < 2 || !one_layout {
            return;
        }
        let words: Vec<&str> = group.iter().map(|(word, _)| *word).collect();
        let mut has_scale = false;
        for (which, number) in [
            (
                "weight",
                tensor_scale as fn(&PackedFiles<'_>, &QuantizedLayer) -> Option<f32>,
            ),
            ("input", input_scale),
        ] {
            let numbers = group.iter().map(|(_, layer)| number(read, layer));
            let Some(numbers) = numbers.collect::<Option<Vec<f32>>>() else {
                continue;
            };
            has_scale = true;
            if numbers.iter().any(|x| x.to_bits() != numbers[0].to_bits()) {
                let numbers: Vec<String> = numbers.iter().map(f32::to_string).collect();
                let modules = format!("{parent}.{{{}}}", words.join(","));
                self.differ
                    .push([modules, which.to_owned(), numbers.join(", ")]);
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
fn tensor_scale(read: &PackedFiles<'_>, layer: &QuantizedLayer) -> Option<f32> {
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

/// The names of the scales of a layer's input.
pub(crate) const INPUT_SCALES: [&str; 2] = ["input_global_scale", "input_scale"];
