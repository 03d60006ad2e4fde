//! MuonQ: a normalized momentum, split in a product of low rank and the rest, in 4 bits.

use burn_core::{
    record::{BinBytesRecorder, FullPrecisionSettings, Recorder},
    tensor::Tensor,
};
use burn_flex::Flex;
use burn_mx_optim::{
    Muon, OptimizerStates, PackedState, PackedStates, ParameterState, StateFormat, StateTensor,
};
use burn_optim::{MuonConfig, SimpleOptimizer, momentum::MomentumConfig};
use half::f16;
use microscaling::Rounder;

use crate::{B, DEVICE, Net, bits, normal, tensor};

type State = ParameterState<Flex, 2>;

fn muon(states: &OptimizerStates, nesterov: bool) -> PackedStates<Muon> {
    let momentum = MomentumConfig::new()
        .with_momentum(0.95)
        .with_dampening(0.0)
        .with_nesterov(nesterov);
    let config = MuonConfig::new().with_momentum(momentum);
    let adaptor = states.muon::<B, Net<B>>(&config).unwrap();
    adaptor.optim().clone()
}

/// The rest of a momentum, without the product.
fn rest(state: State) -> Vec<f32> {
    match state.first_moment.unwrap() {
        StateTensor::Packed(packed) => packed.decode(),
        StateTensor::Float(_) => panic!("the momentum has a format"),
    }
}

fn rounded(text: &str, data: &[f32], shape: &[usize]) -> Vec<f32> {
    let format: StateFormat = text.parse().unwrap();
    PackedState::encode(format, data, shape, Rounder::NearestEven)
        .unwrap()
        .decode()
}

/// The integers of MuonQ's code, written out: codes, the float16 step, the logarithm.
fn written_out(data: &[f32], bits: u32, is_companded: bool) -> Vec<f32> {
    let law = |x: f32| match is_companded {
        true => {
            let x = f64::from(x).clamp(-1.0, 1.0);
            x.signum() * (255.0 * x.abs()).ln_1p() / 256f64.ln()
        }
        false => f64::from(x),
    };
    let largest = data.iter().map(|x| law(*x).abs()).fold(0.0, f64::max);
    let most = f64::from((1 << (bits - 1)) - 1);
    let step = (largest / most).max(1e-8);
    let number = |x: &f32| {
        let code = (law(*x) / step).round_ties_even().clamp(-most - 1.0, most);
        let y = code * f64::from(f16::from_f64(step).to_f32());
        match is_companded {
            true => (y.signum() * (y.abs() * 256f64.ln()).exp_m1() / 255.0) as f32,
            false => y as f32,
        }
    };
    data.iter().map(number).collect()
}

#[test]
fn integers_equal_the_written_out_ones() {
    for count in [1, 7, 1000] {
        for scale in [1e-10, 1e-3, 0.3, 1.0, 30.0] {
            let data: Vec<f32> = normal(count, 7).into_iter().map(|x| x * scale).collect();
            for (name, bits, is_companded) in [
                ("int4_symmetric", 4, false),
                ("int8_symmetric", 8, false),
                ("int4_companded", 4, true),
                ("int8_companded", 8, true),
            ] {
                let got = rounded(name, &data, &[count]);
                let expected = written_out(&data, bits, is_companded);
                // Zeros have no sign here.
                assert!(got == expected, "{name} {count} {scale}");
                let in_rows = rounded(&format!("{name}(block_size=7)"), &data, &[count]);
                let of_rows = data
                    .chunks(7)
                    .map(|row| written_out(row, bits, is_companded));
                assert!(in_rows == of_rows.collect::<Vec<_>>().concat(), "{name}");
            }
        }
    }
    assert_eq!(rounded("int4_symmetric", &[0.0, -0.0], &[2]), [0.0; 2]);
}

/// A scale of NaN or Inf is the scale of all numbers; the least step has no float16.
#[test]
fn unusual_numbers_of_integers() {
    for name in ["int4_symmetric", "int8_companded"] {
        let nan = rounded(name, &[1.0, f32::NAN, 0.5], &[3]);
        assert!(nan.iter().all(|x| x.is_nan()), "{name}");
        assert_eq!(rounded(name, &[1e-12, -1e-30], &[2]), [0.0; 2], "{name}");
    }
    assert!(rounded("int4_symmetric", &[f32::INFINITY, 1.0], &[2])[0].is_nan());
    // Beyond 1 a logarithm clips.
    let clipped = rounded("int8_companded", &[3.0, -0.5], &[2]);
    assert!(
        (clipped[0] - 1.0).abs() < 1e-2 && clipped[1] > -0.6,
        "{clipped:?}"
    );
    let text = "int4_companded(block_size=64)";
    let format: StateFormat = text.parse().unwrap();
    assert_eq!(format.to_string(), text);
    assert!(
        "int4_companded(block_size=-1)"
            .parse::<StateFormat>()
            .is_err()
    );
    let whole: StateFormat = "int4_companded(block_size=0)".parse().unwrap();
    assert_eq!(whole.to_string(), "int4_companded");
}

/// The figures of the recipe, of a matrix of 1024 × 1024 whose largest number is 4.82 times the root mean square.
#[test]
fn four_bits_have_the_published_errors() {
    let mut data = normal(1 << 20, 11);
    data.iter_mut().for_each(|x| *x = x.clamp(-4.82, 4.82));
    data[0] = 4.82;
    let norm = data
        .iter()
        .map(|x| f64::from(*x).powi(2))
        .sum::<f64>()
        .sqrt();
    data.iter_mut().for_each(|x| *x /= norm as f32);
    for (name, anchor) in [("int4_companded", 2.50e-2), ("int4_symmetric", 3.95e-2)] {
        let pairs = data.iter().zip(rounded(name, &data, &[1024, 1024]));
        let error: f64 = pairs.map(|(x, y)| f64::from(x - y).powi(2)).sum();
        assert!((error / anchor - 1.0).abs() < 0.01, "{name}: {error:e}");
    }
}

/// Orthonormal columns by Gram and Schmidt, twice: another way to the same product P·Rᵀ.
fn gram_schmidt(vectors: &mut [Vec<f64>]) {
    for at in 0..vectors.len() {
        for _ in 0..2 {
            let (before, vector) = vectors.split_at_mut(at);
            for other in before {
                let dot: f64 = other.iter().zip(&vector[0]).map(|(a, b)| a * b).sum();
                vector[0]
                    .iter_mut()
                    .zip(&*other)
                    .for_each(|(x, y)| *x -= dot * y);
            }
        }
        let norm = vectors[at].iter().map(|x| x * x).sum::<f64>().sqrt();
        vectors[at].iter_mut().for_each(|x| *x /= norm);
    }
}

/// The first iteration finds all directions of a momentum of rank 2, so that nothing is left for the rest.
#[test]
fn a_momentum_of_low_rank_has_a_small_rest() {
    let (rows, columns) = (48, 40);
    let [a, b] = [normal(2 * rows, 3), normal(2 * columns, 4)];
    let number = |at: usize| {
        let (row, column) = (at / columns, at % columns);
        (0..2)
            .map(|k| a[2 * row + k] * b[2 * column + k])
            .sum::<f32>()
    };
    let data: Vec<f32> = (0..rows * columns).map(number).collect();
    let grad = Tensor::<Flex, 1>::from_floats(data.as_slice(), &DEVICE).reshape([rows, columns]);
    let rests = [0, 16].map(|divisor| {
        let states = OptimizerStates {
            low_rank_divisor: divisor,
            ..OptimizerStates::preset("muonq").unwrap()
        };
        let optimizer = muon(&states, false);
        let weights = Tensor::<Flex, 2>::zeros([rows, columns], &DEVICE);
        let (_, state) = optimizer.step(0.01, weights, grad.clone(), None);
        let state: State = state.unwrap();
        assert_eq!(state.factors.is_some(), divisor != 0);
        rest(state).into_iter().map(f32::abs).fold(0.0, f32::max)
    });
    assert!(rests[1] < rests[0] * 1e-5, "{rests:?}");
}

/// Two steps against the definition: norms, momentum, the power iteration, the rest, formats of rows and of the tensor.
#[test]
fn the_split_equals_its_definition() {
    for shape in [[48, 40], [33, 70]] {
        let [rows, columns] = shape;
        let rank = rows.min(columns) / 16;
        let states = OptimizerStates::preset("muonq").unwrap();
        let optimizer = muon(&states, false);
        let mut weights = Tensor::<Flex, 2>::zeros(shape, &DEVICE);
        let mut state: Option<State> = None;
        // The momentum and the last R, by hand.
        let mut momentum = vec![0.0f64; rows * columns];
        let mut before: Option<Vec<f32>> = None;
        for step in 0..3 {
            let grad = tensor::<Flex, 2>(shape, 20 + step);
            (weights, state) = optimizer.step(0.01, weights, grad.clone(), state);
            let kept = state.clone().unwrap();
            let [left, right] = kept.factors.clone().unwrap();
            let grad = grad.into_data().into_vec::<f32>().unwrap();
            let unit = |x: Vec<f64>| {
                let norm = x.iter().map(|x| x * x).sum::<f64>().sqrt() + 1e-7;
                x.into_iter().map(|x| x / norm).collect::<Vec<_>>()
            };
            let grad = unit(grad.into_iter().map(f64::from).collect());
            let sum = momentum.iter().zip(&grad).map(|(m, g)| 0.95 * m + g);
            let whole = unit(sum.collect());
            if let Some(before) = &before {
                let mut basis: Vec<Vec<f64>> = (before.chunks(columns))
                    .map(|direction| {
                        let product = |row: usize| {
                            let pairs = whole[row * columns..][..columns].iter().zip(direction);
                            pairs.map(|(x, y)| x * f64::from(*y)).sum()
                        };
                        (0..rows).map(product).collect()
                    })
                    .collect();
                gram_schmidt(&mut basis);
                for (number, vector) in basis.iter().enumerate() {
                    // The sign of a column is free.
                    let vector: Vec<f32> = vector.iter().map(|x| *x as f32).collect();
                    let expected = written_out(&vector, 4, true);
                    let got = &left.decode()[number * rows..][..rows];
                    let same = |sign: f32| {
                        let far = |(a, b): (&f32, &f32)| (a - sign * b).abs() > 2e-3;
                        got.iter().zip(&expected).filter(|pair| far(*pair)).count()
                    };
                    // A number next to a tie may have the next code.
                    assert!(same(1.0).min(same(-1.0)) <= 1, "{shape:?} {number}");
                }
            }
            assert_eq!(left.shape(), [rank, rows]);
            assert_eq!(right.shape(), [rank, columns]);
            // The rest of the numbers that are kept: the momentum is within half a code of all three.
            let rest = rest(kept);
            let [l, r] = [left.decode(), right.decode()];
            let joined = |at: usize| {
                let (row, column) = (at / columns, at % columns);
                let product =
                    |k: usize| f64::from(l[k * rows + row]) * f64::from(r[k * columns + column]);
                f64::from((0..rank).map(product).sum::<f64>() as f32 + rest[at])
            };
            momentum = (0..rows * columns).map(joined).collect();
            let pairs = momentum.iter().zip(&whole);
            let error: f64 = pairs.map(|(x, y)| (x - y).powi(2)).sum();
            assert!(error < 0.04, "{shape:?} step {step}: {error}");
            before = Some(r);
        }
    }
}

/// Ten steps equal five, a record, and five more; the factors count as bytes.
#[test]
fn a_resumed_run_equals_a_run_without_a_stop() {
    for (name, nesterov) in [
        ("muonq", false),
        ("muonq", true),
        ("muon4", false),
        ("muon8", false),
    ] {
        for stochastic in [false, true] {
            let mut states = OptimizerStates::preset(name).unwrap();
            if stochastic {
                states.first_moment_rounding = microscaling::Rounding::Stochastic;
            }
            let optimizer = muon(&states, nesterov);
            let steps = |optimizer: &PackedStates<Muon>, range: core::ops::Range<u64>, from| {
                let (mut weights, mut state): (Tensor<Flex, 2>, Option<State>) = from;
                for step in range {
                    let grad = tensor::<Flex, 2>([48, 64], 40 + step);
                    (weights, state) = optimizer.step(0.02, weights, grad, state);
                }
                (weights, state)
            };
            let start = || (tensor::<Flex, 2>([48, 64], 1), None);
            let (ten, _) = steps(&optimizer, 0..10, start());
            let optimizer = muon(&states, nesterov);
            let (weights, state) = steps(&optimizer, 0..5, start());
            let state = state.unwrap();
            let kept = state.bytes().kept;
            let expected = match name {
                // 4 bits, a float16; three rows of both factors, each with a float16.
                "muonq" => 48 * 32 + 2 + (48 + 64) * 3 / 2 + 12,
                "muon4" => 48 * 32 + 2,
                _ => 48 * 64 + 2 * 4,
            };
            assert_eq!(
                (kept, state.bytes().float32),
                (expected, 4 * 48 * 64),
                "{name}"
            );
            let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
            let saved = Recorder::<Flex>::record(&recorder, state, ()).unwrap();
            let state: State = Recorder::<Flex>::load(&recorder, saved, &DEVICE).unwrap();
            let resumed = muon(&states, nesterov);
            let (resumed, _) = steps(&resumed, 5..10, (weights, Some(state)));
            assert!(bits(ten) == bits(resumed), "{name} {stochastic}");
        }
    }
}

/// Matrices with fewer rows or columns than the divisor, zeros, and a NaN.
#[test]
fn small_and_unusual_matrices() {
    let states = OptimizerStates::preset("muonq").unwrap();
    let optimizer = muon(&states, false);
    for shape in [[15, 300], [1, 1], [16, 16], [300, 17]] {
        let grad = tensor::<Flex, 2>(shape, 5);
        let weights = grad.clone();
        let (after, state) = optimizer.step(0.1, weights.clone(), grad.clone(), None);
        let state = state.unwrap();
        assert_eq!(
            state.factors.is_some(),
            shape[0].min(shape[1]) >= 16,
            "{shape:?}"
        );
        let (again, _) = optimizer.step(0.1, after.clone(), grad.clone(), Some(state));
        let finite = again.into_data().into_vec::<f32>().unwrap();
        assert!(finite.iter().all(|x| x.is_finite()), "{shape:?}");
        // Zeros: neither a norm nor a direction.
        let zero = grad.zeros_like();
        let (still, state) = optimizer.step(0.1, weights.clone(), zero, None);
        still
            .into_data()
            .assert_eq(&weights.clone().into_data(), true);
        // Out of zero the iteration finds the direction of the next gradient.
        let (moved, state) = optimizer.step(0.1, weights.clone(), grad, state);
        assert!(bits(moved) != bits(weights), "{shape:?}");
        if let Some([left, _]) = state.unwrap().factors {
            assert!(left.decode().iter().any(|x| *x != 0.0));
        }
    }
    // A NaN stays, and nothing panics.
    let mut data = normal(32 * 32, 6);
    data[5] = f32::NAN;
    let grad = Tensor::<Flex, 1>::from_floats(data.as_slice(), &DEVICE).reshape([32, 32]);
    let (_, state) = optimizer.step(0.1, grad.zeros_like(), grad.clone(), None);
    let (after, _) = optimizer.step(0.1, grad.zeros_like(), grad, state);
    assert!(after.into_data().into_vec::<f32>().unwrap()[0].is_nan());
}

/// The seed draws the first directions, so another seed gives other bits, and the same seed the same.
#[test]
fn the_seed_draws_the_first_directions() {
    let run = |seed| {
        let states = OptimizerStates {
            seed,
            ..OptimizerStates::preset("muonq").unwrap()
        };
        let optimizer = muon(&states, false);
        let grad = tensor::<Flex, 2>([32, 48], 5);
        let (_, state) = optimizer.step(0.1, grad.clone(), grad, None);
        state.unwrap().factors.unwrap()[0].decode()
    };
    assert_eq!(run(0), run(0));
    assert_ne!(run(0), run(1));
}
