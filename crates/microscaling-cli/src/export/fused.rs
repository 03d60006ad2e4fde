//! Fused layers of a converted checkpoint.

use super::{Export, Exported};
use crate::error::Error;
use crate::fused::{error, tensor_scale};
use crate::numbers::floats;
use crate::target::{Retold, WrittenForm};
use microscaling::FusedGroup;
use microscaling::safetensors::CheckpointLayout;
use microscaling_checkpoint::INPUT_SCALES;
use std::collections::{BTreeMap, BTreeSet};

/// The fused layers of a converted checkpoint.
#[derive(Default)]
pub(crate) struct FusedResult {
    /// How many scales of inputs changed.
    pub(crate) shared_inputs: usize,
    /// The groups that an engine cannot fuse without a change of their values, and why.
    pub(crate) differ: Vec<[String; 2]>,
    /// Whether the layers of a group differ in nothing but the scale of the tensor.
    pub(crate) has_other_scales: bool,
}

/// Why fused layers cannot be one.
struct Difference {
    reason: String,
    /// The layers that are allowed.
    allowed: &'static str,
}

/// The requirement of fused layers that differ in nothing but the scale of the tensor.
const ONE_SCALE: &str = "one tensor scale, as `quantize` gives fused layers from the float model";

impl Export<'_> {
    /// Gives fused layers one scale of their inputs, the scale of the largest magnitude, unless no engine can fuse them. Looks for groups of
    /// fused layers whose weights differ in format or in the scale of the tensor.
    ///
    /// # Errors
    /// The first group whose weights differ, if the user named the fused layers.
    pub(crate) fn fuse(&self, exported: &mut [Exported<'_>]) -> Result<FusedResult, Error> {
        let places = exported.iter().enumerate();
        let places: BTreeMap<&str, usize> = places.map(|(i, x)| (x.layer.module(), i)).collect();
        let floats = self.read.others().iter().filter_map(|name| {
            let module = name.strip_suffix(".weight")?;
            let is_matrix = self.read.tensor(name)?.shape.len() > 1;
            (is_matrix && !places.contains_key(module)).then_some(module)
        });
        let floats: BTreeSet<&str> = floats.collect();
        let modules = places.keys().chain(&floats).copied();
        let mut result = FusedResult::default();
        let inputs = |module: &str| match places.get(module) {
            Some(i) => exported[*i].layer.shape.last().copied(),
            None => {
                let tensor = self.read.tensor(&format!("{module}.weight"))?;
                tensor.shape.last().copied()
            }
        };
        for group in self.fused.groups(modules, inputs) {
            let members = group.members.iter().map(|path| places.get(path.as_str()));
            let known: Vec<usize> = members.flatten().copied().collect();
            if known.is_empty() {
                continue;
            }
            let layers: Vec<&Exported<'_>> = known.iter().map(|i| &exported[*i]).collect();
            let has_scale = layers.iter().any(|x| has_tensor_scale(&x.form));
            let difference = self.check_group(&group, &layers).err();
            let allowed = difference.as_ref().map(|x| x.allowed);
            if allowed.is_none_or(|allowed| allowed == ONE_SCALE) {
                result.shared_inputs += self.share_input_scale(&known, exported);
            }
            let Some(Difference { reason, allowed }) = difference.filter(|_| has_scale) else {
                continue;
            };
            if self.fused.is_named {
                return Err(error(&self.input.path, &group, reason, allowed));
            }
            result.has_other_scales |= allowed == ONE_SCALE;
            result.differ.push([group.to_string(), reason]);
        }
        Ok(result)
    }

    fn check_group(&self, group: &FusedGroup, layers: &[&Exported<'_>]) -> Result<(), Difference> {
        let known = |path: &str| layers.iter().find(|x| x.layer.module() == path);
        if let Some(float) = group.members.iter().find(|path| known(path).is_none()) {
            let first = layers[0].layer;
            let reason = format!(
                "`{}` is {}, and `{float}` is in float",
                first.module(),
                first.format
            );
            let allowed = "one format";
            return Err(Difference { reason, allowed });
        }
        // The properties that all layers share.
        let same = |what: &dyn Fn(&Exported<'_>) -> String, allowed| {
            let difference =
                group.difference(|path| known(path).map_or_else(String::new, |x| what(x)));
            difference.map_or(Ok(()), |reason| Err(Difference { reason, allowed }))
        };
        same(
            &|x| format!("is {} ({})", x.layer.format, x.layer.layout),
            "one format",
        )?;
        let inputs = |x: &Exported<'_>| x.layer.shape.last().copied().unwrap_or(1);
        same(
            &|x| format!("has {} inputs", inputs(x)),
            "one number of inputs",
        )?;
        let input_scale = |x: &Exported<'_>| match x.input_scale {
            Some(_) => "has a scale of its input".to_owned(),
            None => "has no scale of its input".to_owned(),
        };
        same(&input_scale, "a scale of the input for all or for none")?;
        let scale = |x: &Exported<'_>| tensor_scale(self.read, x.layer).unwrap_or(1.0);
        same(&|x| format!("has the tensor scale {}", scale(x)), ONE_SCALE)
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
