//! A recipe: specs for a model, and which of its layers they are not for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{MxSpecs, SpecsError};

/// Specs, and the layers that go without their block formats: what a paper's recipe says of any model.
///
/// ```
/// # extern crate burn_mx_core as burn_mx;
/// use burn_mx::Recipe;
///
/// let recipe = Recipe::preset("nvfp4_pretraining")?;
/// assert!(recipe.exemptions.head);
/// assert_eq!(recipe.exemptions.last_percent, 15);
/// assert_eq!(recipe.exempt_specs().resolve()?.to_string(), "bfloat16");
/// # Ok::<(), burn_mx::SpecsError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Recipe {
    /// For the model's device.
    pub specs: MxSpecs,
    /// The layers that they are not for.
    #[serde(default)]
    pub exemptions: Exemptions,
    /// Specs of single layers, by the paths of their weights or by patterns as `module::set_specs_at` takes them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub layers: BTreeMap<String, MxSpecs>,
}

/// Layers that go without block formats. A layer is whatever multiplies by a parameter, in the order of a forward pass
/// (`module::exempt_layers`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Exemptions {
    /// The last layer that runs.
    pub head: bool,
    /// How much of the layers before the head, from the last of them on, in percent; at least one if it is not 0.
    pub last_percent: u32,
}

impl Recipe {
    /// The recipe of a [preset](MxSpecs::preset): those of the literature have exemptions, the others have none.
    ///
    /// # Errors
    /// [`SpecsError::UnknownPreset`].
    pub fn preset(name: &str) -> Result<Self, SpecsError> {
        let specs = MxSpecs::preset(name)?;
        let head = |last_percent| Exemptions {
            head: true,
            last_percent,
        };
        let exemptions = match name.to_ascii_lowercase().as_str() {
            "mxfp8_pretraining" | "mxfp4_backward" | "quartet" | "quartet_code" | "quartet2" => {
                head(0)
            }
            "nvfp4_pretraining" => head(15),
            _ => Exemptions::default(),
        };
        Ok(Self {
            specs,
            exemptions,
            layers: BTreeMap::new(),
        })
    }

    /// The specs of exempt layers: those of the others without their block formats.
    pub fn exempt_specs(&self) -> MxSpecs {
        let specs = &self.specs;
        MxSpecs {
            bfloat: specs.bfloat,
            fp: specs.fp,
            bfloat_subnorms: specs.bfloat_subnorms,
            quantize_backprop: specs.quantize_backprop,
            round: specs.round,
            round_weight: specs.round_weight,
            round_output: specs.round_output,
            round_grad_weight: specs.round_grad_weight,
            round_grad_input: specs.round_grad_input,
            softmax_exp2: specs.softmax_exp2,
            vec_use_exp2: specs.vec_use_exp2,
            vec_use_recip: specs.vec_use_recip,
            quantize_loss: specs.quantize_loss,
            seed: specs.seed,
            ..MxSpecs::default()
        }
    }
}

impl Exemptions {
    /// How many of so many layers are exempt: they are the last ones.
    pub fn count(self, layers: usize) -> usize {
        let head = usize::from(self.head).min(layers);
        let others = layers - head;
        let share = (others * self.last_percent.min(100) as usize + 50) / 100;
        let share = match self.last_percent {
            0 => 0,
            _ => share.clamp(1, others.max(1)).min(others),
        };
        head + share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_many_layers_are_exempt() {
        let count = |head, last_percent, layers| Exemptions { head, last_percent }.count(layers);
        assert_eq!([0, 1, 9].map(|layers| count(false, 0, layers)), [0, 0, 0]);
        assert_eq!([0, 1, 9].map(|layers| count(true, 0, layers)), [0, 1, 1]);
        // A half and more is one layer, as is a share of which there is too little.
        let exempt = [0, 1, 2, 3, 11, 13, 21, 101].map(|layers| count(true, 15, layers));
        assert_eq!(exempt, [0, 1, 2, 2, 3, 3, 4, 16]);
        assert_eq!(count(false, 100, 7), 7);
    }

    #[test]
    fn presets_are_recipes() {
        for name in MxSpecs::PRESETS {
            let recipe = Recipe::preset(name).unwrap();
            assert_eq!(recipe.specs, MxSpecs::preset(name).unwrap());
            let exempt = recipe.exempt_specs().resolve().unwrap();
            assert!(!exempt.has_mx(), "{name}");
            assert_eq!(
                exempt.float_format(),
                recipe.specs.resolve().unwrap().float_format()
            );
            assert_eq!(Recipe::preset(&name.to_uppercase()), Ok(recipe));
        }
        assert!(Recipe::preset("mxfp5").is_err());
    }
}
