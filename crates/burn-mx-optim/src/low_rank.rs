//! A matrix as a product of low rank and the rest, by one power iteration (code of MuonQ, arXiv 2605.11396). All sums are in float64, in
//! ascending order, so every machine has the same bits.

use microscaling::RandomStream;

/// A matrix [rows, columns] as leftᵀ·right + rest.
#[derive(Debug, Clone, Default)]
pub(crate) struct Split {
    /// Orthonormal: `[rank, rows]`.
    pub(crate) left: Vec<f32>,
    /// `[rank, columns]`
    pub(crate) right: Vec<f32>,
    /// `[rows, columns]`
    pub(crate) rest: Vec<f32>,
}

/// MuonQ's code adds this number to a norm.
pub(crate) const LEAST_NORM: f64 = 1e-7;

fn norm(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.map(|x| x * x).sum::<f64>().sqrt()
}

/// Normal numbers, for the first iteration.
pub(crate) fn normal(count: usize, stream: RandomStream) -> Vec<f32> {
    let uniform = |at: usize| (f64::from(stream.draw(at as u64)) + 0.5) / 2f64.powi(32);
    let number = |at: usize| {
        let angle = core::f64::consts::TAU * uniform(2 * at + 1);
        ((-2.0 * uniform(2 * at).ln()).sqrt() * angle.cos()) as f32
    };
    (0..count).map(number).collect()
}

impl Split {
    /// P is an orthonormal basis of B·Q, and R is Bᵀ·P: `before` has the last R, `[rank, columns]`, whose normalized rows are Qᵀ.
    pub(crate) fn new(matrix: &[f32], [rows, columns]: [usize; 2], before: &[f32]) -> Self {
        let row = |row: usize| &matrix[row * columns..][..columns];
        let mut left = Vec::new();
        for of_rank in before.chunks_exact(columns) {
            let length = norm(of_rank.iter().map(|x| f64::from(*x))) + LEAST_NORM;
            let direction: Vec<f64> = of_rank.iter().map(|x| f64::from(*x) / length).collect();
            let product = |index| {
                let pairs = row(index).iter().zip(&direction);
                pairs.map(|(x, y)| f64::from(*x) * y).sum::<f64>()
            };
            left.push((0..rows).map(product).collect());
        }
        orthonormalize(&mut left);
        let mut right = Vec::with_capacity(before.len());
        for direction in &left {
            let mut sums = vec![0.0; columns];
            for (index, factor) in direction.iter().enumerate() {
                for (sum, x) in sums.iter_mut().zip(row(index)) {
                    *sum += factor * f64::from(*x);
                }
            }
            right.extend(sums.into_iter().map(|sum| sum as f32));
        }
        let left: Vec<f32> = left.into_iter().flatten().map(|x| x as f32).collect();
        let products = products(&left, &right, [rows, columns]);
        let rest = matrix.iter().zip(products);
        let rest = rest.map(|(x, product)| (f64::from(*x) - product) as f32);
        Self {
            rest: rest.collect(),
            left,
            right,
        }
    }

    /// The matrix.
    pub(crate) fn joined(&self, shape: [usize; 2]) -> Vec<f32> {
        let products = products(&self.left, &self.right, shape);
        let sums = self.rest.iter().zip(products);
        sums.map(|(rest, product)| (f64::from(*rest) + product) as f32)
            .collect()
    }
}

/// leftᵀ·right.
fn products(left: &[f32], right: &[f32], [rows, columns]: [usize; 2]) -> Vec<f64> {
    let mut products = vec![0.0; rows * columns];
    let pairs = left.chunks_exact(rows).zip(right.chunks_exact(columns));
    for (of_left, of_right) in pairs {
        for (sums, factor) in products.chunks_exact_mut(columns).zip(of_left) {
            for (sum, x) in sums.iter_mut().zip(of_right) {
                *sum += f64::from(*factor) * f64::from(*x);
            }
        }
    }
    products
}

/// The orthonormal factor of a QR decomposition by Householder's reflections, as LAPACK computes it: also where vectors depend on each other
/// or are zero. A vector has at least as many numbers as there are vectors.
fn orthonormalize(vectors: &mut [Vec<f64>]) {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let reflect = |reflector: &[f64], vector: &mut [f64]| {
        let factor = 2.0 * dot(reflector, vector);
        for (x, y) in vector.iter_mut().zip(reflector) {
            *x -= factor * y;
        }
    };
    let mut reflectors: Vec<Vec<f64>> = Vec::new();
    for (number, vector) in vectors.iter_mut().enumerate() {
        for (start, reflector) in reflectors.iter().enumerate() {
            reflect(reflector, &mut vector[start..]);
        }
        let mut reflector = vector[number..].to_vec();
        let length = norm(reflector.iter().copied());
        reflector[0] += length.copysign(reflector[0]);
        let length = norm(reflector.iter().copied());
        if length != 0.0 {
            reflector.iter_mut().for_each(|x| *x /= length);
        }
        reflectors.push(reflector);
    }
    for (number, vector) in vectors.iter_mut().enumerate() {
        vector.fill(0.0);
        vector[number] = 1.0;
        for (start, reflector) in reflectors.iter().enumerate().rev() {
            reflect(reflector, &mut vector[start..]);
        }
    }
}
