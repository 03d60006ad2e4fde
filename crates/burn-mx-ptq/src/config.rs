//! The configuration of quantization and tuning.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::gptq::{Gptq, ScaleSearch};
use super::quark::QuarkOptions;
use super::{PtqError, calibration};
use burn_mx_core::{Hadamard, HadamardSigns, MxSpecs, ResolvedSpecs, Slot, suggestion};

/// The base of a named configuration, and the preset of [`MxSpecs`] with its format.
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
const GPTQ: &str = "_GPTQ";
const MR_GPTQ: &str = "_MRGPTQ";

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
    /// Fast fine-tuning of weights and biases after quantization. `None`: no tuning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fast_finetune: Option<FastFinetune>,
    /// GPTQ of the weights of linear layers, instead of rounding to nearest. Excludes `fast_finetune`. `None`: no GPTQ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gptq: Option<Gptq>,
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
            gptq: None,
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

/// Fast fine-tuning: changes weights and biases layer by layer, so that the layer's quantized output comes close to the
/// layer's output in the unquantized model.
///
/// JSON names and defaults are taken from AMD Quark's `FastFinetune`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "PascalCase")]
pub struct FastFinetune {
    /// The largest number of calibration items for tuning a layer, with all calls that they make of the layer. All inputs and
    /// outputs of one layer are in memory at a time. Default: 1000.
    pub data_size: usize,
    /// The seed of the order of samples. Default: 1705472343.
    pub fixed_seed: u64,
    /// Items in one step. A step uses one call of the layer, which may have fewer items. Default: 2.
    pub batch_size: usize,
    /// Steps for a layer. Default: 1000.
    pub num_iterations: usize,
    /// Adam's learning rate. Default: 0.00001 for AdaQuant, 0.1 for AdaRound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learning_rate: Option<f64>,
    /// The algorithm. Default: `adaquant`.
    pub optim_algorithm: OptimAlgorithm,
    /// Whether tuning of a layer stops when the error no longer falls (for AdaRound, after the warm start). Default: true.
    pub early_stop: bool,
    /// λ of AdaRound's regularizer, see [`OptimAlgorithm::AdaRound`]; AdaQuant has none. Default: 0.01.
    pub reg_param: f64,
    /// β of AdaRound's regularizer, which falls from the first number to the second. Default: 20 to 2.
    pub beta_range: [f64; 2],
    /// The share of AdaRound's steps without a regularizer, from 0 to less than 1. Default: 0.2.
    pub warm_start: f64,
}

/// The algorithm of fast fine-tuning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OptimAlgorithm {
    /// AdaQuant ([Hubara et al. 2020](https://arxiv.org/abs/2006.10518)): tunes weights and biases. Gradients pass the
    /// quantizer unchanged (straight-through).
    #[default]
    AdaQuant,
    /// AdaRound ([Nagel et al. 2020](https://arxiv.org/abs/2004.10568)): learns for each element of a weight which of its two
    /// neighbours on its block's grid the element is rounded to. Biases and block scales do not change. Let h, from 0 to 1, be
    /// the position of an element between its neighbours. The loss is the squared error of the layer's output, summed over
    /// channels, plus λ Σ (1 − |2h − 1|^β). The new weight lies on the grid, and the quantizer leaves it unchanged.
    ///
    /// For all block formats of weights except NVFP4, without square blocks and Hadamard transform.
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
    /// AMD Quark's names, which [`named`](Self::named) accepts.
    pub fn names() -> impl Iterator<Item = String> {
        let both = |(name, _): &(&str, &str)| [name.to_string(), format!("{name}{ADAQUANT}")];
        NAMED.iter().flat_map(both)
    }

    /// The configuration with this name, one of [`names`](Self::names). Weights and activations have the same format, ties go
    /// to even, and blocks follow Quark's configuration. The suffix `_ADAQUANT` adds fast fine-tuning.
    ///
    /// Two more suffixes quantize the weights of linear layers by [`Gptq`], for the names that begin with `MXFP` or `MXINT`:
    /// `_GPTQ`, and `_MRGPTQ`, which adds a Hadamard transform of each block and scales with the least squared error.
    ///
    /// # Errors
    ///
    /// If no configuration has this name.
    pub fn named(name: &str) -> Result<Self, PtqError> {
        let unknown = || PtqError::Name {
            name: name.to_owned(),
            allowed: format!(
                "{}; and MXFP… and MXINT8 with {GPTQ} or {MR_GPTQ}",
                Self::names().collect::<Vec<_>>().join(", ")
            ),
        };
        let suffix = [ADAQUANT, MR_GPTQ, GPTQ]
            .into_iter()
            .find(|suffix| name.ends_with(suffix));
        let base = name
            .strip_suffix(suffix.unwrap_or_default())
            .unwrap_or(name);
        let (_, preset) = NAMED
            .iter()
            .find(|(known, _)| *known == base)
            .ok_or_else(unknown)?;
        let preset = MxSpecs::preset(preset).expect("it is one");
        let mut config = Self {
            specs: MxSpecs {
                bfloat: 0,
                ..preset
            },
            ..Self::default()
        };
        match suffix {
            None => {}
            Some(ADAQUANT) => config.fast_finetune = Some(FastFinetune::default()),
            Some(_) if config.specs.block_size == 0 => return Err(unknown()),
            Some(GPTQ) => config.gptq = Some(Gptq::default()),
            Some(_) => {
                config.specs.hadamard_forward = Some(Hadamard {
                    block_size: config.specs.block_size,
                    signs: HadamardSigns::Given(0),
                });
                config.gptq = Some(Gptq {
                    scales: ScaleSearch::SquaredError,
                    ..Gptq::default()
                });
            }
        }
        Ok(config)
    }

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
        let fail = |error: serde_json::Error| PtqError::Json {
            reason: error.to_string(),
        };
        let fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(json)
            .map_err(|error| PtqError::Json {
                reason: format!("{error}{}", suggestion::of_python(json)),
            })?;
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

    /// Checks the fields, and resolves the default specs of layers.
    pub(super) fn resolve(&self) -> Result<ResolvedSpecs, PtqError> {
        if let Some(tuning) = &self.fast_finetune {
            tuning.check()?;
        }
        if self.gptq.is_some() && self.fast_finetune.is_some() {
            return Err(PtqError::Field {
                field: "gptq",
                value: "beside `fast_finetune`".into(),
                allowed: "one of the two",
            });
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
            if let Some(gptq) = &self.gptq {
                gptq.check(&resolved)?;
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

/// Checks that weights have a grid for AdaRound.
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
    /// Adam's learning rate: the given one, or the algorithm's default.
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
