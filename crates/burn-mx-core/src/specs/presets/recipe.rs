//! A recipe: specs for a model, and which of its layers they are not for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::specs::{MxSpecs, SpecsError};

/// A paper's recipe for any model: specs, and the layers that have no block formats.
///
/// ```
/// # extern crate burn_mx_core as burn_mx;
/// use burn_mx::Recipe;
///
/// let recipe = Recipe::preset("nvfp4_pretraining")?;
/// assert!(recipe.exemptions.head);
/// assert_eq!(recipe.exemptions.last_percent, 15);
/// assert_eq!(recipe.exempt_specs().resolve()?.to_string(), "bfloat16, round even");
/// # Ok::<(), burn_mx::SpecsError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Recipe {
    /// The specs for the model's device.
    pub specs: MxSpecs,
    /// The layers without block formats.
    #[serde(default)]
    pub exemptions: Exemptions,
    /// Specs of single layers, by the paths of their weights or by patterns as `module::set_specs_at` takes them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub layers: BTreeMap<String, MxSpecs>,
}

/// Layers without block formats. A layer is a module that multiplies by a parameter. Layers count in the order of a
/// forward pass (`module::exempt_layers`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Exemptions {
    /// The last layer that runs.
    pub head: bool,
    /// The share of the last layers before the head, in percent; at least one layer if the share is not 0.
    pub last_percent: u32,
}

impl Recipe {
    /// The recipe of a [preset](MxSpecs::preset). Presets of the literature have exemptions, other presets have none.
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
            "mxfp8_pretraining" | "mxfp4_backward" | "quartet" | "quartet_code" | "quartet2"
            | "ufp4" | "ufp4_baseline" | "hif4_pretraining" | "tetrajet_v2" | "chon" | "averis" => {
                head(0)
            }
            "nvfp4_pretraining" => head(15),
            "nvfp4_four_over_six" => head(17),
            _ => Exemptions::default(),
        };
        Ok(Self {
            specs,
            exemptions,
            layers: BTreeMap::new(),
        })
    }

    /// The specs of exempt layers: the other layers' specs without block formats.
    pub fn exempt_specs(&self) -> MxSpecs {
        let specs = &self.specs;
        MxSpecs {
            bfloat: specs.bfloat,
            fp: specs.fp,
            bfloat_subnorms: specs.bfloat_subnorms,
            elementwise_scope: specs.elementwise_scope,
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
    /// Every layer.
    pub const ALL: Self = Self {
        head: true,
        last_percent: 100,
    };

    /// How many of this number of layers are exempt: the last ones are.
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
