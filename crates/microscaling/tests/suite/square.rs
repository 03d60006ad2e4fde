//! Square blocks, against blocks whose elements are gathered one by one.

use crate::float_state::ieee;
use crate::oracle::{self, blocks as rules, identical};
use microscaling::{
    BlockFormat, ElementFormat, FormatError, Packed, QuantizeError, RandomStream, Rounder,
    Rounding, ScaleFormat, ScaleMode, SharedExpMethod, Subnormals,
};
#[cfg(feature = "std")]
use microscaling::{Comparison, Statistics};
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::BTreeMap;

use super::inputs::numbers;

/// Position on each axis.
fn indices(place: usize, shape: &[usize]) -> Vec<usize> {
    let mut rest = place;
    let mut indices = vec![0; shape.len()];
    for (index, length) in indices.iter_mut().zip(shape).rev() {
        (*index, rest) = (rest % length, rest / length);
    }
    indices
}

/// The elements of each square block of `axis` and the one before it, or after it where there is none, as places in the
/// tensor, in row-major order of the blocks.
pub(crate) fn blocks(shape: &[usize], axis: usize, size: usize) -> Vec<Vec<usize>> {
    let partner = if axis == 0 { 1 } else { axis - 1 };
    let mut blocks: BTreeMap<Vec<usize>, Vec<usize>> = BTreeMap::new();
    for place in 0..shape.iter().product() {
        let mut block = indices(place, shape);
        block[axis] /= size;
        block[partner] /= size;
        blocks.entry(block).or_default().push(place);
    }
    blocks.into_values().collect()
}

/// One block, by the rules in f64.
fn quantized_block(
    format: BlockFormat,
    tensor_amax: f32,
    block: &[f32],
    rounding: Rounding,
    draws: &[u32],
) -> Vec<f32> {
    ieee(|| match format.has_exponent() {
        true => {
            let table = oracle::magnitudes(format.element);
            let amax = rules::amax(block);
            let scale = oracle::scale_exponent(&table, &format, amax);
            if format.subnormals == Subnormals::FlushBlocks
                && amax < f32::MIN_POSITIVE
                && scale.is_some()
            {
                return block.iter().map(|x| 0.0_f32.copysign(*x)).collect();
            }
            let elements = block.iter().zip(draws);
            elements
                .map(|(x, draw)| oracle::round_element(&table, scale, *x, rounding, *draw))
                .collect()
        }
        false => rules::nvfp4(&format, tensor_amax, block, rounding, draws),
    })
}

/// The whole tensor, block by block.
fn expected(
    format: BlockFormat,
    data: &[f32],
    shape: &[usize],
    axis: usize,
    rounding: Rounding,
    stream: RandomStream,
) -> Vec<f32> {
    let tensor_amax = rules::amax(data);
    let mut result = data.to_vec();
    for places in blocks(shape, axis, format.group_size()) {
        let block: Vec<f32> = places.iter().map(|place| data[*place]).collect();
        let draws: Vec<u32> = places.iter().map(|i| stream.draw(*i as u64)).collect();
        let block = quantized_block(format, tensor_amax, &block, rounding, &draws);
        for (place, x) in places.into_iter().zip(block) {
            result[place] = x;
        }
    }
    result
}

fn quantized(
    format: BlockFormat,
    data: &[f32],
    shape: &[usize],
    axis: usize,
    rounder: Rounder,
) -> Vec<f32> {
    let mut data = data.to_vec();
    format.quantize(&mut data, shape, axis, rounder).unwrap();
    data
}

fn same(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| identical(*a, *b))
}

fn mx(element: ElementFormat, block_size: usize) -> BlockFormat {
    BlockFormat {
        square: true,
        ..BlockFormat::mx(element, block_size)
    }
}

fn formats() -> impl Strategy<Value = BlockFormat> {
    let fields = (
        select(ElementFormat::NAMED.to_vec()),
        prop_oneof![Just(16_usize), Just(32), 1..40_usize, Just(500)],
        prop_oneof![3 => Just(8_u32), 1 => 1..=8_u32],
        // `scale_rules` has those that do not go by the largest magnitude.
        select(ScaleMode::POWERS.to_vec()).prop_filter("amax", |mode| *mode != ScaleMode::Rms),
        any::<bool>(),
    );
    let mx = fields.prop_map(
        |(element, block_size, scale_bits, scale_mode, flush)| BlockFormat {
            scale: ScaleFormat::exponent(scale_bits).unwrap(),
            scale_mode,
            subnormals: match flush {
                true => Subnormals::FlushBlocks,
                false => Subnormals::Kept,
            },
            ..mx(element, block_size)
        },
    );
    let nvfp4 = any::<bool>().prop_map(|tensor_scale| BlockFormat {
        square: true,
        ..BlockFormat::nvfp4(tensor_scale)
    });
    prop_oneof![3 => mx, 1 => nvfp4]
}

/// Matrices and tensors of up to four axes.
fn shapes() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        prop::collection::vec(prop_oneof![1..5_usize, 1..70_usize], 2),
        (1..4_usize, 1..40_usize, 1..40_usize).prop_map(|(a, b, c)| vec![a, b, c]),
        (1..40_usize, 1..40_usize, 1..4_usize, 1..4_usize)
            .prop_map(|(a, b, c, d)| vec![a, b, c, d]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Every axis of every shape, all roundings, with draws by position, and the special numbers.
    #[test]
    fn a_tensor_is_its_blocks(
        format in formats(),
        shape in shapes(),
        axis in 0..4_usize,
        center in prop_oneof![4 => -10..10, 1 => -149..=-100, 1 => 100..=128],
        specials: bool,
        seed: u64,
    ) {
        let axis = axis % shape.len();
        let data = numbers(shape.iter().product(), center, specials, seed);
        let stream = RandomStream::new(seed, 3);
        for rounding in Rounding::ALL {
            let got = quantized(format, &data, &shape, axis, rounding.with(stream));
            let expected = expected(format, &data, &shape, axis, rounding, stream);
            prop_assert!(same(&got, &expected), "{} {} {:?} {}", format, rounding, shape, axis);
        }
    }

    /// A matrix gives the same results for either axis, and a transposed one gives transposed results.
    #[test]
    fn transposition(
        format in formats(),
        rows in 1..90_usize,
        columns in 1..90_usize,
        specials: bool,
        seed: u64,
    ) {
        let data = numbers(rows * columns, 0, specials, seed);
        let shape = [rows, columns];
        let stochastic = Rounding::Stochastic.with(RandomStream::new(seed, 0));
        let [first, second] = [0, 1].map(|axis| quantized(format, &data, &shape, axis, stochastic));
        prop_assert!(same(&first, &second));

        let transposed = |data: &[f32]| -> Vec<f32> {
            (0..data.len()).map(|i| data[i % rows * columns + i / rows]).collect()
        };
        for rounder in [Rounder::NearestAway, Rounder::NearestEven, Rounder::TowardZero] {
            let quantized_first = transposed(&quantized(format, &data, &shape, 1, rounder));
            let transposed_first =
                quantized(format, &transposed(&data), &[columns, rows], 1, rounder);
            prop_assert!(same(&quantized_first, &transposed_first), "{} {}", format, rounder.rounding());
        }
    }
}

/// A whole tensor as one block gives the values of one long block along a line.
#[test]
fn a_large_square_is_a_line() {
    for element in ElementFormat::NAMED {
        let data = numbers(35 * 50, 0, false, 1);
        let square = quantized(mx(element, 64), &data, &[35, 50], 1, Rounder::NearestEven);
        let line = BlockFormat::mx(element, 0);
        assert!(same(
            &square,
            &quantized(line, &data, &[35 * 50], 0, Rounder::NearestEven)
        ));
    }
}

/// Large tensors, those with more runs than threads and those with fewer, narrow and wide ones: the bits of their blocks.
#[test]
fn threads_do_not_matter() {
    let nvfp4 = BlockFormat {
        square: true,
        ..BlockFormat::nvfp4(true)
    };
    let formats = [
        mx(ElementFormat::FP8_E4M3, 32),
        mx(ElementFormat::FP4_E2M1, 100),
        nvfp4,
    ];
    let shapes: [(&[usize], usize); 7] = [
        (&[500, 401], 1),
        (&[30, 9001], 0),
        (&[9001, 30], 1),
        (&[3, 60_000], 1),
        (&[60_000, 3], 1),
        (&[2, 300, 301], 2),
        (&[70, 65, 5, 9], 1),
    ];
    for format in formats {
        for (shape, axis) in shapes {
            let data = numbers(shape.iter().product(), 0, false, 2);
            let stream = RandomStream::new(4, 4);
            for rounding in [Rounding::NearestEven, Rounding::Stochastic] {
                let expected = expected(format, &data, shape, axis, rounding, stream);
                let run = || quantized(format, &data, shape, axis, rounding.with(stream));
                assert!(same(&run(), &expected), "{format} {shape:?}");
                #[cfg(feature = "rayon")]
                for threads in [1, 2, 5] {
                    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
                    let got = pool.build().unwrap().install(run);
                    assert!(
                        same(&got, &expected),
                        "{format} {shape:?} {threads} threads"
                    );
                }
            }
        }
    }
}

/// Scales lie in row-major order of the blocks, one a block; the elements as ever.
#[test]
fn packed() {
    let format = mx(ElementFormat::FP4_E2M1, 2);
    // Blocks of 2 × 2, 2 × 1, 1 × 2 and 1 × 1.
    let matrix = [4.0, 1.0, 2.0, 1.0, 8.0, 1.0, 16.0, 8.0, 0.5];
    for axis in 0..2 {
        let packed = Packed::encode(format, &matrix, &[3, 3], axis, Rounder::NearestEven).unwrap();
        assert_eq!(packed.scales_shape(), [2, 2]);
        assert_eq!(packed.scales(), [128, 126, 129, 124]);
        assert_eq!(packed.elements(), [0x14, 0x16, 0x46, 0x46, 0x06]);
        assert_eq!(
            packed.decode(),
            [4.0, 1.0, 2.0, 1.0, 8.0, 1.0, 16.0, 8.0, 0.5]
        );
    }
    let image = numbers(5 * 40 * 3 * 3, 0, false, 3);
    let packed = Packed::encode(format, &image, &[5, 40, 3, 3], 1, Rounder::NearestEven).unwrap();
    assert_eq!(packed.scales_shape(), [3, 20, 3, 3]);
    // Every scale, by the largest magnitude of its block.
    let table = oracle::magnitudes(ElementFormat::FP4_E2M1);
    let of_block = |block: &Vec<usize>| {
        let block: Vec<f32> = block.iter().map(|place| image[*place]).collect();
        let scale =
            oracle::scale_exponent(&table, &mx(ElementFormat::FP4_E2M1, 2), rules::amax(&block));
        (scale.unwrap() + 127) as u8
    };
    let expected: Vec<u8> = blocks(&[5, 40, 3, 3], 1, 2).iter().map(of_block).collect();
    assert_eq!(packed.scales(), expected);
}

/// A block is one block, with one scale, not one for each of its rows.
#[test]
#[cfg(feature = "std")]
fn statistics_count_blocks() {
    let format = mx(ElementFormat::FP8_E4M3, 32);
    let data = vec![1.0; 100 * 70];
    let statistics = Statistics::of(Comparison {
        original: &data,
        quantized: &data,
        shape: &[100, 70],
        axis: 1,
        format: Some(format),
    });
    let statistics = statistics.unwrap();
    assert_eq!(statistics.blocks(), 4 * 3);
    assert_eq!(statistics.scales().collect::<Vec<_>>(), [(-8, 12)]);
}

#[test]
fn errors() {
    let mut data = [1.1; 6];
    let mut quantize = |format: BlockFormat, shape: &[usize], axis| {
        let error = format.quantize(&mut data, shape, axis, Rounder::NearestEven);
        assert_eq!(data, [1.1; 6]);
        error.unwrap_err()
    };
    let fp4 = mx(ElementFormat::FP4_E2M1, 32);
    let one_axis = quantize(fp4, &[6], 0);
    assert_eq!(one_axis, QuantizeError::OneAxis { shape: vec![6] });
    assert_eq!(
        one_axis.to_string(),
        "quantize: square blocks lie along two axes, the tensor of shape [6] has one"
    );
    let outside = QuantizeError::AxisOutOfRange { axis: 1, rank: 1 };
    assert_eq!(quantize(fp4, &[6], 1), outside);
    assert!(quantize(fp4, &[2, 4], 1).to_string().contains("8 elements"));

    let endless = quantize(mx(ElementFormat::FP4_E2M1, 0), &[2, 3], 1);
    assert_eq!(
        endless.to_string(),
        "quantize: square blocks: block_size is 0, expected a number of at least 1"
    );
    let unshared = BlockFormat {
        shared_exp_method: SharedExpMethod::None,
        ..fp4
    };
    let error = FormatError::SquareBlocks {
        field: "shared_exp_method",
        got: "none",
        allowed: "max",
    };
    assert_eq!(unshared.validate(), Err(error));
    assert_eq!(
        error.to_string(),
        "square blocks: shared_exp_method is none, expected max"
    );

    for shape in [[0, 3], [3, 0]] {
        for axis in 0..2 {
            assert_eq!(
                fp4.quantize(&mut [], &shape, axis, Rounder::NearestEven),
                Ok(())
            );
            let packed = Packed::encode(fp4, &[], &shape, axis, Rounder::NearestEven).unwrap();
            assert_eq!(packed.scales_shape(), [0]);
            assert_eq!(packed.decode(), [0.0; 0]);
        }
    }
}

#[test]
fn text() {
    let parse = |text: &str| text.parse::<BlockFormat>();
    let fp8 = mx(ElementFormat::FP8_E4M3, 32);
    let text = "mx(element=fp8_e4m3,block_size=32,square=true)";
    assert_eq!(parse(text), Ok(fp8));
    assert_eq!(fp8.to_string(), text);
    assert_eq!(fp8.bits_per_element(), 8.0 + 8.0 / 1024.0);
    assert!(fp8.square && fp8.square_axes(2) == Some([1, 2]));
    assert_eq!(
        parse("mx(element=fp8_e4m3,square=false)"),
        parse("mxfp8_e4m3")
    );
    assert_eq!(parse("mxfp8_e4m3").unwrap().square_axes(2), None);
    for tensor_scale in [false, true] {
        let format = BlockFormat {
            square: true,
            ..BlockFormat::nvfp4(tensor_scale)
        };
        let text = format!("nvfp4(tensor_scale={tensor_scale},square=true)");
        assert_eq!(parse(&text), Ok(format));
        assert_eq!(format.to_string(), text);
        assert_eq!(format.tensor_scale, tensor_scale);
        assert_eq!(format.bits_per_element(), 4.0 + 8.0 / 256.0);
    }
    for wrong in [
        "mx(element=fp4,block_size=0,square=true)",
        "mx(element=fp4,shared_exp_method=none,square=true)",
        "mx(element=fp4,square=1)",
        "bfp(square=true)",
        "microexponent(square=true)",
    ] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}
