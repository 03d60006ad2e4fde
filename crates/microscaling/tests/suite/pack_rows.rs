//! Rows of packed tensors: eight elements at a time, element by element, and as other number types.

use crate::inputs::numbers;
use crate::oracle::identical;
use crate::packed::encode;
use microscaling::{BlockFormat, PackError, Packed, PackedView, RandomStream};

/// The codes of a matrix as the bytes of a packed tensor.
fn pack_codes(codes: impl Iterator<Item = u32>, bits: u32) -> Vec<u8> {
    let (mut bytes, mut rest, mut rest_bits) = (Vec::new(), 0_u64, 0);
    for code in codes {
        rest |= u64::from(code) << rest_bits;
        rest_bits += bits;
        while rest_bits >= 8 {
            bytes.push(rest as u8);
            rest >>= 8;
            rest_bits -= 8;
        }
    }
    assert_eq!(rest_bits, 0);
    bytes
}

/// A packed matrix whose columns are blocks with these records.
struct Columns {
    scales: Vec<u8>,
    elements: Vec<u8>,
    shape: [usize; 2],
}

impl Columns {
    fn new(
        format: BlockFormat,
        length: usize,
        records: &[&[u8]],
        code: &dyn Fn(usize, usize) -> u32,
    ) -> Self {
        let width = records.len();
        let codes = (0..width * length).map(|i| code(i % width, i / width));
        Self {
            scales: records.concat().repeat(length / format.group_size()),
            elements: pack_codes(codes, format.element_bits()),
            shape: [length, width],
        }
    }

    fn view(&self, format: BlockFormat, tensor_scale: Option<f32>) -> PackedView<'_> {
        let Self {
            scales, elements, ..
        } = self;
        PackedView::new(format, &self.shape, 0, tensor_scale, scales, elements).unwrap()
    }
}

/// A matrix of these blocks along its rows and its transpose, with the same blocks along its columns, decode to the same
/// numbers. Both decode eight numbers at a time. A matrix with one more column has lines that do not end at a byte, and is decoded by the
/// codec of the specification.
fn assert_rows_as_columns(
    format: BlockFormat,
    tensor_scale: Option<f32>,
    records: &[&[u8]],
    code: &dyn Fn(usize, usize) -> u32,
) {
    let (bits, block) = (format.element_bits(), format.group_size());
    let columns = block * (1_usize << bits).div_ceil(block);
    let rows = records.len();
    assert!(rows.is_multiple_of(8));
    let by_rows = pack_codes(
        (0..rows * columns).map(|i| code(i / columns, i % columns)),
        bits,
    );
    let row_scales: Vec<u8> = records
        .iter()
        .flat_map(|record| record.repeat(columns / block))
        .collect();
    let shape = [rows, columns];
    let along_rows =
        PackedView::new(format, &shape, 1, tensor_scale, &row_scales, &by_rows).unwrap();
    let mut by_rows = vec![0.0_f32; rows * columns];
    along_rows.decode_into(0..rows, &mut by_rows).unwrap();

    let by_columns = Columns::new(format, columns, records, code);
    let by_columns = by_columns.view(format, tensor_scale).decode();
    let odd_records = [records, &records[..1]].concat();
    let by_codec = Columns::new(format, columns, &odd_records, code);
    let by_codec = by_codec.view(format, tensor_scale).decode();
    for (row, record) in records.iter().enumerate() {
        for column in 0..columns {
            let expected = by_codec[column * (rows + 1) + row];
            for got in [
                by_rows[row * columns + column],
                by_columns[column * rows + row],
            ] {
                assert!(
                    identical(got, expected),
                    "{format} {tensor_scale:?} {record:x?} {:x}: {got:e}, not {expected:e}",
                    code(row, column)
                );
            }
        }
    }
}

/// Every code with every scale.
#[test]
fn eight_at_a_time_is_one_at_a_time() {
    let scales: Vec<[u8; 1]> = (0..=255).map(|scale| [scale]).collect();
    let records: Vec<&[u8]> = scales.iter().map(|scale| &scale[..]).collect();
    for name in [
        "mxfp8_e5m2",
        "mxfp8_e4m3",
        "mxfp6_e3m2",
        "mxfp6_e2m3",
        "mxfp4",
    ] {
        let format: BlockFormat = name.parse().unwrap();
        let codes = 1 << format.element_bits();
        assert_rows_as_columns(format, None, &records, &|_, column| column as u32 % codes);
    }
    let nvfp4: BlockFormat = "nvfp4".parse().unwrap();
    assert_rows_as_columns(nvfp4, None, &records, &|_, column| column as u32);
    let with_scale: BlockFormat = "nvfp4(tensor_scale=true)".parse().unwrap();
    let exponents = (-149..=127).map(|exponent| 2.0_f64.powi(exponent) as f32);
    let others = [
        0.0,
        -1.0,
        1.1,
        0.37,
        1e-38,
        3e-42,
        f32::MAX,
        f32::INFINITY,
        f32::NAN,
    ];
    for tensor_scale in exponents.chain(others) {
        assert_rows_as_columns(with_scale, Some(tensor_scale), &records, &|_, column| {
            column as u32
        });
    }
}

/// Every exponent and every code, with shifts of either kind for every pair.
#[test]
fn eight_at_a_time_is_one_at_a_time_in_microexponents() {
    let shifts = [0x00, 0xff, 0x5a, 0xa5, 0x13];
    let records: Vec<[u8; 2]> = (0..=255)
        .flat_map(|exponent| shifts.map(|shifts| [exponent, shifts]))
        .collect();
    let records: Vec<&[u8]> = records.iter().map(|record| &record[..]).collect();
    for name in ["mx4", "mx6", "mx9"] {
        let format: BlockFormat = name.parse().unwrap();
        let codes = 1 << format.element_bits();
        for turn in [0, 1] {
            assert_rows_as_columns(format, None, &records, &|_, column| {
                (column as u32 + turn) % codes
            });
        }
    }
}

const SHAPES: [(&[usize], usize); 14] = [
    (&[5, 64], 1),
    (&[5, 40], 1),
    (&[7, 37], 1),
    (&[64, 5], 0),
    (&[37, 24], 0),
    (&[70, 40], 0),
    (&[3, 33, 8], 1),
    (&[35, 2, 8], 0),
    (&[2, 3, 5, 3], 1),
    (&[3, 4, 48], 2),
    (&[200], 0),
    (&[13], 0),
    (&[40, 1], 1),
    (&[1, 1, 17], 0),
];

/// Decoded rows equal the rows of the whole tensor, for every place of the blocks.
#[test]
fn rows_of_every_layout() {
    let others = [
        "mx(element=fp4_e2m1,block_size=0)",
        "mx(element=fp6_e2m3,block_size=5)",
        "mx(element=fp8_e4m3,block_size=16,square=true)",
        "mx(element=int4)",
        "mx(element=float16)",
        "nvfp4(tensor_scale=true)",
        "nvfp4(tensor_scale=true,square=true)",
        "microexponent(bit_width=13,block_size=12,sub_block_size=5,shift_bits=3)",
        "bfp(bit_width=14,block_size=7)",
    ];
    let stream = RandomStream::new(3, 0);
    for name in BlockFormat::NAMES.into_iter().chain(others) {
        let format: BlockFormat = name.parse().unwrap();
        for (seed, (shape, axis)) in SHAPES.into_iter().enumerate() {
            if format.square && shape.len() == 1 {
                continue;
            }
            let count = shape.iter().product();
            let data = numbers(count, 0, false, seed as u64);
            let packed = encode(format, &data, shape, axis);
            let whole = packed.decode();
            let view = packed.view();
            let (rows, width) = (view.rows(), shape[shape.len() - 1]);
            assert_eq!(rows * width, count);
            for i in 0..6 {
                let start = stream.draw(2 * i) as usize % (rows + 1);
                let end = start + stream.draw(2 * i + 1) as usize % (rows + 1 - start);
                let range = if i == 0 { 0..rows } else { start..end };
                let expected = &whole[range.start * width..range.end * width];
                let mut got = vec![f32::NAN; expected.len()];
                view.decode_into(range.clone(), &mut got).unwrap();
                let same = got.iter().zip(expected).all(|(a, b)| identical(*a, *b));
                assert!(
                    same,
                    "{name} {shape:?} {axis} {range:?}: {got:?}, not {expected:?}"
                );
                #[cfg(feature = "half")]
                assert_halves(&view, range, expected, name);
            }
        }
    }
}

#[cfg(feature = "half")]
fn assert_halves(
    view: &PackedView<'_>,
    range: std::ops::Range<usize>,
    expected: &[f32],
    name: &str,
) {
    let mut wide = vec![half::bf16::NAN; expected.len()];
    view.decode_into(range.clone(), &mut wide).unwrap();
    let mut narrow = vec![half::f16::NAN; expected.len()];
    view.decode_into(range, &mut narrow).unwrap();
    for (i, x) in expected.iter().enumerate() {
        assert_eq!(
            wide[i].to_bits(),
            half::bf16::from_f32(*x).to_bits(),
            "{name} {x:e}"
        );
        assert_eq!(
            narrow[i].to_bits(),
            half::f16::from_f32(*x).to_bits(),
            "{name} {x:e}"
        );
    }
}

#[test]
fn rows_that_are_not_there() {
    let mxfp4: BlockFormat = "mxfp4".parse().unwrap();
    let packed = encode(mxfp4, &[1.0; 64], &[2, 32], 1);
    let view = packed.view();
    let mut out = [0.0_f32; 32];
    let error = view.decode_into(1..3, &mut out).unwrap_err();
    assert_eq!(
        error.to_string(),
        "pack: rows 1 to 3 are not among the 2 rows of the tensor"
    );
    #[expect(clippy::reversed_empty_ranges, reason = "what is refused")]
    let error = view.decode_into(2..1, &mut out).unwrap_err();
    assert_eq!(
        error,
        PackError::Rows {
            start: 2,
            end: 1,
            rows: 2
        }
    );
    let error = view.decode_into(0..2, &mut out).unwrap_err();
    assert_eq!(
        error.to_string(),
        "pack: 2 rows are 64 elements, there is room for 32"
    );
    assert_eq!(view.decode_into(1..1, &mut out[..0]), Ok(()));

    // The other lengths of a tensor without elements overflow.
    let shape = [usize::MAX, 0, usize::MAX];
    let empty = PackedView::new(mxfp4, &shape, 2, None, &[], &[]).unwrap();
    assert_eq!(
        (empty.rows(), empty.decode_into(0..0, &mut out[..0])),
        (0, Ok(()))
    );
}

/// Borrowed bytes are checked once, and each defect is its own error.
#[test]
fn what_is_no_packed_tensor() {
    let mxfp6: BlockFormat = "mxfp6_e2m3".parse().unwrap();
    let (scales, elements) = ([127; 2], [0; 24]);
    let view = |axis, tensor_scale, scales, elements| {
        PackedView::new(mxfp6, &[2, 15], axis, tensor_scale, scales, elements)
    };
    assert!(view(1, None, &scales, &elements[..23]).is_ok());
    let error = |result: Result<PackedView<'_>, PackError>| result.unwrap_err().to_string();
    assert_eq!(
        error(view(2, None, &scales, &elements[..23])),
        "quantize: axis 2 is out of range for a tensor of rank 2"
    );
    assert_eq!(
        error(view(1, None, &scales[..1], &elements[..23])),
        "pack: the scales of shape [2, 15] are 2 bytes, got 1"
    );
    assert_eq!(
        error(view(1, None, &scales, &elements)),
        "pack: the elements of shape [2, 15] are 23 bytes, got 24"
    );
    let mut padded = elements;
    padded[22] = 0x10;
    assert_eq!(
        error(view(1, None, &scales, &padded[..23])),
        "pack: byte 22 of the elements is 0x10, but only its low 4 bits are in use and the others must be zero"
    );
    assert_eq!(
        error(view(1, Some(1.0), &scales, &elements[..23])),
        "pack: the format has no tensor scale, got one"
    );
}

#[test]
fn parts_and_back() {
    for name in ["mxfp4", "mx6", "nvfp4(tensor_scale=true)"] {
        let format: BlockFormat = name.parse().unwrap();
        let packed = encode(format, &numbers(96, 0, false, 1), &[2, 48], 1);
        let view = packed.view();
        assert_eq!(view.to_packed(), packed);
        assert_eq!(view.scales_shape(), packed.scales_shape());
        assert_eq!(view.elements_shape(), packed.elements_shape());
        let parts = packed.clone().into_parts();
        assert_eq!(
            (parts.format, &parts.shape[..], parts.axis),
            (format, &[2, 48][..], 1)
        );
        let again = Packed::from_parts(
            parts.format,
            &parts.shape,
            parts.axis,
            parts.tensor_scale,
            parts.scales,
            parts.elements,
        );
        assert_eq!(again, Ok(packed));
    }
}
