//! The settings of fast fine-tuning.

use serde::{Deserialize, Serialize};

use crate::error::PtqError;

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

impl FastFinetune {
    /// Adam's learning rate: the given one, or the algorithm's default.
    pub(crate) fn learning_rate(&self) -> f64 {
        self.learning_rate.unwrap_or(match self.optim_algorithm {
            OptimAlgorithm::AdaQuant => 1e-5,
            OptimAlgorithm::AdaRound => 0.1,
        })
    }

    pub(super) fn check(&self) -> Result<(), PtqError> {
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
