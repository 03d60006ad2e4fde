//! Numbers at the edges of a rule: ties where codes are powers of two, and the top of float32.

use microscaling::{
    BlockFormat, ElementFormat, Headroom, Packed, RandomStream, Rounder, ScaleMode,
};

/// The blocks of a tensor, each quantized along a contiguous axis, along a strided one, and by packing.
fn quantized(format: &str, blocks: &[&[f32]], rounder: Rounder) -> Vec<Vec<f32>> {
    let format: BlockFormat = format.parse().unwrap();
    let (count, length) = (blocks.len(), blocks[0].len());
    let mut rows = blocks.concat();
    let packed = Packed::encode(format, &rows, &[count, length], 1, rounder).unwrap();
    format
        .quantize(&mut rows, &[count, length], 1, rounder)
        .unwrap();
    assert_eq!(packed.decode(), rows, "{format} packed");
    // Many equal columns, so that some lie in the middle of a vector.
    const COLUMNS: usize = 40;
    for (block, row) in blocks.iter().zip(rows.chunks(length)) {
        let mut columns: Vec<f32> = block.iter().flat_map(|x| [*x; COLUMNS]).collect();
        format
            .quantize(&mut columns, &[length, COLUMNS], 0, rounder)
            .unwrap();
        if !matches!(rounder, Rounder::Stochastic(_)) {
            let expected: Vec<f32> = row.iter().flat_map(|x| [*x; COLUMNS]).collect();
            assert_eq!(columns, expected, "{format} along a strided axis");
        }
    }
    rows.chunks(length).map(<[f32]>::to_vec).collect()
}

fn times(factor: f32, block: &[f32]) -> Vec<f32> {
    block.iter().map(|x| x * factor).collect()
}

/// A tie between two powers of two goes to the one with the even code, for any bias (IEEE P3109, precision 1).
#[test]
fn a_tie_between_powers_of_two_goes_to_the_even_code() {
    // E3M0: 0.25, 0.5, 1, 2, 4, 8, 16 have the codes 1 to 7. 16 makes the scale 1.
    let ties: &[f32] = &[16.0, 0.125, 0.375, 0.75, 1.5, 3.0, 6.0, 12.0, -3.0, -6.0];
    let even: &[f32] = &[16.0, 0.0, 0.5, 0.5, 2.0, 2.0, 8.0, 8.0, -2.0, -8.0];
    let away: &[f32] = &[16.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, -4.0, -8.0];
    // Ordinary blocks, and those near the ends of float32.
    for factor in [1.0, 2.0_f32.powi(-110), 2.0_f32.powi(120)] {
        let block = times(factor, ties);
        for format in [
            "mx(element=fp4_e3m0,block_size=10)",
            "block(element=fp4_e3m0,scale=float32,block_size=10)",
        ] {
            let got = quantized(format, &[&block], Rounder::NearestEven);
            assert_eq!(got[0], times(factor, even), "{format} times {factor:e}");
            let got = quantized(format, &[&block], Rounder::NearestAway);
            assert_eq!(got[0], times(factor, away), "{format} times {factor:e}");
        }
    }
    // With a bias of 4 its numbers are 0.125 to 8, and the scale is 2.
    let format =
        "block(element=float(exponent_bits=3,mantissa_bits=0,bias=4),scale=float32,block_size=10)";
    let got = quantized(format, &[ties], Rounder::NearestEven);
    let halves = [8.0, 0.0, 0.25, 0.25, 1.0, 1.0, 4.0, 4.0, -1.0, -4.0];
    assert_eq!(got[0], times(2.0, &halves));
}

/// The same rule for the scales of blocks.
#[test]
fn a_tie_between_scales_goes_to_the_even_code() {
    // 9 / 6 is between the scales 1 and 2, 18 / 6 between 2 and 4.
    let blocks: [&[f32]; 2] = [&[9.0, 4.0, 1.0, 0.5], &[18.0, 8.0, 2.0, 1.0]];
    let with = |bits: u32, bias: u32| {
        let scale =
            format!("float(exponent_bits={bits},mantissa_bits=0,bias={bias},specials=ieee)");
        let format = format!("block(element=e2m1,scale={scale},block_size=4)");
        quantized(&format, &blocks, Rounder::NearestEven)
    };
    // An odd bias: the code of 1 is odd, and the code of 2 is even.
    for (bits, bias) in [(8, 127), (7, 63)] {
        let got = with(bits, bias);
        assert_eq!(got, [[8.0, 4.0, 1.0, 0.0], [12.0, 8.0, 2.0, 1.0]], "{bias}");
    }
    // An even bias: the code of 2 is odd.
    let got = with(7, 62);
    assert_eq!(got, [[6.0, 4.0, 1.0, 0.5], [16.0, 8.0, 2.0, 0.0]]);
}

/// An element near the top of float32, which would round to 2^128, becomes the largest number of its block below that.
#[test]
fn no_element_of_mx_rounds_beyond_float32() {
    let top = 2.0_f32.powi(127);
    let largest = [
        (ElementFormat::FP8_E4M3, 1.875 * top),
        (ElementFormat::FP8_E5M2, 1.75 * top),
        (ElementFormat::FP6_E3M2, 1.75 * top),
        (ElementFormat::FP6_E2M3, 1.875 * top),
        (ElementFormat::FP4_E2M1, 1.5 * top),
        (ElementFormat::BFLOAT16, (2.0 - 1.0 / 128.0) * top),
    ];
    let modes = [ScaleMode::Ceil, ScaleMode::Even, ScaleMode::Rceil];
    let stochastic = Rounder::Stochastic(RandomStream::new(7, 0));
    for (element, largest) in largest {
        let formats = modes.map(|scale_mode| (scale_mode, Headroom::NONE));
        let headroom = Headroom::new(4, 3).unwrap();
        let formats = formats.into_iter().chain([(ScaleMode::Floor, headroom)]);
        for (scale_mode, headroom) in formats {
            let format = BlockFormat {
                scale_mode,
                headroom,
                ..BlockFormat::mx(element, 4)
            };
            let x = [f32::MAX, -f32::MAX, 1.0, -largest];
            for rounder in [Rounder::NearestEven, Rounder::NearestAway, stochastic] {
                let got = quantized(&format.to_string(), &[&x], rounder);
                let near_top = [got[0][0], got[0][1], got[0][3]];
                assert_eq!(
                    near_top,
                    [largest, -largest, -largest],
                    "{format} {rounder:?}"
                );
            }
            let mut gradient = [1.0; 4];
            format.mask_clipped(&x, &[4], 0, &mut gradient).unwrap();
            assert_eq!(gradient, [0.0, 0.0, 1.0, 0.0], "{format}");
        }
    }
    // A scale of 2^128 there is not: the block is NaN.
    for scale_mode in modes {
        let format = BlockFormat {
            scale_mode,
            ..BlockFormat::mx(ElementFormat::INT8, 4)
        };
        let mut x = [f32::MAX, 1.0, 2.0, 3.0];
        format
            .quantize(&mut x, &[4], 0, Rounder::NearestEven)
            .unwrap();
        assert!(x.iter().all(|x| x.is_nan()), "{format}: {x:?}");
    }
}
