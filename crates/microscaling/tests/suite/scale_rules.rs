//! Scales that follow from more than the largest magnitude, and the elements that a scale clips.

use crate::float_state::ieee;
use crate::inputs::{formats, numbers, nvfp4_formats};
use crate::oracle::blocks::{amax, nvfp4};
use crate::oracle::{self, floor_log2, headrooms, identical, pow2};
use microscaling::{
    BlockFormat, Comparison, ElementFormat, Headroom, NonFinite, QuantizeError, RandomStream,
    Rounder, Rounding, ScaleFormat, ScaleMode, Statistics, Subnormals,
};
use proptest::prelude::*;
use proptest::sample::select;

fn rms(block_size: usize) -> BlockFormat {
    BlockFormat {
        scale_mode: ScaleMode::Rms,
        ..BlockFormat::mx(ElementFormat::FP4_E2M1, block_size)
    }
}

/// About a normal distribution.
fn normal(seed: u64, count: usize) -> Vec<f32> {
    let stream = RandomStream::new(seed, 7);
    let uniform = |i: u64| f64::from(stream.draw(i)) / pow2(32) - 0.5;
    let sum = |i: usize| (0..12).map(|j| uniform(12 * i as u64 + j)).sum::<f64>();
    (0..count).map(|i| sum(i) as f32).collect()
}

fn statistics(format: BlockFormat, x: &[f32], rounder: Rounder) -> Statistics {
    let (mut q, shape) = (x.to_vec(), [x.len()]);
    format.quantize(&mut q, &shape, 0, rounder).unwrap();
    Statistics::of(Comparison {
        original: x,
        quantized: &q,
        shape: &shape,
        axis: 0,
        format: Some(format),
    })
    .unwrap()
}

/// The elements of the blocks of a matrix, as places, where blocks have this number of rows and columns.
fn blocks_of([rows, columns]: [usize; 2], [high, wide]: [usize; 2]) -> Vec<Vec<usize>> {
    let mut blocks = Vec::new();
    for top in (0..rows).step_by(high) {
        for left in (0..columns).step_by(wide) {
            let of_rows = top..rows.min(top + high);
            let place =
                |row| (left..columns.min(left + wide)).map(move |column| row * columns + column);
            blocks.push(of_rows.flat_map(place).collect());
        }
    }
    blocks
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// The scale of the root mean square follows its definition, for every length, size and scale.
    #[test]
    fn scale_of_the_root_mean_square(
        count in prop_oneof![Just(32_usize), 1..100_usize, 1..3000_usize],
        center in prop_oneof![3 => -10..10, 1 => -149..=-100, 1 => -100..=128],
        specials: bool,
        seed: u64,
        headroom in select(headrooms()),
        scale_bits in prop_oneof![3 => Just(8_u32), 1 => 1..=8_u32],
    ) {
        let block = numbers(count, center, specials && seed % 2 == 0, seed);
        let scale = ScaleFormat::exponent(scale_bits).unwrap();
        let format = BlockFormat { headroom, scale, ..rms(0) };
        let exponent = oracle::rms_exponent(&format, &block);
        prop_assert_eq!(format.scale_exponent_of(&block), exponent);
        let table = oracle::magnitudes(ElementFormat::FP4_E2M1);
        let stream = RandomStream::new(seed, 3);
        for rounding in Rounding::ALL {
            let mut got = block.clone();
            format.quantize(&mut got, &[count], 0, rounding.with(stream)).unwrap();
            for (i, (got, x)) in got.iter().zip(&block).enumerate() {
                let expected = oracle::round_element(&table, exponent, *x, rounding, stream.draw(i as u64));
                prop_assert!(identical(*got, expected), "{} {:e} became {:e}, not {:e}", rounding, x, got, expected);
            }
        }
    }

    /// Blocks of two axes, and their transposes.
    #[test]
    fn square_blocks(
        [rows, columns] in [1..70_usize, 1..70_usize],
        size in prop_oneof![Just(16_usize), 1..40_usize],
        four_over_six in nvfp4_formats(),
        headroom in select(headrooms()),
        center in -10..10,
        seed: u64,
    ) {
        let data = numbers(rows * columns, center, false, seed);
        let shape = [rows, columns];
        let stream = RandomStream::new(seed, 3);
        let mx = BlockFormat { square: true, headroom, ..rms(size) };
        let nv = BlockFormat { square: true, ..four_over_six };
        let table = oracle::magnitudes(ElementFormat::FP4_E2M1);
        for rounding in Rounding::ALL {
            let quantized = |format: BlockFormat, axis: usize| {
                let mut data = data.clone();
                format.quantize(&mut data, &shape, axis, rounding.with(stream)).unwrap();
                data
            };
            let got = [0, 1].map(|axis| [quantized(mx, axis), quantized(nv, axis)]);
            for block in blocks_of(shape, [size; 2]) {
                let elements: Vec<f32> = block.iter().map(|at| data[*at]).collect();
                let exponent = oracle::rms_exponent(&mx, &elements);
                for at in &block {
                    let draw = stream.draw(*at as u64);
                    let expected = oracle::round_element(&table, exponent, data[*at], rounding, draw);
                    prop_assert!(got.iter().all(|of_axis| identical(of_axis[0][*at], expected)));
                }
            }
            for block in blocks_of(shape, [16; 2]) {
                let elements: Vec<f32> = block.iter().map(|at| data[*at]).collect();
                let draws: Vec<u32> = block.iter().map(|at| stream.draw(*at as u64)).collect();
                let expected = nvfp4(&nv, amax(&data), &elements, rounding, &draws);
                for (at, expected) in block.iter().zip(expected) {
                    prop_assert!(got.iter().all(|of_axis| identical(of_axis[1][*at], expected)));
                }
            }
        }
    }

    /// The mask covers elements of at least the largest number of their block.
    #[test]
    fn mask(
        format in formats(),
        (outer, axis, inner) in (1..4_usize, 1..100_usize, prop_oneof![Just(1_usize), 1..20_usize]),
        center in prop_oneof![3 => -10..10, 1 => -149..=-100, 1 => -100..=128],
        specials: bool,
        seed: u64,
    ) {
        prop_assume!(!format.square);
        let shape = [outer, axis, inner];
        let values = numbers(outer * axis * inner, center, specials, seed);
        let gradient: Vec<f32> = (0..values.len()).map(|i| i as f32 - 7.5).collect();
        let mut got = gradient.clone();
        format.mask_clipped(&values, &shape, 1, &mut got).unwrap();
        let size = match format.group_size() {
            0 => axis,
            size => size,
        };
        for first in (0..values.len()).filter(|i| (i / inner % axis).is_multiple_of(size)) {
            let length = size.min(axis - first / inner % axis);
            let places: Vec<usize> = (0..length).map(|i| first + i * inner).collect();
            let block: Vec<f32> = places.iter().map(|at| values[*at]).collect();
            let limits = ieee(|| limits(&format, &values, &block));
            for (at, limit) in places.into_iter().zip(limits) {
                let x = ieee(|| f64::from(values[at].abs()));
                let clipped = limit.is_some_and(|limit| x.is_finite() && x >= limit);
                let expected = if clipped { 0.0 } else { gradient[at] };
                prop_assert_eq!(got[at], expected, "{} {:e} {:?}", format, values[at], limit);
            }
        }
    }
}

/// The largest number that each element of a block can become; `None` if all of them become NaN or zero.
fn limits(format: &BlockFormat, tensor: &[f32], block: &[f32]) -> Vec<Option<f64>> {
    let is_finite = block.iter().all(|x| x.is_finite());
    if format.sign_scales {
        let of_one = BlockFormat {
            sign_scales: false,
            ..*format
        };
        let of_sign = |negative: bool| {
            let own = |x: &f32| {
                if x.is_sign_negative() == negative {
                    *x
                } else {
                    0.0
                }
            };
            limits(&of_one, tensor, &block.iter().map(own).collect::<Vec<_>>())
        };
        let [positive, negative] = [false, true].map(of_sign);
        let limit = |(i, x): (usize, &f32)| {
            let limits = if x.is_sign_negative() {
                &negative
            } else {
                &positive
            };
            limits[i].filter(|_| is_finite)
        };
        return block.iter().enumerate().map(limit).collect();
    }
    let biased =
        |block: &[f32]| match f64::from(block.iter().fold(0_f32, |max, x| max.max(x.abs()))) {
            x if x < pow2(-126) => 0,
            x => floor_log2(x) + 127,
        };
    // The largest of m magnitude bits with an exponent field.
    let fixed = |m: i32, field: i32| (pow2(m) - 1.0) * pow2(field - 127 - (m - 1));
    let mantissa_bits = format.element.bits() as i32 - 1;
    if let Some(shifts) = format.shifts {
        let limit = |sub_block: &[f32]| {
            let shift = (biased(block) - biased(sub_block)).min((1 << shifts.bits) - 1);
            let limit = fixed(mantissa_bits, biased(block) - shift);
            vec![Some(limit).filter(|_| is_finite); sub_block.len()]
        };
        return block.chunks(shifts.block_size).flat_map(limit).collect();
    }
    if format.non_finite == NonFinite::TopExponent {
        // Nothing saturates.
        return vec![None; block.len()];
    }
    if format.non_finite == NonFinite::Kept {
        let finite: Vec<f32> = block.iter().copied().filter(|x| x.is_finite()).collect();
        return vec![Some(fixed(mantissa_bits, biased(&finite))); block.len()];
    }
    if format.has_exponent() {
        let flushed = format.subnormals == Subnormals::FlushBlocks && biased(block) == 0;
        let exponent = format.scale_exponent_of(block).filter(|_| !flushed);
        let limit = exponent.map(|exponent| oracle::largest(format.element, exponent));
        return vec![limit; block.len()];
    }
    let tensor_amax = tensor.iter().map(|x| x.abs().to_bits()).max().unwrap();
    let t = format.tensor_scale_of(tensor_amax);
    let c = format.block_scale_of(block, t);
    let of_scale = |c: f32| {
        let limit = f64::from(format.element.max() * (t * c));
        Some(limit).filter(|limit| *limit > 0.0)
    };
    let Some(sub_scales) = format.sub_scales else {
        return vec![of_scale(c); block.len()];
    };
    // Its element's largest number is just below 2.
    let amax = |part: &[f32]| part.iter().fold(0_f32, |max, x| max.max(x.abs()));
    let [first, second] = sub_scales.block_sizes();
    let of_first = |part: &[f32]| {
        let c = if amax(part) >= 4.0 * c { 2.0 * c } else { c };
        let of_second = move |part: &[f32]| {
            let c = if amax(part) >= 2.0 * c { 2.0 * c } else { c };
            vec![of_scale(c); part.len()]
        };
        part.chunks(second).flat_map(of_second).collect::<Vec<_>>()
    };
    block.chunks(first).flat_map(of_first).collect()
}

/// In ordinary numbers: of blocks of normal numbers the scale is the power of two below 0.487 of the deviation, but where the
/// definition's 16 bits are too few to tell.
#[test]
fn the_root_mean_square_of_normal_numbers() {
    let (data, format) = (normal(1, 32 * 4096), rms(32));
    let mut close_calls = 0;
    for block in data.chunks(32) {
        let square = block.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / 32.0;
        let wanted = (2.922_478_56 / 6.0 * square.sqrt()).log2();
        let got = format.scale_exponent_of(block).unwrap();
        if f64::from(got) != wanted.floor() {
            close_calls += 1;
            assert!((wanted - wanted.round()).abs() < 1e-3, "{wanted} {got}");
        }
    }
    assert!(close_calls <= 4, "{close_calls}");
    // This rule clips where the others hardly do.
    let saturated =
        |format: BlockFormat| statistics(format, &data, Rounder::NearestEven).saturated();
    let ceil = BlockFormat {
        scale_mode: ScaleMode::Ceil,
        ..format
    };
    assert!(saturated(format) > 500 && saturated(ceil) == 0);
    // Blocks of one magnitude.
    for (x, expected) in [(1.0, -2), (1.026, -2), (1.03, -1), (-2.06, 0), (0.0, -127)] {
        assert_eq!(format.scale_exponent_of(&[x; 7]), Some(expected), "{x}");
        assert_eq!(format.scale_exponent(x.to_bits()), Some(expected), "{x}");
    }
    assert_eq!(format.scale_exponent_of(&[]), Some(-127));
}

/// The headroom of the literature is what its recipes need: rounding up from anywhere, nothing saturates.
#[test]
fn headroom_leaves_room() {
    let data = normal(2, 32 * 1000);
    let stochastic = Rounding::Stochastic.with(RandomStream::new(1, 1));
    let saturated = |format: BlockFormat| statistics(format, &data, stochastic).saturated();
    let mx = |numerator, denominator| BlockFormat {
        headroom: Headroom::new(numerator, denominator).unwrap(),
        ..BlockFormat::mx(ElementFormat::FP4_E2M1, 32)
    };
    // Up to 8 in units of the scale, of which 6 is the largest number.
    assert!(saturated(mx(1, 1)) > 100);
    assert_eq!(saturated(mx(4, 3)), 0);
    assert!(saturated(mx(5, 4)) > 0);
    for tensor_scale in [false, true] {
        let nvfp4 = |headroom| BlockFormat {
            headroom,
            ..BlockFormat::nvfp4(tensor_scale)
        };
        assert!(saturated(nvfp4(Headroom::NONE)) > 100);
        assert_eq!(saturated(nvfp4(Headroom::new(17, 16).unwrap())), 0);
    }
}

/// A tensor scale takes the whole factor: the codes of blocks and elements equal the smaller elements' codes.
#[test]
fn headroom_of_a_tensor_scale() {
    let plain = BlockFormat::nvfp4(true);
    let roomy = BlockFormat {
        headroom: Headroom::new(17, 16).unwrap(),
        ..plain
    };
    let tensor_amax = 1000.0_f32.to_bits();
    let scales = [plain, roomy].map(|format| format.tensor_scale_of(tensor_amax));
    assert_eq!(scales[1], scales[0] * (17.0 / 16.0));
    let mut different = 0;
    for amax in 1..=1000_u16 {
        let amax = f32::from(amax).to_bits();
        let amax = [f32::from_bits(amax)];
        let codes = [
            plain.block_scale_of(&amax, scales[0]),
            roomy.block_scale_of(&amax, scales[1]),
        ];
        different += usize::from(codes[0] != codes[1]);
    }
    // A tie of E4M3 may fall to either side.
    assert!(different < 4, "{different}");
}

/// The better of two scales is better: no block has a larger error than with either.
#[test]
fn four_over_six_is_the_better_one() {
    let mut data = normal(3, 16 * 2000);
    // Of many sizes.
    for (i, block) in data.chunks_mut(16).enumerate() {
        block
            .iter_mut()
            .for_each(|x| *x *= pow2(-(i as i32 % 9)) as f32);
    }
    for tensor_scale in [false, true] {
        let better = BlockFormat {
            four_over_six: true,
            ..BlockFormat::nvfp4(tensor_scale)
        };
        let largest = data.iter().map(|x| x.abs().to_bits()).max().unwrap();
        let t = better.tensor_scale_of(largest);
        let mut chosen = [0; 2];
        for block in data.chunks(16) {
            let six = BlockFormat::nvfp4(tensor_scale).block_scale_of(block, t);
            let got = better.block_scale_of(block, t);
            let error = |scale: f32| -> f64 {
                let errors = block.iter().map(|x| {
                    let q = better.round_scaled(*x, scale, t, Rounding::NearestEven, 0);
                    f64::from(q - x).powi(2)
                });
                errors.sum()
            };
            // Rounded down to whole units of 2^-17 of the largest magnitude.
            assert!(error(got) <= error(six) * (1.0 + 1e-3));
            chosen[usize::from(got != six)] += 1;
        }
        assert!(chosen[0] > 500 && chosen[1] > 300, "{chosen:?}");
        let error = |format: BlockFormat| statistics(format, &data, Rounder::NearestEven).error();
        assert!(error(better) < 0.95 * error(BlockFormat::nvfp4(tensor_scale)));
    }
}

/// Next to the top of float32, where what an element becomes under one of the scales may be Inf: all paths agree with the
/// definition.
#[test]
fn four_over_six_at_the_top() {
    let stream = RandomStream::new(9, 0);
    for headroom in headrooms() {
        for tensor_scale in [false, true] {
            let format = BlockFormat {
                headroom,
                four_over_six: true,
                ..BlockFormat::nvfp4(tensor_scale)
            };
            let number = |i: u64| {
                let uniform = f64::from(stream.draw(i)) / pow2(31) - 1.0;
                let x = uniform * pow2(129 - (i / 16 % 4) as i32);
                x.clamp(f64::from(-f32::MAX), f64::from(f32::MAX)) as f32
            };
            let data: Vec<f32> = (0..16 * 512).map(number).collect();
            let mut got = data.clone();
            format
                .quantize(&mut got, &[512, 16], 1, Rounder::NearestEven)
                .unwrap();
            let t = format.tensor_scale_of(amax(&data).to_bits());
            for (got, block) in got.chunks(16).zip(data.chunks(16)) {
                let expected = nvfp4(&format, amax(&data), block, Rounding::NearestEven, &[0; 16]);
                let scale = format.block_scale_of(block, t);
                for ((got, expected), x) in got.iter().zip(expected).zip(block) {
                    assert!(
                        identical(*got, expected),
                        "{format:?}: {x:e} became {got:e}, not {expected:e}"
                    );
                    let scaled = format.round_scaled(*x, scale, t, Rounding::NearestEven, 0);
                    assert!(identical(scaled, expected), "{format:?}: {x:e} {scaled:e}");
                }
            }
        }
    }
}

#[test]
fn mask_of_a_block() {
    let format = rms(8);
    // r = √(137 / 8): the scale is 2.
    let values = [8.0, 0.0, -8.0, 1.0, -1.0, 2.0, 1.0, 1.5];
    let mut gradient = [1.0, 2.0, 3.0, f32::NAN, 5.0, 6.0, 7.0, -8.0];
    format
        .mask_clipped(&values, &[8], 0, &mut gradient)
        .unwrap();
    assert_eq!(gradient[..3], [1.0, 2.0, 3.0]);
    assert!(gradient[3].is_nan());
    // The scale of another number is the same, but twelve is clipped, and so are larger numbers.
    let mut gradient = [1.0; 8];
    let values = [12.0, 0.0, -8.0, 1.0, -13.0, 2.0, 1.0, 1.5];
    assert_eq!(BlockFormat::scale_exponent_of(&rms(8), &values), Some(1));
    format
        .mask_clipped(&values, &[8], 0, &mut gradient)
        .unwrap();
    assert_eq!(gradient, [0.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0]);

    let error = |shape: &[usize], axis, gradient: &mut [f32]| {
        let before = gradient.to_vec();
        let error = format
            .mask_clipped(&values, shape, axis, gradient)
            .unwrap_err();
        assert_eq!(gradient, before);
        error
    };
    assert_eq!(
        error(&[8], 1, &mut [1.0; 8]),
        QuantizeError::AxisOutOfRange { axis: 1, rank: 1 }
    );
    for (shape, length, got) in [(&[8], 7, 7), (&[9], 9, 8)] {
        let error = error(shape, 0, &mut vec![1.0; length]);
        let expected = shape[0];
        let shape = shape.to_vec();
        assert_eq!(
            error,
            QuantizeError::LengthMismatch {
                shape,
                expected,
                got
            }
        );
    }
    format.mask_clipped(&[], &[0, 3], 1, &mut []).unwrap();
}
