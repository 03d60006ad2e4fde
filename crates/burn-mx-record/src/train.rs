//! Figures of a recorder as metrics of burn-train.

use std::sync::Arc;

use burn_train::metric::{
    Metric, MetricAttributes, MetricMetadata, MetricName, Numeric, NumericAttributes, NumericEntry,
    SerializedEntry,
};

use super::report::operands;
use super::running::Running;
use super::{Figures, Recording};

/// A figure of the last recorded step, over all operands.
#[derive(Clone, Debug)]
struct Watch {
    name: MetricName,
    running: Arc<Running>,
    mean: bool,
    figure: fn(&Figures) -> Option<f64>,
    unit: &'static str,
    higher_is_better: bool,
    value: f64,
}

impl Watch {
    fn update(&mut self) -> SerializedEntry {
        let latest = self.running.latest();
        let figure = self.figure;
        let operands = latest.iter().flat_map(|step| operands(step));
        let figures = operands
            .filter_map(|(product, operand)| Some((product, operand, figure(&operand.figures)?)));
        let figures: Vec<_> = figures.collect();
        let Some((product, operand, worst)) =
            figures
                .iter()
                .copied()
                .reduce(|a, b| match (a.2 < b.2) == self.higher_is_better {
                    true => a,
                    false => b,
                })
        else {
            let formatted = format!("{}: nothing recorded yet", self.name);
            return SerializedEntry::new(formatted, f64::NAN.to_string());
        };
        let sum: f64 = figures.iter().map(|(.., figure)| figure).sum();
        let mean = sum / figures.len() as f64;
        self.value = if self.mean { mean } else { worst };
        let (name, unit) = (&self.name, self.unit);
        let formatted = match self.mean {
            true => format!("{name}: {mean:.2} {unit}"),
            false => format!(
                "{name}: {worst:.2} {unit}, {} of {} {}",
                operand.operand, product.product, product.layer
            ),
        };
        SerializedEntry::new(formatted, self.value.to_string())
    }
}

macro_rules! metric {
    ($(#[$doc:meta])* $metric:ident, $name:literal, $figure:expr, $unit:literal, $higher_is_better:literal) => {
        $(#[$doc])*
        ///
        /// A figure of the last recorded step. The metric accepts any output of a training step as its input.
        #[derive(Clone, Debug)]
        pub struct $metric(Watch);

        impl $metric {
            /// The figure of the worst operand. The entry names the operand.
            pub fn worst(recording: &Recording) -> Self {
                Self::new(recording, false)
            }

            /// The mean of all operands.
            pub fn mean(recording: &Recording) -> Self {
                Self::new(recording, true)
            }

            fn new(recording: &Recording, mean: bool) -> Self {
                let which = if mean { "mean" } else { "worst" };
                Self(Watch {
                    name: Arc::new(format!(concat!($name, " ({})"), which)),
                    running: Arc::clone(recording.running()),
                    mean,
                    figure: $figure,
                    unit: $unit,
                    higher_is_better: $higher_is_better,
                    value: f64::NAN,
                })
            }
        }

        impl Metric for $metric {
            type Input = ();

            fn name(&self) -> MetricName {
                Arc::clone(&self.0.name)
            }

            fn attributes(&self) -> MetricAttributes {
                let attributes = NumericAttributes {
                    unit: Some($unit.into()),
                    higher_is_better: $higher_is_better,
                };
                attributes.into()
            }

            fn update(&mut self, _: &(), _: &MetricMetadata) -> SerializedEntry {
                self.0.update()
            }

            fn clear(&mut self) {}
        }

        impl Numeric for $metric {
            fn value(&self) -> NumericEntry {
                NumericEntry::Value(self.0.value)
            }

            fn running_value(&self) -> NumericEntry {
                NumericEntry::Value(self.0.value)
            }
        }
    };
}

metric! {
    /// Signal-to-quantization-noise ratio in dB.
    MxSqnr, "MX SQNR", |figures| figures.sqnr, "dB", true
}
metric! {
    /// Share of nonzero elements that became zero, in percent.
    MxUnderflow, "MX underflow", |figures| figures.underflow, "%", false
}
metric! {
    /// Share of elements beyond the largest number under their block's scale, in percent.
    MxSaturation, "MX saturation", |figures| figures.saturation, "%", false
}
