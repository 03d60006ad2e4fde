//! GPTQ ([Frantar et al. 2022](https://arxiv.org/abs/2210.17323)): rounds a weight input by input, and changes the inputs that
//! are still to come so that the layer's output stays close. With the blocks' scales fixed before, as they share them.

mod factor;
mod grid;
mod layers;
mod saved;

use microscaling::Packed;
use serde::{Deserialize, Serialize};

use crate::error::PtqError;
use burn_mx_core::{HadamardSigns, ResolvedSpecs, Slot};
use grid::{WeightFormat, WeightGrid};
pub use layers::GptqLayer;
pub(super) use layers::{GptqRun, quantize};

/// GPTQ of linear layers ([Frantar et al. 2022](https://arxiv.org/abs/2210.17323)), for weights in MX and NVFP4.
///
/// With `hadamard_forward` in the specs a weight is quantized in the transform's basis, as in MR-GPTQ ([Egiazarian et al.
/// 2025](https://arxiv.org/abs/2509.23202)). The layer's inputs are transformed and quantized at each call. The weight stays in
/// its own basis and has no format any more, so a checkpoint stores it unpacked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gptq {
    /// The share of the mean of the Hessian's diagonal that is added to the diagonal. Default: 0.01, as in the paper.
    pub damping: f64,
    /// Whether inputs are rounded in the order of falling diagonal elements of the Hessian, not from first to last. Blocks
    /// stay as they are. Default: false.
    pub act_order: bool,
    /// How scales are found. Default: by the format's rule.
    pub scales: ScaleSearch,
    /// Whether the errors of rounded inputs change the weights of the inputs to come, as in GPTQ. Without, elements are rounded to
    /// nearest in the scales that were found. Default: true.
    pub error_feedback: bool,
}

/// How the scales of a weight's blocks are found, before any element is rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ScaleSearch {
    /// By the format's rule.
    #[default]
    None,
    /// The scale with the least squared error of a block: in MX half, equal or twice the rule's, in NVFP4 one of the 13 scales
    /// around the rule's.
    SquaredError,
    /// The same, each error times the input's diagonal element of the Hessian.
    Hessian,
}

impl Default for Gptq {
    fn default() -> Self {
        Self {
            damping: 0.01,
            act_order: false,
            scales: ScaleSearch::None,
            error_feedback: true,
        }
    }
}

impl Gptq {
    /// Checks the fields, and that GPTQ can quantize weights by these specs.
    pub(super) fn check(&self, specs: &ResolvedSpecs) -> Result<(), PtqError> {
        if !(self.damping.is_finite() && self.damping > 0.0) {
            return Err(PtqError::Field {
                field: "damping",
                value: self.damping.to_string(),
                allowed: "a positive number",
            });
        }
        if self.act_order && !self.error_feedback {
            return Err(PtqError::Field {
                field: "act_order",
                value: "true without `error_feedback`".into(),
                allowed: "false, because without feedback the order has no effect",
            });
        }
        let refuse = |allowed| {
            Err(PtqError::Field {
                field: "gptq",
                value: format!("with the specs `{specs}`"),
                allowed,
            })
        };
        if !specs.block_format(Slot::W).is_some_and(WeightGrid::has) {
            return refuse("with weights in MX or NVFP4, in blocks that are not square");
        }
        if specs.float_format().is_some() {
            return refuse("`bfloat` and `fp` 0");
        }
        if specs.hot_columns().is_some() {
            return refuse("`hot_columns` none");
        }
        let transform = specs.hadamard_forward();
        let is_fixed =
            transform.is_none_or(|hadamard| matches!(hadamard.signs, HadamardSigns::Given(_)));
        let is_random = match transform {
            None => specs.is_random(),
            // A transform with fixed signs draws nothing.
            Some(_) => specs.round_mx_output() == microscaling::Rounding::Stochastic,
        };
        match is_fixed && !is_random {
            true => Ok(()),
            false => refuse(
                "without stochastic rounding, and with `hadamard_forward` of given signs, such as `32:none`",
            ),
        }
    }
}

/// A quantized weight, and the squared errors of the layer's output on the Hessian's inputs, as parts of the output's square.
#[derive(Debug)]
struct Solved {
    packed: Packed,
    /// With the format's own scales, rounded to nearest.
    error_nearest: f64,
    /// By GPTQ.
    error: f64,
}

/// Quantizes a finite weight `[outputs, inputs]`. `hessian` is the sum of `x xᵀ` over all inputs x, `[inputs, inputs]`. `None`
/// if the Hessian is not finite.
fn solve(
    config: &Gptq,
    format: WeightFormat,
    weight: &[f32],
    shape: [usize; 2],
    hessian: &[f64],
) -> Option<Solved> {
    let [_, inputs] = shape;
    let diagonal: Vec<f64> = (0..inputs).map(|i| hessian[i * inputs + i]).collect();
    let mut order: Vec<usize> = (0..inputs).collect();
    if config.act_order {
        order.sort_by(|a, b| diagonal[*b].total_cmp(&diagonal[*a]));
    }
    if !diagonal.iter().all(|element| element.is_finite()) {
        return None;
    }
    let plain = WeightGrid::new(format, weight, shape, ScaleSearch::None, &diagonal);
    let codes = nearest_codes(&plain, weight, inputs);
    let nearest = plain.pack(&codes);
    drop(codes);
    let grid = WeightGrid::new(format, weight, shape, config.scales, &diagonal);
    let codes = match config.error_feedback {
        true => {
            let factor = factor::of_inverse(damped(config, hessian, &order), inputs)?;
            with_feedback(&grid, weight, shape, &order, &factor)
        }
        false => nearest_codes(&grid, weight, inputs),
    };
    let packed = grid.pack(&codes);
    let error = |packed: &Packed| error(weight, &packed.decode(), inputs, hessian);
    Some(Solved {
        error_nearest: error(&nearest),
        error: error(&packed),
        packed,
    })
}

/// The Hessian with its inputs in this order, and the damping added.
fn damped(config: &Gptq, hessian: &[f64], order: &[usize]) -> Vec<f64> {
    let inputs = order.len();
    let mean = (0..inputs).map(|i| hessian[i * inputs + i]).sum::<f64>() / inputs as f64;
    let mut damped: Vec<f64> = order
        .iter()
        .flat_map(|i| order.iter().map(move |j| hessian[i * inputs + j]))
        .collect();
    for i in 0..inputs {
        damped[i * inputs + i] += config.damping * mean;
        // Nothing depends on an input that is always 0.
        if damped[i * inputs + i] == 0.0 {
            damped[i * inputs + i] = 1.0;
        }
    }
    damped
}

/// The code of each element's nearest number.
fn nearest_codes(grid: &WeightGrid, weight: &[f32], inputs: usize) -> Vec<u32> {
    let elements = weight.iter().enumerate();
    let code = |(at, value): (usize, &f32)| {
        let (_, code) = grid.nearest(at / inputs, at % inputs, f64::from(*value));
        code
    };
    elements.map(code).collect()
}

/// The codes of a weight whose inputs are rounded in this order, each with the errors of the inputs before. `factor` is the
/// triangular factor of the Hessian's inverse, in the same order.
fn with_feedback(
    grid: &WeightGrid,
    weight: &[f32],
    shape: [usize; 2],
    order: &[usize],
    factor: &[f64],
) -> Vec<u32> {
    let [rows, inputs] = shape;
    let mut codes = vec![0; weight.len()];
    // Some rows at a time, so that the factor is read less often.
    const ROWS: usize = 16;
    for first in (0..rows).step_by(ROWS) {
        let count = ROWS.min(rows - first);
        let of_row = |row: usize| {
            let row = &weight[row * inputs..(row + 1) * inputs];
            order.iter().map(|column| f64::from(row[*column]))
        };
        let mut rest: Vec<f64> = (first..first + count).flat_map(of_row).collect();
        for (place, column) in order.iter().enumerate() {
            let factors = &factor[place * inputs + place..(place + 1) * inputs];
            for (row, rest) in rest.chunks_exact_mut(inputs).enumerate() {
                let (number, code) = grid.nearest(first + row, *column, rest[place]);
                codes[(first + row) * inputs + column] = code;
                let error = (rest[place] - f64::from(number)) / factors[0];
                for (rest, factor) in rest[place..].iter_mut().zip(factors) {
                    *rest -= error * factor;
                }
            }
        }
    }
    codes
}

/// `tr((Q − W) H (Q − W)ᵀ) / tr(W H Wᵀ)`
fn error(weight: &[f32], quantized: &[f32], inputs: usize, hessian: &[f64]) -> f64 {
    let square = |row: &[f64]| -> f64 {
        let products = hessian.chunks_exact(inputs).zip(row);
        products
            .map(|(line, value)| {
                value
                    * line
                        .iter()
                        .zip(row)
                        .map(|(h, value)| h * value)
                        .sum::<f64>()
            })
            .sum()
    };
    let rows = weight
        .chunks_exact(inputs)
        .zip(quantized.chunks_exact(inputs));
    let [mut noise, mut signal] = [0.0; 2];
    for (weight, quantized) in rows {
        let differences = weight.iter().zip(quantized);
        let differences = differences.map(|(w, q)| f64::from(*q) - f64::from(*w));
        noise += square(&differences.collect::<Vec<_>>());
        signal += square(&weight.iter().map(|w| f64::from(*w)).collect::<Vec<_>>());
    }
    match signal > 0.0 {
        true => noise / signal,
        false => noise,
    }
}

#[cfg(test)]
mod tests;
