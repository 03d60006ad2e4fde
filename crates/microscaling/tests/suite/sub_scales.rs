//! Scales that parts of a block double: HiF4.

use microscaling::{BlockFormat, FormatError, Packed, RandomStream, Rounder};

fn hif4() -> BlockFormat {
    BlockFormat::HIF4
}

/// Normally distributed numbers, by Box and Muller.
fn normal(count: usize) -> Vec<f32> {
    let stream = RandomStream::new(7, 0);
    let uniform = |i: u64| (f64::from(stream.draw(i)) + 0.5) / 4_294_967_296.0;
    (0..count as u64)
        .map(|i| {
            let radius = (-2.0 * uniform(2 * i).ln()).sqrt();
            (radius * (std::f64::consts::TAU * uniform(2 * i + 1)).cos()) as f32
        })
        .collect()
}

/// A block by hand: the scale, the bits, the codes.
#[test]
fn one_block_by_hand() {
    let mut x = vec![0.0_f32; 64];
    // s = 7 / 7 = 1. Beyond 4 in the first 8, and in its second 4 beyond 2 · 2.
    x[4] = 7.0;
    x[5] = 3.0;
    // In the first 4 of them there is nothing beyond 4: steps of ½.
    x[0] = 3.2;
    // Below 4, but from 2 on: steps of ½.
    x[8] = 2.0;
    // Below 2: steps of ¼.
    x[12] = -1.3;
    let packed = Packed::encode(hif4(), &x, &[64], 0, Rounder::NearestEven).unwrap();
    let mut expected = vec![0.0_f32; 64];
    (expected[4], expected[5], expected[0]) = (7.0, 3.0, 3.0);
    (expected[8], expected[12]) = (2.0, -1.25);
    assert_eq!(packed.decode(), expected);
    // 1 = 2^(48 − 48), a bit for each eight, and a bit for each four.
    assert_eq!(packed.scales(), [48 << 2, 0b0000_0001, 0b0000_0110, 0]);
    // E1M2 is a sign above quarters.
    let code = |i: usize| packed.elements()[i / 2] >> (4 * (i % 2)) & 15;
    assert_eq!(
        [code(0), code(4), code(5), code(8), code(12)],
        [6, 7, 3, 4, 0b1101]
    );
    assert_eq!(hif4().bits_per_element(), 4.5);
}

/// The error on normally distributed numbers equals the paper's rule (arXiv 2602.11287, recomputed in float64: 6.88e-3),
/// and is less than NVFP4's.
#[test]
fn the_published_error() {
    let x = normal(1 << 20);
    let mut q = x.clone();
    hif4()
        .quantize(&mut q, &[x.len()], 0, Rounder::NearestEven)
        .unwrap();
    let square = |x: f32| f64::from(x) * f64::from(x);
    let error: f64 = x.iter().zip(&q).map(|(x, q)| square(x - q)).sum();
    let power: f64 = x.iter().map(|x| square(*x)).sum();
    assert!((error / power - 6.88e-3).abs() < 5e-5, "{}", error / power);
}

/// All ways give the same numbers: along either axis, packed, and what saturates.
#[test]
fn one_format_in_all_ways() {
    let (rows, columns) = (130, 70);
    let x = normal(rows * columns);
    let turn = |x: &[f32]| -> Vec<f32> {
        (0..rows * columns)
            .map(|i| x[i % rows * columns + i / rows])
            .collect()
    };
    let rounder = Rounder::NearestEven;
    let mut along_rows = turn(&x);
    hif4()
        .quantize(&mut along_rows, &[columns, rows], 1, rounder)
        .unwrap();
    let mut along_columns = x.clone();
    hif4()
        .quantize(&mut along_columns, &[rows, columns], 0, rounder)
        .unwrap();
    assert_eq!(turn(&along_columns), along_rows);
    for axis in [0, 1] {
        let mut q = x.clone();
        hif4()
            .quantize(&mut q, &[rows, columns], axis, rounder)
            .unwrap();
        let packed = Packed::encode(hif4(), &x, &[rows, columns], axis, rounder).unwrap();
        assert_eq!(packed.decode(), q);
    }
}

#[test]
fn what_has_no_sub_scales() {
    for text in [
        "block(element=e1m2,scale=ue6m2,block_size=60,sub_scales=8/4)",
        "block(element=e1m2,scale=ue6m2,block_size=0,sub_scales=8/4)",
        "block(element=e1m2,scale=ue6m2,block_size=2048,sub_scales=8/4)",
        "block(element=e1m2,scale=float32,block_size=64,sub_scales=8/4)",
        "block(element=e1m2,scale=ue4m3,block_size=64,sub_scales=8/4,tensor_scale=true)",
        "block(element=table(nf4),scale=ue4m3,block_size=64,sub_scales=8/4)",
    ] {
        let error = text.parse::<BlockFormat>().unwrap_err().to_string();
        assert!(
            error.contains("sub_scales is 8/4, expected"),
            "{text}: {error}"
        );
    }
    for text in ["4/8", "8", "0/0", "8/3", "eight/four", "256/4"] {
        let text = format!("block(element=e1m2,scale=ue6m2,block_size=64,sub_scales={text})");
        let error = text.parse::<BlockFormat>().unwrap_err().to_string();
        assert!(
            error.contains("sub_scales") && error.contains("such as 8/4"),
            "{error}"
        );
    }
    let format = BlockFormat {
        block_size: 4,
        ..BlockFormat::HIF4
    };
    let error = format.validate().unwrap_err();
    assert!(matches!(error, FormatError::SubScales { .. }), "{error}");
}
