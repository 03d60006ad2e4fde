//! Blocks: quantized and dequantized, against packed tensors.

use crate::cases::{block_cases, full, read, record};
use crate::compiled::{Compiled, has_compiler};
use microscaling::{BlockFormat, PackedView, RandomStream};
use microscaling_c::{Reference, Subject};

fn check(text: &str, count: u64) {
    let format: BlockFormat = text.parse().unwrap();
    let subject = Subject::Block(format);
    let compiled = Compiled::new(&Reference::new(subject).unwrap(), subject, false);
    let cases = block_cases(&format, count);
    let mut commands = Vec::new();
    for case in &cases {
        commands.extend([2, case.x.len() as u32, case.mode, case.tensor_scale]);
        commands.extend(case.x.iter().chain(&case.draws));
    }
    let got = compiled.run(commands);
    let mut rest = &got[..];
    for (number, case) in cases.iter().enumerate() {
        let words = case.check(&format!("{text}: block {number}"), rest);
        rest = &rest[words..];
    }
    assert!(rest.is_empty());
    if format.shifts.is_none() && !format.square {
        check_codes(&format, &compiled);
    }
}

/// The values of any codes, also of those that quantizing never gives.
fn check_codes(format: &BlockFormat, compiled: &Compiled) {
    let (scale_bytes, shift_bytes) = record(format);
    let count = full(format).min(16);
    let shape = [count];
    let stream = RandomStream::new(5, 5);
    let (mut commands, mut expected) = (Vec::new(), Vec::new());
    for seed in 0..2000 {
        let word = |i: u64| stream.draw(seed * 100 + i);
        let bits = format.element_bits() as usize;
        let mut scales: Vec<u8> = (0..scale_bytes as u64).map(|i| word(i) as u8).collect();
        if !format.scale.bits().is_multiple_of(8) && scale_bytes > 1 {
            *scales.last_mut().unwrap() &= (1 << (format.scale.bits() % 8)) - 1;
        }
        scales.resize(scale_bytes + shift_bytes, 0);
        let codes: Vec<u32> = (0..count as u64)
            .map(|i| word(50 + i) & ((1 << bits) - 1))
            .collect();
        let mut elements = vec![0; (count * bits).div_ceil(8)];
        for (i, code) in codes.iter().enumerate() {
            for bit in 0..bits {
                let at = i * bits + bit;
                elements[at / 8] |= ((code >> bit & 1) as u8) << (at % 8);
            }
        }
        let tensor_scale = format.tensor_scale.then(|| match seed % 4 {
            0 => f32::from_bits(word(20)),
            _ => f32::from_bits(word(20) & 0x007f_ffff | (0x30 + seed as u32 % 32) << 23),
        });
        let view = PackedView::new(*format, &shape, 0, tensor_scale, &scales, &elements).unwrap();
        let (scale, _) = read(format, &scales);
        let factor = tensor_scale.unwrap_or(1.0).to_bits();
        commands.extend(
            [3, count as u32, scale, factor]
                .into_iter()
                .chain(codes)
                .chain(vec![0; count]),
        );
        expected.extend(
            view.decode()
                .into_iter()
                .map(|x| (x.to_bits(), scale, seed)),
        );
    }
    let got = compiled.run(commands);
    assert_eq!(got.len(), expected.len());
    for (got, (wanted, scale, seed)) in got.into_iter().zip(expected) {
        assert_eq!(
            got, wanted,
            "{format}: scale {scale:#x}, case {seed}: {got:#x}, not {wanted:#x}"
        );
    }
}

pub(crate) const MX: [&str; 27] = [
    "mxfp8_e4m3",
    "mxfp8_e5m2",
    "mxfp6_e3m2",
    "mxfp6_e2m3",
    "mxfp4",
    "mxint8",
    "mx(element=int4,block_size=16,scale_mode=rceil)",
    "mx(element=fp8_e4m3,scale_mode=rceil)",
    "mx(element=fp4_e2m1,scale_mode=rceil,headroom=4/3)",
    "mx(element=fp8_e4m3,scale_mode=ceil)",
    "mx(element=fp6_e3m2,scale_mode=ceil,headroom=17/16)",
    "mx(element=fp6_e2m3,scale_mode=even)",
    "mx(element=fp4_e2m1,scale_mode=even,headroom=255/128)",
    "mx(element=fp4_e2m1,scale_mode=rms)",
    "mx(element=fp4_e2m1,scale_mode=rms,headroom=4/3,block_size=7)",
    "mx(element=fp4_e2m1,scale_mode=floor,headroom=4/3)",
    "mx(element=fp8_e5m2,scale_bits=4)",
    "mx(element=fp8_e4m3,scale_bits=1,scale_mode=ceil)",
    "mx(element=fp4_e2m1,flush_fp32_subnorms=true)",
    "mx(element=fp8_e4m3,shared_exp_method=none)",
    "mx(element=fp4_e2m1,block_size=0)",
    "mx(element=fp4_e2m1,block_size=4,square=true)",
    "mx(element=bfloat16,block_size=5,scale_mode=ceil)",
    "mx(element=float16,block_size=8)",
    "mx(element=fixed(bits=12,fraction_bits=14),block_size=8,scale_mode=ceil)",
    "mx(element=float(exponent_bits=4,mantissa_bits=0,bias=7,specials=none),block_size=8)",
    "mx(element=float(exponent_bits=4,mantissa_bits=3,bias=8,specials=fnuz),block_size=8,scale_mode=even)",
];

pub(crate) const FIXED_STEPS: [&str; 7] = [
    "mx4",
    "mx6",
    "mx9",
    "bfp16",
    "bfp(bit_width=32,block_size=5)",
    "microexponent(bit_width=13,block_size=32,sub_block_size=5,shift_bits=3)",
    "microexponent(bit_width=32,block_size=3,sub_block_size=3,shift_bits=0)",
];

pub(crate) const FLOAT_SCALES: [&str; 18] = [
    "nvfp4",
    "nvfp4(tensor_scale=true)",
    "nvfp4(tensor_scale=true,headroom=17/16)",
    "nvfp4(tensor_scale=true,square=true)",
    "nvfp4(headroom=3/4)",
    "nvint4",
    "amdfp4",
    "block(element=e2m1,scale=ue5m3,block_size=32)",
    "block(element=e2m1,scale=ue4m3,block_size=0)",
    "block(element=fp8_e4m3,scale=ue5m2,block_size=7,tensor_scale=true)",
    "block(element=fp8_e5m2,scale=bfloat16,block_size=8)",
    "block(element=int8,scale=bfloat16,block_size=8)",
    "block(element=fp6_e3m2,scale=float32,block_size=16)",
    "block(element=int4,scale=ue6m2,block_size=8,headroom=4/3)",
    "block(element=e2m1,scale=ue3m3,block_size=8,tensor_scale=true,subnormal_scales=false)",
    "block(element=fp6_e2m3,scale=float(exponent_bits=5,mantissa_bits=4,bias=20,specials=ieee),block_size=8)",
    "block(element=float(exponent_bits=4,mantissa_bits=3,bias=8,specials=fnuz),scale=ue5m3,block_size=8)",
    "block(element=fp8_e5m2,scale=float(exponent_bits=8,mantissa_bits=0,bias=127,specials=ieee),block_size=9)",
];

/// Every rounding mode, overflow, flushed inputs and outputs, no -0, few random bits; NaN and Inf as elements.
pub(crate) const SWITCHES: [&str; 26] = [
    "mx(element=fp8_e4m3,rounding=even,overflow=nan)",
    "mx(element=fp8_e4m3,rounding=nearest,overflow=infinity,block_size=4)",
    "mx(element=fp8_e4m3,rounding=ties-to-zero,flush_outputs=true)",
    "mx(element=fp6_e2m3,rounding=ties-to-odd,negative_zero=false)",
    "mx(element=fp8_e5m2,rounding=ties-up,overflow=infinity)",
    "mx(element=fp8_e5m2,rounding=ties-down,overflow=nan,flush_inputs=true)",
    "mx(element=fp8_e5m2,rounding=away,overflow=infinity,block_size=8)",
    "mx(element=fp8_e5m2,rounding=up,overflow=infinity)",
    "mx(element=fp8_e4m3,rounding=down,overflow=infinity)",
    "mx(element=fp8_e5m2,rounding=floor,overflow=infinity)",
    "mx(element=fp4_e2m1,rounding=odd,flush_outputs=true)",
    "mx(element=int8,rounding=odd)",
    "mx(element=bfloat16,rounding=away,block_size=5)",
    "mx(element=float(exponent_bits=4,mantissa_bits=0,bias=7,specials=none),block_size=8,rounding=ties-to-odd)",
    "mx(element=float(exponent_bits=4,mantissa_bits=0,bias=7,specials=none),block_size=8,rounding=odd)",
    "mx(element=fp8_e4m3,random_bits=3)",
    "mx(element=fp8_e4m3,rounding=stochastic-b,random_bits=5)",
    "mx(element=fp8_e4m3,rounding=stochastic-c,random_bits=1)",
    "mx(element=fp4_e2m1,rounding=stochastic-c,random_bits=31)",
    "mx(element=fp4_e2m1,scale_mode=rms,flush_inputs=true)",
    "block(element=fp6_e2m3,scale=ue4m3,block_size=16,rounding=odd,flush_outputs=true)",
    "block(element=fp8_e5m2,scale=ue5m3,block_size=16,rounding=up,overflow=infinity,negative_zero=false)",
    "block(element=e2m1,scale=ue4m3,block_size=16,tensor_scale=true,rounding=ties-to-odd,flush_inputs=true)",
    "block(element=fp8_e4m3,scale=bfloat16,block_size=8,random_bits=4,rounding=stochastic-b,overflow=nan)",
    "block(element=fp8_e4m3,scale=ue5m3,block_size=8,non_finite=elements,overflow=propagate)",
    "block(element=fp8_e5m2,scale=ue5m3,block_size=8,non_finite=elements,overflow=infinity,scale_mode=max_abs_finite)",
];

/// The rounding modes of XDNA2's blocks, and other sizes.
pub(crate) const NPU: [&str; 12] = [
    "bfp16ebs8",
    "bfp16ebs8(rounding=even)",
    "bfp16ebs8(rounding=nearest)",
    "bfp16ebs8(rounding=ties-to-zero)",
    "bfp16ebs8(rounding=ties-to-odd)",
    "bfp16ebs8(rounding=ties-up)",
    "bfp16ebs8(rounding=ties-down)",
    "bfp16ebs8(rounding=floor)",
    "bfp16ebs8(rounding=away,block_size=2)",
    "bfp16ebs8(rounding=up,bit_width=12)",
    "bfp16ebs8(rounding=odd,bit_width=24,block_size=3)",
    "bfp16ebs8(rounding=down,bit_width=11,block_size=1)",
];

/// Elements and scales of P3109, and their special codes in other floats.
pub(crate) const P3109: [&str; 18] = [
    "mx(element=binary8p4se,block_size=8,overflow=infinity)",
    "mx(element=binary8p3uf,block_size=8,overflow=infinity,rounding=odd)",
    "mx(element=binary8p3ue,block_size=8,overflow=infinity,rounding=odd)",
    "mx(element=binary8p3ue,block_size=8,overflow=infinity,rounding=up)",
    "mx(element=binary8p4ue,block_size=8,overflow=nan)",
    "mx(element=binary8p4uf,block_size=8)",
    "mx(element=binary6p3sf,scale_mode=rceil)",
    "mx(element=binary16p8se,block_size=4)",
    "mx(element=float(exponent_bits=4,mantissa_bits=3,bias=7,specials=extended),scale_mode=even)",
    "mx(element=float(exponent_bits=4,mantissa_bits=3,bias=7,specials=nan_inf),overflow=infinity)",
    "block(element=binary8p4se,scale=binary8p1uf,block_size=32)",
    "block(element=binary8p4se,scale=binary8p4ue,scale_mode=max_abs_finite,non_finite=elements)",
    "block(element=binary6p3ue,scale=binary8p3se,block_size=8,non_finite=elements,overflow=propagate,rounding=up)",
    "block(element=binary8p4sf,scale=binary8p1se,block_size=8)",
    "block(element=binary8p3se,scale=binary8p1ue,block_size=8,scale_mode=max_abs_finite)",
    "block(element=binary5p2uf,scale=binary7p2ue,block_size=8)",
    "block(element=binary8p4se,scale=binary15p8uf,block_size=8)",
    "block(element=binary8p5ue,scale=binary16p8sf,block_size=8,subnormal_scales=false)",
];

#[test]
fn switches_of_hardware_equal_the_library() {
    if has_compiler() {
        SWITCHES.iter().for_each(|text| check(text, 400));
    }
}

#[test]
fn blocks_of_xdna2_equal_the_library() {
    if has_compiler() {
        NPU.iter().for_each(|text| check(text, 400));
    }
}

#[test]
fn blocks_of_p3109_equal_the_library() {
    if has_compiler() {
        P3109.iter().for_each(|text| check(text, 400));
    }
}

#[test]
fn mx_blocks_equal_the_library() {
    if has_compiler() {
        MX.iter().for_each(|text| check(text, 1000));
    }
}

#[test]
fn microexponents_and_block_floating_point_equal_the_library() {
    if has_compiler() {
        FIXED_STEPS.iter().for_each(|text| check(text, 1000));
    }
}

#[test]
fn blocks_with_float_scales_equal_the_library() {
    if has_compiler() {
        FLOAT_SCALES.iter().for_each(|text| check(text, 1000));
    }
}

/// Tensor scales: of each largest magnitude that bfloat16 has.
#[test]
fn tensor_scales_equal_the_library() {
    if !has_compiler() {
        return;
    }
    for text in [
        "nvfp4(tensor_scale=true)",
        "nvfp4(tensor_scale=true,headroom=17/16)",
    ] {
        let format: BlockFormat = text.parse().unwrap();
        let subject = Subject::Block(format);
        let compiled = Compiled::new(&Reference::new(subject).unwrap(), subject, false);
        let largest = || crate::numbers::bfloat16().flat_map(|x| [x, x | 0x1234]);
        let got = compiled.run(largest().flat_map(|x| [4, x]).collect());
        for (x, got) in largest().zip(got) {
            assert_eq!(got, format.tensor_scale_of(x).to_bits(), "{text}: {x:#x}");
        }
    }
}

/// Block floating point has no code for NaN and Inf, and does not count them.
#[test]
fn block_floating_point_leaves_nan_and_inf_out() {
    if !has_compiler() {
        return;
    }
    let format: BlockFormat = "bfp16".parse().unwrap();
    let subject = Subject::Block(format);
    let compiled = Compiled::new(&Reference::new(subject).unwrap(), subject, false);
    let x = [1.5, f32::NAN, -f32::INFINITY, 0.25].map(f32::to_bits);
    let commands = [2, 4, 1, 0].into_iter().chain(x).chain([0; 4]);
    let got = compiled.run(commands.collect());
    let mut expected = x.map(f32::from_bits);
    format
        .quantize(&mut expected, &[4], 0, microscaling::Rounder::NearestEven)
        .unwrap();
    assert_eq!(got[0], 127);
    for (i, expected) in expected.into_iter().enumerate() {
        let [code, value] = [got[2 + 3 * i], got[3 + 3 * i]];
        match expected.is_finite() {
            true => assert_eq!(value, expected.to_bits()),
            false => assert_eq!((code, value), (u32::MAX, f32::NAN.to_bits())),
        }
    }
}
