//! Sums of products of random operands.

use std::error::Error;

use burn_mx::{Accumulation, BlockFormat, MxSpecs, Slot};
use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use microscaling::{RandomStream, Rounder};
use microscaling_product::{AccumulatorMatrix, AccumulatorOperand};
use serde::Serialize;

use super::{AccumulatorSweepArgs, Unit};

/// Rows and columns of the product.
const SIZE: [usize; 2] = [8, 32];

/// The error of the sums of a unit of the sweep, or of one with a name.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct SumError<U> {
    pub(crate) k: usize,
    #[serde(flatten)]
    pub(crate) unit: U,
    /// Norm of the errors over the norm of the exact sums: of operands of both signs, and of positive ones.
    pub(crate) relative_errors: [f64; 2],
}

/// A unit with a name.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct NamedSum {
    accumulator: Accumulation,
}

/// The errors of every unit for every length.
#[derive(Debug, Default)]
pub(crate) struct SumErrors {
    pub(crate) swept: Vec<SumError<Unit>>,
    pub(crate) named: Vec<SumError<NamedSum>>,
}

/// The errors of the sweep's units, and of the units with names.
pub(crate) fn errors(
    args: &AccumulatorSweepArgs,
    units: &[Unit],
    specs: &MxSpecs,
) -> Result<SumErrors, Box<dyn Error>> {
    let resolved = specs.resolve()?;
    let formats = [Slot::A, Slot::W].map(|slot| resolved.block_format(slot));
    let [Some(of_x), Some(of_w)] = formats else {
        return Err(format!("--preset '{}' has no block format", args.preset).into());
    };
    let mut all = SumErrors::default();
    for &k in &args.lengths {
        let operands = [false, true].map(|positive| RandomOperands::new([of_x, of_w], k, positive));
        let [signed, positive] = operands;
        let operands = [signed?, positive?];
        let relative_errors = |accumulator: Accumulation| -> Result<[f64; 2], Box<dyn Error>> {
            let [signed, positive] = &operands;
            Ok([signed.error(accumulator)?, positive.error(accumulator)?])
        };
        for &unit in units {
            all.swept.push(SumError {
                k,
                unit,
                relative_errors: relative_errors(unit.choice)?,
            });
        }
        for &accumulator in &args.accumulators {
            all.named.push(SumError {
                k,
                unit: NamedSum { accumulator },
                relative_errors: relative_errors(accumulator)?,
            });
        }
    }
    Ok(all)
}

struct RandomOperands {
    x: AccumulatorMatrix,
    w: AccumulatorMatrix,
    /// The exact sums, in float64.
    exact: Vec<f64>,
}

impl RandomOperands {
    /// Normally distributed numbers, or their magnitudes.
    fn new(formats: [BlockFormat; 2], k: usize, positive: bool) -> Result<Self, Box<dyn Error>> {
        let quantized = |i: usize| {
            let stream = RandomStream::new(i as u64, 0);
            let uniform = |i| (f64::from(stream.draw(i)) + 0.5) / 2.0_f64.powi(32);
            let normal = |i: usize| {
                let i = 2 * i as u64;
                let (radius, angle) = (uniform(i), std::f64::consts::TAU * uniform(i + 1));
                let x = (-2.0 * radius.ln()).sqrt() * angle.cos();
                (if positive { x.abs() } else { x }) as f32
            };
            let data: Vec<f32> = (0..SIZE[i] * k).map(normal).collect();
            AccumulatorMatrix::quantize(&formats[i], &data, [SIZE[i], k], 1, Rounder::NearestEven)
        };
        let (x, w) = (quantized(0)?, quantized(1)?);
        let exact = {
            let [rows, columns] = [&x, &w].map(|matrix| values(&matrix.operand()));
            let sums = rows.chunks_exact(k).flat_map(|row| {
                columns.chunks_exact(k).map(move |column| {
                    let products = row.iter().zip(column).map(|(a, b)| a * b);
                    products.sum::<f64>()
                })
            });
            sums.collect()
        };
        Ok(Self { x, w, exact })
    }

    fn error(&self, accumulator: Accumulation) -> Result<f64, Box<dyn Error>> {
        let [x, w] = [&self.x, &self.w].map(AccumulatorMatrix::operand);
        let mut sums = vec![0.0; self.exact.len()];
        let accumulator = accumulator.of(x.kind, w.kind)?;
        accumulator.multiply(&x, &w, &mut sums)?;
        let square = |x: f64| x * x;
        let pairs = || self.exact.iter().zip(&sums);
        let error: f64 = pairs().map(|(a, b)| square(a - f64::from(*b))).sum();
        let power: f64 = self.exact.iter().map(|x| square(*x)).sum();
        Ok((error / power).sqrt())
    }
}

/// Elements times scales, of an operand whose rows are summed over.
fn values(operand: &AccumulatorOperand<'_>) -> Vec<f64> {
    let k = operand.summed.length;
    let blocks = operand.scales.len() / operand.free.length;
    let scale = |i: usize| match operand.kind.block {
        0 => operand.scales[i / k],
        block => operand.scales[i / k * blocks + i % k / block],
    };
    let elements = operand.elements.iter().enumerate();
    elements
        .map(|(i, x)| f64::from(*x) * f64::from(scale(i)))
        .collect()
}

/// The errors as text.
pub(crate) fn table(errors: &SumErrors) -> Table {
    let mut table = Table::new();
    table
        .load_preset(UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header([
            "K",
            "unit",
            "promote every",
            "fraction bits",
            "error, both signs",
            "error, positive",
        ]);
    let mut add = |k: usize, unit: [String; 3], errors: [f64; 2]| {
        let errors = errors.map(|error| format!("{error:.1e}"));
        table.add_row([k.to_string()].into_iter().chain(unit).chain(errors));
    };
    for error in &errors.swept {
        let numbers = [error.unit.promote_every, error.unit.fraction_bits as usize];
        let [promotion, bits] = numbers.map(|number| number.to_string());
        add(
            error.k,
            ["sweep".into(), promotion, bits],
            error.relative_errors,
        );
    }
    for error in &errors.named {
        let name = error.unit.accumulator.to_string();
        add(
            error.k,
            [name, String::new(), String::new()],
            error.relative_errors,
        );
    }
    table
}
