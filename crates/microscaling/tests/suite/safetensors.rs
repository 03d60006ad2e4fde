//! Files of packed tensors: loading returns the saved tensors, other readers find the documented tensors, and every
//! defect has its error.

use crate::inputs::{formats, numbers};
use microscaling::safetensors::{FileError, HeaderEntry, header, load, save};
use microscaling::{BlockFormat, Packed, Rounder};
use proptest::prelude::*;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use std::collections::{BTreeMap, HashMap};

fn pack(format: &str, data: &[f32], shape: &[usize], axis: usize) -> Packed {
    let format: BlockFormat = format.parse().unwrap();
    Packed::encode(format, data, shape, axis, Rounder::NearestEven).unwrap()
}

fn one(format: &str) -> BTreeMap<String, Packed> {
    BTreeMap::from([("w".to_string(), pack(format, &[1.0; 66], &[2, 33], 1))])
}

proptest! {
    #[test]
    fn loading_is_what_was_saved(
        formats in prop::collection::vec((formats(), "\\PC{0,8}", (0..3_usize, 0..40_usize), 0..2_usize), 0..5),
        seed: u64,
    ) {
        let tensors: BTreeMap<String, Packed> = formats
            .into_iter()
            .map(|(format, name, shape, axis)| {
                let shape = [shape.0, shape.1];
                let data = numbers(shape.iter().product(), 0, false, seed);
                (name, Packed::encode(format, &data, &shape, axis, Rounder::NearestEven).unwrap())
            })
            .collect();
        let file = save(&tensors).unwrap();
        prop_assert_eq!(load(&file).unwrap(), tensors.clone());
        prop_assert_eq!(save(&tensors).unwrap(), file);
    }
}

/// The file as another reader sees it.
#[test]
fn stored_tensors() {
    let mut tensors = one("mxfp6_e3m2");
    tensors.insert(
        "v".to_string(),
        pack("nvfp4(tensor_scale=true)", &[2688.0; 32], &[2, 16], 1),
    );
    tensors.insert("m".to_string(), pack("mx6", &[1.0; 64], &[2, 32], 1));
    let file = save(&tensors).unwrap();
    let stored = SafeTensors::deserialize(&file).unwrap();
    let shape = |name: &str| stored.tensor(name).unwrap().shape().to_vec();
    let names = [
        ("w.scales", vec![2, 2]),
        // 33 codes of 6 bits: rows do not end at a byte.
        ("w.elements", vec![50]),
        ("v.scales", vec![2, 1]),
        ("v.elements", vec![2, 8]),
        ("v.tensor_scale", vec![1]),
        ("m.scales", vec![2, 2, 2]),
        ("m.elements", vec![2, 20]),
    ];
    assert_eq!(stored.len(), names.len());
    for (name, expected) in names {
        assert_eq!(shape(name), expected, "{name}");
    }
    assert_eq!(
        stored.tensor("v.tensor_scale").unwrap().data(),
        1.0_f32.to_le_bytes()
    );
    assert_eq!(
        stored.tensor("m.elements").unwrap().data(),
        tensors["m"].elements()
    );
    let (_, header) = SafeTensors::read_metadata(&file).unwrap();
    assert_eq!(
        header.metadata().as_ref().unwrap()["microscaling"],
        concat!(
            r#"{"m":{"format":"mx6","shape":[2,32],"axis":1},"#,
            r#""v":{"format":"nvfp4(tensor_scale=true)","shape":[2,16],"axis":1},"#,
            r#""w":{"format":"mxfp6_e3m2","shape":[2,33],"axis":1}}"#
        )
    );
}

/// Name, type and shape of a stored tensor.
type Part = (&'static str, Dtype, &'static [usize]);

/// A file with these metadata and these stored tensors.
fn file(metadata: Option<&str>, parts: &[Part]) -> Vec<u8> {
    let zeros = vec![0; 1000];
    let views = parts.iter().map(|(name, dtype, shape)| {
        let bytes = &zeros[..shape.iter().product::<usize>() * dtype.bitsize() / 8];
        (
            *name,
            TensorView::new(*dtype, shape.to_vec(), bytes).unwrap(),
        )
    });
    let metadata =
        metadata.map(|text| HashMap::from([("microscaling".to_string(), text.to_string())]));
    safetensors::serialize(views, metadata).unwrap()
}

const MXFP4: &str = r#"{"w":{"format":"mxfp4","shape":[2,33],"axis":1}}"#;
const NVFP4: &str = r#"{"w":{"format":"nvfp4(tensor_scale=true)","shape":[16],"axis":0}}"#;
const PARTS: [Part; 2] = [
    ("w.scales", Dtype::U8, &[2, 2]),
    ("w.elements", Dtype::U8, &[33]),
];

fn error(file: &[u8]) -> String {
    load(file).unwrap_err().to_string()
}

#[test]
fn a_header_is_as_long_as_readers_take() {
    const LONGEST: usize = 100_000_000;
    let of_name = |length: usize| {
        let name = "w".repeat(length);
        let entry = HeaderEntry {
            name: &name,
            dtype: "U8",
            shape: &[0],
            bytes: 0,
        };
        header([entry], &BTreeMap::new())
    };
    let around = of_name(0).unwrap().len() - 8;
    let longest = of_name(LONGEST - around).unwrap();
    assert_eq!(longest.len(), 8 + LONGEST);
    assert_eq!(SafeTensors::deserialize(&longest).unwrap().len(), 1);
    let error = of_name(LONGEST - around + 8).unwrap_err();
    let too_long = FileError::Safetensors(safetensors::SafeTensorError::HeaderTooLarge);
    assert_eq!(error.to_string(), too_long.to_string());
}

#[test]
fn the_files_of_the_errors_are_right_otherwise() {
    assert_eq!(
        load(&file(Some(MXFP4), &PARTS)).unwrap()["w"].decode(),
        [0.0; 66]
    );
    let scale: [Part; 3] = [
        ("w.scales", Dtype::U8, &[1]),
        ("w.elements", Dtype::U8, &[8]),
        ("w.tensor_scale", Dtype::F32, &[1]),
    ];
    assert_eq!(
        load(&file(Some(NVFP4), &scale)).unwrap()["w"].tensor_scale(),
        Some(0.0)
    );
    // Other tensors are skipped.
    let others: [Part; 3] = [PARTS[0], PARTS[1], ("bias", Dtype::F32, &[3])];
    assert_eq!(load(&file(Some(MXFP4), &others)).unwrap().len(), 1);
    assert!(load(&file(Some("{}"), &[])).unwrap().is_empty());
}

#[test]
fn truncated() {
    let whole = save(&one("mxfp4")).unwrap();
    for length in 0..whole.len() {
        assert!(load(&whole[..length]).is_err(), "{length}");
    }
    assert_eq!(
        error(&whole[..5]),
        "packed tensors: not a safetensors file: header too small"
    );
    assert_eq!(
        error(&whole[..20]),
        "packed tensors: not a safetensors file: invalid header length"
    );
    assert!(matches!(
        load(&whole[..whole.len() - 1]),
        Err(FileError::Offsets { .. })
    ));
    let mut longer = whole;
    longer.push(0);
    assert!(matches!(load(&longer), Err(FileError::Safetensors(_))));
}

#[test]
fn no_metadata() {
    assert_eq!(
        error(&file(None, &PARTS)),
        "packed tensors: the metadata have no key `microscaling`"
    );
}

#[test]
fn unreadable_metadata() {
    for text in [
        "",
        "[]",
        "{\"w\":3}",
        r#"{"w":{"format":"mxfp4","shape":[-1],"axis":1}}"#,
        r#"{"w":{"format":"mxfp4","shape":[1]}}"#,
        r#"{"w":{"format":"mxfp4","shape":[1],"axis":0,"x":0}}"#,
    ] {
        assert!(
            error(&file(Some(text), &PARTS))
                .starts_with("packed tensors: the metadata cannot be read: ")
        );
    }
}

#[test]
fn unreadable_header() {
    let mut bytes = 4_u64.to_le_bytes().to_vec();
    bytes.extend(b"{\"a\"");
    assert!(error(&bytes).starts_with("packed tensors: the header cannot be read: "));
}

#[test]
fn unknown_format() {
    let text = error(&file(Some(&MXFP4.replace("mxfp4", "mxfp5")), &PARTS));
    assert!(text.starts_with(
        "packed tensors: tensor `w`: unknown block format `mxfp5`: expected one of mxfp8_e5m2, "
    ));
}

#[test]
fn invalid_format() {
    let text = error(&file(
        Some(&MXFP4.replace("mxfp4", "bfp(bit_width=9)")),
        &PARTS,
    ));
    assert_eq!(
        text,
        "packed tensors: tensor `w`: bfp: bit_width is 9, expected 10 to 32"
    );
}

#[test]
fn missing_part() {
    assert_eq!(
        error(&file(Some(MXFP4), &PARTS[..1])),
        "packed tensors: tensor `w`: `w.elements` is missing"
    );
    assert_eq!(
        error(&file(Some(MXFP4), &PARTS[1..])),
        "packed tensors: tensor `w`: `w.scales` is missing"
    );
    let parts: &[Part] = &[
        ("w.scales", Dtype::U8, &[1]),
        ("w.elements", Dtype::U8, &[8]),
    ];
    assert_eq!(
        error(&file(Some(NVFP4), parts)),
        "packed tensors: tensor `w`: `w.tensor_scale` is missing"
    );
}

#[test]
fn wrong_type() {
    let parts: &[Part] = &[("w.scales", Dtype::F32, &[1]), PARTS[1]];
    assert_eq!(
        error(&file(Some(MXFP4), parts)),
        "packed tensors: tensor `w`: `w.scales` is F32, expected U8"
    );
    let parts: &[Part] = &[
        ("w.scales", Dtype::U8, &[1]),
        ("w.elements", Dtype::U8, &[8]),
        ("w.tensor_scale", Dtype::F32, &[2]),
    ];
    assert_eq!(
        error(&file(Some(NVFP4), parts)),
        "packed tensors: tensor `w`: `w.tensor_scale` is of shape [2], expected of shape [1]"
    );
}

/// As many bytes as there must be, in another shape.
#[test]
fn wrong_shape() {
    let flat: [Part; 2] = [("w.scales", Dtype::U8, &[4]), PARTS[1]];
    assert_eq!(
        error(&file(Some(MXFP4), &flat)),
        "packed tensors: tensor `w`: `w.scales` is of shape [4], expected of shape [2, 2]"
    );
    let rows: [Part; 2] = [PARTS[0], ("w.elements", Dtype::U8, &[3, 11])];
    assert_eq!(
        error(&file(Some(MXFP4), &rows)),
        "packed tensors: tensor `w`: `w.elements` is of shape [3, 11], expected of shape [33]"
    );
}

#[test]
fn padding() {
    let mut file = file(
        Some(r#"{"w":{"format":"mxfp4","shape":[3],"axis":0}}"#),
        &[
            ("w.scales", Dtype::U8, &[1]),
            ("w.elements", Dtype::U8, &[2]),
        ],
    );
    assert_eq!(load(&file).unwrap()["w"].decode(), [0.0; 3]);
    // The elements come first.
    let last = file.len() - 2;
    file[last] = 0x20;
    assert_eq!(
        error(&file),
        "packed tensors: tensor `w`: pack: byte 1 of the elements is 0x20, but only its low 4 bits are in use and \
         the others must be zero"
    );
}

#[test]
fn wrong_scale_count() {
    assert_eq!(
        error(&file(
            Some(MXFP4),
            &[("w.scales", Dtype::U8, &[3]), PARTS[1]]
        )),
        "packed tensors: tensor `w`: pack: the scales of shape [2, 33] are 4 bytes, got 3"
    );
}

#[test]
fn wrong_length() {
    assert_eq!(
        error(&file(
            Some(MXFP4),
            &[PARTS[0], ("w.elements", Dtype::U8, &[34])]
        )),
        "packed tensors: tensor `w`: pack: the elements of shape [2, 33] are 33 bytes, got 34"
    );
}

#[test]
fn wrong_axis() {
    assert_eq!(
        error(&file(Some(&MXFP4.replace(":1}", ":2}")), &PARTS)),
        "packed tensors: tensor `w`: quantize: axis 2 is out of range for a tensor of rank 2"
    );
}

#[test]
fn overflowing_sizes() {
    let with_shape = |format: &str, shape: &str| {
        let text = MXFP4.replace("mxfp4", format).replace("2,33", shape);
        error(&file(Some(&text), &PARTS))
    };
    let most = usize::MAX;
    assert_eq!(
        with_shape("mxfp4", &format!("{most},2")),
        format!(
            "packed tensors: tensor `w`: quantize: the number of elements of shape [{most}, 2] overflows"
        )
    );
    assert_eq!(
        with_shape("mx(element=float16)", &format!("1,{most}")),
        format!(
            "packed tensors: tensor `w`: pack: the number of bytes of shape [1, {most}] overflows"
        )
    );
    assert_eq!(
        with_shape(
            "microexponent(block=1,sub_block=1,shift_bits=8)",
            &format!("1,{most}")
        ),
        format!(
            "packed tensors: tensor `w`: pack: the number of bytes of shape [1, {most}] overflows"
        )
    );
    assert!(with_shape("mxfp4", &format!("{most}0,2")).contains("the metadata cannot be read"));
}

/// Stored tensors so large that the sum of their sizes overflows: safetensors adds before it checks.
#[test]
fn overflowing_offsets() {
    let size = (1_u64 << 61) - 1;
    let tensor = |i: u64| {
        let (start, end) = (i * size, (i + 1) * size);
        format!(r#""{i}":{{"dtype":"U8","shape":[{size}],"data_offsets":[{start},{end}]}}"#)
    };
    let header = format!("{{{}}}", (0..8).map(tensor).collect::<Vec<_>>().join(","));
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    assert_eq!(
        error(&bytes),
        "packed tensors: `0` does not lie within the 0 bytes of data"
    );
}

/// A divisor divides each block's scale, once, and stays in files. Values follow from the tables of E2M1 and E4M3.
#[test]
fn divisors() {
    const FP4: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let format: BlockFormat = "nvfp4(tensor_scale=true)".parse().unwrap();
    // Every scale that is a number, once, and codes 0 to 15.
    let scales: Vec<u8> = (0..0x7f).collect();
    let elements: Vec<u8> = (0..8 * 127)
        .map(|i| (2 * (i % 8)) | (2 * (i % 8) + 1) << 4)
        .map(|code| code as u8)
        .collect();
    let packed = Packed::from_parts(format, &[127, 16], 1, Some(1.0), scales, elements).unwrap();
    for divisor in [1.0, 3.0, 0.007, 12_345.678, 1e-30] {
        let packed = packed.clone().with_divisor(divisor);
        assert_eq!(packed.tensor_scale(), Some(1.0 / divisor));
        let values = packed.decode();
        let mut row = [0.0_f32; 16];
        for scale in 0..127 {
            let (exponent, fraction) = (scale >> 3, (scale & 7) as f32 / 8.0);
            let number = match exponent {
                0 => fraction * 2.0_f32.powi(-6),
                _ => (1.0 + fraction) * 2.0_f32.powi(exponent - 7),
            };
            packed
                .view()
                .decode_into(scale as usize..scale as usize + 1, &mut row)
                .unwrap();
            for (code, got) in row.iter().enumerate() {
                let expected =
                    FP4[code % 8] * (number / divisor) * if code < 8 { 1.0 } else { -1.0 };
                assert_eq!(
                    got.to_bits(),
                    expected.to_bits(),
                    "{scale} {code} {divisor}"
                );
                assert_eq!(
                    values[16 * scale as usize + code].to_bits(),
                    expected.to_bits()
                );
            }
        }
        let named = BTreeMap::from([("w".to_owned(), packed)]);
        assert_eq!(load(&save(&named).unwrap()).unwrap(), named);
    }
    // No number to divide by, and no scale to divide.
    for divisor in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        assert_eq!(packed.clone().with_divisor(divisor), packed);
    }
    let mxfp4 = pack("mxfp4", &[1.0; 32], &[32], 0);
    assert_eq!(mxfp4.clone().with_divisor(2.0), mxfp4);
}
