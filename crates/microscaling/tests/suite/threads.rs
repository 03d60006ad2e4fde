//! Work that is divided among threads, in any number of pieces that there may be, gives the bits of one thread.

use microscaling::{
    BlockFormat, Comparison, FloatFormat, OperandQuantization, Packed, RandomHadamard,
    RandomStream, Rounder, Rounding, Statistics,
};
use proptest::prelude::*;
use proptest::sample::select;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::sync::LazyLock;

use super::inputs::formats;

/// From one thread, of which all others are compared with.
static POOLS: LazyLock<Vec<ThreadPool>> = LazyLock::new(|| {
    let pool = |threads| ThreadPoolBuilder::new().num_threads(threads).build();
    [1, 2, 3, 5, 16]
        .map(|threads| pool(threads).unwrap())
        .into()
});

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// Everything that divides work, on a tensor that is large enough.
fn everything(
    format: BlockFormat,
    shape: &[usize],
    axis: usize,
    data: &[f32],
    rounding: Rounding,
) -> impl PartialEq + use<> {
    let stream = RandomStream::new(3, 4);
    let rounder = rounding.with(stream);
    let mut quantized = data.to_vec();
    format
        .quantize(&mut quantized, shape, axis, rounder)
        .unwrap();
    let mut rounded = data.to_vec();
    let bfloat = FloatFormat::bfloat(12).unwrap();
    bfloat.round_slice(&mut rounded, rounder);
    let mut gradient = data.to_vec();
    format
        .mask_clipped(data, shape, axis, &mut gradient)
        .unwrap();
    let packed = Packed::encode(format, data, shape, axis, rounder).unwrap();
    let decoded = packed.decode();
    let comparison = Comparison {
        original: data,
        quantized: &quantized,
        shape,
        axis,
        format: Some(format),
    };
    let quantization = OperandQuantization {
        elementwise: Some((bfloat, Rounding::NearestEven)),
        blocks: Some((format, Rounding::NearestEven)),
        ..OperandQuantization::default()
    };
    let statistics = [
        Statistics::of(comparison).unwrap(),
        Statistics::of_quantizing(data, shape, axis, quantization).unwrap(),
    ];
    let mut transformed = data.to_vec();
    RandomHadamard { block_size: 32 }
        .transform(&mut transformed, shape, axis, stream)
        .unwrap();
    let values = [quantized, rounded, gradient, decoded, transformed].map(|x| bits(&x));
    (values, packed, statistics)
}

fn numbers(count: usize) -> Vec<f32> {
    let stream = RandomStream::new(5, 6);
    let number = |i| f32::from_bits(stream.draw(i) & 0x80ff_ffff | (120 + (i as u32 % 5)) << 23);
    (0..count as u64).map(number).collect()
}

fn check(format: BlockFormat, shape: &[usize], axis: usize, rounding: Rounding) {
    let data = numbers(shape.iter().product());
    let all = |pool: &ThreadPool| pool.install(|| everything(format, shape, axis, &data, rounding));
    let expected = all(&POOLS[0]);
    for pool in &POOLS[1..] {
        let threads = pool.current_num_threads();
        assert!(
            all(pool) == expected,
            "{format} {shape:?} along axis {axis}, {rounding}: {threads} threads"
        );
    }
}

/// Shapes of 2^17 to 2^19 elements: one axis is as long as the others leave it, and those are short, or long.
fn shapes() -> impl Strategy<Value = Vec<usize>> {
    let length = prop_oneof![
        3 => 1..5_usize,
        2 => select(vec![8, 16, 17, 32, 33, 64, 100_usize]),
        1 => 100..1500_usize,
    ];
    let elements = (1_usize << 17)..=1 << 19;
    (
        elements,
        prop::collection::vec(length, 0..4),
        any::<prop::sample::Index>(),
    )
        .prop_map(|(elements, mut shape, place)| {
            while shape.iter().product::<usize>() > elements {
                shape.pop();
            }
            let rest = elements.div_ceil(shape.iter().product());
            shape.insert(place.index(shape.len() + 1), rest);
            shape
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn any_shape_on_any_number_of_threads(
        format in formats(),
        shape in shapes(),
        axis in 0..4_usize,
        rounding in select(Rounding::ALL.to_vec()),
    ) {
        prop_assume!(shape.len() > 1 || !format.square);
        // Without codes for NaN.
        check(format, &shape, axis % shape.len(), rounding);
    }
}

/// Square blocks with many elements beyond their axes: a line of one row is as much as is divided elsewhere.
#[test]
fn square_blocks_of_long_lines() {
    let cases: [(&str, &[usize], usize); 6] = [
        (
            "mx(element=fp8_e4m3,block_size=32,square=true)",
            &[8, 64, 4096],
            1,
        ),
        ("nvfp4(tensor_scale=true,square=true)", &[4, 16, 8192], 1),
        (
            "mx(element=fp4_e2m1,block_size=32,square=true)",
            &[4, 64, 4096],
            1,
        ),
        // A weight of a convolution in one dimension, and one of a row.
        (
            "mx(element=int8,block_size=32,square=true)",
            &[3, 32, 4096],
            1,
        ),
        (
            "mx(element=int8,block_size=64,square=true)",
            &[1, 64, 4096],
            0,
        ),
        (
            "nvfp4(tensor_scale=true,square=true,four_over_six=true)",
            &[2, 16, 9000],
            0,
        ),
    ];
    for (name, shape, axis) in cases {
        check(name.parse().unwrap(), shape, axis, Rounding::NearestEven);
    }
    let mut data = numbers(8 * 64 * 4096);
    let format: BlockFormat = cases[0].0.parse().unwrap();
    POOLS[3].install(|| {
        format
            .quantize(&mut data, &[8, 64, 4096], 1, Rounder::NearestEven)
            .unwrap()
    });
}

/// Blocks with at most as many elements as a sub-block has, in more columns than one thread works on.
#[test]
fn short_blocks_of_many_columns() {
    let names = ["hif4", "mx9", "mx4", "nvfp4", "if4", "mxfp4"];
    for (name, rows) in names
        .into_iter()
        .flat_map(|name| [1, 2, 4].map(|rows| (name, rows)))
    {
        // The products have enough rows to get few columns.
        let shape = [rows, (1 << 17) + 31];
        check(name.parse().unwrap(), &shape, 0, Rounding::NearestEven);
    }
}

/// A few long blocks side by side, whose sub-blocks threads share: rows of many columns, and rows so short that several are a line.
#[test]
fn sub_blocks_of_long_blocks() {
    let microexponents =
        "microexponent(bit_width=12,block_size=9000,sub_block_size=10,shift_bits=3)";
    for name in ["nvfp4(outer_size=0)", microexponents] {
        for shape in [[40, 5000], [2005, 70], [70_000, 3]] {
            for rounding in [Rounding::NearestEven, Rounding::Stochastic] {
                check(name.parse().unwrap(), &shape, 0, rounding);
            }
        }
    }
}
