//! The published schemes: relative mean square errors of normal numbers, which other programs computed from the definitions in float64.

use burn_mx_optim::communication::{Communication, Route, TensorState};

use microscaling::RandomStream;

use super::{all_reduce, floats, normal, row};
use crate::tensor;

const COUNT: usize = 1 << 18;

fn error(expected: &[f32], got: &[f32]) -> f64 {
    let pairs = expected.iter().zip(got);
    let square = |x: f64| x * x;
    let lost = pairs.map(|(x, y)| square(f64::from(*x) - f64::from(*y)));
    lost.sum::<f64>() / expected.iter().map(|x| square((*x).into())).sum::<f64>()
}

/// The anchor's last digit may be rounded, beside the tolerance of the sample.
fn close(what: &str, value: f64, anchor: f64, tolerance: f64) {
    let relative = (value / anchor - 1.0).abs();
    assert!(
        relative <= tolerance,
        "{what}: {value:e}, anchor {anchor:e}"
    );
}

/// The mean error of a gather over several shards.
fn gathered(wire: &Communication, shards: &[Vec<f32>]) -> f64 {
    let rows = shards.iter().map(|shard| row(shard)).collect();
    let got = wire
        .all_gather(rows, 0, &mut TensorState::default())
        .unwrap();
    error(&shards.concat(), &floats(got))
}

fn normals(ranks: usize, count: usize) -> Vec<Vec<f32>> {
    (0..ranks)
        .map(|rank| normal(count, 50 + rank as u64))
        .collect()
}

fn exact_sum(operands: &[Vec<f32>]) -> Vec<f32> {
    let of = |at: usize| operands.iter().map(|x| f64::from(x[at])).sum::<f64>() as f32;
    (0..operands[0].len()).map(of).collect()
}

/// The error of the parts that owners have after `reduce_scatter` of matrices.
fn scattered(wire: &Communication, operands: &[Vec<f32>], shape: [usize; 2]) -> f64 {
    let matrices = operands.iter().map(|x| row(x).reshape(shape)).collect();
    let parts = wire
        .reduce_scatter(matrices, &mut TensorState::default())
        .unwrap();
    let got: Vec<f32> = parts.into_iter().flat_map(floats).collect();
    error(&exact_sum(operands), &got)
}

fn preset(name: &str) -> Communication {
    Communication::preset(name).unwrap()
}

#[test]
fn zeropp_has_the_published_errors() {
    let qwz = preset("qwz");
    assert_eq!(qwz.format.as_deref(), Some("int8_clipped"));
    let qwz = Communication {
        format: Some("int8_clipped(block_size=8192)".into()),
        ..qwz
    };
    // The largest of 8,192 numbers varies: 256 blocks have an error with a deviation of 1 %, and the anchor had fewer.
    close("qwZ", gathered(&qwz, &normals(8, COUNT)), 7.96e-5, 0.03);

    let group_512 = Communication {
        format: Some("int4_clipped(block_size=512)".into()),
        ..qwz
    };
    close(
        "qgZ, one message",
        gathered(&group_512, &normals(4, COUNT)),
        1.40e-2,
        0.01,
    );
    // 2 nodes of 8 ranks; of 1024 × 128 numbers, rows give 1024 blocks of 128.
    let operands = normals(16, 1024 * 128);
    close(
        "qgZ",
        scattered(&preset("qgz"), &operands, [1024, 128]),
        2.23e-2,
        0.01,
    );
}

#[test]
fn sdp4bit_has_the_published_errors() {
    let gradients = preset("sdp4bit_gradients");
    let operands = normals(16, 1 << 17);
    close(
        "gradients",
        scattered(&gradients, &operands, [1024, 128]),
        2.71e-2,
        0.03,
    );

    let int4 = Communication {
        format: gradients.format_between_nodes.clone(),
        rounding: gradients.rounding,
        ..Communication::default()
    };
    close("int4", gathered(&int4, &normals(4, COUNT)), 2.75e-2, 0.03);
    // One of 512 numbers is 20 times as large, at random places.
    let places = RandomStream::new(5, 5);
    let outliers = |mut x: Vec<f32>| {
        for (at, x) in x.iter_mut().enumerate() {
            *x *= if places.draw(at as u64) >> 23 == 0 {
                20.0
            } else {
                1.0
            };
        }
        x
    };
    let outliers: Vec<_> = normals(4, COUNT).into_iter().map(outliers).collect();
    let hadamard = Communication {
        hadamard: 32,
        ..int4.clone()
    };
    close("outliers", gathered(&int4, &outliers), 0.152, 0.05);
    close(
        "outliers, transformed",
        gathered(&hadamard, &outliers),
        0.025,
        0.05,
    );

    let weights = preset("sdp4bit_weights");
    let before: Vec<_> = normals(2, COUNT)
        .iter()
        .map(|x| x.iter().map(|x| x * 0.02).collect())
        .collect();
    let moved = |(x, step): (&Vec<f32>, &Vec<f32>)| -> Vec<f32> {
        x.iter()
            .zip(step)
            .map(|(x, step)| x + 1e-4 * step)
            .collect()
    };
    let steps: Vec<_> = normals(4, COUNT).split_off(2);
    let after: Vec<_> = before.iter().zip(&steps).map(moved).collect();
    let direct = Communication {
        difference: false,
        operand: None,
        ..weights.clone()
    };
    close("weights", gathered(&direct, &after), 4.5e-2, 0.03);
    let mut state = TensorState::default();
    let mut gather = |shards: &[Vec<f32>]| {
        let rows = shards.iter().map(|shard| row(shard)).collect();
        floats(weights.all_gather(rows, 0, &mut state).unwrap())
    };
    assert_eq!(gather(&before), before.concat());
    // "1e-6" is one digit.
    let error = error(&after.concat(), &gather(&after));
    assert!((1.0e-6..1.2e-6).contains(&error), "{error:e}");
}

#[test]
fn ms_amp_has_the_published_errors() {
    for (ranks, count, hops, once, tolerance) in [
        (8, 1 << 16, 4.2e-3, 1.4e-3, 0.02),
        (64, 1 << 14, 2.5e-2, 1.4e-3, 0.05),
    ] {
        let operands = normals(ranks, count);
        let of = |name: &str| {
            let sum = all_reduce(&preset(name), &operands, &mut TensorState::default());
            error(&exact_sum(&operands), &sum)
        };
        close("every hop", of("ms_amp"), hops, tolerance);
        close("one rounding at the end", of("ms_amp_once"), once, 0.03);
    }
}

#[test]
fn quick_reduce_has_the_published_errors() {
    let quick = preset("quick_reduce_int4");
    assert_eq!(
        (quick.route, quick.format.as_deref()),
        (Route::AllToAll, Some("int4_signed"))
    );
    let one = Communication { ..quick };
    close("int4", gathered(&one, &normals(4, COUNT)), 7.36e-3, 0.01);
    let clipped = Communication {
        format: Some("int4_clipped(block_size=32)".into()),
        ..one
    };
    close(
        "without the sign",
        gathered(&clipped, &normals(4, COUNT)),
        8.75e-3,
        0.01,
    );
}

/// The number of largest magnitude is exact, and blocks are the even and odd places of 64 numbers.
#[test]
fn blocks_of_quick_reduce_are_interleaved() {
    let x: Vec<f32> = tensor::<burn_flex::Flex, 1>([200], 3)
        .into_data()
        .into_vec()
        .unwrap();
    let wire = Communication {
        format: Some("int4_signed".into()),
        ..Communication::default()
    };
    let rows = vec![row(&x), row(&[])];
    let got = floats(
        wire.all_gather(rows, 0, &mut TensorState::default())
            .unwrap(),
    );
    for start in (0..200).step_by(64) {
        for odd in 0..2 {
            let places: Vec<usize> = (start + odd..(start + 64).min(200)).step_by(2).collect();
            let most = places
                .iter()
                .map(|at| x[*at])
                .reduce(|a, b| if b.abs() > a.abs() { b } else { a });
            let step = -most.unwrap() / 8.0;
            for at in places {
                let code = (x[at] / step).round_ties_even().clamp(-8.0, 7.0);
                assert_eq!(got[at], code * step, "{at}");
                assert!((got[at] - x[at]).abs() <= step.abs() * 1.001, "{at}");
            }
        }
    }
}

/// MS-AMP's sums beside a loop: one factor for all ranks, E4M3 by halves of the definition's steps.
#[test]
fn ms_amp_equals_a_written_out_loop() {
    let e4m3 = |x: f32| {
        let step = 2f32.powi((x.abs().log2().floor() as i32).max(-6) - 3);
        let rounded = (x / step).round_ties_even() * step;
        if x == 0.0 {
            x
        } else {
            rounded.clamp(-448.0, 448.0)
        }
    };
    let operands = normals(5, 333);
    let most = operands
        .iter()
        .flatten()
        .fold(0.0f32, |a, b| a.max(b.abs()));
    let factor = ((448.0 / f64::from(most)).log2().floor().exp2() / 5f64.sqrt()) as f32;
    for requantize in [true, false] {
        let wire = Communication {
            requantize,
            ..preset("ms_amp")
        };
        let got = all_reduce(&wire, &operands, &mut TensorState::default());
        for (at, got) in got.into_iter().enumerate() {
            let part = at / 67;
            let own = |hop: usize| e4m3(operands[(part + 1 + hop) % 5][at] * factor);
            let add = |sum: f32, hop| match (requantize, hop) {
                (true, 2..) => e4m3(sum) + own(hop),
                _ => sum + own(hop),
            };
            let sum = (1..5).fold(own(0), add);
            assert_eq!(got, e4m3(sum) / factor, "{at}");
        }
    }
}
