//! The transform against matrices in f64.

use microscaling::{RandomHadamard, RandomStream, Signs};
#[cfg(feature = "std")]
use microscaling_processor::instruction_set::{Level, with_level};

const SIZES: [usize; 4] = RandomHadamard::BLOCK_SIZES;

fn noise(length: usize, seed: u64) -> Vec<f32> {
    let stream = RandomStream::new(seed, 0);
    let number = |i| stream.draw(i) as i32 as f32 * 2.0_f32.powi(-31 + i as i32 % 7);
    (0..length as u64).map(number).collect()
}

fn transformed(block_size: usize, data: &[f32], shape: &[usize], axis: usize) -> Vec<f32> {
    let mut data = data.to_vec();
    RandomHadamard { block_size }
        .transform(&mut data, shape, axis, RandomStream::new(3, 4))
        .unwrap();
    data
}

/// The matrix of an axis, from the definition: H[i][j] = (-1)^popcount(i & j) / sqrt(n), blocks on
/// the diagonal, and the sign of the column.
fn matrix(block_size: usize, length: usize) -> Vec<Vec<f64>> {
    let signs = RandomStream::new(3, 4);
    signed_matrix(block_size, length, |j| signs.draw(j as u64) >> 31)
}

/// [`matrix`], of signs that are 1 for minus.
fn signed_matrix(block_size: usize, length: usize, sign: impl Fn(usize) -> u32) -> Vec<Vec<f64>> {
    let mut matrix = vec![vec![0.0; length]; length];
    let mut first = 0;
    while first < length {
        let mut n = block_size;
        while n > length - first {
            n /= 2;
        }
        for i in 0..n {
            for j in 0..n {
                let negative = (i & j).count_ones() + sign(first + j);
                let sign = [1.0, -1.0][negative as usize % 2];
                matrix[first + i][first + j] = sign / (n as f64).sqrt();
            }
        }
        first += n;
    }
    matrix
}

fn close(a: f64, b: f64, scale: f64) -> bool {
    (a - b).abs() <= 1e-6 * scale
}

/// Every axis of a tensor, of lengths with and without a rest, against the matrix in f64.
#[test]
fn is_the_matrix() {
    for block_size in SIZES {
        for length in [1, 2, 7, 16, 24, 32, 100, 128, 255, 256] {
            let matrix = matrix(block_size, length);
            for inner in [1, 3, 64, 70] {
                let data = noise(2 * length * inner, 1);
                let got = transformed(block_size, &data, &[2, length, inner], 1);
                for position in 0..data.len() {
                    let column = position / (length * inner) * length * inner + position % inner;
                    let x = (0..length).map(|i| f64::from(data[column + i * inner]));
                    let row = &matrix[position / inner % length];
                    let expected: f64 = row.iter().zip(x).map(|(m, x)| m * x).sum();
                    assert!(
                        close(f64::from(got[position]), expected, 128.0),
                        "{block_size} {length} {inner}: {expected} became {}",
                        got[position]
                    );
                }
            }
        }
    }
}

/// TransformerEngine's signs, none, and all: by the index in the block, also in the shorter ones at the end.
#[test]
fn repeated_signs_are_the_matrix() {
    for block_size in SIZES {
        for signs in [
            0,
            0xd7e8,
            0xd7e8_0000_1234_5678_9abc_def0_0f1e_2d3c,
            u128::MAX,
        ] {
            for length in [block_size, 24, 3 * block_size + 11] {
                let bit = |j: usize| (signs >> (j % block_size) & 1) as u32;
                let matrix = signed_matrix(block_size, length, bit);
                for inner in [1, 70] {
                    let data = noise(length * inner, 3);
                    let transform = RandomHadamard { block_size };
                    let (mut there, mut back) = (data.clone(), data.clone());
                    let (shape, signs) = ([length, inner], Signs::Repeated(signs));
                    transform.transform(&mut there, &shape, 0, signs).unwrap();
                    transform.inverse(&mut back, &shape, 0, signs).unwrap();
                    for position in 0..data.len() {
                        let (row, column) = (position / inner, position % inner);
                        let x = |i: usize| f64::from(data[column + i * inner]);
                        let sum = |entry: &dyn Fn(usize) -> f64| -> f64 {
                            (0..length).map(|i| entry(i) * x(i)).sum()
                        };
                        let expected = sum(&|i| matrix[row][i]);
                        assert!(close(f64::from(there[position]), expected, 128.0));
                        let expected = sum(&|i| matrix[i][row]);
                        assert!(close(f64::from(back[position]), expected, 128.0));
                    }
                }
            }
        }
    }
}

/// The inverse is the transposed matrix: it undoes the transform, exactly where 1/√n is a power of two and no sum
/// rounds.
#[test]
fn inverse_undoes() {
    for block_size in SIZES {
        for (length, inner) in [(block_size, 1), (100, 1), (131, 3), (256, 70), (40, 129)] {
            let data = noise(2 * length * inner, 2);
            let mut back = transformed(block_size, &data, &[2, length, inner], 1);
            let transform = RandomHadamard { block_size };
            let signs = RandomStream::new(3, 4);
            transform
                .inverse(&mut back, &[2, length, inner], 1, signs)
                .unwrap();
            for (x, y) in data.iter().zip(&back) {
                assert!(close(f64::from(*x), f64::from(*y), 128.0), "{x} became {y}");
            }
        }
    }
    for block_size in [16, 64] {
        let data: Vec<f32> = (0..block_size * 5)
            .map(|i| (i * 7 % 31) as f32 - 15.0)
            .collect();
        for signs in [Signs::Repeated(0xd7e8), RandomStream::new(1, 2).into()] {
            let transform = RandomHadamard { block_size };
            let (mut back, shape) = (data.clone(), [block_size, 5]);
            transform.transform(&mut back, &shape, 0, signs).unwrap();
            assert_ne!(back, data);
            transform.inverse(&mut back, &shape, 0, signs).unwrap();
            assert_eq!(back, data);
        }
    }
}

/// The transposed matrix, for every axis and length.
#[test]
fn inverse_is_the_transposed_matrix() {
    for block_size in SIZES {
        for length in [1, 7, 16, 24, 100, 128, 255] {
            let matrix = matrix(block_size, length);
            for inner in [1, 3, 64] {
                let data = noise(length * inner, 1);
                let mut got = data.clone();
                RandomHadamard { block_size }
                    .inverse(&mut got, &[length, inner], 0, RandomStream::new(3, 4))
                    .unwrap();
                for (position, got) in got.into_iter().enumerate() {
                    let (row, column) = (position / inner, position % inner);
                    let terms =
                        (0..length).map(|i| matrix[i][row] * f64::from(data[column + i * inner]));
                    let expected: f64 = terms.sum();
                    assert!(
                        close(f64::from(got), expected, 128.0),
                        "{expected} became {got}"
                    );
                }
            }
        }
    }
}

/// H · Hᵀ = I, of the rows of a transformed identity.
#[test]
fn is_orthonormal() {
    for block_size in SIZES {
        for length in [block_size, 2 * block_size, block_size + 13] {
            let mut identity = vec![0.0; length * length];
            identity
                .iter_mut()
                .step_by(length + 1)
                .for_each(|x| *x = 1.0);
            let h = transformed(block_size, &identity, &[length, length], 1);
            for (i, a) in h.chunks(length).enumerate() {
                for (j, b) in h.chunks(length).enumerate() {
                    let products = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b));
                    let expected = f64::from(u8::from(i == j));
                    assert!(close(products.sum(), expected, 1.0), "{i} {j}");
                }
            }
        }
    }
}

/// a · b, of operands with the shared axis last and first.
#[test]
fn product_stays() {
    let product = |a: &[f32], b: &[f32], k: usize| -> Vec<f64> {
        let n = b.len() / k;
        let entry = |row: &[f32], j: usize| {
            let pairs = row.iter().enumerate();
            pairs
                .map(|(i, x)| f64::from(*x) * f64::from(b[i * n + j]))
                .sum::<f64>()
        };
        a.chunks(k)
            .flat_map(|row| (0..n).map(move |j| entry(row, j)))
            .collect()
    };
    for block_size in SIZES {
        for k in [1, 64, 100, 131, 512] {
            let (a, b) = (noise(5 * k, 1), noise(k * 7, 2));
            let expected = product(&a, &b, k);
            let a = transformed(block_size, &a, &[5, k], 1);
            let b = transformed(block_size, &b, &[k, 7], 0);
            for (got, expected) in product(&a, &b, k).into_iter().zip(expected) {
                assert!(
                    close(got, expected, k as f64 * 100.0),
                    "{expected} became {got}"
                );
            }
        }
    }
}

#[test]
fn spreads_an_outlier() {
    let mut data = [0.0; 64];
    data[5] = 8.0;
    let got = transformed(64, &data, &[64], 0);
    assert!(got.iter().all(|x| x.abs() == 1.0));
}

#[test]
fn seed_matters_and_other_axes_do_not() {
    let h = RandomHadamard { block_size: 16 };
    let run = |seed| {
        let mut data = [1.0; 96];
        h.transform(&mut data, &[2, 48], 1, RandomStream::new(seed, 0))
            .unwrap();
        data
    };
    assert_ne!(run(0), run(1));
    let of_zero = run(0);
    let (first, second) = of_zero.split_at(48);
    assert_eq!(first, second);
    assert_ne!(first[..16], first[16..32], "blocks have signs of their own");
}

#[test]
fn threads_do_not_matter() {
    let pool = |threads| {
        let builder = rayon::ThreadPoolBuilder::new().num_threads(threads);
        builder.build().unwrap()
    };
    let (one, four) = (pool(1), pool(4));
    let data = noise(600 * 513, 9);
    for axis in [0, 1] {
        let run = || transformed(32, &data, &[600, 513], axis);
        assert_eq!(one.install(run), four.install(run));
    }
}

#[test]
fn errors_leave_the_data() {
    let mut data = [1.0; 6];
    let mut error = |block_size, shape: &[usize], axis| {
        let stream = RandomStream::new(0, 0);
        let error = RandomHadamard { block_size }.transform(&mut data, shape, axis, stream);
        assert_eq!(data, [1.0; 6]);
        error.unwrap_err().to_string()
    };
    assert_eq!(
        error(24, &[6], 0),
        "quantize: random Hadamard transform: block_size is 24, expected one of [16, 32, 64, 128]"
    );
    assert!(error(16, &[6], 1).contains("axis 1"));
    assert!(error(16, &[7], 0).contains("7 elements"));
    let empty = RandomHadamard { block_size: 16 };
    assert_eq!(
        empty.transform(&mut [], &[0, 3], 1, RandomStream::new(0, 0)),
        Ok(())
    );
}

/// The same bits from every instruction set, and along the last and any other axis.
#[cfg(feature = "std")]
#[test]
fn instruction_sets_and_axes_agree() {
    for block_size in SIZES {
        for (length, inner) in [
            (256, 1),
            (255, 1),
            (256, 33),
            (100, 70),
            (131, 128),
            (40, 129),
        ] {
            let data = noise(2 * length * inner, 5);
            let inverted = |mut data: Vec<f32>, shape: &[usize], axis| {
                let (transform, signs) = (RandomHadamard { block_size }, RandomStream::new(3, 4));
                transform.inverse(&mut data, shape, axis, signs).unwrap();
                data
            };
            let run = |level| {
                with_level(level, || {
                    let there = transformed(block_size, &data, &[2, length, inner], 1);
                    [inverted(data.clone(), &[2, length, inner], 1), there]
                })
            };
            let both = run(Level::Baseline);
            for level in Level::available() {
                assert!(
                    run(level) == both,
                    "{level:?} {block_size} {length} {inner}"
                );
            }
            let [backward, expected] = both;
            for outer in 0..2 {
                for column in 0..inner {
                    let line = |data: &[f32]| -> Vec<f32> {
                        let first = outer * length * inner + column;
                        (0..length).map(|i| data[first + i * inner]).collect()
                    };
                    let alone = transformed(block_size, &line(&data), &[length], 0);
                    assert_eq!(alone, line(&expected));
                    assert_eq!(inverted(line(&data), &[length], 0), line(&backward));
                }
            }
        }
    }
}
