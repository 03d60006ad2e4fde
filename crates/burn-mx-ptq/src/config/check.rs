//! Checks of a configuration.

use super::{Activations, OptimAlgorithm, QuantConfig};
use crate::calibration;
use crate::error::PtqError;
use burn_mx_core::{ResolvedSpecs, Slot};

impl QuantConfig {
    /// Checks the fields, and resolves the default specs of layers.
    pub(crate) fn resolve(&self) -> Result<ResolvedSpecs, PtqError> {
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
        self.check_batch_norms()?;
        self.fused_layers()?;
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

    /// Checks the batch norms to fold.
    fn check_batch_norms(&self) -> Result<(), PtqError> {
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
        Ok(())
    }
}

/// Checks that weights have a grid for AdaRound.
fn check_grid(resolved: &ResolvedSpecs) -> Result<(), PtqError> {
    let has_grid = resolved.block_format(Slot::W).is_some_and(|format| {
        !format.square && format.has_exponent() && format.other_scales().is_none()
    });
    let is_whole = resolved.hadamard_forward().is_none() && resolved.hot_columns().is_none();
    match has_grid && is_whole {
        true => Ok(()),
        false => Err(PtqError::Field {
            field: "OptimAlgorithm",
            value: format!("`adaround` with the specs `{resolved}`"),
            allowed: "with weights in MX, microexponents or block floating point, in blocks that are not square, without \
                      `hadamard_forward` and `hot_columns`; or `adaquant`",
        }),
    }
}
