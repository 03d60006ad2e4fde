//! Configurations by name.

use super::{FastFinetune, OptimAlgorithm, QuantConfig};
use crate::error::PtqError;
use crate::gptq::{Gptq, ScaleSearch};
use burn_mx_core::{Hadamard, HadamardSigns, MxSpecs, Slot};

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

/// The suffixes that are not Quark's.
const METHODS: [&str; 7] = [
    "_ADAROUND",
    "_MSE",
    "_HESSIAN",
    "_GPTQ",
    "_GPTQ_MSE",
    "_GPTQ_HESSIAN",
    "_MRGPTQ",
];

impl QuantConfig {
    /// AMD Quark's names, which [`named`](Self::named) accepts.
    pub fn names() -> impl Iterator<Item = String> {
        let both = |(name, _): &(&str, &str)| [name.to_string(), format!("{name}{ADAQUANT}")];
        NAMED.iter().flat_map(both)
    }

    /// The configuration with this name, one of [`names`](Self::names), or a name without `_ADAQUANT` and one of the suffixes
    /// below. Weights and activations have the same format, ties go to even, and blocks follow Quark's configuration.
    ///
    /// | suffix | rounding of weights |
    /// | --- | --- |
    /// | none | to nearest |
    /// | `_ADAQUANT`, `_ADAROUND` | [`FastFinetune`] by this algorithm |
    /// | `_MSE`, `_HESSIAN` | to nearest, with [searched scales](ScaleSearch) |
    /// | `_GPTQ` | [`Gptq`] |
    /// | `_GPTQ_MSE`, `_GPTQ_HESSIAN` | `Gptq` with searched scales |
    /// | `_MRGPTQ` | `_GPTQ_MSE` after a Hadamard transform of each block |
    ///
    /// The last three rows and `_MSE` exist for names that begin with `MXFP` or `MXINT`, and quantize linear layers.
    ///
    /// # Errors
    ///
    /// If no configuration has this name.
    pub fn named(name: &str) -> Result<Self, PtqError> {
        let unknown = || PtqError::Name {
            name: name.to_owned(),
            allowed: format!(
                "{}; and a name without {ADAQUANT}, with {} (the last six for MXFP… and MXINT8)",
                Self::names().collect::<Vec<_>>().join(", "),
                METHODS.join(", ")
            ),
        };
        let mut bases = NAMED.iter();
        let found = bases.find_map(|(base, preset)| Some((name.strip_prefix(base)?, preset)));
        let (suffix, preset) = found.ok_or_else(unknown)?;
        let preset = MxSpecs::preset(preset).expect("it is one");
        let config = Self {
            specs: MxSpecs {
                bfloat: 0,
                ..preset
            },
            ..Self::default()
        };
        // Microexponents and block floating point have no scale byte to search.
        let is_tuned = [ADAQUANT, "_ADAROUND"].contains(&suffix);
        if config.specs.block_size == 0 && !suffix.is_empty() && !is_tuned {
            return Err(unknown());
        }
        config.with_method(suffix).map_err(|_| unknown())
    }

    /// The same configuration with the method of rounding weights that a suffix of [`named`](Self::named) stands for; an empty suffix
    /// changes nothing.
    ///
    /// # Errors
    ///
    /// If [`named`](Self::named) does not know the suffix, or specs do not resolve.
    pub fn with_method(self, suffix: &str) -> Result<Self, PtqError> {
        let mut config = self;
        let gptq = |error_feedback, scales| {
            Some(Gptq {
                error_feedback,
                scales,
                ..Gptq::default()
            })
        };
        match suffix {
            "" => {}
            ADAQUANT => config.fast_finetune = Some(FastFinetune::default()),
            "_ADAROUND" => {
                config.fast_finetune = Some(FastFinetune {
                    optim_algorithm: OptimAlgorithm::AdaRound,
                    ..FastFinetune::default()
                });
            }
            "_MSE" => config.gptq = gptq(false, ScaleSearch::SquaredError),
            "_HESSIAN" => config.gptq = gptq(false, ScaleSearch::Hessian),
            "_GPTQ" => config.gptq = gptq(true, ScaleSearch::None),
            "_GPTQ_MSE" => config.gptq = gptq(true, ScaleSearch::SquaredError),
            "_GPTQ_HESSIAN" => config.gptq = gptq(true, ScaleSearch::Hessian),
            "_MRGPTQ" => {
                for specs in config.all_specs() {
                    specs.hadamard_forward =
                        specs
                            .resolve()?
                            .block_format(Slot::W)
                            .map(|format| Hadamard {
                                block_size: format.group_size(),
                                signs: HadamardSigns::Given(0),
                            });
                }
                config.gptq = gptq(true, ScaleSearch::SquaredError);
            }
            _ => {
                return Err(PtqError::Name {
                    name: suffix.to_owned(),
                    allowed: format!("{ADAQUANT}, {}", METHODS.join(", ")),
                });
            }
        }
        Ok(config)
    }
}
