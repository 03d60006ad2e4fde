//! Microexponents, BFP and NVFP4: the slice kernels and the scalar rules against an oracle, along any
//! axis, with all special values; and what holds for all of them.

use crate::float_state::ieee;
use crate::inputs::{numbers, nvfp4_formats};
use crate::oracle::{blocks, identical, pow2};
use microscaling::{BlockFormat, RandomStream, Rounder, Rounding};
use proptest::prelude::*;
use proptest::sample::select;

#[derive(Debug, Clone, Copy)]
enum Format {
    Bfp(BlockFormat),
    Microexponent(BlockFormat),
    Nvfp4(BlockFormat),
}

use Format::{Bfp, Microexponent, Nvfp4};

impl Format {
    fn block_size(self) -> usize {
        match self {
            Bfp(format) => format.block_size,
            Microexponent(format) => format.block_size,
            Nvfp4(_) => 16,
        }
    }

    fn quantize(self, data: &mut [f32], shape: &[usize], axis: usize, rounder: Rounder) {
        match self {
            Bfp(format) => format.quantize(data, shape, axis, rounder),
            Microexponent(format) => format.quantize(data, shape, axis, rounder),
            Nvfp4(format) => format.quantize(data, shape, axis, rounder),
        }
        .unwrap();
    }

    fn quantized(self, data: &[f32], rounding: Rounding) -> Vec<f32> {
        let mut data = data.to_vec();
        let shape = [data.len()];
        self.quantize(&mut data, &shape, 0, rounding.with(RandomStream::new(3, 9)));
        data
    }

    fn oracle(
        self,
        tensor_amax: f32,
        block: &[f32],
        rounding: Rounding,
        draws: &[u32],
    ) -> Vec<f32> {
        match self {
            Bfp(format) => blocks::bfp(&format, block, rounding, draws),
            Microexponent(format) => blocks::microexponent(&format, block, rounding, draws),
            Nvfp4(format) => blocks::nvfp4(&format, tensor_amax, block, rounding, draws),
        }
    }

    /// The scalar functions, for the block and sub-block at hand.
    fn scalar(
        self,
        tensor_amax: f32,
        block: &[f32],
        rounding: Rounding,
        draws: &[u32],
    ) -> Vec<f32> {
        let largest = |data: &[f32]| {
            data.iter()
                .map(|x| x.to_bits() & 0x7fff_ffff)
                .max()
                .unwrap()
        };
        let amax = largest(block);
        let each = block.iter().zip(draws).enumerate();
        each.map(|(i, (&x, &draw))| match self {
            Bfp(format) => {
                let finite: Vec<f32> = block.iter().copied().filter(|x| x.is_finite()).collect();
                let amax = if finite.is_empty() {
                    0
                } else {
                    largest(&finite)
                };
                let rounded = format.round_element(x, [amax; 2], 1.0, rounding, draw);
                if x.is_finite() {
                    let scale = format.block_scale_of(block, 1.0);
                    let scaled = format.round_scaled(x, scale, 1.0, rounding, draw);
                    assert!(identical(rounded, scaled), "{x:e}: {rounded:e} {scaled:e}");
                }
                rounded
            }
            Microexponent(format) => {
                let size = format.shifts.unwrap().block_size;
                let sub_amax = largest(block.chunks(size).nth(i / size).unwrap());
                let rounded = format.round_element(x, [amax, sub_amax], 1.0, rounding, draw);
                let scale = format.block_scale_of(block, 1.0);
                if x.is_finite() {
                    let below = (amax >> 23) - (sub_amax >> 23);
                    let shift = below.min(format.shifts.unwrap().largest());
                    // In float64: the scale of a sub-block may be a subnormal float32.
                    let scale = ieee(|| (f64::from(scale) * pow2(-(shift as i32))) as f32);
                    let scaled = format.round_scaled(x, scale, 1.0, rounding, draw);
                    assert!(identical(rounded, scaled), "{x:e}: {rounded:e} {scaled:e}");
                }
                rounded
            }
            Nvfp4(format) => {
                let tensor_scale = format.tensor_scale_of(tensor_amax.to_bits());
                let block_scale = format.block_scale_of(block, tensor_scale);
                let rounded = format.round_scaled(x, block_scale, tensor_scale, rounding, draw);
                if !format.four_over_six {
                    let other = format.round_element(x, [amax; 2], tensor_scale, rounding, draw);
                    assert!(identical(rounded, other));
                    let alone = [f32::from_bits(amax)];
                    let scale = format.block_scale_of(&alone, tensor_scale);
                    assert_eq!(block_scale.to_bits(), scale.to_bits());
                }
                rounded
            }
        })
        .collect()
    }
}

fn formats() -> impl Strategy<Value = Format> {
    let block_size = || prop_oneof![3 => 1..40_usize, 1 => Just(usize::MAX)];
    let bfp = (10..=32_u32, block_size());
    let bfp = bfp
        .prop_map(|(bit_width, block_size)| Bfp(BlockFormat::bfp(bit_width, block_size).unwrap()));
    let free = (
        10..=32_u32,
        block_size(),
        prop_oneof![1..6_usize, 1..40_usize],
        0..=8_u32,
    );
    let free = free.prop_map(|(bit_width, block_size, sub_block_size, shift_bits)| {
        Microexponent(
            BlockFormat::microexponent(
                bit_width,
                block_size,
                sub_block_size.min(block_size),
                shift_bits,
            )
            .unwrap(),
        )
    });
    let presets = vec![
        Bfp(BlockFormat::BFP16),
        Microexponent(BlockFormat::MX4),
        Microexponent(BlockFormat::MX6),
        Microexponent(BlockFormat::MX9),
        Nvfp4(BlockFormat::nvfp4(false)),
        Nvfp4(BlockFormat::nvfp4(true)),
    ];
    prop_oneof![1 => bfp, 1 => free, 2 => select(presets), 1 => nvfp4_formats().prop_map(Nvfp4)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// Kernel, scalar rule and oracle agree, also on the sign of zero.
    #[test]
    fn any_axis_is_the_rule(
        format in formats(),
        shape in (1..4_usize, prop_oneof![1..10_usize, 1..100_usize], prop_oneof![Just(1), 1..10_usize, 1..70_usize]),
        center in prop_oneof![3 => -10..10, 1 => -149..=-100, 1 => -100..=128],
        specials: bool,
        seed: u64,
    ) {
        let (outer, axis, inner) = shape;
        let data = numbers(outer * axis * inner, center, specials, seed);
        let stream = RandomStream::new(seed, 0);
        let tensor_amax = blocks::amax(&data);
        for rounding in Rounding::ALL {
            let mut got = data.clone();
            format.quantize(&mut got, &[outer, axis, inner], 1, rounding.with(stream));
            for lane in 0..outer * inner {
                let at = |a: usize| (lane / inner * axis + a) * inner + lane % inner;
                let positions: Vec<usize> = (0..axis).map(at).collect();
                for positions in positions.chunks(format.block_size()) {
                    let block: Vec<f32> = positions.iter().map(|i| data[*i]).collect();
                    let draws: Vec<u32> = positions.iter().map(|i| stream.draw(*i as u64)).collect();
                    let expected = format.oracle(tensor_amax, &block, rounding, &draws);
                    let scalar = format.scalar(tensor_amax, &block, rounding, &draws);
                    for (j, i) in positions.iter().enumerate() {
                        prop_assert!(
                            identical(got[*i], expected[j]) && identical(scalar[j], expected[j]),
                            "{} {}: {:e} became {:e} and {:e}, not {:e}",
                            rounding, i, data[*i], got[*i], scalar[j], expected[j]
                        );
                    }
                }
            }
        }
    }

    /// Fixed-point blocks are their own quantization.
    #[test]
    fn idempotent(format in formats(), center in -130..=128, count in 1..70_usize, seed: u64) {
        prop_assume!(!matches!(format, Nvfp4(_)));
        let data = numbers(count, center, true, seed);
        for rounding in Rounding::ALL {
            let once = format.quantized(&data, rounding);
            for again in Rounding::ALL {
                for (x, y) in format.quantized(&once, again).iter().zip(&once) {
                    prop_assert!(identical(*x, *y), "{:e} became {:e}", y, x);
                }
            }
        }
    }

    #[test]
    fn symmetric(format in formats(), center in -149..=128, count in 1..70_usize, seed: u64) {
        let data = numbers(count, center, true, seed);
        let negative: Vec<f32> = data.iter().map(|x| -x).collect();
        for rounding in Rounding::ALL {
            let output = format.quantized(&data, rounding);
            for (a, b) in output.into_iter().zip(format.quantized(&negative, rounding)) {
                prop_assert!(identical(a, -b));
            }
        }
    }

    /// Finite blocks stay finite. Next to the top of float32 an element may become larger, if the scale leaves room above
    /// the largest one.
    #[test]
    fn finite_stays_finite(format in formats(), center in -149..=128, count in 1..70_usize, seed: u64) {
        let mut data = numbers(count, center, false, seed);
        if seed % 4 == 0 {
            data[0] = f32::MAX;
        }
        let leaves_room = match format {
            Nvfp4(format) => format.four_over_six || !format.headroom.is_none(),
            _ => false,
        };
        let top = data.iter().any(|x| x.abs() > f32::MAX / 2.0);
        for rounding in Rounding::ALL {
            let finite = format.quantized(&data, rounding).iter().all(|x| x.is_finite());
            prop_assert!(finite || (leaves_room && top));
        }
    }
}

/// Zeros stay, with their signs, and so do tensors of nothing but the smallest subnormals, or they
/// become zero.
#[test]
fn zeros() {
    let presets = [
        Bfp(BlockFormat::BFP16),
        Microexponent(BlockFormat::MX9),
        Nvfp4(BlockFormat::nvfp4(false)),
        Nvfp4(BlockFormat::nvfp4(true)),
    ];
    for format in presets {
        for rounding in Rounding::ALL {
            let output = format.quantized(&[0.0, -0.0, 0.0], rounding);
            let signs: Vec<u32> = output.iter().map(|x| x.to_bits()).collect();
            assert_eq!(signs, [0, 1 << 31, 0], "{format:?}");
            let tiny = f32::from_bits(1);
            let output = format.quantized(&[tiny, -tiny, 0.0], rounding);
            assert!(output.iter().all(|x| x.abs() <= 2.0 * tiny), "{format:?}");
        }
    }
}

/// The effect of a NaN or an Inf on its neighbours.
#[test]
fn special_values() {
    for special in [f32::NAN, f32::INFINITY, -f32::INFINITY] {
        let mut data = vec![1.0; 48];
        data[20] = special;
        let nans = |format: Format| -> Vec<usize> {
            let output = format.quantized(&data, Rounding::NearestEven);
            (0..48).filter(|i| output[*i].is_nan()).collect()
        };
        let block: Vec<usize> = (16..32).collect();
        assert_eq!(nans(Microexponent(BlockFormat::MX6)), block);
        assert_eq!(nans(Nvfp4(BlockFormat::nvfp4(false))), block);
        assert_eq!(nans(Nvfp4(BlockFormat::nvfp4(true))).len(), 48);
        let mut expected = vec![1.0; 48];
        expected[20] = special;
        let output = Bfp(BlockFormat::BFP16).quantized(&data, Rounding::NearestEven);
        assert!(output.iter().zip(&expected).all(|(a, b)| identical(*a, *b)));
    }
}

/// Large enough for threads.
#[test]
fn threads_do_not_matter() {
    let data = numbers(600 * 513, 0, false, 5);
    let pool = |threads| {
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap()
    };
    let (one, four) = (pool(1), pool(4));
    let formats = [
        Bfp(BlockFormat::BFP16),
        Microexponent(BlockFormat::MX6),
        Nvfp4(BlockFormat::nvfp4(false)),
        Nvfp4(BlockFormat::nvfp4(true)),
    ];
    for format in formats {
        for axis in [0, 1] {
            for rounding in [Rounding::NearestEven, Rounding::Stochastic] {
                let run = || {
                    let mut data = data.clone();
                    format.quantize(
                        &mut data,
                        &[600, 513],
                        axis,
                        rounding.with(RandomStream::new(7, 7)),
                    );
                    data
                };
                assert!(
                    one.install(run) == four.install(run),
                    "{format:?} {axis} {rounding}"
                );
            }
        }
    }
}

/// Blocks and sub-blocks longer than what the kernels look at together.
#[test]
fn long_blocks() {
    let formats = [
        (1500, 2),
        (1500, 7),
        (2500, 1100),
        (usize::MAX, 2),
        (usize::MAX, 1500),
        (1000, 3),
        (15, 2),
        (3, 2),
    ];
    let microexponent = |(block_size, sub_block_size)| {
        Microexponent(BlockFormat::microexponent(13, block_size, sub_block_size, 3).unwrap())
    };
    let bfp = |block_size| Bfp(BlockFormat::bfp(14, block_size).unwrap());
    let formats = formats.map(microexponent).into_iter();
    let stream = RandomStream::new(1, 1);
    for format in formats.chain([bfp(1500), bfp(usize::MAX)]) {
        for inner in [1, 3] {
            let data = numbers(3001 * inner, 3, false, 9);
            let mut got = data.clone();
            format.quantize(&mut got, &[3001, inner], 0, Rounder::Stochastic(stream));
            for lane in 0..inner {
                let positions: Vec<usize> = (lane..data.len()).step_by(inner).collect();
                for positions in positions.chunks(format.block_size()) {
                    let block: Vec<f32> = positions.iter().map(|i| data[*i]).collect();
                    let draws: Vec<u32> =
                        positions.iter().map(|i| stream.draw(*i as u64)).collect();
                    let expected = format.oracle(0.0, &block, Rounding::Stochastic, &draws);
                    let got = positions.iter().map(|i| got[*i]);
                    assert!(
                        got.zip(expected).all(|(a, b)| identical(a, b)),
                        "{format:?} {inner}"
                    );
                }
            }
        }
    }
}
