//! Sums of products of random operands.

use std::error::Error;

use burn_mx::{BlockFormat, MxSpecs, Slot};
use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use microscaling::{AccumulatorMatrix, AccumulatorOperand, RandomStream, Rounder};
use serde::Serialize;

use super::{Cli, Unit};

/// Rows and columns of the product.
const SIZE: [usize; 2] = [8, 32];

/// The error of the sums of a unit.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct SumError {
    pub(crate) k: usize,
    #[serde(flatten)]
    pub(crate) unit: Unit,
    /// Norm of the errors over the norm of the exact sums: of operands of both signs, and of positive ones.
    pub(crate) relative_errors: [f64; 2],
}

/// The errors of every unit for every length.
pub(crate) fn errors(
    cli: &Cli,
    units: &[Unit],
    specs: &MxSpecs,
) -> Result<Vec<SumError>, Box<dyn Error>> {
    let resolved = specs.resolve()?;
    let formats = [Slot::A, Slot::W].map(|slot| resolved.block_format(slot));
    let [Some(of_x), Some(of_w)] = formats else {
        return Err(format!("--preset '{}' has no block format", cli.preset).into());
    };
    let mut all = Vec::new();
    for &k in &cli.lengths {
        let operands = [false, true].map(|positive| Operands::new([of_x, of_w], k, positive));
        let [signed, positive] = operands;
        let operands = [signed?, positive?];
        for &unit in units {
            let mut relative_errors = [0.0; 2];
            for (error, operands) in relative_errors.iter_mut().zip(&operands) {
                *error = operands.error(unit)?;
            }
            all.push(SumError {
                k,
                unit,
                relative_errors,
            });
        }
    }
    Ok(all)
}

struct Operands {
    x: AccumulatorMatrix,
    w: AccumulatorMatrix,
    /// The exact sums, in float64.
    exact: Vec<f64>,
}

impl Operands {
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

    fn error(&self, unit: Unit) -> Result<f64, Box<dyn Error>> {
        let [x, w] = [&self.x, &self.w].map(AccumulatorMatrix::operand);
        let mut sums = vec![0.0; self.exact.len()];
        let accumulator = unit.choice.of(x.kind, w.kind)?;
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
pub(crate) fn table(errors: &[SumError]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header([
            "K",
            "promote every",
            "fraction bits",
            "error, both signs",
            "error, positive",
        ]);
    for error in errors {
        let [signed, positive] = error.relative_errors;
        table.add_row([
            error.k.to_string(),
            error.unit.promote_every.to_string(),
            error.unit.fraction_bits.to_string(),
            format!("{signed:.1e}"),
            format!("{positive:.1e}"),
        ]);
    }
    table
}
