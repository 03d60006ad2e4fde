//! Random numbers of a few distributions, and how much of them a format loses.

use microscaling::{BlockFormat, QuantizeError, RandomStream, Rounder, Rounding};
use rand::{RngExt, SeedableRng, rngs::StdRng};

/// Distributions of mean 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Distribution {
    Gauss,
    Laplace,
    /// With this number of degrees of freedom.
    Student(u32),
}

pub(crate) struct RandomNumbers(StdRng);

impl RandomNumbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    /// Above 0, and at most 1.
    fn uniform(&mut self) -> f64 {
        1.0 - self.0.random::<f64>()
    }

    /// By Box and Muller.
    pub(crate) fn gauss(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    pub(crate) fn draw(&mut self, distribution: Distribution) -> f64 {
        match distribution {
            Distribution::Gauss => self.gauss(),
            Distribution::Laplace => {
                let magnitude = -self.uniform().ln();
                if self.uniform() > 0.5 {
                    magnitude
                } else {
                    -magnitude
                }
            }
            Distribution::Student(freedom) => {
                let squares = (0..freedom).map(|_| self.gauss().powi(2));
                let mean = squares.sum::<f64>() / f64::from(freedom);
                self.gauss() / mean.sqrt()
            }
        }
    }

    pub(crate) fn many(&mut self, distribution: Distribution, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.draw(distribution) as f32).collect()
    }

    /// Rows of normal numbers, the standard deviations spread evenly over eight octaves.
    pub(crate) fn scaled_rows(&mut self, rows: usize, length: usize) -> Vec<f32> {
        let row = |row: usize| 2.0_f64.powf(8.0 * row as f64 / rows as f64);
        (0..rows * length)
            .map(|at| (row(at / length) * self.gauss()) as f32)
            .collect()
    }
}

/// A quantized tensor of rows, with blocks along the rows.
pub(crate) fn quantized(
    format: BlockFormat,
    x: &[f32],
    length: usize,
    rounding: Rounding,
    seed: u64,
) -> Result<Vec<f32>, QuantizeError> {
    let mut q = x.to_vec();
    let rounder: Rounder = rounding.with(RandomStream::new(seed, 0));
    format.quantize(&mut q, &[x.len() / length, length], 1, rounder)?;
    Ok(q)
}

/// Σ(x − q)² / Σx², and ⟨x, q⟩ / ⟨x, x⟩.
fn of_row(x: &[f32], q: &[f32]) -> [f64; 2] {
    let [mut errors, mut products, mut squares] = [0.0; 3];
    for (x, q) in x.iter().zip(q) {
        let [x, q] = [f64::from(*x), f64::from(*q)];
        errors += (x - q) * (x - q);
        products += x * q;
        squares += x * x;
    }
    [errors / squares, products / squares]
}

/// The relative squared error, and by how much the projection on the numbers is too short: means over rows.
pub(crate) fn error_and_shrinkage(x: &[f32], q: &[f32], length: usize) -> [f64; 2] {
    let rows = x.chunks(length).zip(q.chunks(length));
    let count = rows.len() as f64;
    let [errors, projections] = rows.fold([0.0; 2], |sums, (x, q)| {
        let row = of_row(x, q);
        [sums[0] + row[0], sums[1] + row[1]]
    });
    [errors / count, 1.0 - projections / count]
}

/// The relative squared error of all together.
pub(crate) fn error(x: &[f32], q: &[f32]) -> f64 {
    of_row(x, q)[0]
}

/// The mean over rows of −10 · log10(relative squared error).
pub(crate) fn mean_decibels(x: &[f32], q: &[f32], length: usize) -> f64 {
    let rows = x.chunks(length).zip(q.chunks(length));
    let count = rows.len() as f64;
    rows.map(|(x, q)| decibels(of_row(x, q)[0])).sum::<f64>() / count
}

pub(crate) fn decibels(error: f64) -> f64 {
    -10.0 * error.log10()
}
