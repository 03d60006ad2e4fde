//! The bytes that other tools make of the same weights.

use crate::float_state::ieee;
use crate::golden_file::{Golden, bytes, floats};
use crate::inputs::numbers;
use microscaling::internal::{DialectRule, largest};
use microscaling::{BlockFormat, Dialect, DialectError, PackError, Packed, Rounder, WeightLayout};
use microscaling_processor::instruction_set::{Level, with_level};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
struct Case {
    dialect: Dialect,
    format: BlockFormat,
    input: String,
    id: String,
}

/// The elements in our order: ggml has the first half of a block in the low nibbles and the second in the high ones.
fn our_order(dialect: Dialect, elements: Vec<u8>) -> Vec<u8> {
    if dialect != Dialect::Ggml {
        return elements;
    }
    let block = |bytes: &[u8]| -> Vec<u8> {
        let low = bytes.iter().map(|byte| byte & 15);
        let codes: Vec<u8> = low.chain(bytes.iter().map(|byte| byte >> 4)).collect();
        codes.chunks(2).map(|pair| pair[0] | pair[1] << 4).collect()
    };
    elements.chunks(16).flat_map(block).collect()
}

/// Bit for bit what the tools themselves made.
#[test]
fn bytes_of_the_tools() {
    let golden = Golden::open("dialects.safetensors");
    let tensors = golden.tensors();
    let cases: Vec<Case> = golden.cases();
    assert_eq!(cases.len(), 30);
    for case in cases {
        let (weight, shape) = floats(&tensors, &format!("in/{}", case.input));
        let own = case.dialect.encode(case.format, &weight, &shape).unwrap();
        let part = |name: &str| format!("{}/{name}", case.id);
        let scales = bytes(&tensors, &part("scales"));
        let elements = our_order(case.dialect, bytes(&tensors, &part("elements")));
        let block = case.format.group_size();
        for (i, scale) in scales.iter().enumerate() {
            let row = &weight[i * block..][..block];
            assert_eq!(own.packed.scales()[i], *scale, "{case:?}: scale of {row:?}");
        }
        let per_byte = 8 / case.format.element_bits() as usize;
        for (i, byte) in elements.iter().enumerate() {
            let row = &weight[i * per_byte..][..per_byte];
            assert_eq!(own.packed.elements()[i], *byte, "{case:?}: {row:?}");
        }
        assert_eq!(own.packed.elements().len(), elements.len());
        if case.format.tensor_scale {
            let (expected, _) = floats(&tensors, &part("tensor_scale"));
            let stored = own.divisor.or(own.packed.tensor_scale());
            assert_eq!(stored, Some(expected[0]), "{case:?}");
        }
        if case.dialect == Dialect::Ggml {
            let stored = WeightLayout::GgufMxfp4
                .store("w", &own.packed.view(), None)
                .unwrap();
            let codes = bytes(&tensors, &part("elements"));
            let blocks = scales.iter().zip(codes.chunks(16));
            let expected: Vec<u8> = blocks
                .flat_map(|(scale, codes)| std::iter::once(scale).chain(codes).copied())
                .collect();
            assert_eq!(stored[0].bytes, expected);
        }
        assert_eq!(own.divisor.is_some(), {
            case.dialect == Dialect::CompressedTensors && case.format.tensor_scale
        });
        let served = match own.divisor {
            Some(divisor) => own.packed.with_divisor(divisor).decode(),
            None => own.packed.decode(),
        };
        let quantize = |data: &[f32], shape: &[usize], axis| {
            let mut data = data.to_vec();
            (case.dialect.quantize(case.format, &mut data, shape, axis)).unwrap();
            data
        };
        let [rows, columns] = shape[..] else {
            panic!("a weight is a matrix")
        };
        assert_same(&quantize(&weight, &shape, 1), &served, &case);
        // Along the first of two axes, and with a line whose last block is not whole.
        let turned = quantize(&transposed(&weight, columns), &[columns, rows], 0);
        assert_same(&transposed(&turned, rows), &served, &case);
        if !case.format.tensor_scale {
            let short = columns - 5;
            let cut = |data: &[f32]| -> Vec<f32> {
                data.chunks(columns)
                    .flat_map(|row| row[..short].to_vec())
                    .collect()
            };
            let mut padded = weight.clone();
            padded
                .chunks_mut(columns)
                .for_each(|row| row[short..].fill(0.0));
            let expected = cut(&quantize(&padded, &shape, 1));
            assert_same(
                &quantize(&cut(&weight), &[rows, short], 1),
                &expected,
                &case,
            );
        }
    }
}

#[track_caller]
fn assert_same(got: &[f32], expected: &[f32], case: &Case) {
    assert_eq!(got.len(), expected.len());
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert_eq!(got.to_bits(), expected.to_bits(), "{case:?}: element {i}");
    }
}

/// A matrix with rows of this length, transposed.
fn transposed(data: &[f32], columns: usize) -> Vec<f32> {
    let column = |column| data.iter().skip(column).step_by(columns).copied();
    (0..columns).flat_map(column).collect()
}

/// Tensors that [`Dialect::encode`] refuses, and training meets.
#[test]
fn values_where_a_tool_has_no_bytes() {
    let dialects = [
        "torchao",
        "quark",
        "compressed-tensors",
        "modelopt",
        "ggml",
        "transformer-engine",
        "transformer-engine-fast-math",
        "triton-kernels",
    ];
    for dialect in dialects {
        let dialect: Dialect = dialect.parse().unwrap();
        for name in dialect.formats() {
            let format: BlockFormat = name.parse().unwrap();
            let quantize = |data: &[f32], shape: &[usize], axis| {
                let mut data = data.to_vec();
                dialect
                    .quantize(format, &mut data, shape, axis)
                    .map(|()| data)
            };
            let block = format.block_size;
            let mut data = numbers(4 * block, 0, false, 3);
            let ordinary = quantize(&data, &[2, 2 * block], 1).unwrap();
            assert!(ordinary.iter().all(|x| x.is_finite()), "{dialect} {name}");
            for bad in [f32::NAN, f32::INFINITY] {
                data[block + 1] = bad;
                let result = quantize(&data, &[2, 2 * block], 1).unwrap();
                for (i, (x, ordinary)) in result.iter().zip(&ordinary).enumerate() {
                    let expected = match i / block {
                        1 => f32::NAN,
                        _ if format.tensor_scale => f32::NAN,
                        _ => *ordinary,
                    };
                    assert_eq!(x.to_bits(), expected.to_bits(), "{dialect} {name} {i}");
                }
            }
            let zeros = quantize(&vec![0.0; 2 * block], &[1, 2 * block], 1).unwrap();
            assert!(zeros.iter().all(|x| *x == 0.0), "{dialect} {name}");
            assert!(quantize(&[], &[0, block], 1).unwrap().is_empty());
            assert!(quantize(&[], &[3, 0], 1).unwrap().is_empty());
            let error = quantize(&[1.0; 8], &[2, 4], 2).unwrap_err().to_string();
            assert!(error.contains("axis 2 is out of range"), "{error}");
        }
    }
    let mxfp6 = "mxfp6_e2m3".parse().unwrap();
    let error = Dialect::Ggml.quantize(mxfp6, &mut [0.0_f32; 32], &[1, 32], 1);
    assert_eq!(
        error.unwrap_err().to_string(),
        format!("dialect ggml: format is mxfp6_e2m3, expected one of mxfp4, {Q8_0}")
    );
}

/// ggml's format of inputs.
const Q8_0: &str = "block(element=int8,scale=float(exponent_bits=5,mantissa_bits=10,bias=9,specials=ieee),block_size=32)";

/// The numbers that compressed-tensors 0.20 computed (`fake_quantize`) for blocks of an input whose `input_global_scale` is 1: an ordinary
/// one, one beyond the largest scale, those around the smallest scale.
#[test]
fn nvfp4_of_an_input_with_a_divisor_of_one() {
    let format: BlockFormat = "block(element=fp4_e2m1,scale=ue4m3,block_size=16)"
        .parse()
        .unwrap();
    let base = [
        1.0, -0.9, 0.8, 0.7, -0.6, 0.5, 0.4, -0.3, 0.25, 0.2, 0.1, 0.05, -0.02, 0.0, -0.0, 0.45_f32,
    ];
    // Codes of the block, in units of half the scale.
    let ordinary = [12, -12, 8, 8, -6, 6, 4, -3, 3, 2, 1, 1, 0, 0, 0, 6];
    let cases: [(f32, f32, [i32; 16]); 6] = [
        (1.0, 0.171875, ordinary),
        (
            5000.0,
            448.0,
            [12, -12, 12, 12, -12, 12, 8, -6, 6, 4, 2, 1, 0, 0, 0, 12],
        ),
        (0.09, 0.015625, ordinary),
        (
            0.0118,
            0.001953125,
            [12, -12, 8, 8, -8, 6, 4, -4, 3, 2, 1, 1, 0, 0, 0, 6],
        ),
        (
            0.006,
            0.001953125,
            [6, -6, 4, 4, -4, 3, 2, -2, 2, 1, 1, 0, 0, 0, 0, 3],
        ),
        (0.0058, 0.125, [0; 16]),
    ];
    for (amax, scale, halves) in cases {
        let data = base.map(|x| x * amax);
        let mut values = data;
        let dialect = Dialect::CompressedTensors;
        dialect.quantize(format, &mut values, &[1, 16], 1).unwrap();
        assert_eq!(
            values,
            halves.map(|half| half as f32 / 2.0 * scale),
            "{amax}"
        );
        let encoded = dialect.encode(format, &data, &[1, 16]).unwrap();
        assert_eq!(encoded.divisor, None);
        assert_eq!(encoded.packed.decode(), values, "{amax}");
    }
}

/// Integers and scales that NumPy computed in float32 and float16 by ggml's formulas for x86.
#[test]
fn inputs_in_q8_0() {
    let format: BlockFormat = Q8_0.parse().unwrap();
    let ramp = core::array::from_fn(|i| (i as f32 - 16.0) / 8.0 + (i % 3) as f32 / 64.0);
    let padded =
        |data: &[f32], rest: f32| core::array::from_fn(|i| data.get(i).copied().unwrap_or(rest));
    let integers =
        |first: &[i8], rest: i8| core::array::from_fn(|i| first.get(i).copied().unwrap_or(rest));
    let cases: [([f32; 32], u16, [i8; 32]); 4] = [
        (
            ramp,
            0x2408,
            [
                -127, -118, -109, -103, -94, -85, -79, -70, -62, -56, -47, -38, -32, -23, -14, -8,
                1, 10, 16, 25, 34, 40, 49, 58, 64, 72, 81, 87, 96, 105, 111, 120,
            ],
        ),
        (
            padded(&[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5], 0.0),
            0x3c00,
            integers(&[127, 0, 2, 2, 0, -2, -2, 126], 0),
        ),
        (
            padded(
                &[1.0, -0.99, 0.3337, 0.5, -0.7512, 0.01, 0.004, 0.0039],
                0.1,
            ),
            0x2008,
            integers(&[127, -126, 42, 64, -95, 1, 1, 0], 13),
        ),
        // A scale below float16's numbers.
        (
            padded(&[1e-6, -5e-7, 3e-7], 0.0),
            0,
            integers(&[127, -64, 38], 0),
        ),
    ];
    for (data, scale, integers) in cases {
        let encoded = Dialect::Ggml.encode(format, &data, &[1, 32]).unwrap();
        assert_eq!(encoded.packed.scales(), scale.to_le_bytes());
        let codes = integers.map(|integer| integer as u8);
        assert_eq!(encoded.packed.elements(), codes);
        let mut values = data;
        Dialect::Ggml
            .quantize(format, &mut values, &[1, 32], 1)
            .unwrap();
        let scale = half::f16::from_bits(scale).to_f32();
        assert_eq!(values, integers.map(|integer| f32::from(integer) * scale));
        assert_eq!(encoded.packed.decode(), values);
    }
    // Scales of all of float16's exponents and subnormals, by `half` and the standard library.
    for exponent in -30..22 {
        let data = numbers(320, exponent, false, 7);
        let encoded = Dialect::Ggml.encode(format, &data, &[10, 32]).unwrap();
        let stored = encoded.packed.scales().as_chunks().0.iter();
        let codes = encoded.packed.elements().chunks(32);
        for ((block, scale), codes) in data.chunks(32).zip(stored).zip(codes) {
            let amax = block.iter().fold(0.0_f32, |amax, x| amax.max(x.abs()));
            let expected = half::f16::from_f32(amax / 127.0);
            assert_eq!(u16::from_le_bytes(*scale), expected.to_bits(), "{amax:e}");
            for (x, code) in block.iter().zip(codes) {
                let factor = if amax > 0.0 { 127.0 / amax } else { 0.0 };
                let integer = (x * factor).round_ties_even();
                assert_eq!(f32::from(*code as i8), integer, "{x:e} of {amax:e}");
            }
        }
    }
    // A scale beyond float16's numbers.
    let mut large = [1e7_f32; 32];
    Dialect::Ggml
        .quantize(format, &mut large, &[1, 32], 1)
        .unwrap();
    assert!(large.iter().all(|x| x.is_nan()));
}

/// Two dialects equal formats of this crate. Other tests compare Microxcaling's formats with its values.
#[test]
fn ocp_and_microxcaling_are_formats() {
    let data = numbers(320, 0, false, 5);
    for name in Dialect::Microxcaling.formats() {
        let format: BlockFormat = name.parse().unwrap();
        for (dialect, rounder) in [
            (Dialect::Ocp, Rounder::NearestEven),
            (Dialect::Microxcaling, Rounder::NearestAway),
        ] {
            let own = dialect.encode(format, &data, &[5, 64]).unwrap().packed;
            let expected = Packed::encode(format, &data, &[5, 64], 1, rounder).unwrap();
            assert_eq!(own, expected);
        }
    }
}

/// Every dialect and format whose numbers are not this crate's own, with its rule.
fn rules() -> Vec<(Dialect, BlockFormat, DialectRule)> {
    let formats = |dialect: Dialect| dialect.formats().iter().map(move |name| (dialect, name));
    let rules = Dialect::ALL.into_iter().flat_map(formats);
    let rules = rules.filter_map(|(dialect, name)| {
        let format: BlockFormat = name.parse().unwrap();
        Some((dialect, format, DialectRule::of(dialect, &format).ok()?))
    });
    rules.collect()
}

/// The loops over blocks give the numbers of the bytes, which scalar code makes, and of the rule for one word, at every level. Zeros of
/// either sign included.
#[test]
fn rules_over_words() {
    assert_eq!(rules().len(), 25);
    for (dialect, format, rule) in rules() {
        let block = format.block_size;
        let shape = [24 * block];
        // Around every exponent, with subnormal and the largest numbers, and with NaN and Inf.
        for center in -149..=123 {
            let specials = center % 3 == 0 && !format.tensor_scale;
            let mut data = numbers(shape[0], center, specials, 7);
            data[block..2 * block].fill(-0.0);
            let expected = by_rule(rule, &format, &data, &shape, 0);
            assert_quantized(dialect, format, &data, (&shape, 0), &expected);
            if let Ok(encoded) = dialect.encode(format, &data, &shape) {
                let served = match encoded.divisor {
                    Some(divisor) => encoded.packed.with_divisor(divisor).decode(),
                    None => encoded.packed.decode(),
                };
                // Decoded numbers are Inf where the scale is beyond float16.
                let is_same = |(served, expected): (&f32, &f32)| {
                    expected.is_nan() || served.to_bits() == expected.to_bits()
                };
                let served = served.iter().zip(&expected);
                assert!(served.clone().all(is_same), "{dialect} {format} 2^{center}");
            }
            // A tensor scale follows from the special number.
            for special in [f32::MAX, f32::NAN, f32::INFINITY] {
                data[2 * block] = special;
                let expected = by_rule(rule, &format, &data, &shape, 0);
                assert_quantized(dialect, format, &data, (&shape, 0), &expected);
            }
        }
        let zeros = vec![-0.0; shape[0]];
        let expected = by_rule(rule, &format, &zeros, &shape, 0);
        assert_quantized(dialect, format, &zeros, (&shape, 0), &expected);
    }
}

/// Along every axis: short and narrow rows, short last blocks, more columns than are worked on together, and work for several threads.
#[test]
fn dialects_along_every_axis() {
    let shapes: [&[usize]; 7] = [
        &[3, 70, 5],
        &[2, 40, 600],
        &[33, 2],
        &[7, 5],
        &[1, 1],
        &[2, 3, 64, 1],
        &[300, 520],
    ];
    for (dialect, format, rule) in rules() {
        for shape in shapes {
            let count = shape.iter().product();
            let data = numbers(count, 0, !format.tensor_scale, 11);
            for axis in 0..shape.len() {
                let expected = by_rule(rule, &format, &data, shape, axis);
                assert_quantized(dialect, format, &data, (shape, axis), &expected);
            }
        }
    }
}

/// The numbers of blocks along an axis by the rule for one word.
fn by_rule(
    rule: DialectRule,
    format: &BlockFormat,
    data: &[f32],
    shape: &[usize],
    axis: usize,
) -> Vec<f32> {
    let (length, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
    let of_tensor = largest(data);
    let mut quantized = data.to_vec();
    for line in 0..data.len() / length {
        let first = line / inner * length * inner + line % inner;
        let line: Vec<usize> = (0..length).map(|i| first + i * inner).collect();
        for block in line.chunks(format.block_size) {
            let amax = block.iter().map(|i| data[*i].to_bits() & 0x7fff_ffff).max();
            let words = ieee(|| rule.words(amax.unwrap(), of_tensor));
            for i in block {
                quantized[*i] = f32::from_bits(ieee(|| rule.round(data[*i].to_bits(), words)));
            }
        }
    }
    quantized
}

/// Compares bits at every level. NaN is the same as any NaN.
#[track_caller]
fn assert_quantized(
    dialect: Dialect,
    format: BlockFormat,
    data: &[f32],
    (shape, axis): (&[usize], usize),
    expected: &[f32],
) {
    for level in Level::available() {
        let mut got = data.to_vec();
        with_level(level, || dialect.quantize(format, &mut got, shape, axis)).unwrap();
        for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
            let same = got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan();
            assert!(
                same,
                "{dialect} {format} {shape:?} along {axis}, {level:?}: {:e} at {i} is {got:e}, and not {expected:e}",
                data[i]
            );
        }
    }
}

#[test]
fn what_a_dialect_has_not() {
    let mxfp4: BlockFormat = "mxfp4".parse().unwrap();
    let mxfp6: BlockFormat = "mxfp6_e2m3".parse().unwrap();
    let nvfp4: BlockFormat = "nvfp4(tensor_scale=true)".parse().unwrap();
    let error = |result: Result<_, DialectError>| {
        result
            .map(|_: microscaling::DialectTensor| ())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        error(Dialect::Ggml.encode(mxfp6, &[0.0; 32], &[1, 32])),
        format!("dialect ggml: format is mxfp6_e2m3, expected one of mxfp4, {Q8_0}")
    );
    assert_eq!(
        error(Dialect::Torchao.encode(mxfp4, &[0.0; 80], &[2, 40])),
        "dialect: the last axis has 40 elements, expected a multiple of the block length 32"
    );
    let mut data = [1.0; 64];
    data[33] = f32::INFINITY;
    assert_eq!(
        error(Dialect::Quark.encode(mxfp4, &data, &[2, 32])),
        "dialect: the element at position 33 is NaN or Inf, expected numbers"
    );
    // Inf in bfloat16, which that tool reads.
    let beyond = f32::from_bits(0x7f7f_8000);
    data[33] = beyond;
    let [exact, fast] = [
        Dialect::TransformerEngine,
        Dialect::TransformerEngineFastMath,
    ];
    assert!(exact.encode(nvfp4, &data, &[2, 32]).is_ok());
    assert_eq!(
        error(fast.encode(nvfp4, &data, &[2, 32])),
        "dialect: the element at position 33 is NaN or Inf, expected numbers"
    );
    let mut values = data.to_vec();
    fast.quantize(nvfp4, &mut values, &[2, 32], 1).unwrap();
    assert!(values.iter().all(|x| x.is_nan()));
    data[33] = f32::from_bits(beyond.to_bits() - 1);
    assert!(fast.encode(nvfp4, &data, &[2, 32]).is_ok());
    // Also of numbers whose scale becomes zero.
    for x in [0.0, f32::from_bits(1)] {
        assert_eq!(
            error(Dialect::ModelOpt.encode(nvfp4, &[x; 32], &[1, 32])),
            "dialect modelopt: the tensor scale, the largest magnitude over 2688, is zero, expected a positive number: the \
             tool makes NaN or zeros of such tensors"
        );
    }
    assert_eq!(
        error(Dialect::ModelOpt.encode(nvfp4, &[], &[0, 32])),
        "dialect modelopt: the tensor has no elements, expected some: the tool takes its scale from the largest"
    );
    assert_eq!(
        error(Dialect::Quark.encode(mxfp4, &[1.0], &[])),
        "quantize: axis 0 is out of range for a tensor of rank 0"
    );
    assert!(matches!(
        Dialect::Ocp.encode(mxfp4, &data, &[2, 64]),
        Err(DialectError::Pack(_))
    ));
    for dialect in Dialect::ALL {
        assert_eq!(dialect.name().parse(), Ok(dialect));
        for name in dialect.formats() {
            let format: BlockFormat = name.parse().unwrap();
            assert_eq!(format.to_string(), *name);
            let ones = dialect.encode(format, &[1.0; 64], &[2, 32]).unwrap();
            assert!(
                ones.packed.decode().iter().all(|x| (x - 1.0).abs() < 0.1),
                "{dialect} {name}"
            );
        }
    }
}

/// A part of a tensor has the bytes of its rows in the packed whole, in every format with a tensor scale and by every tool that has one.
#[test]
fn parts_of_a_tensor() {
    let [large, small] = [(6, 3.0), (10, 0.01)].map(|(rows, scale)| {
        let numbers = (0..rows * 32).map(|i| (i as f32 * 0.7).sin() * scale);
        (rows, numbers.collect::<Vec<f32>>())
    });
    let whole = [&large.1[..], &small.1[..]].concat();
    let largest = whole
        .iter()
        .fold(0.0_f32, |largest, x| largest.max(x.abs()));
    let formats = [
        "nvfp4(tensor_scale=true)",
        "nvfp4(tensor_scale=true,four_over_six=true)",
        "mxfp4",
    ];
    let tools = [
        None,
        Some(Dialect::CompressedTensors),
        Some(Dialect::ModelOpt),
        Some(Dialect::Torchao),
    ];
    let mut compared = 0;
    for (name, tool) in formats
        .iter()
        .flat_map(|name| tools.map(|tool| (name, tool)))
    {
        let format: BlockFormat = name.parse().unwrap();
        if tool.is_some_and(|tool| tool.check(format).is_err()) {
            continue;
        }
        let packed = |data: &[f32], rows: usize, largest: Option<f32>| {
            let shape = [rows, 32];
            let even = Rounder::NearestEven;
            match (tool, largest) {
                (None, None) => Packed::encode(format, data, &shape, 1, even).unwrap(),
                (None, Some(x)) => Packed::encode_part(format, data, &shape, 1, even, x).unwrap(),
                (Some(tool), None) => tool.encode(format, data, &shape).unwrap().packed,
                (Some(tool), Some(x)) => tool.encode_part(format, data, &shape, x).unwrap().packed,
            }
        };
        let of_whole = packed(&whole, 16, None);
        let parts = [&large, &small].map(|(rows, data)| packed(data, *rows, Some(largest)));
        let scales = parts.each_ref().map(Packed::scales).concat();
        let elements = parts.each_ref().map(Packed::elements).concat();
        assert_eq!(of_whole.scales(), scales, "{name} {tool:?}");
        assert_eq!(of_whole.elements(), elements, "{name} {tool:?}");
        for part in parts {
            assert_eq!(
                part.tensor_scale(),
                of_whole.tensor_scale(),
                "{name} {tool:?}"
            );
        }
        if format.tensor_scale {
            let own = packed(&small.1, 10, None);
            assert_ne!(
                own.tensor_scale(),
                of_whole.tensor_scale(),
                "{name} {tool:?}"
            );
        }
        compared += 1;
    }
    assert_eq!(compared, 9);
}

#[test]
fn a_part_that_its_whole_cannot_have() {
    let (nvfp4, even) = (BlockFormat::nvfp4(true), Rounder::NearestEven);
    for largest in [1.0, -3.0, f32::NEG_INFINITY] {
        let error = Packed::encode_part(nvfp4, &[2.0; 16], &[1, 16], 1, even, largest).unwrap_err();
        let expected = format!("whole tensor is {largest}, and its part has 2; allowed: 2 or more");
        assert!(error.to_string().ends_with(&expected), "{error}");
    }
    // The NaN of another part makes the tensor NaN; tools have no such tensors.
    let nan = Packed::encode_part(nvfp4, &[2.0; 16], &[1, 16], 1, even, f32::NAN).unwrap();
    assert!(nan.decode().iter().all(|x| x.is_nan()));
    for largest in [f32::NAN, f32::INFINITY] {
        let tool = Dialect::ModelOpt;
        let error = tool
            .encode_part(nvfp4, &[2.0; 16], &[1, 16], largest)
            .unwrap_err();
        assert!(error.to_string().contains("is NaN or Inf"), "{error}");
    }
    // The error of a NaN or Inf in the data names the position.
    for number in [f32::NAN, f32::INFINITY] {
        let mut data = [2.0; 16];
        data[3] = number;
        for largest in [8.0, f32::NAN, f32::INFINITY] {
            let error = Dialect::ModelOpt
                .encode_part(nvfp4, &data, &[1, 16], largest)
                .unwrap_err();
            let is_known = matches!(error, DialectError::NotFinite { position: 3 });
            assert!(is_known, "{error}");
            let bfp = BlockFormat::bfp(16, 16).unwrap();
            let error = Packed::encode_part(bfp, &data, &[1, 16], 1, even, largest).unwrap_err();
            let is_known = matches!(error, PackError::NotFinite { position: 3, .. });
            assert!(is_known, "{error}");
        }
    }
    let error = Dialect::ModelOpt
        .encode_part(nvfp4, &[0.0; 16], &[1, 16], 0.0)
        .unwrap_err();
    assert!(matches!(error, DialectError::Zeros { .. }), "{error}");
    let zeros = Dialect::ModelOpt
        .encode_part(nvfp4, &[0.0; 16], &[1, 16], 1.0)
        .unwrap();
    assert_eq!(zeros.packed.decode(), [0.0; 16]);
}
