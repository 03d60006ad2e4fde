//! Weights of integers and in MXFP6, as other tools store them, and tensors that only resemble such weights.

use crate::inputs::numbers;
use ::safetensors::{Dtype, serialize, tensor::TensorView};
use microscaling::safetensors::{
    IntegerFormat, IntegerLayout, IntegerMatrix, PackedFile, PackedFiles,
};
use microscaling::{BlockFormat, Packed, Rounder};
use proptest::prelude::*;

type Stored = (String, Dtype, Vec<usize>, Vec<u8>);

fn stored(name: &str, dtype: Dtype, shape: &[usize], bytes: Vec<u8>) -> Stored {
    (name.to_owned(), dtype, shape.to_vec(), bytes)
}

fn file(tensors: &[Stored]) -> Vec<u8> {
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        (
            name.as_str(),
            TensorView::new(*dtype, shape.clone(), bytes).unwrap(),
        )
    });
    serialize(views.collect::<Vec<_>>(), None).unwrap()
}

/// The layout in compressed-tensors' source (compressors/mxfp6/helpers.py) has this project's order of bits.
#[test]
fn mxfp6() {
    let format: BlockFormat = "mxfp6_e2m3".parse().unwrap();
    let packed = Packed::encode(
        format,
        &numbers(3 * 64, 0, false, 5),
        &[3, 64],
        1,
        Rounder::NearestEven,
    );
    let packed = packed.unwrap();
    let bytes = file(&[
        stored("a_packed", Dtype::U8, &[3, 48], packed.elements().to_vec()),
        stored("a_scale", Dtype::U8, &[3, 2], packed.scales().to_vec()),
        // The same file with MXFP4.
        stored("b_packed", Dtype::U8, &[3, 32], vec![0x21; 96]),
        stored("b_scale", Dtype::U8, &[3, 2], vec![127; 6]),
    ]);
    let read = PackedFiles::new(vec![PackedFile::read(&bytes).unwrap()], None).unwrap();
    let layouts = ["a", "b"].map(|name| read.weights()[name].name());
    assert_eq!(layouts, ["mxfp6-pack-quantized", "mxfp4-pack-quantized"]);
    assert_eq!(read.values("a").unwrap().unwrap(), packed.decode());
    assert_eq!(read.parts_of("a"), ["a_packed", "a_scale"]);
    assert_eq!(read.values("b").unwrap().unwrap()[..2], [0.5, 1.0]);
    assert!(read.values("c").is_none());
}

/// Three words hold 32 integers of 3 bits; the words of a GPTQ weight go down its columns.
#[test]
fn integers_cross_words() {
    let stream = |codes: &[u32], bits: usize| -> Vec<u32> {
        let mut words = vec![0_u64; (codes.len() * bits).div_ceil(32) + 1];
        for (i, code) in codes.iter().enumerate() {
            let (word, shift) = (i * bits / 32, i * bits % 32);
            words[word] |= u64::from(*code) << shift & 0xffff_ffff;
            words[word + 1] |= u64::from(*code) << shift >> 32;
        }
        words.pop();
        words.into_iter().map(|word| word as u32).collect()
    };
    let bytes = |words: Vec<u32>| {
        words
            .into_iter()
            .flat_map(u32::to_le_bytes)
            .collect::<Vec<u8>>()
    };
    let half = |x: u16| x.to_le_bytes();
    for bits in [2, 3, 4, 8] {
        let codes: Vec<u32> = (0..32).map(|i| (i * 7 + 3) % (1 << bits)).collect();
        let ones = vec![0_u32; 32];
        let file = file(&[
            stored(
                "a.qweight",
                Dtype::I32,
                &[bits, 1],
                bytes(stream(&codes, bits)),
            ),
            stored("a.qzeros", Dtype::I32, &[1, 1], bytes(vec![0])),
            stored("a.scales", Dtype::F16, &[1, 1], half(0x3c00).to_vec()),
            stored("a.g_idx", Dtype::I32, &[32], bytes(ones)),
        ]);
        let read = PackedFiles::new(vec![PackedFile::read(&file).unwrap()], None).unwrap();
        let weight = &read.integers()["a.weight"];
        assert_eq!(
            (weight.layout, weight.bits, weight.shape),
            (IntegerLayout::Gptq, bits as u32, [1, 32])
        );
        let expected: Vec<f32> = codes.iter().map(|code| *code as f32 - 1.0).collect();
        assert_eq!(
            read.values("a.weight").unwrap().unwrap(),
            expected,
            "{bits}"
        );
    }
}

/// Whether the weight's tensors in a layout have its values.
fn same_values(matrix: &IntegerMatrix, layout: IntegerLayout) -> bool {
    let tensors = matrix.store(layout, "n.weight").into_iter();
    let tensors: Vec<Stored> = tensors
        .map(|x| {
            let dtype = match x.dtype.as_str() {
                "I32" => Dtype::I32,
                "I64" => Dtype::I64,
                "F16" => Dtype::F16,
                "BF16" => Dtype::BF16,
                dtype => {
                    assert_eq!(dtype, "F32");
                    Dtype::F32
                }
            };
            (x.name, dtype, x.shape, x.bytes)
        })
        .collect();
    let bytes = file(&tensors);
    let mut read = PackedFiles::new(vec![PackedFile::read(&bytes).unwrap()], None).unwrap();
    if layout == IntegerLayout::GptqV2 {
        read.set_gptq_v2();
    }
    let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<u32>>();
    let got = read.values("n.weight").unwrap().unwrap();
    assert_eq!(read.integers()["n.weight"].layout, layout);
    bits(got) == bits(matrix.values())
}

/// Numbers become integers and come back from every layout, within a step.
#[test]
fn integers_of_floats() {
    let shape = [32, 64];
    let mut data = numbers(shape[0] * shape[1], 0, false, 11);
    // A group of zeros, one without negative numbers, one without positive numbers, and one of the smallest numbers.
    data[..16].fill(0.0);
    data[16..32].iter_mut().for_each(|x| *x = x.abs());
    data[32..48].iter_mut().for_each(|x| *x = -x.abs());
    data[48..64].fill(f32::from_bits(1));
    let layouts = [
        IntegerLayout::PackQuantized,
        IntegerLayout::Gptq,
        IntegerLayout::GptqV2,
        IntegerLayout::Awq,
    ];
    for (bits, text) in [(2, "int2"), (3, "int3"), (4, "int4"), (8, "int8")] {
        for (zero_points, layout) in [false, true]
            .into_iter()
            .flat_map(|x| layouts.map(|y| (x, y)))
        {
            let text = format!("{text}(group_size=16,zero_points={zero_points})");
            let format: IntegerFormat = text.parse().unwrap();
            assert_eq!((format.bits, format.to_string()), (bits, text.clone()));
            let matrix = IntegerMatrix::round(&data, "n.weight", &shape, format, layout);
            if layout == IntegerLayout::Awq && bits != 4 {
                let expected = format!("its integers have {bits} bits; allowed: 4");
                assert_eq!(matrix.unwrap_err(), expected);
                continue;
            }
            let matrix = matrix.unwrap();
            assert_eq!(matrix.is_symmetric(), !zero_points, "{text}");
            let values = matrix.values();
            for (group, values) in data.chunks(16).zip(values.chunks(16)) {
                let [least, largest] =
                    [f32::min, f32::max].map(|of| group.iter().copied().fold(0.0, of));
                let steps = (1 << bits) - 1;
                let step = match zero_points {
                    true => (largest - least) / (steps - 1) as f32,
                    false => 2.0 * largest.max(-least) / steps as f32,
                };
                for (x, value) in group.iter().zip(values) {
                    // The scale is a float16.
                    let error = (value - x).abs();
                    assert!(error <= step * 1.01 + 1e-6, "{text}: {x}: {error}, {step}");
                }
            }
            assert!(same_values(&matrix, layout), "{text} {layout:?}");
        }
    }
    let refused = |data: &[f32], shape: &[usize], text: &str| {
        let format = text.parse().unwrap();
        IntegerMatrix::round(data, "n.weight", shape, format, IntegerLayout::Gptq).unwrap_err()
    };
    for (data, shape, text, part) in [
        (
            &data[..],
            &[32, 64][..],
            "int4",
            "its groups have 128 inputs; allowed: a divisor of its 64 inputs",
        ),
        (&data, &[64, 32], "int4(group_size=0)", ""),
        (
            &data,
            &[2, 32, 32],
            "int4",
            "the shape is [2, 32, 32]; allowed: [out, in]",
        ),
        (
            &data,
            &[128, 16],
            "int4(group_size=16)",
            "it has 16 inputs; allowed: a multiple of 32",
        ),
        (
            &[],
            &[0, 32],
            "int4(group_size=16)",
            "the shape is [0, 32]; allowed: lengths from 1 on",
        ),
        (
            &[1e7; 1024],
            &[32, 32],
            "int4(group_size=0)",
            "a number is 1e7; allowed: numbers whose scale is a float16",
        ),
        (
            &[f32::NAN; 1024],
            &[32, 32],
            "int4(group_size=0)",
            "a number is NaN; allowed: finite numbers",
        ),
    ] {
        match part {
            "" => assert!(
                IntegerMatrix::round(
                    data,
                    "n.weight",
                    shape,
                    text.parse().unwrap(),
                    IntegerLayout::Gptq
                )
                .is_ok()
            ),
            part => assert_eq!(refused(data, shape, text), part),
        }
    }
    for (text, part) in [
        (
            "int5",
            "unknown integer format `int5`: expected one of int2, int3, int4, int8",
        ),
        (
            "int4(group_size=x)",
            "int4: group_size is `x`, expected 0 or more",
        ),
        (
            "int4(zero_point=true)",
            "int4: unknown parameter `zero_point`: expected one of group_size, zero_points",
        ),
    ] {
        assert_eq!(text.parse::<IntegerFormat>().unwrap_err().to_string(), part);
    }
}

/// Lengths of axes, most of them such that tensors fit one another.
fn length() -> impl Strategy<Value = usize> {
    prop_oneof![
        8 => prop::sample::select(vec![0_usize, 1, 2, 3, 4, 8, 16, 32, 64]),
        1 => Just(1_usize << 60),
    ]
}

fn tensor(name: &'static str, dtypes: &'static [Dtype]) -> impl Strategy<Value = Option<Stored>> {
    let shape = prop::collection::vec(length(), 0..4);
    let seed = any::<u64>();
    prop::option::weighted(0.9, (prop::sample::select(dtypes), shape, seed)).prop_map(move |made| {
        let (dtype, shape, seed) = made?;
        let count = shape.iter().map(|x| *x as u128).product::<u128>();
        let bytes = count * dtype.bitsize() as u128 / 8;
        if bytes > 1 << 16
            || shape
                .iter()
                .try_fold(1_usize, |all, x| all.checked_mul(*x))
                .is_none()
        {
            return None;
        }
        let byte = |i: u128| (seed >> (8 * (i % 8))) as u8;
        Some(stored(name, dtype, &shape, (0..bytes).map(byte).collect()))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any tensors with the names: a weight of the stated shape, or none.
    #[test]
    fn any_tensors_do_no_harm(tensors in (
        tensor("a_packed", &[Dtype::I32, Dtype::U8]),
        tensor("a_scale", &[Dtype::BF16, Dtype::F32, Dtype::U8]),
        tensor("a_shape", &[Dtype::I64, Dtype::I32]),
        tensor("a_zero_point", &[Dtype::I32, Dtype::I8]),
        tensor("b.qweight", &[Dtype::I32]),
        tensor("b.scales", &[Dtype::F16]),
        tensor("b.qzeros", &[Dtype::I32]),
        tensor("b.g_idx", &[Dtype::I32]),
        tensor("c", &[Dtype::I8]),
        tensor("c_scale", &[Dtype::F32]),
    )) {
        let (a, b, c, d, e, f, g, h, i, j) = tensors;
        let tensors: Vec<Stored> = [a, b, c, d, e, f, g, h, i, j].into_iter().flatten().collect();
        let bytes = file(&tensors);
        let read = PackedFiles::new(vec![PackedFile::read(&bytes).unwrap()], None).unwrap();
        for (name, weight) in read.integers() {
            let tensor = |name: &str| read.tensor(name);
            let matrix = weight.matrix(tensor).unwrap();
            for layout in [IntegerLayout::PackQuantized, IntegerLayout::Gptq, IntegerLayout::GptqV2, IntegerLayout::Awq] {
                if layout != weight.layout && weight.fits(layout, "n.weight", tensor).is_ok() {
                    prop_assert!(same_values(&matrix, layout));
                }
            }
            let values = read.values(name).unwrap().unwrap();
            prop_assert_eq!(values.len(), weight.shape[0].saturating_mul(weight.shape[1]));
        }
    }
}
