//! The published schemes: figures that were computed from the definitions in float64, by other programs, of normal numbers x for first moments
//! and x² for second ones.

use burn_flex::Flex;
use burn_mx_optim::{Map, OptimizerStates, PackedState, StateFormat};
use burn_optim::{MuonConfig, SimpleOptimizer, momentum::MomentumConfig};
use microscaling::{RandomStream, Rounder};

use crate::{B, Net, normal, tensor};

const COUNT: usize = 1 << 19;

fn round(format: &str, data: &[f32], shape: &[usize], rounder: Rounder) -> Vec<f32> {
    let format: StateFormat = format.parse().unwrap();
    PackedState::encode(format, data, shape, rounder)
        .unwrap()
        .decode()
}

/// The relative mean square error.
fn error(data: &[f32], rounded: &[f32]) -> f64 {
    let square = |x: f64| x * x;
    let pairs = data.iter().zip(rounded);
    let error: f64 = pairs
        .map(|(x, y)| square(f64::from(*x) - f64::from(*y)))
        .sum();
    error / data.iter().map(|x| square((*x).into())).sum::<f64>()
}

fn squares(data: &[f32]) -> Vec<f32> {
    data.iter().map(|x| x * x).collect()
}

fn close(what: &str, value: f64, anchor: f64, tolerance: f64) {
    let relative = (value / anchor - 1.0).abs();
    assert!(
        relative <= tolerance,
        "{what}: {value:e}, anchor {anchor:e}"
    );
}

/// The mean error of a format over several tensors: a few large squares make one tensor's error vary by 2 %.
fn mean_error(format: &str, number: impl Fn(f32) -> f32) -> f64 {
    let of_seed = |seed| {
        let data: Vec<f32> = normal(COUNT, seed).into_iter().map(&number).collect();
        error(&data, &round(format, &data, &[COUNT], Rounder::NearestEven))
    };
    (0..8).map(of_seed).sum::<f64>() / 8.0
}

#[test]
fn first_and_second_moments_have_the_published_errors() {
    let anchors = [
        ("bitsandbytes", Some(1.17e-4), Some(4.16e-5)),
        ("coat", Some(2.08e-4), Some(7.49e-4)),
        ("adam4", Some(2.20e-2), Some(3.26e-2)),
        ("adam4_zero", None, Some(0.73e-2)),
        ("muon8", Some(6.87e-5), None),
    ];
    for (preset, first, second) in anchors {
        let states = OptimizerStates::preset(preset).unwrap();
        if let Some(anchor) = first {
            let format = states.first_moment.unwrap();
            close(&format, mean_error(&format, |x| x), anchor, 0.01);
        }
        if let Some(anchor) = second {
            let format = states.second_moment.unwrap();
            close(&format, mean_error(&format, |x| x * x), anchor, 0.01);
        }
    }
    // COAT without the expansion: E4M3 with a float32 per 128.
    let plain = "block(element=fp8_e4m3,scale=float32,block_size=128)";
    close(plain, mean_error(plain, |x| x), 6.59e-4, 0.01);
    close(plain, mean_error(plain, |x| x * x), 5.66e-4, 0.01);
}

#[test]
fn dynamic_tables_have_256_numbers() {
    for (map, least) in [(Map::Dynamic8, 5.5e-7), (Map::Dynamic8Unsigned, 3.25e-7)] {
        let numbers = map.numbers();
        assert_eq!(numbers.len(), 256);
        let positive = numbers.iter().copied().filter(|x| *x > 0.0);
        let smallest = positive.fold(1.0, f32::min);
        close("least", smallest.into(), least, 1e-6);
        assert!(numbers.contains(&0.0) && numbers.contains(&1.0));
    }
}

#[test]
fn a_zero_in_the_second_moments_map_takes_in_39_percent() {
    let v = squares(&normal(COUNT, 2));
    let zeros = |format| {
        let rounded = round(format, &v, &[COUNT], Rounder::NearestEven);
        rounded.iter().filter(|x| **x == 0.0).count() as f64 / COUNT as f64
    };
    close("linear4_zero", zeros("linear4_zero"), 0.39, 0.01);
    assert_eq!(zeros("linear4"), 0.0);
}

#[test]
fn solos_logarithm_has_the_published_error() {
    let v = squares(&normal(COUNT, 3));
    let stochastic = Rounder::Stochastic(RandomStream::new(1, 1));
    let rounded = round("logarithmic2", &v, &[COUNT], stochastic);
    let pairs = v.iter().zip(&rounded);
    let logarithms = pairs.map(|(x, y)| (f64::from(*y) / f64::from(*x)).log10().powi(2));
    let error = (logarithms.sum::<f64>() / COUNT as f64).sqrt();
    close("SOLO", error, 0.52, 0.03);
}

/// DeepSeek-V3's second moments: v·β₂ in bfloat16, rounded to nearest, for each of the 128 mantissas.
#[test]
fn bfloat16_does_not_decay_with_a_beta_near_1() {
    let mantissas: Vec<f32> = (128..256).map(|m| m as f32 / 128.0).collect();
    let stuck = |beta: f32| {
        let next: Vec<f32> = mantissas.iter().map(|v| v * beta).collect();
        let rounded = round("bfloat16", &next, &[128], Rounder::NearestEven);
        rounded
            .iter()
            .zip(&mantissas)
            .filter(|(a, b)| a == b)
            .count()
    };
    // The mantissa 1.0 has a neighbour half as far below.
    assert!(stuck(0.999) >= 127, "{}", stuck(0.999));
    assert_eq!(stuck(0.997), 38); // 29.7 % of 128
    assert_eq!(stuck(0.995), 0);
}

/// MS-AMP's scale is a power of two that takes the largest magnitude below E4M3's largest number.
#[test]
fn ms_amp_has_one_power_of_two_for_the_tensor() {
    let states = OptimizerStates::preset("ms_amp_o3").unwrap();
    let x: Vec<f32> = normal(4096, 4).iter().map(|x| x * 1e-5).collect();
    let largest = x.iter().fold(0.0, |a: f32, b| a.max(b.abs()));
    let formats = [
        (&states.first_moment, 448.0),
        (&states.second_moment, 65504.0),
    ];
    for (format, most) in formats {
        let format = format.as_ref().unwrap();
        let scale = 2f32.powf((most / largest).log2().floor());
        let rounded = round(format, &x, &[64, 64], Rounder::NearestEven);
        for (x, y) in x.iter().zip(rounded) {
            let expected = match most {
                448.0 => {
                    let e4m3 = microscaling::ElementFormat::FP8_E4M3;
                    let step = 2f32.powi(((x * scale).abs().log2().floor() as i32).max(-6) - 3);
                    let rounded = (x * scale / step).round_ties_even() * step / scale;
                    assert!((rounded * scale).abs() <= e4m3.max());
                    rounded
                }
                _ => half::f16::from_f32(x * scale).to_f32() / scale,
            };
            assert_eq!(y, expected, "{format}: {x}");
        }
    }
}

/// Least and largest singular values, by power iteration on X·Xᵀ in float64.
fn singular_values(x: &[f32], [rows, columns]: [usize; 2]) -> [f64; 2] {
    let mut gram = vec![0.0; rows * rows];
    for (i, out) in gram.iter_mut().enumerate() {
        let [a, b] = [i / rows, i % rows].map(|row| &x[row * columns..][..columns]);
        *out = a
            .iter()
            .zip(b)
            .map(|(a, b)| f64::from(*a) * f64::from(*b))
            .sum();
    }
    let largest = |shift: f64| {
        let mut vector: Vec<f64> = normal(rows, 9).into_iter().map(f64::from).collect();
        let mut norm = 0.0;
        for _ in 0..400 {
            let product = gram.chunks(rows).zip(&vector).map(|(row, own)| {
                let sum: f64 = row.iter().zip(&vector).map(|(a, b)| a * b).sum();
                if shift > 0.0 { shift * own - sum } else { sum }
            });
            let next: Vec<f64> = product.collect();
            norm = next.iter().map(|x| x * x).sum::<f64>().sqrt();
            vector = next.into_iter().map(|x| x / norm).collect();
        }
        norm
    };
    let most = largest(0.0);
    [(most - largest(most)).sqrt(), most.sqrt()]
}

/// Five steps, and DeepSeek-V4's eight and two.
#[test]
fn newton_schulz_in_bfloat16_has_the_published_singular_values() {
    let shape = [256, 1024];
    let end = [2.0, -1.5, 0.5];
    for (format, steps, further, expected) in [
        (None, 5, vec![], [0.682, 1.134]),
        (Some("bfloat16"), 5, vec![], [0.683, 1.140]),
        (None, 8, vec![end; 2], [1.0000, 1.0005]),
        (Some("bfloat16"), 8, vec![end; 2], [0.996, 1.004]),
    ] {
        let config = MuonConfig::new()
            .with_momentum(MomentumConfig::new())
            .with_ns_steps(steps);
        let states = OptimizerStates {
            newton_schulz: format.map(str::to_owned),
            newton_schulz_further: further,
            ..OptimizerStates::default()
        };
        let optimizer = states.muon::<B, Net<B>>(&config).unwrap();
        let weights = tensor::<Flex, 2>(shape, 5).zeros_like();
        let (update, _) = optimizer.optim().step(1.0, weights, tensor(shape, 6), None);
        let update = update.into_data().into_vec::<f32>().unwrap();
        let got = singular_values(&update, shape);
        for (got, expected) in got.into_iter().zip(expected) {
            let tolerance = if steps == 8 { 0.003 } else { 0.01 };
            close(
                &format!("{format:?}, {steps} steps"),
                got,
                expected,
                tolerance,
            );
        }
    }
}
