//! Blocks whose scale is a float: any scale, sub-scales, outer scales, tables, MS-EDEN.

use burn_mx::{BlockFormat, MxKernels, RandomStream, Rounding};

use super::slices::assert_quantizes;
use super::support::*;
use crate::backend::TestBackend;

/// Scales that are floats: scales of elements and of named formats, subnormal and limited scales, and blocks whose scale times
/// the tensor's scale is too large.
#[test]
fn blocks_with_any_float_for_a_scale() {
    for (format, rounding) in [
        ("amdfp4", Rounding::Stochastic),
        ("nvint4", Rounding::NearestEven),
        (
            "block(element=e3m4,scale=bfloat16,block_size=24)",
            Rounding::TowardZero,
        ),
        (
            "block(element=int2,scale=float32,block_size=7)",
            Rounding::NearestEven,
        ),
        (
            "block(element=fp8_e4m3fnuz,scale=ue3m3,block_size=0,headroom=4/3)",
            Rounding::NearestAway,
        ),
        (
            "block(element=e3m0,scale=ue4m3,tensor_scale=true,subnormal_scales=false,block_size=16)",
            Rounding::NearestEven,
        ),
        (
            "block(element=e2m3,scale=ue5m2,square=true,block_size=4)",
            Rounding::NearestEven,
        ),
    ] {
        let format = format.parse().expect("it is a format");
        assert_quantizes::<TestBackend>(format, rounding);
    }
}

/// By this rounding, and stochastically.
fn assert_quantizes_both_ways(format: &str, rounding: Rounding) -> BlockFormat {
    let format: BlockFormat = format.parse().expect("it is a format");
    assert_quantizes::<TestBackend>(format, rounding);
    assert_quantizes::<TestBackend>(format, Rounding::Stochastic);
    format
}

/// Sub-blocks that double a scale: of parts of a unit's elements, of several units, and of more than a unit has.
#[test]
fn blocks_with_sub_scales() {
    let formats = [
        "hif4",
        "block(element=e2m1,scale=bfloat16,block_size=32,sub_scales=4/2)",
        "block(element=int4,scale=ue4m3,block_size=16,sub_scales=16/1)",
        "block(element=e1m2,scale=ue6m2,block_size=24,sub_scales=24/8,headroom=4/3)",
        "block(element=fp8_e5m2,scale=ue5m3,block_size=16,sub_scales=16/16,subnormal_scales=false)",
    ];
    for (format, rounding) in formats.into_iter().zip(Rounding::ALL.into_iter().cycle()) {
        assert_quantizes_both_ways(format, rounding);
    }
}

/// A scale for each sign: powers of two that may be NaN, floats with and without a tensor scale, blocks that units share and others.
#[test]
fn blocks_with_scales_by_sign() {
    let formats = [
        "block(element=e2m1,scale=ue5m2,sign_scales=true)",
        "mx(element=fp4_e2m1,sign_scales=true)",
        "mx(element=int8,block_size=7,scale_bits=4,scale_mode=rceil,sign_scales=true)",
        "mx(element=fp8_e4m3fnuz,block_size=16,scale_mode=ceil,headroom=4/3,flush_fp32_subnorms=true,sign_scales=true)",
        "block(element=int4,scale=ue4m3,block_size=16,tensor_scale=true,headroom=17/16,sign_scales=true)",
        "block(element=int2,scale=float32,block_size=0,sign_scales=true)",
    ];
    for (format, rounding) in formats.into_iter().zip(Rounding::ALL.into_iter().cycle()) {
        assert_quantizes_both_ways(format, rounding);
    }
}

/// Outer scales: of tiles and of the whole axis, of blocks shorter and longer than a unit's elements, in several formats.
#[test]
fn blocks_with_outer_scales() {
    let formats = [
        "nvfp4(outer_size=0)",
        "block(element=e2m1,scale=ue5m3,block_size=16,outer_size=32)",
        "block(element=int4,scale=ue4m3,block_size=2,outer_size=8,outer_scale=bfloat16)",
        "block(element=fp8_e4m3,scale=ue5m2,block_size=20,outer_size=20,outer_scale=ue6m2,headroom=4/3)",
        "block(element=e3m0,scale=ue3m3,block_size=1,outer_size=3,subnormal_scales=false)",
    ];
    for (format, rounding) in formats.into_iter().zip(Rounding::ALL.into_iter().cycle()) {
        assert_quantizes_both_ways(format, rounding);
    }
}

/// Tables: one, several of which a block chooses one, with numbers of one sign only, with a −0, and with long significands.
#[test]
fn blocks_of_tables() {
    let formats = [
        "nf4",
        "if4",
        "razer",
        "block(element=table(0 1 2.5),scale=ue5m3,block_size=0)",
        "block(element=table(-1 -0 0 3 -7.3/0 1 2 5 -0.5),scale=bfloat16,block_size=20,headroom=17/16)",
        "block(element=table(nf4),scale=ue4m3,tensor_scale=true,block_size=16,square=true)",
        "block(element=table(if4),scale=ue4m3,tensor_scale=true,block_size=16,square=true)",
    ];
    for (format, rounding) in formats.into_iter().zip(Rounding::ALL.into_iter().cycle()) {
        assert_quantizes_both_ways(format, rounding);
    }
}

/// Scales that MS-EDEN corrects: groups of whole axes, and several groups with a shorter last one.
#[test]
fn blocks_with_corrected_scales() {
    let formats = [
        "block(element=fp4_e2m1,scale=ue4m3,tensor_scale=true,block_size=16,eden=true)",
        "block(element=int4,scale=ue5m2,tensor_scale=true,block_size=32,headroom=4/3,eden=true)",
        "block(element=e3m1,scale=ue3m3,tensor_scale=true,block_size=1,eden=true)",
        "block(element=fp8_e4m3,scale=ue4m3,tensor_scale=true,block_size=128,eden=true)",
    ];
    for (format, rounding) in formats.into_iter().zip(Rounding::ALL.into_iter().cycle()) {
        let format = assert_quantizes_both_ways(format, rounding);
        for (shape, axis) in [([6, 300], 1), ([300, 6], 0)] {
            for exponent in [-140, -120, -60, 0, 60, 125] {
                let stream = RandomStream::new(8, 1);
                let number = |i| {
                    let uniform = f64::from(stream.draw(i)) / 2.0_f64.powi(31) - 1.0;
                    (uniform * 2.0_f64.powi(exponent)) as f32
                };
                let x: Vec<f32> = (0..1800).map(number).collect();
                let mut expected = x.clone();
                format
                    .quantize(
                        &mut expected,
                        &shape,
                        axis,
                        Rounding::Stochastic.with(stream),
                    )
                    .expect("the format is sound");
                let got = tensor::<TestBackend>(&x, &shape);
                let got = TestBackend::mx_quantize(got, axis, format, Rounding::Stochastic, stream);
                let what = format!("{format} along {axis}, 2^{exponent}");
                assert_same(&values::<TestBackend>(got), &expected, &what);
            }
        }
    }
}
