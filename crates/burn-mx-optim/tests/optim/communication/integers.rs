//! The integers of collectives as packed numbers.

use burn_mx_optim::{PackedState, StateFormat};
use microscaling::{RandomStream, Rounder};

use super::normal;

/// Text, bits, numbers of a block, whether blocks are interleaved.
const FORMATS: [(&str, i32, usize, bool); 6] = [
    ("int4_clipped", 4, 128, false),
    ("int8_clipped", 8, 8000, false),
    ("int8_clipped(block_size=7)", 8, 7, false),
    ("int4_signed", 4, 32, true),
    ("int6_signed", 6, 32, true),
    ("int8_signed(block_size=3)", 8, 3, true),
];

fn pack(format: &str, data: &[f32], rounder: Rounder) -> PackedState {
    let format: StateFormat = format.parse().unwrap();
    PackedState::encode(format, data, &[data.len()], rounder).unwrap()
}

/// The places of each block.
fn blocks(count: usize, size: usize, is_interleaved: bool) -> Vec<Vec<usize>> {
    let all: Vec<usize> = (0..count).collect();
    let blocks: Vec<Vec<usize>> = match is_interleaved {
        false => all.chunks(size).map(<[usize]>::to_vec).collect(),
        true => {
            let halves = |pair: &[usize]| {
                [0, 1].map(|odd| pair.iter().copied().skip(odd).step_by(2).collect())
            };
            all.chunks(2 * size).flat_map(halves).collect()
        }
    };
    let is_some = |block: &Vec<usize>| !block.is_empty();
    blocks.into_iter().filter(is_some).collect()
}

#[test]
fn numbers_are_whole_steps_of_their_block() {
    for (format, bits, size, is_interleaved) in FORMATS {
        for count in [0, 1, 2, 63, 64, 65, 200, 8001] {
            let mut data = normal(count, 9);
            if count > 64 {
                data[64] = f32::NAN;
            }
            let packed = pack(format, &data, Rounder::NearestEven);
            let blocks = blocks(count, size, is_interleaved);
            let elements = (count * bits as usize).div_ceil(8);
            assert_eq!(
                packed.bytes(),
                elements + 4 * blocks.len(),
                "{format}, {count}"
            );
            let text = serde_json::to_string(&packed).unwrap();
            let read: PackedState = serde_json::from_str(&text).unwrap();
            assert_eq!(read, packed);
            let got = read.decode();
            let half = 2f64.powi(bits - 1);
            for block in blocks {
                let numbers = || block.iter().map(|at| f64::from(data[*at]));
                if numbers().any(f64::is_nan) {
                    assert!(
                        block.iter().all(|at| got[*at].is_nan()),
                        "{format}, {count}"
                    );
                    continue;
                }
                let most = numbers().reduce(|a, b| if b.abs() > a.abs() { b } else { a });
                let step = match is_interleaved {
                    true => -most.unwrap() / half,
                    false => most.unwrap().abs() / half,
                };
                for (at, x) in block.iter().zip(numbers()) {
                    let code = (x / step).round_ties_even().clamp(-half, half - 1.0);
                    assert_eq!(got[*at], (code * step) as f32, "{format}, {count}: {x}");
                }
            }
        }
    }
}

#[test]
fn stochastic_integers_are_right_on_average() {
    let data = vec![0.3f32; 20_000];
    let mut with_scale = data.clone();
    // One number per block of 8 fixes the step, 1/8.
    with_scale.iter_mut().step_by(8).for_each(|x| *x = -1.0);
    let stream = RandomStream::new(1, 2);
    let packed = pack(
        "int4_clipped(block_size=8)",
        &with_scale,
        Rounder::Stochastic(stream),
    );
    let got = packed.decode();
    let others: Vec<f64> = got
        .iter()
        .filter(|x| **x > 0.0)
        .map(|x| f64::from(*x))
        .collect();
    assert!(others.iter().all(|x| [0.25, 0.375].contains(x)));
    let mean = others.iter().sum::<f64>() / others.len() as f64;
    assert!((mean - 0.3).abs() < 0.002, "{mean}");
}

#[test]
fn zeros_infinities_and_tiny_numbers() {
    for (format, ..) in FORMATS {
        let zeros = pack(format, &[0.0, -0.0, 0.0], Rounder::NearestEven).decode();
        assert!(
            zeros.iter().all(|x| x.to_bits() == 0),
            "{format}: {zeros:?}"
        );
        let infinite = pack(format, &[f32::INFINITY], Rounder::NearestEven).decode();
        assert!(infinite[0].is_nan(), "{format}");
        for x in [-1e-45f32, -1e-38, -f32::MAX] {
            assert_eq!(
                pack(format, &[x], Rounder::NearestEven).decode(),
                [x],
                "{format}"
            );
        }
    }
}
