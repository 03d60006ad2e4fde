//! What is quantized, to what, and how it is tuned.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::quark::QuarkOptions;
use super::{PtqError, calibration};
use burn_mx_core::{MxSpecs, ResolvedSpecs, Slot};

/// The base of a named configuration and the preset of [`MxSpecs`] that has its format.
const NAMED: [(&str, &str); 10] = [
    ("MX4", "mx4"),
    ("MX6", "mx6"),
    ("MX9", "mx9"),
    ("MXFP8E5M2", "mxfp8_e5m2"),
    ("MXFP8E4M3", "mxfp8_e4m3"),
    ("MXFP6E3M2", "mxfp6_e3m2"),
    ("MXFP6E2M3", "mxfp6_e2m3"),
    ("MXFP4E2M1", "mxfp4"),
    ("MXINT8", "mxint8"),
    ("BFP16", "bfp16"),
];

const ADAQUANT: &str = "_ADAQUANT";

/// How a trained model is quantized.
///
/// As JSON ([`from_json`](Self::from_json), [`to_json`](Self::to_json)) every field may be missing, unknown ones are errors.
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
    /// The formats of weights and activations, `w_elem_format` and `a_elem_format`, either of which may be absent, with block
    /// size, rounding and all else that [`MxSpecs`] say.
    pub specs: MxSpecs,
    /// Where the scales of activations come from; `is_dynamic` in JSON, Quark's name. Default: dynamic, which is `true`.
    #[serde(rename = "is_dynamic", skip_serializing_if = "Activations::is_dynamic")]
    pub activations: Activations,
    /// Layers that are quantized: paths, prefixes of paths, or globs, as for [`set_specs_at`](burn_mx_module::set_specs_at).
    /// Empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    /// Layers that are not, also where `include` or `layers` has them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Other specs for layers, by a pattern as above; where two match, the last one in the order of their text counts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub layers: BTreeMap<String, MxSpecs>,
    /// Whether batch norms are folded into the quantized layers before them, first of all; Quark's optimization of CNNs.
    /// A norm belongs to the layer before it in the order of the module's fields, if `batch_norms` says nothing else. `forward`
    /// must give one tensor of floats, by which the folded model is compared with the other one on the calibration data: a norm
    /// whose folding would change that is left, and the log says so. Default: false.
    ///
    /// A norm stays as the identity of inference. The folded model is not one to train further.
    #[serde(skip_serializing_if = "is_false")]
    pub fold_batch_norm: bool,
    /// The ε of batch norms for which `batch_norms` has none: modules do not tell it. Default: 1e-5, as Burn's and PyTorch's.
    #[serde(skip_serializing_if = "is_default_epsilon")]
    pub batch_norm_epsilon: f64,
    /// The layers of batch norms that do not follow theirs in the order of the module's fields, or have an ε of their own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub batch_norms: Vec<BatchNormPair>,
    /// Whether weights and biases are tuned after that, and how.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fast_finetune: Option<FastFinetune>,
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
            fast_finetune: None,
        }
    }
}

/// The ε of a batch norm, in Burn and in PyTorch.
const EPSILON: f64 = 1e-5;

fn is_default_epsilon(epsilon: &f64) -> bool {
    *epsilon == EPSILON
}

/// A batch norm, and the layer that it is folded into.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchNormPair {
    /// The norm's path.
    pub norm: String,
    /// The path of the layer whose output it is given.
    pub layer: String,
    /// Its ε; none is [`QuantConfig::batch_norm_epsilon`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epsilon: Option<f64>,
}

/// Where the scales of activations come from. In JSON `is_dynamic`, a bool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
#[non_exhaustive]
pub enum Activations {
    /// Each block has the scale that its own elements give it, as they come.
    #[default]
    Dynamic,
    /// Each block of a layer's input has the scale of the largest magnitude that calibration found at its place along the axis
    /// that the product sums over (the last one of a linear layer's input, the channels of a convolution's), over all items and
    /// all other places, in the model that is not quantized. What is larger becomes the largest number of that scale. Shifts of
    /// sub-blocks, as microexponents have them, stay those of their own elements.
    ///
    /// An input whose blocks are not those of the calibration is an error, when it comes a panic, which names both shapes. Scales
    /// are kept with the layer's parameters in memory, as [`set_specs`](burn_mx_module::set_specs) keeps specs; records and files
    /// do not have them ([`ResolvedSpecs::has_static_input`](burn_mx_core::ResolvedSpecs::has_static_input)).
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

/// Fast fine-tuning: layer by layer, weights and biases are changed so that the layer's quantized output comes close to the
/// output that it has in the model that is not quantized.
///
/// The names in JSON and the defaults are those of AMD Quark's `FastFinetune`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "PascalCase")]
pub struct FastFinetune {
    /// Items of the calibration data that a layer is tuned on, at most, with all calls that they make of it: so many inputs and
    /// outputs are in memory at a time, of one layer. Default: 1000.
    pub data_size: usize,
    /// Of the order in which samples are drawn. Default: 1705472343.
    pub fixed_seed: u64,
    /// Items in one step, of one call of the layer, which may have fewer. Default: 2.
    pub batch_size: usize,
    /// Steps for a layer. Default: 1000.
    pub num_iterations: usize,
    /// Of Adam. Default: that of the algorithm, 0.00001 of AdaQuant and 0.1 of AdaRound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learning_rate: Option<f64>,
    /// The algorithm. Default: `adaquant`.
    pub optim_algorithm: OptimAlgorithm,
    /// Whether a layer is left once it gets no better; with AdaRound after its warm start. Default: true.
    pub early_stop: bool,
    /// λ of AdaRound's regularizer, see [`OptimAlgorithm::AdaRound`]; AdaQuant has none. Default: 0.01.
    pub reg_param: f64,
    /// β of AdaRound's regularizer, from the first number down to the second. Default: 20 to 2.
    pub beta_range: [f64; 2],
    /// The part of AdaRound's steps before there is a regularizer, from 0 to less than 1. Default: 0.2.
    pub warm_start: f64,
}

/// What fast fine-tuning changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OptimAlgorithm {
    /// AdaQuant ([Hubara et al. 2020](https://arxiv.org/abs/2006.10518)): the weights and biases themselves, by gradients that
    /// pass the quantizer as if it were not there.
    #[default]
    AdaQuant,
    /// AdaRound ([Nagel et al. 2020](https://arxiv.org/abs/2004.10568)): which of its two neighbours on the grid of its block
    /// each element of a weight is rounded to; biases and the scales of blocks stay. With h from 0 to 1 how far an element is
    /// on its way from one neighbour to the other, the loss is the squared error of the layer's output, summed over channels,
    /// plus λ Σ (1 − |2h − 1|^β). The weight that a layer gets is that on the grid, which its quantizer leaves as it is.
    ///
    /// For the block formats of weights but NVFP4, without square blocks and Hadamard transform.
    AdaRound,
}

impl Default for FastFinetune {
    fn default() -> Self {
        Self {
            data_size: 1000,
            fixed_seed: 1_705_472_343,
            batch_size: 2,
            num_iterations: 1000,
            learning_rate: None,
            optim_algorithm: OptimAlgorithm::AdaQuant,
            early_stop: true,
            reg_param: 0.01,
            beta_range: [20.0, 2.0],
            warm_start: 0.2,
        }
    }
}

impl QuantConfig {
    /// The names that [`named`](Self::named) knows, AMD Quark's.
    pub fn names() -> impl Iterator<Item = String> {
        let both = |(name, _): &(&str, &str)| [name.to_string(), format!("{name}{ADAQUANT}")];
        NAMED.iter().flat_map(both)
    }

    /// The configuration of this name, one of [`names`](Self::names): one format for weights and activations, ties to even,
    /// blocks as Quark's configuration has them; with `_ADAQUANT` at the end fast fine-tuning after that.
    ///
    /// # Errors
    ///
    /// If there is none of this name.
    pub fn named(name: &str) -> Result<Self, PtqError> {
        let unknown = || PtqError::Name {
            name: name.to_owned(),
            allowed: Self::names().collect::<Vec<_>>().join(", "),
        };
        let base = name.strip_suffix(ADAQUANT);
        let (_, preset) = NAMED
            .iter()
            .find(|(known, _)| *known == base.unwrap_or(name))
            .ok_or_else(unknown)?;
        let preset = MxSpecs::preset(preset).expect("it is one");
        Ok(Self {
            specs: MxSpecs {
                bfloat: 0,
                ..preset
            },
            fast_finetune: base.map(|_| FastFinetune::default()),
            ..Self::default()
        })
    }

    /// Reads a configuration from JSON: the fields of this struct, or those of AMD Quark's `extra_options`, `MXAttributes` or
    /// `BFPAttributes` with `FastFinetune`.
    ///
    /// ```
    /// # mod burn_mx { pub use burn_mx_core::*; pub use burn_mx_ptq as ptq; }
    /// # use burn_mx::ptq::QuantConfig;
    /// let quark = r#"{ "MXAttributes": { "element_dtype": "int8", "axis": 1, "block_size": 8, "rounding_mode": 2 } }"#;
    /// let config = QuantConfig::from_json(quark)?;
    /// assert_eq!(config.specs.resolve()?.to_string(), "w int8, a int8, block 8");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the text is no such JSON.
    pub fn from_json(json: &str) -> Result<Self, PtqError> {
        let fail = |error: serde_json::Error| PtqError::Json {
            reason: error.to_string(),
        };
        let fields: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(json).map_err(fail)?;
        match fields.keys().any(|field| QuarkOptions::has(field)) {
            true => serde_json::from_str::<QuarkOptions>(json)
                .map_err(fail)?
                .config(),
            false => serde_json::from_str(json).map_err(fail),
        }
    }

    /// The configuration as JSON, which [`from_json`](Self::from_json) reads back.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and texts are JSON")
    }

    /// Checks the fields, and gives the specs of layers without specs of their own.
    pub(super) fn resolve(&self) -> Result<ResolvedSpecs, PtqError> {
        if let Some(tuning) = &self.fast_finetune {
            tuning.check()?;
        }
        if !self.fold_batch_norm && !self.batch_norms.is_empty() {
            return Err(PtqError::Field {
                field: "batch_norms",
                value: format!("{} pairs without `fold_batch_norm`", self.batch_norms.len()),
                allowed: "none, or `fold_batch_norm: true`",
            });
        }
        for (at, pair) in self.batch_norms.iter().enumerate() {
            if self.batch_norms[..at]
                .iter()
                .any(|before| before.norm == pair.norm)
            {
                return Err(PtqError::Field {
                    field: "batch_norms",
                    value: format!("`{}` twice", pair.norm),
                    allowed: "each norm once",
                });
            }
        }
        let epsilons = self.batch_norms.iter().filter_map(|pair| pair.epsilon);
        for epsilon in epsilons.chain([self.batch_norm_epsilon]) {
            if !(epsilon >= 0.0 && epsilon.is_finite()) {
                return Err(PtqError::Field {
                    field: "batch_norm_epsilon",
                    value: epsilon.to_string(),
                    allowed: "a finite number, 0 or more",
                });
            }
        }
        let mut has_activations = false;
        for specs in self.layers.values().chain([&self.specs]) {
            let resolved = specs.resolve()?;
            if self.activations == Activations::Static {
                calibration::check(&resolved)?;
                has_activations |= resolved.block_format(Slot::A).is_some();
            }
            let Some(tuning) = &self.fast_finetune else {
                continue;
            };
            if resolved.is_random() {
                return Err(PtqError::Field {
                    field: "specs",
                    value: "with roundings or transforms that draw random numbers".into(),
                    allowed: "none that do, where layers are tuned",
                });
            }
            if resolved.float_format().is_some() {
                return Err(PtqError::Field {
                    field: "specs",
                    value: format!("with an elementwise format ({resolved})"),
                    allowed: "`bfloat` and `fp` 0, where layers are tuned",
                });
            }
            if tuning.optim_algorithm == OptimAlgorithm::AdaRound {
                check_grid(&resolved)?;
            }
        }
        if self.activations == Activations::Static && !has_activations {
            return Err(PtqError::Field {
                field: "is_dynamic",
                value: "false without a format of activations".into(),
                allowed: "with `a_elem_format`; or true",
            });
        }
        if self.specs.w_elem_format.is_none() && self.specs.a_elem_format.is_none() {
            return Err(PtqError::Field {
                field: "specs",
                value: "without a format".into(),
                allowed: "`w_elem_format` or `a_elem_format`, or both",
            });
        }
        Ok(self.specs.resolve()?)
    }
}

/// Whether weights have a grid that AdaRound can choose on.
fn check_grid(resolved: &ResolvedSpecs) -> Result<(), PtqError> {
    let has_grid = resolved
        .block_format(Slot::W)
        .is_some_and(|format| !format.is_square() && format.float_scale().is_none());
    match has_grid && resolved.hadamard_forward().is_none() {
        true => Ok(()),
        false => Err(PtqError::Field {
            field: "OptimAlgorithm",
            value: format!("`adaround` with the specs `{resolved}`"),
            allowed: "with weights in MX, microexponents or block floating point, in blocks that are not square, without \
                      `hadamard_forward`; or `adaquant`",
        }),
    }
}

impl FastFinetune {
    /// Of Adam: what is given, or the algorithm's own.
    pub(super) fn learning_rate(&self) -> f64 {
        self.learning_rate.unwrap_or(match self.optim_algorithm {
            OptimAlgorithm::AdaQuant => 1e-5,
            OptimAlgorithm::AdaRound => 0.1,
        })
    }

    fn check(&self) -> Result<(), PtqError> {
        let counts = [
            ("DataSize", self.data_size),
            ("BatchSize", self.batch_size),
            ("NumIterations", self.num_iterations),
        ];
        for (field, value) in counts {
            if value == 0 {
                return Err(PtqError::Field {
                    field,
                    value: value.to_string(),
                    allowed: "1 or more",
                });
            }
        }
        let refuse = |field, value: &dyn core::fmt::Debug, allowed| {
            Err(PtqError::Field {
                field,
                value: format!("{value:?}"),
                allowed,
            })
        };
        let learning_rate = self.learning_rate();
        if !(learning_rate.is_finite() && learning_rate > 0.0) {
            return refuse("LearningRate", &learning_rate, "a positive number");
        }
        if !(self.reg_param.is_finite() && self.reg_param >= 0.0) {
            return refuse("RegParam", &self.reg_param, "0 or a positive number");
        }
        let [first, last] = self.beta_range;
        if !(first.is_finite() && last >= 1.0 && first >= last) {
            return refuse(
                "BetaRange",
                &self.beta_range,
                "two numbers, the second 1 or more and the first no less",
            );
        }
        if !(0.0..1.0).contains(&self.warm_start) {
            return refuse("WarmStart", &self.warm_start, "from 0 to less than 1");
        }
        Ok(())
    }
}
