//! Limits of a step's figures, at which a phase of a schedule begins.

use burn_mx_module::Limit;

use crate::file::figures::{Figures, StepRecord};
use crate::report::operands;

impl StepRecord {
    /// Whether the mean of the limit's figure over the step's operands is beyond the limit. Operands without the figure do not count, as
    /// exact ones do not for the signal-to-quantization-noise ratio. Without any operand with the figure the answer is `false`.
    pub fn is_beyond(&self, limit: Limit) -> bool {
        let mean = |figure: fn(&Figures) -> Option<f64>| {
            let figures = operands(self).filter_map(|(_, operand)| figure(&operand.figures));
            let figures: Vec<f64> = figures.collect();
            let count = figures.len() as f64;
            (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / count)
        };
        match limit {
            Limit::Sqnr(limit) => mean(|of| of.sqnr).is_some_and(|mean| mean < limit),
            Limit::Underflow(limit) => mean(|of| of.underflow).is_some_and(|mean| mean > limit),
            Limit::Saturation(limit) => mean(|of| of.saturation).is_some_and(|mean| mean > limit),
        }
    }
}
