//! Fused layers of a converted checkpoint.

use super::{INPUT_SCALES, error, tensor_scale};
use crate::error::Error;
use crate::export::{Export, Exported};
use crate::numbers::floats;
use crate::target::{Retold, WrittenForm};
use microscaling::FusedGroup;
use microscaling::safetensors::CheckpointLayout;
use std::collections::{BTreeMap, BTreeSet};

/// What is allowed where the weights of fused layers have different scales: no other bytes are the weights' own.
const ALLOWED: &str = "one tensor scale, as `quantize` gives fused layers from the float model";

impl Export<'_> {
    /// Checks that fused layers have one format, and one scale if their format has a scale of the tensor. Gives them one scale of
    /// their inputs, the scale of the largest magnitude. The result is how many scales of inputs changed.
    ///
    /// # Errors
    /// The first group of fused layers that differ.
    pub(crate) fn fuse(&self, exported: &mut [Exported<'_>]) -> Result<usize, Error> {
        let places = exported.iter().enumerate();
        let places: BTreeMap<&str, usize> = places.map(|(i, x)| (x.layer.module(), i)).collect();
        let floats = self.read.others().iter().filter_map(|name| {
            let module = name.strip_suffix(".weight")?;
            let is_matrix = self.read.tensor(name)?.shape.len() > 1;
            (is_matrix && !places.contains_key(module)).then_some(module)
        });
        let floats: BTreeSet<&str> = floats.collect();
        let modules = places.keys().chain(&floats).copied();
        let mut changed = 0;
        for group in self.fused.groups(modules) {
            let members = group.members.iter().map(|path| places.get(path.as_str()));
            let known: Vec<usize> = members.flatten().copied().collect();
            let layers: Vec<&Exported<'_>> = known.iter().map(|i| &exported[*i]).collect();
            let has_scale = |x: &&Exported<'_>| has_tensor_scale(&x.form);
            if layers.iter().any(|x| has_scale(&x)) {
                self.check_group(&group, &layers)?;
            }
            let one_layout = layers
                .iter()
                .all(|x| x.layer.layout == layers[0].layer.layout);
            if known.len() > 1 && one_layout {
                changed += self.share_input_scale(&known, exported);
            }
        }
        Ok(changed)
    }

    fn check_group(&self, group: &FusedGroup, layers: &[&Exported<'_>]) -> Result<(), Error> {
        let differ = |reason, allowed| Err(error(&self.input.path, group, reason, allowed));
        let first = layers.iter().find(|x| has_tensor_scale(&x.form));
        let first = first.expect("there is one").layer;
        let is_known = |path: &&String| layers.iter().any(|x| x.layer.module() == **path);
        if let Some(float) = group.members.iter().find(|path| !is_known(path)) {
            let reason = format!(
                "`{}` is {} and `{float}` is in float",
                first.module(),
                first.format
            );
            return differ(reason, "one format");
        }
        let format = |x: &Exported<'_>| (x.layer.layout, x.layer.format.clone());
        for Exported {
            layer, input_scale, ..
        } in layers
        {
            let other = |what: &dyn Fn(&Exported<'_>) -> bool| layers.iter().find(|x| what(x));
            if let Some(other) = other(&|x| format(x) != (layer.layout, layer.format.clone())) {
                let of = |x: &crate::layers::QuantizedLayer| {
                    format!("`{}` is {} ({})", x.module(), x.format, x.layout)
                };
                return differ(
                    format!("{}, and {}", of(layer), of(other.layer)),
                    "one format",
                );
            }
            if let Some(other) = other(&|x| x.layer.shape.last() != layer.shape.last()) {
                let of = |x: &crate::layers::QuantizedLayer| {
                    format!("`{}` has shape {:?}", x.module(), x.shape)
                };
                return differ(
                    format!("{}, and {}", of(layer), of(other.layer)),
                    "one length of the last axis",
                );
            }
            if let Some(other) = other(&|x| x.input_scale.is_some() && input_scale.is_none()) {
                let (with, without) = (other.layer.module(), layer.module());
                let reason = format!("`{with}` has a scale of its input, and `{without}` has none");
                return differ(reason, "a scale of the input for all or for none");
            }
        }
        let scales = layers.iter().map(|x| tensor_scale(self.read, x.layer));
        let scales: Vec<f32> = scales.map(|scale| scale.unwrap_or(1.0)).collect();
        if scales
            .iter()
            .all(|scale| scale.to_bits() == scales[0].to_bits())
        {
            return Ok(());
        }
        let scales: Vec<String> = scales.iter().map(f32::to_string).collect();
        let reason = format!(
            "the tensor scales are {}, and an engine takes one of them for all",
            scales.join(", ")
        );
        differ(reason, ALLOWED)
    }

    /// Gives the layers at these places one scale of their inputs, and counts the scales that changed.
    fn share_input_scale(&self, places: &[usize], exported: &mut [Exported<'_>]) -> usize {
        let number = |scale: &Retold| {
            let stored = || floats(&self.read.tensor(&scale.from)?)?.first().copied();
            scale.number.or_else(stored)
        };
        let scales = places.iter().map(|i| exported[*i].input_scale.as_ref());
        let Some(scales) = scales.collect::<Option<Vec<&Retold>>>() else {
            return 0;
        };
        let Some(numbers) = scales
            .iter()
            .map(|scale| number(scale))
            .collect::<Option<Vec<f32>>>()
        else {
            return 0;
        };
        let is_divisor = scales[0].to.ends_with(INPUT_SCALES[0]);
        let of_largest = match is_divisor {
            true => numbers.iter().copied().fold(f32::INFINITY, f32::min),
            false => numbers.iter().copied().fold(0.0, f32::max),
        };
        let mut changed = 0;
        for (place, number) in places.iter().zip(numbers) {
            if let Some(scale) = &mut exported[*place].input_scale
                && number.to_bits() != of_largest.to_bits()
            {
                scale.number = Some(of_largest);
                changed += 1;
            }
        }
        changed
    }
}

/// Whether a weight is written with a scale of the tensor that the engine applies to the product.
fn has_tensor_scale(form: &WrittenForm) -> bool {
    matches!(form, WrittenForm::Packed(CheckpointLayout::Weights(layout)) if layout.format().tensor_scale)
}
