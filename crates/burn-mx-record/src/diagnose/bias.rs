//! Computes the bias from the deviations of many gradients.

use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use serde::Serialize;

use super::{GradientBias, Products};

/// Groups of passes. The means of the groups tell bias from noise.
pub(super) const GROUPS: usize = 8;
/// A bias of more standard errors than this is not chance.
const SIGNIFICANT: f64 = 5.0;
/// Relative squared deviations that come from float32 itself.
const NEGLIGIBLE: f64 = 1e-10;
/// With more noise than this the exact gradient is zero up to float32's rounding. An example is the gradient of the keys' bias
/// in attention.
const MEANINGLESS: f64 = 1e3;
/// The slope is computed over this many last doublings of the number of passes.
const DOUBLINGS: usize = 4;

/// The judgement on the mean of quantized gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every gradient is exact, up to float32's own rounding.
    Exact,
    /// The error falls as 1/N, as noise does.
    Unbiased,
    /// A part of the error remains for any number of passes.
    Biased,
}

impl Verdict {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Unbiased => "unbiased",
            Self::Biased => "biased",
        }
    }
}

/// The biases of the gradients of a model.
#[derive(Clone, Debug, Serialize)]
pub struct Biases {
    /// The configuration of the test.
    pub config: GradientBias,
    /// Parameter by parameter, in the model's order.
    pub parameters: Vec<ParameterBias>,
}

/// The bias of the gradient of one parameter.
#[derive(Clone, Debug, Serialize)]
pub struct ParameterBias {
    /// The parameter's path.
    pub parameter: String,
    /// Number of elements.
    pub elements: usize,
    /// One entry for each choice of quantized products.
    pub biases: Vec<Bias>,
}

/// The bias of a gradient g.
#[derive(Clone, Debug, Serialize)]
pub struct Bias {
    /// The products that are quantized.
    pub products: Products,
    /// Numbers of passes N: 1, 2, 4, … and all.
    pub passes: Vec<usize>,
    /// ‖mean − g‖² / ‖g‖² of the first N passes.
    pub error: Vec<f64>,
    /// Slope of log `error` over log N, over the last four doublings: −1 if unbiased, 0 at a plateau. 0 if exact.
    pub slope: f64,
    /// ‖bias‖ / ‖g‖, as far as noise allows to measure it; otherwise 0.
    pub bias: f64,
    /// √(E‖pass − mean‖²) / ‖g‖: the noise of a single pass.
    pub noise: f64,
    /// The judgement.
    pub verdict: Verdict,
}

impl ParameterBias {
    /// The bias for this choice of products.
    ///
    /// # Panics
    ///
    /// If the configuration did not have this choice.
    pub fn of(&self, products: Products) -> &Bias {
        let mut biases = self.biases.iter();
        let found = biases.find(|bias| bias.products == products);
        found.unwrap_or_else(|| panic!("burn-mx: {} were not tried", products.name()))
    }
}

impl Biases {
    /// A line for each parameter, with the verdict for each choice of products.
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_preset(UTF8_FULL_CONDENSED);
        let choices = self.config.products.iter();
        let heads =
            choices.map(|products| format!("{}: verdict, bias %, noise %, slope", products.name()));
        let head = ["parameter".to_owned()];
        table.set_header(head.into_iter().chain(heads));
        for parameter in &self.parameters {
            let cells = parameter.biases.iter().map(|bias| match bias.verdict {
                Verdict::Exact => "exact".into(),
                _ if bias.noise.max(bias.bias) > MEANINGLESS => "no gradient to speak of".into(),
                verdict => format!(
                    "{:8} {:6.2} {:7.2} {:6.2}",
                    verdict.name(),
                    100.0 * bias.bias,
                    100.0 * bias.noise,
                    bias.slope
                ),
            });
            let name = [parameter.parameter.clone()];
            table.add_row(name.into_iter().chain(cells));
        }
        table.to_string()
    }

    /// All figures as JSON.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("it has no maps but by text")
    }
}

/// Deviations of the quantized gradients of a parameter from the exact gradient g.
pub(super) struct Deviations {
    exact: Vec<f32>,
    /// ‖g‖².
    norm: f64,
    passes: usize,
    done: usize,
    /// Σ (pass − g), by group.
    groups: Vec<Vec<f64>>,
    /// Σ ‖pass − g‖².
    squares: f64,
    points: Vec<(usize, f64)>,
}

impl Deviations {
    pub(super) fn new(exact: &[f32], passes: usize) -> Self {
        Self {
            exact: exact.to_vec(),
            norm: exact.iter().map(|x| f64::from(*x).powi(2)).sum(),
            passes,
            done: 0,
            groups: vec![vec![0.0; exact.len()]; GROUPS],
            squares: 0.0,
            points: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, gradient: &[f32]) {
        let group = &mut self.groups[self.done * GROUPS / self.passes];
        for ((sum, pass), exact) in group.iter_mut().zip(gradient).zip(&self.exact) {
            let deviation = f64::from(*pass) - f64::from(*exact);
            *sum += deviation;
            self.squares += deviation * deviation;
        }
        self.done += 1;
        if self.done.is_power_of_two() || self.done == self.passes {
            let error = squared(&self.sum()) / (self.done as f64).powi(2);
            self.points.push((self.done, self.relative(error)));
        }
    }

    /// Σ (pass − g) of all passes.
    fn sum(&self) -> Vec<f64> {
        let mut sum = vec![0.0; self.exact.len()];
        for group in &self.groups {
            for (sum, group) in sum.iter_mut().zip(group) {
                *sum += group;
            }
        }
        sum
    }

    fn relative(&self, square: f64) -> f64 {
        match self.norm > 0.0 {
            true => square / self.norm,
            false => 0.0,
        }
    }

    pub(super) fn bias(&self, products: Products) -> Bias {
        let count = self.done as f64;
        let error = self.points.last().map_or(0.0, |(_, error)| *error);
        let mean_square = self.relative(self.squares / count);
        let noise = ((mean_square - error) * count / (count - 1.0)).max(0.0);
        let (bias, standard_error) = self.squared_bias();
        let verdict = match () {
            () if mean_square < NEGLIGIBLE => Verdict::Exact,
            () if bias > NEGLIGIBLE && bias > SIGNIFICANT * standard_error => Verdict::Biased,
            () => Verdict::Unbiased,
        };
        let is_biased = verdict == Verdict::Biased;
        Bias {
            products,
            passes: self.points.iter().map(|(passes, _)| *passes).collect(),
            error: self.points.iter().map(|(_, error)| *error).collect(),
            slope: slope(&self.points),
            bias: if is_biased { bias.sqrt() } else { 0.0 },
            noise: noise.sqrt(),
            verdict,
        }
    }

    /// ‖bias‖² / ‖g‖² without the noise, and its standard error. Products of the means of different groups share no noise. The
    /// standard error comes from leaving out one group at a time.
    fn squared_bias(&self) -> (f64, f64) {
        let sizes = (0..GROUPS).map(|group| {
            let mut passes = 0..self.done;
            let first = passes.find(|pass| pass * GROUPS / self.passes >= group);
            let after = (0..self.done).find(|pass| pass * GROUPS / self.passes > group);
            (after.unwrap_or(self.done) - first.unwrap_or(self.done)) as f64
        });
        let means: Vec<Vec<f64>> = (self.groups.iter().zip(sizes))
            .map(|(sum, size)| sum.iter().map(|sum| sum / size).collect())
            .collect();
        let mut products = [[0.0; GROUPS]; GROUPS];
        for i in 0..GROUPS {
            for j in 0..i {
                let product = means[i].iter().zip(&means[j]).map(|(a, b)| a * b);
                products[i][j] = self.relative(product.sum());
            }
        }
        let mean_without = |left_out: Option<usize>| {
            let pairs = (0..GROUPS).flat_map(|i| (0..i).map(move |j| (i, j)));
            let pairs = pairs.filter(|(i, j)| Some(*i) != left_out && Some(*j) != left_out);
            let (count, sum) = pairs.fold((0.0, 0.0), |(count, sum), (i, j)| {
                (count + 1.0, sum + products[i][j])
            });
            sum / count
        };
        let all = mean_without(None);
        let spread = (0..GROUPS).map(|group| (mean_without(Some(group)) - all).powi(2));
        let groups = GROUPS as f64;
        (all, ((groups - 1.0) / groups * spread.sum::<f64>()).sqrt())
    }
}

fn squared(vector: &[f64]) -> f64 {
    vector.iter().map(|x| x * x).sum()
}

/// Slope of a line through the logarithms of the last points, by least squares.
fn slope(points: &[(usize, f64)]) -> f64 {
    let last = &points[points.len().saturating_sub(DOUBLINGS + 1)..];
    if last.len() < 2 || last.iter().any(|(_, error)| *error <= 0.0) {
        return 0.0;
    }
    let logs: Vec<_> = (last.iter())
        .map(|(passes, error)| ((*passes as f64).ln(), error.ln()))
        .collect();
    let count = logs.len() as f64;
    let mean_x = logs.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = logs.iter().map(|(_, y)| y).sum::<f64>() / count;
    let covariance: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let variance: f64 = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    covariance / variance
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    /// The bias of passes that deviate from ones by `shift`, and by noise between −`noise` and `noise`.
    fn bias_of(shift: f64, noise: f64) -> Bias {
        let mut random = StdRng::seed_from_u64(3);
        let exact = [1.0; 64];
        let mut deviations = Deviations::new(&exact, 256);
        for _ in 0..256 {
            let pass = exact
                .map(|x| (f64::from(x) + shift + noise * random.random_range(-1.0..1.0)) as f32);
            deviations.add(&pass);
        }
        deviations.bias(Products::All)
    }

    #[test]
    fn noise_falls_as_one_over_n() {
        let bias = bias_of(0.0, 0.5);
        assert_eq!(bias.verdict, Verdict::Unbiased);
        assert_eq!(bias.bias, 0.0);
        assert!((bias.slope + 1.0).abs() < 0.3, "{}", bias.slope);
        // The standard deviation of even numbers from −1/2 to 1/2.
        assert!(
            (bias.noise - 0.5 / 3.0_f64.sqrt()).abs() < 0.01,
            "{}",
            bias.noise
        );
        assert_eq!(bias.passes, [1, 2, 4, 8, 16, 32, 64, 128, 256]);
    }

    #[test]
    fn a_shift_stays() {
        let bias = bias_of(0.1, 0.5);
        assert_eq!(bias.verdict, Verdict::Biased);
        assert!((bias.bias - 0.1).abs() < 0.01, "{}", bias.bias);
        assert!(bias.slope > -0.5, "{}", bias.slope);
    }

    #[test]
    fn one_error_again_and_again_is_all_bias() {
        let bias = bias_of(0.1, 0.0);
        assert_eq!(bias.verdict, Verdict::Biased);
        assert!((bias.bias - 0.1).abs() < 1e-6 && bias.slope.abs() < 1e-6);
        assert!(bias.noise < 1e-6);
    }

    #[test]
    fn exact_gradients_are_exact() {
        let bias = bias_of(0.0, 0.0);
        assert_eq!((bias.verdict, bias.slope), (Verdict::Exact, 0.0));
    }
}
