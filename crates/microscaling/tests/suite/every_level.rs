//! Every instruction set gives the bits of the scalar rule.

use crate::float_state::ieee;
use crate::inputs::mixed_numbers;
use microscaling::internal::bits::ABS;
use microscaling::{
    BlockFormat, ElementConversion, ElementFormat, FloatFormat, Headroom, NonFinite, OuterScale,
    RandomStream, Rounding, ScaleFormat, ScaleMode,
};
use microscaling_processor::instruction_set::{Level, with_level};
use proptest::prelude::*;
use proptest::sample::select;
use std::cell::RefCell;
use std::collections::HashMap;

#[expect(clippy::too_many_lines, reason = "a list of formats")]
fn formats() -> impl Strategy<Value = BlockFormat> {
    let named: Vec<BlockFormat> = BlockFormat::NAMES.map(|name| name.parse().unwrap()).into();
    let block_size = prop_oneof![Just(16_usize), Just(64), 1..=70_usize, Just(2000)];
    let mx = (
        select(ElementFormat::NAMED.to_vec()),
        prop_oneof![Just(0_usize), block_size.clone()],
        1..=8_u32,
        select(ScaleMode::POWERS.to_vec()),
        headrooms(),
    );
    let mx = mx.prop_map(|(element, block_size, scale_bits, scale_mode, headroom)| {
        let element = match scale_mode {
            ScaleMode::Rms => ElementFormat::FP4_E2M1,
            _ => element,
        };
        BlockFormat {
            scale: ScaleFormat::exponent(scale_bits).unwrap(),
            scale_mode,
            headroom,
            ..BlockFormat::mx(element, block_size)
        }
    });
    let bfp = (10..=32_u32, block_size.clone())
        .prop_map(|(bit_width, block_size)| BlockFormat::bfp(bit_width, block_size).unwrap());
    let microexponent = (10..=32_u32, block_size, 1..=9_usize, 0..=8_u32);
    let microexponent =
        microexponent.prop_map(|(bit_width, block_size, sub_block_size, shift_bits)| {
            let sub_block_size = sub_block_size.min(block_size);
            BlockFormat::microexponent(bit_width, block_size, sub_block_size, shift_bits).unwrap()
        });
    let nvfp4 = (any::<bool>(), headrooms(), any::<bool>());
    let nvfp4 = nvfp4.prop_map(|(tensor_scale, headroom, four_over_six)| BlockFormat {
        headroom,
        four_over_six,
        ..BlockFormat::nvfp4(tensor_scale)
    });
    let elements: Vec<_> = ElementFormat::NAMED
        .into_iter()
        .filter(|element| element.bits() <= 8)
        .collect();
    let scales = ScaleFormat::NAMES.map(|name| name.parse::<ScaleFormat>().unwrap());
    let scales: Vec<_> = scales
        .into_iter()
        .filter(|scale| !scale.is_exponent())
        .collect();
    let float_scale = (
        select(elements),
        select(scales.clone()),
        prop_oneof![Just(16_usize), Just(8), Just(32), 1..=70_usize],
        any::<[bool; 2]>(),
        prop_oneof![
            Just(None),
            (0..5_usize, select(scales.clone())).prop_map(Some)
        ],
        headrooms(),
    );
    let float_scale =
        float_scale.prop_map(|(element, scale, block_size, flags, outer, headroom)| {
            let [subnormal_scales, tensor_scale] = flags;
            let outer = outer.filter(|_| scale.max() < 1e9);
            let format = BlockFormat {
                subnormal_scales,
                tensor_scale: tensor_scale && scale.max() < 1e9 && outer.is_none(),
                outer: outer.map(|(blocks, scale)| OuterScale {
                    size: blocks * block_size,
                    scale,
                }),
                headroom,
                ..BlockFormat::float_scale(element, scale, block_size)
            };
            format.validate().unwrap();
            format
        });
    let with_loops_of_their_own = [
        "hif4",
        "nf4",
        "if4",
        "razer",
        // Tables that are searched, an odd number of tables, large errors.
        "block(element=table(0 1 2 4 8 16 32 64 -1 -2 -4 -8 -16 -32 -64),scale=ue4m3,block_size=16)",
        "block(element=table(0 1 2 4 8 16 32/0 1 2 3 4 5 6),scale=float32,block_size=32)",
        "block(element=table(0 1 -1/0 2 -1/0 1 -3),scale=bfloat16,block_size=16)",
        "mx4",
        "mx9",
        "block(element=int4,scale=ue4m3,block_size=24,sub_scales=6/3)",
    ]
    .map(|name| name.parse::<BlockFormat>().unwrap())
    .to_vec();
    prop_oneof![
        4 => select(named),
        4 => mx,
        1 => bfp,
        2 => microexponent,
        2 => nvfp4,
        4 => float_scale,
        4 => select(with_loops_of_their_own),
    ]
}

fn headrooms() -> impl Strategy<Value = Headroom> {
    select(vec![(1, 1), (1, 1), (4, 3), (17, 16), (255, 128)])
        .prop_map(|(numerator, denominator)| Headroom::new(numerator, denominator).unwrap())
}

/// Formats of square blocks.
fn square_formats() -> impl Strategy<Value = BlockFormat> {
    let mx = (
        select(ElementFormat::NAMED.to_vec()),
        prop_oneof![Just(16_usize), Just(32), 2..=70_usize],
        1..=8_u32,
        // The modes that read the largest magnitude, by which the blocks here are rounded.
        select(ScaleMode::POWERS.to_vec()).prop_filter("amax", |mode| *mode != ScaleMode::Rms),
    );
    let mx = mx.prop_map(
        |(element, block_size, scale_bits, scale_mode)| BlockFormat {
            scale: ScaleFormat::exponent(scale_bits).unwrap(),
            scale_mode,
            square: true,
            ..BlockFormat::mx(element, block_size)
        },
    );
    let nvfp4 = any::<bool>().prop_map(|tensor_scale| BlockFormat {
        square: true,
        ..BlockFormat::nvfp4(tensor_scale)
    });
    prop_oneof![2 => mx, 1 => nvfp4]
}

/// The shares of [`mixed_numbers`].
fn shares(special: bool) -> [u32; 2] {
    if special {
        [400_000, 1_000_000]
    } else {
        [0; 2]
    }
}

/// Whether the scale of a block follows from more than its largest magnitude.
fn follows_from_elements(format: BlockFormat) -> bool {
    format.element.is_table()
        || format.sub_scales.is_some()
        || format.sign_scales
        || format.four_over_six
        || format.scale_mode == ScaleMode::Rms
        || format.conversion != ElementConversion::LIBRARY
}

/// The results of the scalar functions, element by element.
fn scalar(
    format: BlockFormat,
    data: &[f32],
    [axis, inner]: [usize; 2],
    rounding: Rounding,
    stream: RandomStream,
) -> Vec<f32> {
    let whole = |size: usize| if size == 0 { axis } else { size };
    let block = whole(format.group_size());
    let sub_block = match (format.shifts, format.outer) {
        (Some(shifts), _) => shifts.block_size,
        (None, Some(_)) => format.block_size,
        (None, None) => block,
    };
    let abs = |i: usize| data[i].to_bits() & ABS;
    let tensor_amax = (0..data.len()).map(abs).max().unwrap();
    let scales = RefCell::new(HashMap::new());
    let element = |i: usize| {
        let at = i / inner % axis;
        let first = at / block * block;
        let sub_first = first + (at - first) / sub_block * sub_block;
        let end = axis.min(first + block);
        let max = |from: usize, to: usize| {
            let magnitudes = (from..to).map(|other| abs(i + other * inner - at * inner));
            let counts = |x: &u32| format.non_finite != NonFinite::Kept || *x < 0x7f80_0000;
            magnitudes.filter(counts).max().unwrap_or(0)
        };
        let amax = max(first, end);
        let (x, draw) = (data[i], stream.draw(i as u64));
        let elements = (first..end).map(|other| data[i + other * inner - at * inner]);
        if follows_from_elements(format) {
            let block: Vec<f32> = elements.collect();
            let tensor_scale = format.tensor_scale_of(tensor_amax);
            return format.round_in_block(&block, at - first, tensor_scale, rounding, draw);
        }
        if format.has_exponent() {
            let sub_amax = max(sub_first, end.min(sub_first + sub_block));
            return format.round_element(x, [amax, sub_amax], 1.0, rounding, draw);
        }
        let outer_scale = format.outer_scale_of(amax);
        let tensor_scale = outer_scale.unwrap_or(format.tensor_scale_of(tensor_amax));
        let mut scales = scales.borrow_mut();
        let start = i - (at - sub_first) * inner;
        let block_scale = scales.entry(start).or_insert_with(|| {
            let own = elements.skip(sub_first - first).take(sub_block);
            let block: Vec<f32> = own.collect();
            format.block_scale_of(&block, tensor_scale)
        });
        format.round_scaled(x, *block_scale, tensor_scale, rounding, draw)
    };
    (0..data.len()).map(element).collect()
}

/// [`scalar`], of square blocks along the first two of three axes of these lengths; there may be more before.
fn scalar_square(
    format: BlockFormat,
    data: &[f32],
    [rows, columns, stride]: [usize; 3],
    rounding: Rounding,
    stream: RandomStream,
) -> Vec<f32> {
    let size = format.group_size();
    let block = |i: usize| {
        let (row, column) = (i / (columns * stride), i / stride % columns);
        let (outer, row) = (row / rows, row % rows);
        [outer, row / size, column / size, i % stride]
    };
    let abs = |i: usize| data[i].to_bits() & ABS;
    let mut maxima = HashMap::new();
    for i in 0..data.len() {
        let amax = maxima.entry(block(i)).or_insert(0);
        *amax = abs(i).max(*amax);
    }
    let tensor_amax = (0..data.len()).map(abs).max().unwrap();
    let element = |i: usize| {
        let (x, amax, draw) = (data[i], maxima[&block(i)], stream.draw(i as u64));
        let tensor_scale = format.tensor_scale_of(tensor_amax);
        format.round_element(x, [amax; 2], tensor_scale, rounding, draw)
    };
    (0..data.len()).map(element).collect()
}

fn bits(data: &[f32]) -> Vec<u32> {
    data.iter().map(|x| x.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Every instruction set gives the bits of the scalar functions: every format, any axis, length,
    /// alignment and number.
    #[test]
    fn instruction_sets_are_the_scalar_rule(
        format in formats(),
        outer in 1..3_usize,
        axis in prop_oneof![Just(64_usize), 1..100_usize, 1..100_usize, 1..2100_usize],
        inner in prop_oneof![3 => Just(1_usize), 1 => 2..10_usize, 1 => 10..70_usize, 1 => 64..150_usize],
        offset in 0..17_usize,
        seed in any::<u64>(),
        exponent in prop_oneof![4 => -20..20_i32, 1 => -149..127_i32],
        special in any::<bool>(),
    ) {
        let outer = if axis * inner > 10_000 { 1 } else { outer };
        let count = outer * axis * inner;
        let source = mixed_numbers(seed, exponent, shares(special), offset + count);
        let stream = RandomStream::new(seed, 1);
        for rounding in Rounding::ALL {
            let lengths = [axis, inner];
            let expected = ieee(|| scalar(format, &source[offset..], lengths, rounding, stream));
            for level in Level::available() {
                let mut data = source.clone();
                let shape = [outer, axis, inner];
                let tensor = &mut data[offset..];
                with_level(level, || format.quantize(tensor, &shape, 1, rounding.with(stream))).unwrap();
                prop_assert!(
                    bits(&data[offset..]) == bits(&expected),
                    "{format} {rounding} {level:?} {shape:?}"
                );
                prop_assert_eq!(bits(&data[..offset]), bits(&source[..offset]));
            }
        }
    }

    /// Square blocks, too.
    #[test]
    fn instruction_sets_are_the_scalar_rule_of_square_blocks(
        format in square_formats(),
        outer in 1..3_usize,
        rows in prop_oneof![Just(64_usize), 1..70_usize],
        columns in prop_oneof![Just(64_usize), 1..100_usize, 1..300_usize],
        stride in prop_oneof![3 => Just(1_usize), 1 => 2..10_usize],
        offset in 0..17_usize,
        seed in any::<u64>(),
        exponent in prop_oneof![4 => -20..20_i32, 1 => -149..127_i32],
        special in any::<bool>(),
    ) {
        let shape = [outer, rows, columns, stride];
        let source = mixed_numbers(seed, exponent, shares(special), offset + shape.iter().product::<usize>());
        let stream = RandomStream::new(seed, 1);
        for rounding in Rounding::ALL {
            let lengths = [rows, columns, stride];
            let expected =
                ieee(|| scalar_square(format, &source[offset..], lengths, rounding, stream));
            for level in Level::available() {
                let mut data = source.clone();
                let tensor = &mut data[offset..];
                with_level(level, || format.quantize(tensor, &shape, 2, rounding.with(stream))).unwrap();
                prop_assert!(
                    bits(&data[offset..]) == bits(&expected),
                    "{format} {rounding} {level:?} {shape:?}"
                );
                prop_assert_eq!(bits(&data[..offset]), bits(&source[..offset]));
            }
        }
    }

    #[test]
    fn instruction_sets_round_elements_alike(
        n in 7..=32_u32,
        seed in any::<u64>(),
        exponent in -149..127_i32,
        count in 0..2100_usize,
    ) {
        let source = mixed_numbers(seed, exponent, shares(true), count);
        let stream = RandomStream::new(seed, 1);
        let formats = [FloatFormat::bfloat(n), FloatFormat::fp(n)];
        for format in formats.into_iter().filter_map(Result::ok) {
            for rounding in Rounding::ALL {
                let draws = (0..).map(|i| stream.draw(i));
                let pairs = source.iter().zip(draws);
                let expected: Vec<f32> =
                    ieee(|| pairs.map(|(x, draw)| format.round(*x, rounding, draw)).collect());
                for level in Level::available() {
                    let mut data = source.clone();
                    with_level(level, || format.round_slice(&mut data, rounding.with(stream)));
                    prop_assert!(bits(&data) == bits(&expected), "{format} {rounding} {level:?}");
                }
            }
        }
    }
}
