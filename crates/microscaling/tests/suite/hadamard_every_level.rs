//! The Hadamard transform on each instruction set. `hadamard.rs` tests the values.

use microscaling::{RandomHadamard, RandomStream};
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

/// The same bits from every instruction set, and along the last and any other axis.
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
