//! Compares with the outputs of the reference implementations, bit for bit (−0 equals 0). The files
//! and what made them are described in the repository's `tests/data`.

use crate::golden_file::{Golden, assert_same, axis, bytes, floats, same};
use crate::oracle::identical;
use microscaling::{
    BlockFormat, ElementFormat, FloatFormat, RandomStream, Rounder, Rounding, ScaleFormat,
    Subnormals,
};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
struct MxCase {
    id: usize,
    input: String,
    elem_format: ElementFormat,
    round: Rounding,
    block_size: usize,
    axis: isize,
    scale_bits: u32,
    flush_fp32_subnorms: bool,
    shared_exp_method: microscaling::SharedExpMethod,
}

#[test]
fn mx_quantize() {
    let golden = Golden::open("mx_quantize.safetensors");
    let tensors = golden.tensors();
    let cases: Vec<MxCase> = golden.cases();
    assert_eq!(cases.len(), 628);
    for case in cases {
        let (input, shape) = floats(&tensors, &format!("in/{}", case.input));
        let (expected, _) = floats(&tensors, &format!("out/{}", case.id));
        let format = BlockFormat {
            scale: ScaleFormat::exponent(case.scale_bits).unwrap(),
            subnormals: match case.flush_fp32_subnorms {
                true => Subnormals::FlushBlocks,
                false => Subnormals::Kept,
            },
            shared_exp_method: case.shared_exp_method,
            ..BlockFormat::mx(case.elem_format, case.block_size)
        };
        let mut data = input.clone();
        let axis = axis(case.axis, shape.len());
        format
            .quantize(
                &mut data,
                &shape,
                axis,
                case.round.with(RandomStream::new(0, 0)),
            )
            .unwrap();
        assert_same(&data, &expected, &input, &case);
    }
}

#[derive(Debug, Deserialize)]
struct ElementwiseCase {
    id: usize,
    bfloat: u32,
    fp: u32,
    round: Rounding,
    subnorms: bool,
}

#[test]
fn elementwise() {
    let golden = Golden::open("elementwise.safetensors");
    let tensors = golden.tensors();
    let cases: Vec<ElementwiseCase> = golden.cases();
    assert_eq!(cases.len(), 72);
    let (input, _) = floats(&tensors, "in/x");
    for case in cases {
        let (expected, _) = floats(&tensors, &format!("out/{}", case.id));
        let format = match (case.bfloat, case.fp) {
            (bits, 0) => FloatFormat::bfloat(bits),
            (0, bits) => FloatFormat::fp(bits),
            _ => unreachable!(),
        };
        let format = format.unwrap().with_subnormals(case.subnorms);
        let mut data = input.clone();
        format.round_slice(&mut data, case.round.with(RandomStream::new(0, 0)));
        assert_same(&data, &expected, &input, &case);
        let single: Vec<f32> = input
            .iter()
            .map(|x| format.round(*x, case.round, 0))
            .collect();
        assert_same(&single, &expected, &input, &case);
    }
}

#[derive(Debug, Deserialize)]
struct ScaleCase {
    id: usize,
    input: String,
    elem_format: ElementFormat,
    scale_mode: microscaling::ScaleMode,
    round: Rounding,
    block_size: usize,
    axis: isize,
    packed: String,
}

/// The values, the E8M0 codes of the scales, and that the stored element codes mean the same values.
#[test]
fn scale_modes() {
    let golden = Golden::open("scale_modes.safetensors");
    let tensors = golden.tensors();
    let cases: Vec<ScaleCase> = golden.cases();
    assert_eq!(cases.len(), 80);
    for case in cases {
        let (input, shape) = floats(&tensors, &format!("in/{}", case.input));
        let (expected, _) = floats(&tensors, &format!("out/{}", case.id));
        let scales = bytes(&tensors, &format!("scale/{}", case.id));
        let codes = bytes(&tensors, &format!("bits/{}", case.id));
        let codes: Vec<u8> = if case.packed == "one a byte" {
            codes
        } else {
            codes
                .iter()
                .flat_map(|pair| [pair & 15, pair >> 4])
                .collect()
        };
        let format = BlockFormat {
            scale_mode: case.scale_mode,
            ..BlockFormat::mx(case.elem_format, case.block_size)
        };
        let mut data = input.clone();
        let axis = axis(case.axis, shape.len());
        format
            .quantize(
                &mut data,
                &shape,
                axis,
                case.round.with(RandomStream::new(0, 0)),
            )
            .unwrap();
        assert_same(&data, &expected, &input, &case);

        let blocks = input
            .chunks(case.block_size)
            .zip(data.chunks(case.block_size));
        let codes = codes.chunks(case.block_size);
        for (((input, output), codes), scale) in blocks.zip(codes).zip(scales) {
            let amax = input.iter().map(|x| x.abs().to_bits()).max().unwrap();
            let exponent = format.scale_exponent(amax);
            let code = exponent.map_or(255, |exponent| (exponent + 127) as u8);
            assert_eq!(code, scale, "{case:?}, amax {:e}", f32::from_bits(amax));
            let Some(exponent) = exponent else { continue };
            for (value, code) in output.iter().zip(codes) {
                let element = case.elem_format.decode(u32::from(*code));
                let decoded = f64::from(element) * 2.0_f64.powi(exponent);
                assert!(
                    same(decoded as f32, *value),
                    "{case:?}: code {code} at 2^{exponent}"
                );
            }
        }
    }
}

#[derive(Debug, Deserialize)]
struct MicroexponentCase {
    id: usize,
    input: String,
    format: String,
    bit_width: u32,
    block_size: usize,
    sub_block_size: Option<usize>,
    sub_block_shift_bits: Option<u32>,
    round: Rounding,
    axis: isize,
    invalid: usize,
}

/// Microexponents and BFP. Where the reference runs over into a value that the format does not have,
/// ours is the largest that it has.
#[test]
fn microexponents() {
    let golden = Golden::open("microexponents.safetensors");
    let tensors = golden.tensors();
    let cases: Vec<MicroexponentCase> = golden.cases();
    assert_eq!(cases.len(), 36);
    for case in cases {
        let (input, shape) = floats(&tensors, &format!("in/{}", case.input));
        let (expected, _) = floats(&tensors, &format!("out/{}", case.id));
        let valid = bytes(&tensors, &format!("valid/{}", case.id));
        assert_eq!(valid.iter().filter(|v| **v == 0).count(), case.invalid);
        let mut data = input.clone();
        let axis = axis(case.axis, shape.len());
        let stream = RandomStream::new(0, 0);
        if case.format == "bfp" {
            let format = BlockFormat::bfp(case.bit_width, case.block_size).unwrap();
            format.quantize(&mut data, &shape, axis, case.round.with(stream))
        } else {
            let format = BlockFormat::microexponent(
                case.bit_width,
                case.block_size,
                case.sub_block_size.unwrap(),
                case.sub_block_shift_bits.unwrap(),
            )
            .unwrap();
            let preset = match case.format.as_str() {
                "mx4" => BlockFormat::MX4,
                "mx6" => BlockFormat::MX6,
                _ => BlockFormat::MX9,
            };
            assert_eq!(format, preset);
            format.quantize(&mut data, &shape, axis, case.round.with(stream))
        }
        .unwrap();
        for (i, valid) in valid.into_iter().enumerate() {
            if valid == 1 {
                assert_same(&data[i..=i], &expected[i..=i], &input[i..=i], &case);
            } else {
                // One step, the relative distance 2^-m, below the reference.
                let steps = f32::from(1_u16 << (case.bit_width - 9));
                assert_eq!(
                    data[i] * steps,
                    expected[i] * (steps - 1.0),
                    "{case:?}, {i}"
                );
            }
        }
    }
}

#[derive(Debug, Deserialize)]
struct Nvfp4Case {
    id: usize,
    input: String,
    per_tensor_scale: bool,
    axis: isize,
}

/// The values, the scales of the tensor and of the blocks.
#[test]
fn nvfp4() {
    let golden = Golden::open("nvfp4.safetensors");
    let tensors = golden.tensors();
    let cases: Vec<Nvfp4Case> = golden.cases();
    assert_eq!(cases.len(), 8);
    for case in cases {
        let (input, shape) = floats(&tensors, &format!("in/{}", case.input));
        let (expected, _) = floats(&tensors, &format!("out/{}", case.id));
        let scales = bytes(&tensors, &format!("scale/{}", case.id));
        let format = BlockFormat::nvfp4(case.per_tensor_scale);
        let mut data = input.clone();
        let axis = axis(case.axis, shape.len());
        format
            .quantize(&mut data, &shape, axis, Rounder::NearestEven)
            .unwrap();
        assert_same(&data, &expected, &input, &case);

        let amax = |data: &[f32]| data.iter().map(|x| x.abs().to_bits()).max().unwrap();
        let tensor_scale = format.tensor_scale_of(amax(&input));
        if case.per_tensor_scale {
            let (expected, _) = floats(&tensors, &format!("tensor_scale/{}", case.id));
            assert_eq!([tensor_scale], *expected);
        }
        assert_eq!(scales.len(), input.len().div_ceil(16), "{case:?}");
        for (block, code) in input.chunks(16).zip(scales.iter()) {
            let scale = format.block_scale_of(block, tensor_scale);
            let expected = ElementFormat::FP8_E4M3.decode(u32::from(*code));
            assert!(identical(scale, expected), "{case:?}");
        }
    }
}
