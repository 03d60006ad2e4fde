//! A layer whose sums are exact, and matrices written out in `f64`.

use burn_core::tensor::module::linear;
use burn_core::tensor::{Tensor, TensorData, backend::Backend};
use burn_flex::{Flex, FlexDevice};
use burn_mx_core::{MxAutodiff, MxDevice, MxSpecs};
use microscaling::{BlockFormat, Rounder};
use rand::{RngExt, SeedableRng, rngs::StdRng};

pub(crate) type Emulated = MxAutodiff<Flex>;
pub(crate) type Rows = Vec<Vec<f64>>;

pub(crate) const FP4: &str = "mx(element=fp4_e2m1,block_size=16)";
pub(crate) const FP8: &str = "mx(element=fp8_e4m3,block_size=32,scale_mode=rceil)";
/// x [batch, rows, columns], w [columns, outputs], the output's gradient, and a bias.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    pub(crate) shape: [usize; 4],
    pub(crate) x: Vec<f32>,
    pub(crate) w: Vec<f32>,
    pub(crate) g: Vec<f32>,
    pub(crate) bias: Vec<f32>,
}

impl Layer {
    pub(crate) fn random(shape: [usize; 4], seed: u64) -> Self {
        let [batch, rows, columns, outputs] = shape;
        let mut random = StdRng::seed_from_u64(seed);
        let mut many = |count: usize, largest: i32| -> Vec<f32> {
            let mut number = || random.random_range(-largest..=largest) as f32 / 4.0;
            (0..count).map(|_| number()).collect()
        };
        let mut x = many(batch * rows * columns, 9);
        let (w, g) = (
            many(columns * outputs, 30),
            many(batch * rows * outputs, 30),
        );
        let bias = many(outputs, 8);
        // Some columns are four times as large.
        for (at, x) in x.iter_mut().enumerate() {
            if at % columns % 5 == seed as usize % 5 {
                *x *= 4.0;
            }
        }
        Self {
            shape,
            x,
            w,
            g,
            bias,
        }
    }

    /// Output, and the gradients of input and weight.
    pub(crate) fn pass(&self, specs: &MxSpecs) -> [Vec<f32>; 3] {
        let [batch, rows, columns, outputs] = self.shape;
        let device = MxDevice::new(FlexDevice, specs).expect("sound specs");
        let x = tensor::<Emulated, 3>(&self.x, [batch, rows, columns], &device).require_grad();
        let w = tensor::<Emulated, 2>(&self.w, [columns, outputs], &device).require_grad();
        let bias = tensor::<Emulated, 1>(&self.bias, [outputs], &device);
        let y = linear(x.clone(), w.clone(), Some(bias));
        let g = tensor::<Emulated, 3>(&self.g, [batch, rows, outputs], &device);
        let grads = (y.clone() * g).sum().backward();
        [
            values(y),
            values(x.grad(&grads).expect("x is a leaf")),
            values(w.grad(&grads).expect("w is a leaf")),
        ]
    }

    pub(crate) fn x(&self) -> Rows {
        rows(&self.x, self.shape[2])
    }

    pub(crate) fn w(&self) -> Rows {
        rows(&self.w, self.shape[3])
    }

    pub(crate) fn g(&self) -> Rows {
        rows(&self.g, self.shape[3])
    }

    /// The rows of a matrix with rows as x has, each batch entry by `f`.
    pub(crate) fn by_entry(&self, matrix: &Rows, f: impl Fn(Rows) -> Rows) -> Rows {
        let entries = matrix.chunks(self.shape[1]);
        entries.flat_map(|entry| f(entry.to_vec())).collect()
    }

    /// Columns by falling norm.
    pub(crate) fn by_norm(&self) -> Vec<usize> {
        let norm =
            |column: usize| -> f64 { self.x().iter().map(|row| row[column] * row[column]).sum() };
        let mut order: Vec<usize> = (0..self.shape[2]).collect();
        order.sort_by(|a, b| norm(*b).total_cmp(&norm(*a)));
        order
    }

    pub(crate) fn assert(&self, got: &[Vec<f32>; 3], [y, dx, dw]: [Rows; 3], what: &str) {
        let with_bias = |row: Vec<f64>| -> Vec<f64> {
            let pairs = row.into_iter().zip(&self.bias);
            pairs.map(|(y, bias)| y + f64::from(*bias)).collect()
        };
        let y: Rows = y.into_iter().map(with_bias).collect();
        for ((got, expected), name) in got.iter().zip([y, dx, dw]).zip(["y", "dx", "dw"]) {
            let expected: Vec<f32> = expected.into_iter().flatten().map(|x| x as f32).collect();
            assert_eq!(*got, expected, "{name} of {what}, shape {:?}", self.shape);
        }
    }
}

pub(crate) fn tensor<B: Backend, const D: usize>(
    values: &[f32],
    shape: [usize; D],
    device: &B::Device,
) -> Tensor<B, D> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), device)
}

pub(crate) fn values<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().into_vec().expect("it holds f32")
}

pub(crate) fn rows(values: &[f32], columns: usize) -> Rows {
    let row = |row: &[f32]| row.iter().map(|x| f64::from(*x)).collect();
    values.chunks(columns).map(row).collect()
}

pub(crate) fn transposed(matrix: &Rows) -> Rows {
    let column = |j: usize| matrix.iter().map(|row| row[j]).collect();
    (0..matrix.first().map_or(0, Vec::len))
        .map(column)
        .collect()
}

pub(crate) fn times(a: &Rows, b: &Rows) -> Rows {
    let columns = transposed(b);
    let dot = |row: &[f64], column: &[f64]| row.iter().zip(column).map(|(a, b)| a * b).sum();
    let row = |row: &Vec<f64>| columns.iter().map(|column| dot(row, column)).collect();
    a.iter().map(row).collect()
}

pub(crate) fn zip(a: &Rows, b: &Rows, f: impl Fn(f64, f64) -> f64) -> Rows {
    let row = |(a, b): (&Vec<f64>, &Vec<f64>)| a.iter().zip(b).map(|(a, b)| f(*a, *b)).collect();
    a.iter().zip(b).map(row).collect()
}

pub(crate) fn plus(a: &Rows, b: &Rows) -> Rows {
    zip(a, b, |a, b| a + b)
}

pub(crate) fn minus(a: &Rows, b: &Rows) -> Rows {
    zip(a, b, |a, b| a - b)
}

/// Each row in blocks of the format.
pub(crate) fn in_rows(matrix: &Rows, format: &str) -> Rows {
    let format: BlockFormat = format.parse().expect("it is a format");
    let row = |row: &Vec<f64>| {
        let mut q: Vec<f32> = row.iter().map(|x| *x as f32).collect();
        let shape = [q.len()];
        let done = format.quantize(&mut q, &shape, 0, Rounder::NearestEven);
        done.expect("a vector has an axis");
        q.into_iter().map(f64::from).collect()
    };
    matrix.iter().map(row).collect()
}

pub(crate) fn in_columns(matrix: &Rows, format: &str) -> Rows {
    transposed(&in_rows(&transposed(matrix), format))
}

pub(crate) fn columns_of(matrix: &Rows, columns: &[usize]) -> Rows {
    let row = |row: &Vec<f64>| columns.iter().map(|column| row[*column]).collect();
    matrix.iter().map(row).collect()
}

pub(crate) fn rows_of(matrix: &Rows, rows: &[usize]) -> Rows {
    rows.iter().map(|row| matrix[*row].clone()).collect()
}

/// The rows of both parts at their places.
pub(crate) fn placed(parts: [Rows; 2], order: &[usize]) -> Rows {
    let mut matrix = vec![Vec::new(); order.len()];
    for (row, place) in parts.concat().into_iter().zip(order) {
        matrix[*place] = row;
    }
    matrix
}
