//! Compares with the outputs of the reference implementations, bit for bit (−0 equals 0). The files
//! and what made them are described in the repository's `tests/data`.

use microscaling::{ElementFormat, FloatFormat, MxFormat, RandomStream, Rounding};
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use std::path::Path;

/// A golden file: tensors, and a list of cases in its metadata.
struct Golden {
    bytes: Vec<u8>,
}

impl Golden {
    fn open(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/data/golden")
            .join(name);
        let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Self { bytes }
    }

    fn cases<T: for<'de> Deserialize<'de>>(&self) -> Vec<T> {
        let (_, metadata) = SafeTensors::read_metadata(&self.bytes).unwrap();
        let json = &metadata.metadata().as_ref().unwrap()["cases"];
        serde_json::from_str(json).unwrap()
    }

    fn tensors(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.bytes).unwrap()
    }
}

fn floats(tensors: &SafeTensors<'_>, name: &str) -> (Vec<f32>, Vec<usize>) {
    let view = tensors.tensor(name).unwrap();
    assert_eq!(view.dtype(), Dtype::F32);
    let words = view.data().chunks_exact(4);
    let floats = words
        .map(|word| f32::from_le_bytes(word.try_into().unwrap()))
        .collect();
    (floats, view.shape().to_vec())
}

fn bytes(tensors: &SafeTensors<'_>, name: &str) -> Vec<u8> {
    let view = tensors.tensor(name).unwrap();
    assert_eq!(view.dtype(), Dtype::U8);
    view.data().to_vec()
}

/// The same bits, but for the sign of zero and what is in a NaN.
fn same(a: f32, b: f32) -> bool {
    a == b || (a.is_nan() && b.is_nan())
}

fn assert_same(got: &[f32], expected: &[f32], input: &[f32], case: &dyn std::fmt::Debug) {
    assert_eq!(got.len(), expected.len());
    for (i, ((got, expected), x)) in got.iter().zip(expected).zip(input).enumerate() {
        assert!(
            same(*got, *expected),
            "{case:?}, element {i}: {x:e} became {got:e}, not {expected:e}"
        );
    }
}

fn axis(axis: isize, rank: usize) -> usize {
    if axis < 0 {
        rank - axis.unsigned_abs()
    } else {
        axis as usize
    }
}

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
        let format = MxFormat {
            scale_bits: case.scale_bits,
            flush_fp32_subnorms: case.flush_fp32_subnorms,
            shared_exp_method: case.shared_exp_method,
            ..MxFormat::new(case.elem_format, case.block_size)
        };
        let mut data = input.clone();
        let axis = axis(case.axis, shape.len());
        format
            .quantize(&mut data, &shape, axis, case.round, RandomStream::new(0, 0))
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
        format.round_slice(&mut data, case.round, RandomStream::new(0, 0));
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
        let format = MxFormat {
            scale_mode: case.scale_mode,
            ..MxFormat::new(case.elem_format, case.block_size)
        };
        let mut data = input.clone();
        let axis = axis(case.axis, shape.len());
        format
            .quantize(&mut data, &shape, axis, case.round, RandomStream::new(0, 0))
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
