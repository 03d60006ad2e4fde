//! Packed tensors: decoding equals quantizing, the bytes equal the reference implementations' and the README's, and
//! every misfit is an error.

use crate::golden_file::{Golden, bytes, floats};
use crate::inputs::{formats, numbers};
use crate::packed::{assert_decodes_to, encode};
use microscaling::{
    BlockFormat, ElementFormat, FormatError, Headroom, NonFinite, PackError, Packed, QuantizeError,
    RandomStream, Rounder, Rounding, ScaleMode,
};
use proptest::prelude::*;
use serde::Deserialize;

fn stream() -> RandomStream {
    RandomStream::new(5, 6)
}

/// Formats with codes for what quantizing gives.
fn says_nan(format: BlockFormat) -> bool {
    format.non_finite != NonFinite::Kept
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn decoding_is_quantizing(
        format in formats(),
        shape in (1..4_usize, prop_oneof![1..10_usize, 1..100_usize], prop_oneof![Just(1), 1..20_usize]),
        center in prop_oneof![3 => -10..10, 1 => -149..=-100, 1 => -100..=128],
        specials: bool,
        seed: u64,
    ) {
        let shape = [shape.0, shape.1, shape.2];
        let data = numbers(shape.iter().product(), center, specials && says_nan(format), seed);
        for axis in 0..3 {
            for rounding in Rounding::ALL {
                let mut expected = data.clone();
                format.quantize(&mut expected, &shape, axis, rounding.with(stream())).unwrap();
                let packed = Packed::encode(format, &data, &shape, axis, rounding.with(stream())).unwrap();
                assert_decodes_to(&packed, &expected, &(format, axis, rounding));

                prop_assert_eq!(packed.format(), format);
                prop_assert_eq!(packed.shape(), shape);
                prop_assert_eq!(packed.axis(), axis);
                let scales: usize = packed.scales_shape().iter().product();
                prop_assert_eq!(packed.scales().len(), scales);
                let bits = data.len() * format.element_bits() as usize;
                prop_assert_eq!(packed.elements().len(), bits.div_ceil(8));
                let again = Packed::from_parts(
                    format, &shape, axis, packed.tensor_scale(),
                    packed.scales().to_vec(), packed.elements().to_vec(),
                );
                prop_assert_eq!(again.as_ref(), Ok(&packed));
            }
        }
    }

    /// Any bytes have values; nothing panics.
    #[test]
    fn any_bytes_decode(
        format in formats(),
        shape in (1..4_usize, 1..40_usize, 1..4_usize),
        tensor_scale: u32,
        seed: u64,
    ) {
        let shape = [shape.0, shape.1, shape.2];
        let size = shape.iter().product();
        let valid = encode(format, &vec![1.0; size], &shape, 1);
        let random = |count: usize, seed| -> Vec<u8> {
            (0..count as u64).map(|i| RandomStream::new(seed, 0).draw(i) as u8).collect()
        };
        let mut scales = random(valid.scales().len(), seed);
        let mut elements = random(valid.elements().len(), !seed);
        clear_padding(format, &shape, &mut scales, &mut elements);
        let tensor_scale = valid.tensor_scale().map(|_| f32::from_bits(tensor_scale));
        let packed = Packed::from_parts(format, &shape, 1, tensor_scale, scales, elements).unwrap();
        prop_assert_eq!(packed.decode().len(), size);
    }
}

/// The record of such a block has a byte for the shift of its one sub-block.
#[test]
fn a_sub_block_may_be_the_whole_block() {
    for block in [8, 16, 32, 64] {
        let text = format!(
            "microexponent(bit_width=10,block_size={block},sub_block_size={block},shift_bits=1)"
        );
        let format: BlockFormat = text.parse().unwrap();
        let shape = [64, block];
        let data = numbers(shape.iter().product(), 0, false, 7);
        let mut expected = data.clone();
        let rounder = Rounding::NearestEven.with(stream());
        format.quantize(&mut expected, &shape, 1, rounder).unwrap();
        let packed = Packed::encode(format, &data, &shape, 1, rounder).unwrap();
        assert_decodes_to(&packed, &expected, &format);
    }
}

/// Makes the bits zero that no code and no shift has.
fn clear_padding(format: BlockFormat, shape: &[usize; 3], scales: &mut [u8], elements: &mut [u8]) {
    let clear = |byte: &mut u8, bits: usize| {
        if !bits.is_multiple_of(8) {
            *byte &= (1 << (bits % 8)) - 1;
        }
    };
    let count: usize = shape.iter().product();
    let bits = count * format.element_bits() as usize;
    clear(elements.last_mut().unwrap(), bits);
    if let Some(shifts) = format.shifts {
        let sub_blocks = format.block_size.min(shape[1]).div_ceil(shifts.block_size);
        let bits = sub_blocks * shifts.bits as usize;
        for record in scales.chunks_exact_mut(1 + bits.div_ceil(8)) {
            clear(record.last_mut().unwrap(), bits);
        }
    }
}

#[derive(Debug, Deserialize)]
struct Case {
    id: usize,
    input: String,
    #[serde(default)]
    elem_format: Option<ElementFormat>,
    #[serde(default)]
    scale_mode: ScaleMode,
    #[serde(default)]
    per_tensor_scale: bool,
    block_size: usize,
    #[serde(default)]
    packed: Option<String>,
}

/// Codes of 6 bits, four of them in three bytes, one a byte: so are they in the golden file.
fn unpacked_six_bits(bytes: &[u8]) -> Vec<u8> {
    let codes = |three: &[u8]| {
        let word = u32::from_le_bytes([three[0], three[1], three[2], 0]);
        [0, 6, 12, 18].map(|shift| (word >> shift) as u8 & 63)
    };
    bytes.chunks(3).flat_map(codes).collect()
}

/// Scale and element bytes of the reference implementations.
#[test]
fn golden_bytes() {
    for (name, count) in [("scale_modes", 80), ("nvfp4", 8)] {
        let golden = Golden::open(&format!("{name}.safetensors"));
        let tensors = golden.tensors();
        let cases: Vec<Case> = golden.cases();
        assert_eq!(cases.len(), count);
        for case in cases {
            let format = match case.elem_format {
                Some(element) => BlockFormat {
                    scale_mode: case.scale_mode,
                    ..BlockFormat::mx(element, case.block_size)
                },
                None => BlockFormat::nvfp4(case.per_tensor_scale),
            };
            let (input, shape) = floats(&tensors, &format!("in/{}", case.input));
            let packed = encode(format, &input, &shape, 1);
            assert_eq!(
                packed.scales(),
                bytes(&tensors, &format!("scale/{}", case.id)),
                "{case:?}"
            );
            let stored = bytes(&tensors, &format!("bits/{}", case.id));
            let six_bits = format.element_bits() == 6;
            assert_eq!(
                case.packed.as_deref() == Some("one a byte"),
                format.element_bits() != 4 && case.elem_format.is_some()
            );
            let got = if six_bits {
                unpacked_six_bits(packed.elements())
            } else {
                packed.elements().to_vec()
            };
            assert!(got == stored, "{case:?}");
            let scales_shape = tensors
                .tensor(&format!("scale/{}", case.id))
                .unwrap()
                .shape()
                .to_vec();
            assert_eq!(packed.scales_shape(), scales_shape);
            let (expected, _) = floats(&tensors, &format!("out/{}", case.id));
            let decoded = packed.decode();
            assert!(
                decoded
                    .iter()
                    .zip(&expected)
                    .all(|(a, b)| crate::golden_file::same(*a, *b))
            );
        }
    }
}

/// The worked blocks of the README.
#[test]
fn worked_blocks() {
    let hex = |text: &str| -> Vec<u8> {
        text.split(' ')
            .map(|byte| u8::from_str_radix(byte, 16).unwrap())
            .collect()
    };
    let block = |first: &[f32], length: usize| {
        let mut block = first.to_vec();
        block.resize(length, 0.0);
        block
    };
    let full = |first: &str, length: usize| {
        let mut bytes = hex(first);
        bytes.resize(length, 0);
        bytes
    };
    // Format, first elements of a full block, its scales, first bytes of its elements and their number.
    let rows: [(&str, &[f32], &str, &str, usize); 11] = [
        ("mxfp8_e5m2", &[6.0, -0.5], "72", "7a ec", 32),
        ("mxfp8_e4m3", &[6.0, -0.5], "79", "7c e0", 32),
        ("mxfp6_e3m2", &[6.0, -0.5, 1.0, 0.25], "7d", "1e 4c 31", 24),
        ("mxfp6_e2m3", &[6.0, -0.5, 1.0, 0.25], "7f", "1c 89 08", 24),
        ("mxfp4", &[6.0, -0.5, 1.0, -4.0], "7f", "97 e2", 16),
        ("mxint8", &[6.0, -0.5], "81", "60 f8", 32),
        ("mx4", &[1.5, -1.0, 0.25, 0.25], "7f fe", "73 02", 6),
        ("mx6", &[1.5, -1.0, 0.25, 0.25], "7f fe", "0c 13 02", 10),
        ("mx9", &[1.5, -1.0, 0.25, 0.25], "7f fe", "60 c0 20 20", 16),
        ("bfp16", &[1.5, -1.0, 0.25, 0.25], "7f", "60 c0 10 10", 8),
        ("nvfp4", &[3.0, -0.5, 1.0, -2.0], "30", "a7 e4", 8),
    ];
    for (name, first, scales, elements, length) in rows {
        let format: BlockFormat = name.parse().unwrap();
        let data = block(first, format.group_size());
        let packed = encode(format, &data, &[data.len()], 0);
        let got = (packed.scales().to_vec(), packed.elements().to_vec());
        assert_eq!(got, (hex(scales), full(elements, length)), "{name}");
        assert_decodes_to(&packed, &data, &name);
        let bits = 8 * (packed.scales().len() + packed.elements().len());
        assert_eq!(
            bits as f64,
            data.len() as f64 * format.bits_per_element(),
            "{name}"
        );
    }
    let format = BlockFormat::nvfp4(true);
    let packed = encode(format, &block(&[2688.0, -448.0], 16), &[16], 0);
    assert_eq!(
        (packed.tensor_scale(), packed.scales()),
        (Some(1.0), &[0x7e][..])
    );
    assert_eq!(packed.elements(), full("a7", 8));
}

/// Order of scales and elements for an axis in the middle, with short blocks and a rest of a byte.
#[test]
fn order_along_any_axis() {
    let format = BlockFormat::mx(ElementFormat::FP4_E2M1, 2);
    // [1, 3, 3]: blocks of rows 0 and 1, then of row 2.
    let data = [6.0, 12.0, 24.0, 3.0, 6.0, 12.0, 48.0, 96.0, 192.0];
    let packed = encode(format, &data, &[1, 3, 3], 1);
    assert_eq!(packed.scales_shape(), [1, 2, 3]);
    assert_eq!(packed.scales(), [127, 128, 129, 130, 131, 132]);
    assert_eq!(packed.elements(), [0x77, 0x57, 0x55, 0x77, 0x07]);
    assert_eq!(packed.decode(), data);
    // A record of two bytes is one more axis.
    let packed = encode("mx6".parse().unwrap(), &[1.0; 40], &[20, 2], 0);
    assert_eq!(packed.scales_shape(), [2, 2, 2]);
    assert_eq!((packed.scales().len(), packed.elements().len()), (8, 25));
}

/// Large enough for threads: pools of one and four threads give the same bytes, and what quantizing gives,
/// also where pieces of the codes do not begin with a byte.
#[test]
fn threads_do_not_matter() {
    let pool = |threads| {
        let builder = rayon::ThreadPoolBuilder::new().num_threads(threads);
        builder.build().unwrap()
    };
    let (one, four) = (pool(1), pool(4));
    let named = BlockFormat::NAMES.map(|name| name.parse().unwrap());
    let free = [
        "nvfp4(tensor_scale=true)",
        "mx(element=int2,block_size=7)",
        "mx(element=fp6_e2m3,block_size=0)",
        "bfp(bit_width=12,block_size=5)",
        "microexponent(bit_width=14,block_size=9,sub_block_size=4,shift_bits=3)",
    ];
    let formats = named
        .into_iter()
        .chain(free.map(|text| text.parse().unwrap()));
    let shapes: [(&[usize], usize); 5] = [
        (&[700, 513], 1),
        (&[700, 513], 0),
        (&[2, 50_001, 3], 1),
        (&[300_001], 0),
        (&[3, 33, 4001], 1),
    ];
    for format in formats {
        for (shape, axis) in shapes {
            let data = numbers(shape.iter().product(), 0, false, 5);
            let rounding = Rounding::Stochastic;
            let encode =
                || Packed::encode(format, &data, shape, axis, rounding.with(stream())).unwrap();
            let packed = one.install(encode);
            assert!(four.install(encode) == packed, "{format} {shape:?} {axis}");
            let mut expected = data.clone();
            format
                .quantize(&mut expected, shape, axis, rounding.with(stream()))
                .unwrap();
            assert_decodes_to(&packed, &expected, &(format, shape, axis));
            let values = |pool: &rayon::ThreadPool| pool.install(|| packed.decode());
            assert!(values(&four) == values(&one), "{format} {shape:?} {axis}");
        }
    }
}

#[test]
fn empty_tensors() {
    for name in BlockFormat::NAMES {
        for shape in [&[0][..], &[0, 3], &[3, 0], &[2, 0, usize::MAX, 2]] {
            for axis in 0..shape.len() {
                let packed = encode(name.parse().unwrap(), &[], shape, axis);
                assert!(packed.decode().is_empty());
                assert!(packed.scales().is_empty() && packed.elements().is_empty());
                assert!(packed.scales_shape().contains(&0));
            }
        }
    }
}

/// Each error, with its message.
#[test]
fn errors() {
    let mxfp4: BlockFormat = "mxfp4".parse().unwrap();
    let parts = |format, shape: &[usize], axis, scales, elements| {
        let (scales, elements) = (vec![0; scales], vec![0; elements]);
        Packed::from_parts(format, shape, axis, None, scales, elements)
            .map(|packed| packed.decode())
    };
    let text = |result: Result<Vec<f32>, PackError>| result.unwrap_err().to_string();
    assert_eq!(parts(mxfp4, &[2, 33], 1, 4, 33), Ok(vec![0.0; 66]));
    assert_eq!(
        text(parts(mxfp4, &[2, 33], 1, 3, 33)),
        "pack: the scales of shape [2, 33] are 4 bytes, got 3"
    );
    assert_eq!(
        text(parts(mxfp4, &[2, 33], 1, 4, 34)),
        "pack: the elements of shape [2, 33] are 33 bytes, got 34"
    );
    assert_eq!(
        parts(mxfp4, &[2, 33], 2, 4, 33),
        Err(QuantizeError::AxisOutOfRange { axis: 2, rank: 2 }.into())
    );
    assert_eq!(
        parts(mxfp4, &[usize::MAX, 2], 1, 0, 0),
        Err(QuantizeError::ShapeOverflow {
            shape: vec![usize::MAX, 2]
        }
        .into())
    );
    let wide = BlockFormat::mx(ElementFormat::FLOAT16, 32);
    let error = parts(wide, &[usize::MAX], 0, 0, 0).unwrap_err();
    assert_eq!(
        error,
        PackError::SizeOverflow {
            shape: vec![usize::MAX]
        }
    );
    assert_eq!(
        error.to_string(),
        format!(
            "pack: the number of bytes of shape [{}] overflows",
            usize::MAX
        )
    );
    let invalid = BlockFormat {
        headroom: Headroom::new(1, 2).unwrap(),
        ..BlockFormat::mx(ElementFormat::INT8, 32)
    };
    let expected = FormatError::MxHeadroom {
        got: invalid.headroom,
    };
    assert_eq!(
        parts(invalid, &[1], 0, 1, 1),
        Err(QuantizeError::Format(expected).into())
    );
    let nvfp4 = BlockFormat::nvfp4(true);
    assert_eq!(
        text(parts(nvfp4, &[16], 0, 1, 8)),
        "pack: the format has one tensor scale, got no"
    );
    let with_scale = Packed::from_parts(mxfp4, &[2], 0, Some(1.0), vec![0], vec![0]);
    assert_eq!(
        with_scale.unwrap_err().to_string(),
        "pack: the format has no tensor scale, got one"
    );
    let refused = Packed::encode(
        "bfp16".parse().unwrap(),
        &[1.0, f32::NAN],
        &[2],
        0,
        Rounder::NearestEven,
    );
    assert_eq!(
        refused.unwrap_err().to_string(),
        "pack: the bfp block format has no code for NaN or Inf, found at position 1"
    );
    let short = Packed::encode(mxfp4, &[1.0; 5], &[2, 3], 0, Rounder::NearestEven);
    assert_eq!(
        short.unwrap_err().to_string(),
        "quantize: shape [2, 3] has 6 elements, the data have 5"
    );
}

/// Codes that encoding does not write.
#[test]
fn foreign_codes() {
    let decode = |name: &str, tensor_scale, scales: &[u8], elements: &[u8], count| {
        let format = name.parse().unwrap();
        let (scales, elements) = (scales.to_vec(), elements.to_vec());
        Packed::from_parts(format, &[count], 0, tensor_scale, scales, elements)
            .unwrap()
            .decode()
    };
    assert!(decode("bfp16", None, &[255], &[1], 1)[0].is_nan());
    assert!(decode("mx9", None, &[255, 0], &[1], 1)[0].is_nan());
    assert_eq!(decode("mxint8", None, &[127], &[0x80], 1), [-2.0]);
    assert_eq!(
        decode("mxfp8_e5m2", None, &[0], &[0x7c, 0xfc], 2),
        [f32::INFINITY, -f32::INFINITY]
    );
    assert!(decode("mxfp8_e4m3", None, &[0], &[0xff], 1)[0].is_nan());
    // A negative scale turns the signs.
    assert_eq!(decode("nvfp4", None, &[0xb8], &[0xa2], 2), [-1.0, 1.0]);
    for scale in [f32::NAN, f32::INFINITY, -1.0] {
        assert!(decode("nvfp4(tensor_scale=true)", Some(scale), &[0x38], &[2], 1)[0].is_nan());
    }
}

/// A tensor scale so large that its product with a block's scale is beyond float32.
#[test]
fn products_beyond_float32_are_infinite() {
    let nvfp4: BlockFormat = "nvfp4(tensor_scale=true)".parse().unwrap();
    // 448 · 3e38 is, 448 · 7e35 is not, but 6 times that. Codes of 0, −0, 0.5, −0.5, 6, −6.
    for (tensor_scale, half) in [(3e38, f32::INFINITY), (7e35, 224.0 * 7e35)] {
        let (scales, elements) = (vec![0x7e], vec![0x80, 0x91, 0xf7]);
        let packed = Packed::from_parts(nvfp4, &[6], 0, Some(tensor_scale), scales, elements);
        let bits = packed.unwrap().decode().into_iter().map(f32::to_bits);
        let expected = [0.0, -0.0, half, -half, f32::INFINITY, -f32::INFINITY];
        assert_eq!(bits.collect::<Vec<_>>(), expected.map(f32::to_bits));
    }
}

/// Bits that no code has make the bytes another tensor's, or none's.
#[test]
fn padding_is_zero() {
    let error = |name: &str, shape: &[usize], scales: &[u8], elements: &[u8]| {
        let (scales, elements) = (scales.to_vec(), elements.to_vec());
        let packed = Packed::from_parts(name.parse().unwrap(), shape, 0, None, scales, elements);
        packed.unwrap_err().to_string()
    };
    assert_eq!(
        error("mxfp4", &[3], &[127], &[0, 0x10]),
        "pack: byte 1 of the elements is 0x10, but only its low 4 bits are in use and the others must be zero"
    );
    assert_eq!(
        error("mxfp6_e3m2", &[5], &[127], &[0, 0, 0, 0x40]),
        "pack: byte 3 of the elements is 0x40, but only its low 6 bits are in use and the others must be zero"
    );
    // Records of two shifts, of which the second one has a bit too many.
    assert_eq!(
        error(
            "microexponent(bit_width=16,block_size=4)",
            &[8],
            &[127, 3, 127, 5],
            &[0; 8]
        ),
        "pack: byte 3 of the scales is 0x05, but only its low 2 bits are in use and the others must be zero"
    );
}
