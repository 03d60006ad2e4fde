//! The configuration of quantization and tuning.

mod check;
mod finetune;
mod names;
mod quark;
mod rotation;

use std::collections::BTreeMap;

use microscaling::{FusedLayers, FusedNames};
use serde::{Deserialize, Serialize};

use crate::error::PtqError;
use crate::gptq::Gptq;
use burn_mx_core::internal::suggestion;
use burn_mx_core::{Exemptions, MxSpecs, Recipe};
pub use finetune::{FastFinetune, OptimAlgorithm};
pub use rotation::Rotation;

/// The configuration of post-training quantization.
///
/// In JSON ([`from_json`](Self::from_json), [`to_json`](Self::to_json)) every field may be missing. An unknown field is an
/// error.
///
/// ```
/// # mod burn_mx { pub use burn_mx_core::*; pub use burn_mx_ptq as ptq; }
/// use burn_mx::ptq::QuantConfig;
///
/// let named = QuantConfig::named("MX6_ADAQUANT")?;
/// let config = QuantConfig { exclude: vec!["head".into()], ..named };
/// assert_eq!(QuantConfig::from_json(&config.to_json())?, config);
/// # Ok::<(), burn_mx::ptq::PtqError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuantConfig {
    /// The formats of weights and activations, `w_elem_format` and `a_elem_format`, with block size, rounding and the other
    /// fields of [`MxSpecs`]. If one of the two formats is missing, only the other operand is quantized.
    pub specs: MxSpecs,
    /// The origin of the scales of activations. In JSON the field is `is_dynamic`, Quark's name. Default: dynamic (`true`).
    #[serde(rename = "is_dynamic", skip_serializing_if = "Activations::is_dynamic")]
    pub activations: Activations,
    /// The layers to quantize: paths, prefixes of paths, or globs, as for [`set_specs_at`](burn_mx_module::set_specs_at).
    /// Empty: all layers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    /// The layers that stay unquantized, even if `include` or `layers` matches them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Specs for single layers, by pattern. If two patterns match, the last one in alphabetical order counts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub layers: BTreeMap<String, MxSpecs>,
    /// Whether to fold batch norms into the quantized layers before them, as the first step (Quark's optimization of CNNs). A
    /// norm belongs to the layer before it in the order of the module's fields, unless `batch_norms` names another. `forward`
    /// must return one tensor of floats: the folded model's output is compared with the original's on the calibration data. A
    /// norm whose folding changes the output stays unfolded, which the log reports. Default: false.
    ///
    /// A folded norm stays in the module as the identity of inference. Do not train a folded model further.
    #[serde(skip_serializing_if = "is_false")]
    pub fold_batch_norm: bool,
    /// The ε of batch norms without an ε in `batch_norms`, because a module does not expose its ε. Default: 1e-5, as in Burn
    /// and PyTorch.
    #[serde(skip_serializing_if = "is_default_epsilon")]
    pub batch_norm_epsilon: f64,
    /// Batch norms whose layer is not the one before them in the order of the module's fields, or whose ε differs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub batch_norms: Vec<BatchNormPair>,
    /// Rotations that are folded into weights before everything else, one after another. `forward` must return one tensor of
    /// floats: the rotated model's output is compared with the original's on the first batch of calibration data. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rotations: Vec<Rotation>,
    /// Fast fine-tuning of weights and biases after quantization. `None`: no tuning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fast_finetune: Option<FastFinetune>,
    /// GPTQ of the weights of linear layers, instead of rounding to nearest. Excludes `fast_finetune`. `None`: no GPTQ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gptq: Option<Gptq>,
    /// Layers that an engine fuses, by the last words of their paths: the members of a group separated by commas, such as
    /// `q_proj,k_proj,v_proj`. The weights of a group share a tensor scale, in formats that have one: the scale of the largest
    /// magnitude of the group. Empty: each weight has its own scale. `FusedLayers::default().kinds().to_vec()` has the names of many
    /// models. Fast fine-tuning tunes with own scales, and the tuned weights get the shared scale.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fused: Vec<FusedNames>,
}

impl Default for QuantConfig {
    fn default() -> Self {
        Self {
            specs: MxSpecs::default(),
            activations: Activations::default(),
            include: Vec::new(),
            exclude: Vec::new(),
            layers: BTreeMap::new(),
            fold_batch_norm: false,
            batch_norm_epsilon: EPSILON,
            batch_norms: Vec::new(),
            rotations: Vec::new(),
            fast_finetune: None,
            gptq: None,
            fused: Vec::new(),
        }
    }
}

/// The ε of a batch norm, in Burn and in PyTorch.
const EPSILON: f64 = 1e-5;

fn is_default_epsilon(epsilon: &f64) -> bool {
    *epsilon == EPSILON
}

/// A batch norm and the layer that it is folded into.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchNormPair {
    /// The norm's path.
    pub norm: String,
    /// The path of the layer before the norm.
    pub layer: String,
    /// The norm's ε. `None`: [`QuantConfig::batch_norm_epsilon`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epsilon: Option<f64>,
}

/// The origin of the scales of activations. In JSON `is_dynamic`, a bool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
#[non_exhaustive]
pub enum Activations {
    /// The elements of a block determine its scale at each call.
    #[default]
    Dynamic,
    /// Calibration fixes the scale of each block of a layer's input. The scale follows from the largest magnitude of the
    /// unquantized model at the block's place along the summed axis, over all items and all other places. The summed axis is
    /// the last axis of a linear layer's input, and the channels of a convolution's. Larger values saturate at the largest
    /// number of the scale. Shifts of sub-blocks, as in microexponents, still follow from the sub-block's own elements.
    ///
    /// An input with other blocks than in calibration is an error that names both shapes. (Burn's ops return no errors, so a
    /// call panics.) The scales stay in memory with the layer's parameters, as [`set_specs`](burn_mx_module::set_specs) keeps
    /// specs. Burn's records do not contain them
    /// ([`ResolvedSpecs::has_static_input`](burn_mx_core::ResolvedSpecs::has_static_input)).
    Static,
}

impl Activations {
    fn is_dynamic(&self) -> bool {
        *self == Self::Dynamic
    }
}

impl From<bool> for Activations {
    fn from(is_dynamic: bool) -> Self {
        match is_dynamic {
            true => Self::Dynamic,
            false => Self::Static,
        }
    }
}

impl From<Activations> for bool {
    fn from(activations: Activations) -> Self {
        activations.is_dynamic()
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

impl QuantConfig {
    /// Reads a configuration from JSON: the fields of this struct, or AMD Quark's `extra_options`: `MXAttributes` or
    /// `BFPAttributes`, with `FastFinetune`.
    ///
    /// ```
    /// # mod burn_mx { pub use burn_mx_core::*; pub use burn_mx_ptq as ptq; }
    /// # use burn_mx::ptq::QuantConfig;
    /// let quark = r#"{ "MXAttributes": { "element_dtype": "int8", "axis": 1, "block_size": 8, "rounding_mode": 2 } }"#;
    /// let config = QuantConfig::from_json(quark)?;
    /// assert_eq!(config.specs.resolve()?.to_string(), "w int8, a int8, block 8, round even");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the text is not valid JSON, or has an unknown or invalid field.
    pub fn from_json(json: &str) -> Result<Self, PtqError> {
        let fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(json)
            .map_err(|error| PtqError::Json {
                reason: format!("{error}{}", suggestion::of_python(json)),
            })?;
        match quark::OPTIONS
            .iter()
            .any(|option| fields.contains_key(*option))
        {
            true => quark::config(fields),
            false => serde_json::from_str(json).map_err(|error| PtqError::Json {
                reason: error.to_string(),
            }),
        }
    }

    /// The configuration that quantizes a trained model by a recipe, such as a search under a budget finds. The
    /// recipe's layers have their own formats. All other layers have the formats of the recipe's specs. Formats of gradients have no
    /// effect. Nothing is rounded elementwise, as in the configurations by name. A layer of the recipe that the model does not
    /// have is an error of [`Quantizer::quantize`](crate::Quantizer::quantize).
    ///
    /// # Errors
    ///
    /// If the recipe has [`Exemptions`], which depend on the order in which a model calls its layers.
    pub fn from_recipe(recipe: Recipe) -> Result<Self, PtqError> {
        if recipe.exemptions != Exemptions::default() {
            return Err(PtqError::Field {
                field: "exemptions",
                value: format!("{:?}", recipe.exemptions),
                allowed: "none; name these layers in `exclude`",
            });
        }
        let mut config = Self {
            specs: recipe.specs,
            layers: recipe.layers,
            ..Self::default()
        };
        for specs in config.all_specs() {
            (specs.bfloat, specs.fp) = (0, 0);
        }
        Ok(config)
    }

    /// The same configuration for weights alone: activations stay as they are.
    pub fn weights_only(mut self) -> Self {
        for specs in self.all_specs() {
            specs.a_elem_format = None;
        }
        self
    }

    /// The layers that share a tensor scale.
    pub(crate) fn fused_layers(&self) -> Result<FusedLayers, PtqError> {
        FusedLayers::new(self.fused.iter().cloned()).map_err(|error| PtqError::Field {
            field: "fused",
            value: format!("a list where `{}` {}", error.names, error.reason),
            allowed: "each name of a layer once",
        })
    }

    /// The default specs of layers, and the specs of single layers.
    fn all_specs(&mut self) -> impl Iterator<Item = &mut MxSpecs> {
        self.layers.values_mut().chain([&mut self.specs])
    }

    /// The configuration as JSON, which [`from_json`](Self::from_json) reads back.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and texts are JSON")
    }
}
