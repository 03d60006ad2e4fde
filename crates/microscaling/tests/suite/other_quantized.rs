//! Weights of integers and in MXFP6, as other tools store them, and tensors that only resemble such weights.

use crate::inputs::numbers;
use ::safetensors::{Dtype, serialize, tensor::TensorView};
use microscaling::safetensors::{IntegerLayout, PackedFile, PackedFiles};
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
    assert_eq!(read.mxfp6().len(), 1);
    assert_eq!(read.weights().keys().collect::<Vec<_>>(), ["b"]);
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
            prop_assert_eq!(weight.pack_quantized(name, tensor).is_some(), weight.fits_pack_quantized(tensor).is_ok());
            let values = read.values(name).unwrap().unwrap();
            prop_assert_eq!(values.len(), weight.shape[0].saturating_mul(weight.shape[1]));
        }
        for (name, weight) in read.mxfp6() {
            prop_assert_eq!(read.values(name).unwrap().unwrap().len(), weight.shape[0] * weight.shape[1]);
        }
    }
}
