//! Dot products of packed rows: what the documentation says of them, from decoded numbers.

use crate::float_state::ieee;
use crate::inputs::numbers;
use crate::oracle::identical;
use crate::packed::encode;
use microscaling::{BlockFormat, PackError, PackedView, RandomStream};

/// The documented sum.
fn expected(lhs: &[f32], rhs: &[f32]) -> f32 {
    ieee(|| {
        let mut s = [0.0; 8];
        for (i, (a, b)) in lhs.iter().zip(rhs).enumerate() {
            s[i % 8] += f64::from(*a) * f64::from(*b);
        }
        (((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))) as f32
    })
}

fn formats() -> Vec<BlockFormat> {
    let others = [
        "nvfp4(tensor_scale=true)",
        "mx(element=fp6_e2m3,block_size=5)",
        "mx(element=float16,block_size=0)",
        "microexponent(bit_width=13,block_size=12,sub_block_size=5,shift_bits=3)",
    ];
    let names = BlockFormat::NAMES.into_iter().chain(others);
    names.map(|name| name.parse().unwrap()).collect()
}

/// Every pair of formats, rows of every kind of length, numbers of every size.
#[test]
fn rows_of_every_pair_of_formats() {
    for (seed, lhs_format) in formats().into_iter().enumerate() {
        for rhs_format in formats() {
            for width in [1, 7, 8, 33, 64, 511, 512, 513, 1040] {
                for centers in [[0, 0], [-70, -75], [-120, 40], [60, 70]] {
                    let seed = (seed + width) as u64;
                    let [a, b] = [(3, centers[0]), (2, centers[1])].map(|(rows, center)| {
                        numbers(rows * width, center, false, seed + rows as u64)
                    });
                    let lhs = encode(lhs_format, &a, &[3, width], 1);
                    let rhs = encode(rhs_format, &b, &[1, 2, width], 2);
                    let (a, b) = (lhs.decode(), rhs.decode());
                    for (row, other) in [(0, 1), (2, 0)] {
                        let got = lhs.view().dot_rows(row, &rhs.view(), other).unwrap();
                        let expected =
                            expected(&a[row * width..][..width], &b[other * width..][..width]);
                        assert!(
                            identical(got, expected),
                            "{lhs_format} {rhs_format} {width}: {got:e}, not {expected:e}"
                        );
                    }
                }
            }
        }
    }
}

/// Any bytes: NaN scales, Inf and NaN codes.
#[test]
fn any_bytes() {
    let format: BlockFormat = "mxfp8_e5m2".parse().unwrap();
    let stream = RandomStream::new(4, 4);
    let byte = |i: u64| stream.draw(i) as u8;
    let (mut infinite, mut nan) = (0, 0);
    for turn in 0..400 {
        let codes: Vec<u8> = (0..64).map(|i| byte(1000 * turn + i)).collect();
        // Few of the codes are special in most turns.
        let codes: Vec<u8> = codes
            .iter()
            .map(|code| match turn % 3 {
                0 => *code,
                1 if code & 0x7f > 0x7c => code & 0x8f,
                1 => *code & 0x7f,
                _ => code & 0xbf,
            })
            .collect();
        let scales = [127, if turn % 50 == 0 { 255 } else { 130 }];
        let view = PackedView::new(format, &[2, 32], 1, None, &scales, &codes).unwrap();
        let decoded = view.decode();
        let expected = expected(&decoded[..32], &decoded[32..]);
        let got = view.dot_rows(0, &view, 1).unwrap();
        assert!(identical(got, expected), "{got:e}, not {expected:e}");
        infinite += usize::from(got.is_infinite());
        nan += usize::from(got.is_nan());
    }
    assert!(infinite > 0 && nan > 0 && infinite + nan < 400);
}

#[test]
fn what_has_no_dot_product() {
    let mxfp4: BlockFormat = "mxfp4".parse().unwrap();
    let rows = encode(mxfp4, &[1.0; 64], &[2, 32], 1);
    let columns = encode(mxfp4, &[1.0; 64], &[2, 32], 0);
    let square = encode(
        "mx(element=fp4_e2m1,square=true)".parse().unwrap(),
        &[1.0; 64],
        &[2, 32],
        1,
    );
    let short = encode(mxfp4, &[1.0; 32], &[2, 16], 1);
    let rows = rows.view();
    assert_eq!(rows.dot_rows(0, &rows, 1), Ok(32.0));
    let missing = PackError::Rows {
        start: 2,
        end: 3,
        rows: 2,
    };
    assert_eq!(rows.dot_rows(2, &rows, 0), Err(missing.clone()));
    assert_eq!(rows.dot_rows(0, &rows, 2), Err(missing));
    assert_eq!(
        rows.dot_rows(1, &columns.view(), 1),
        Err(PackError::DotAxis {
            shape: vec![2, 32],
            axis: 0
        })
    );
    assert_eq!(
        square.view().dot_rows(1, &rows, 1).unwrap_err().to_string(),
        "pack: a dot product takes blocks along the last axis alone, got axis 1 of shape [2, 32] or square blocks"
    );
    assert_eq!(
        rows.dot_rows(1, &short.view(), 0).unwrap_err().to_string(),
        "pack: a dot product takes rows of one length, got 32 and 16"
    );
}
