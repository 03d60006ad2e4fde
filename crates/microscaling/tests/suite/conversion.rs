//! The switches of hardware, against a model in float64: rounding modes, random bits, overflow, flushed subnormal numbers and −0. And
//! bfp16 of XDNA2, against the outputs of the chip.

use crate::float_state::ieee;
use microscaling::p3109::StochasticVariant;
use microscaling::{
    BlockFormat, ElementFormat, ElementOverflow, ElementRounding, NonFinite, Packed, RandomStream,
    Rounder, ScaleMode, Subnormals,
};
use std::str::FromStr;

/// A magnitude between its two neighbours on an endless grid, in float64.
struct Neighbours {
    below: f64,
    step: f64,
    /// The part of the way to the upper neighbour.
    fraction: f64,
    is_odd: bool,
}

impl Neighbours {
    fn of(q: f64, mantissa_bits: i32, emin: i32) -> Self {
        let own = match q {
            0.0 => emin,
            q => ((q.to_bits() >> 52) as i32 - 1023).max(emin),
        };
        let step = 2_f64.powi(own - mantissa_bits);
        let whole = (q / step).floor();
        let implicit = 2_f64.powi(mantissa_bits);
        let code = whole + f64::from(own - emin) * implicit;
        Self {
            below: whole * step,
            step,
            fraction: q / step - whole,
            is_odd: code % 2.0 == 1.0,
        }
    }

    fn rounded(&self, rounding: ElementRounding, negative: bool, bits: u32, draw: u32) -> f64 {
        use ElementRounding::*;
        let Self {
            fraction, is_odd, ..
        } = *self;
        let (is_tie, nearer_up) = (fraction == 0.5, fraction > 0.5);
        let random = f64::from(draw >> (32 - bits));
        let all = 2_f64.powi(bits as i32);
        let up = fraction > 0.0
            && match rounding {
                TiesToEven => nearer_up || is_tie && is_odd,
                TiesToOdd => nearer_up || is_tie && !is_odd,
                TiesToAway => nearer_up || is_tie,
                TiesToZero => nearer_up,
                TiesTowardPositive => nearer_up || is_tie && !negative,
                TiesTowardNegative => nearer_up || is_tie && negative,
                TowardZero => false,
                AwayFromZero => true,
                TowardPositive => !negative,
                TowardNegative => negative,
                ToOdd => !is_odd,
                Stochastic(StochasticVariant::A) => (fraction * all).floor() + random >= all,
                Stochastic(StochasticVariant::B) => {
                    (fraction * 2.0 * all).floor() + 2.0 * random + 1.0 >= 2.0 * all
                }
                Stochastic(StochasticVariant::C) => {
                    let scaled = fraction * all;
                    let (floor, rest) = (scaled.floor(), scaled - scaled.floor());
                    let up = rest > 0.5 || rest == 0.5 && floor % 2.0 == 1.0;
                    floor + f64::from(u8::from(up)) + random >= all
                }
            };
        self.below + if up { self.step } else { 0.0 }
    }
}

/// The number that x becomes, in units of its scale.
fn model(format: &BlockFormat, q: f64, caller: Rounder, draw: u32) -> f64 {
    let (element, conversion) = (format.element, format.conversion);
    let of_caller = match caller {
        Rounder::NearestAway => ElementRounding::TiesToAway,
        Rounder::NearestEven => ElementRounding::TiesToEven,
        Rounder::TowardZero => ElementRounding::TowardZero,
        Rounder::Stochastic(_) => ElementRounding::Stochastic(StochasticVariant::A),
    };
    let rounding = match conversion.rounding {
        Some(own @ ElementRounding::Stochastic(_)) if matches!(caller, Rounder::Stochastic(_)) => {
            own
        }
        Some(ElementRounding::Stochastic(_)) | None => of_caller,
        Some(own) => own,
    };
    let neighbours = Neighbours::of(q.abs(), element.mantissa_bits() as i32, element.emin());
    let negative = q.is_sign_negative();
    let mut magnitude = neighbours.rounded(rounding, negative, conversion.random_bits, draw);
    let max = f64::from(element.max());
    if element.is_unsigned() && negative {
        let stays = matches!(
            rounding,
            ElementRounding::TowardZero | ElementRounding::TowardPositive
        );
        let is_nan = match conversion.overflow {
            ElementOverflow::Infinity => !stays,
            overflow => overflow == ElementOverflow::Nan,
        };
        let is_small = conversion.flush_outputs && magnitude < 2_f64.powi(element.emin());
        return if is_nan && magnitude > 0.0 && !is_small {
            f64::NAN
        } else {
            0.0
        };
    }
    if conversion.flush_outputs && magnitude < 2_f64.powi(element.emin()) {
        magnitude = 0.0;
    }
    if magnitude > max {
        let stays = match rounding {
            ElementRounding::TowardZero => true,
            ElementRounding::TowardPositive => negative,
            ElementRounding::TowardNegative => !negative,
            ElementRounding::ToOdd => element.is_unsigned(),
            _ => false,
        };
        let has_infinity = (0..1 << element.bits()).any(|code| element.decode(code).is_infinite());
        magnitude = match conversion.overflow {
            ElementOverflow::Infinity if stays => max,
            ElementOverflow::Infinity if has_infinity => f64::INFINITY,
            ElementOverflow::Infinity if element.is_unsigned() => max,
            ElementOverflow::Infinity | ElementOverflow::Nan => f64::NAN,
            _ => max,
        };
    }
    match (negative, magnitude == 0.0 && !conversion.negative_zero) {
        (_, true) => 0.0,
        (true, false) => -magnitude,
        (false, false) => magnitude,
    }
}

/// Numbers of all sizes, with ties and neighbours of ties.
fn inputs(seed: u64, count: usize, span: u32) -> Vec<f32> {
    let stream = RandomStream::new(seed, 7);
    (0..count as u64)
        .map(|i| {
            let [word, kind] = [stream.draw(2 * i), stream.draw(2 * i + 1)];
            let kept = [0, 3, 8, 16, 20, 22][kind as usize % 6];
            let mantissa = word & 0x7f_ffff & (u32::MAX << kept);
            let exponent = 127 - (kind >> 8) % span;
            f32::from_bits(word & 0x8000_0000 | exponent << 23 | mantissa)
        })
        .collect()
}

fn same(got: f32, expected: f32) -> bool {
    got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan()
}

fn check(text: &str, seed: u64) {
    let format = BlockFormat::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(format.to_string().parse(), Ok(format), "{text}");
    let size = format.block_size;
    let stream = RandomStream::new(seed, 1);
    for rounder in [
        Rounder::NearestEven,
        Rounder::NearestAway,
        Rounder::TowardZero,
        Rounder::Stochastic(stream),
    ] {
        let x = inputs(seed, size * 40, 2 * format.element.mantissa_bits() + 30);
        let mut got = x.clone();
        format.quantize(&mut got, &[x.len()], 0, rounder).unwrap();
        let packed = Packed::encode(format, &x, &[x.len()], 0, rounder).unwrap();
        let decoded = packed.decode();
        for (b, block) in x.chunks(size).enumerate() {
            let scale = format.block_scale_of(block, 1.0);
            for (i, x) in block.iter().enumerate() {
                let at = b * size + i;
                let flushed = format.subnormals == Subnormals::FlushElements && !x.is_normal();
                let x = if flushed { 0.0_f32.copysign(*x) } else { *x };
                let expected = ieee(|| {
                    let q = match format.has_exponent() || format.scale_mode != ScaleMode::Floor {
                        true => f64::from(x) / f64::from(scale),
                        false => f64::from(x * (1.0 / scale)),
                    };
                    let unit = model(&format, q, rounder, stream.draw(at as u64)) as f32;
                    if scale == 0.0 {
                        0.0_f32.copysign(unit)
                    } else {
                        unit * scale
                    }
                });
                let context = || format!("{text} {rounder:?} {x:e} (scale {scale:e})");
                assert!(
                    same(got[at], expected),
                    "{}: got {:e}, expected {expected:e}",
                    context(),
                    got[at]
                );
                let has_zero = format.has_negative_zero() || expected != 0.0;
                let stored = if has_zero { expected } else { 0.0 };
                assert!(
                    same(decoded[at], stored),
                    "{}: decoded {:e}, expected {stored:e}",
                    context(),
                    decoded[at]
                );
            }
        }
    }
}

#[test]
fn every_mode_of_every_kind_of_element() {
    let elements = [
        "fp8_e4m3",
        "fp8_e5m2",
        "fp4_e2m1",
        "fp4_e3m0",
        "int8",
        "binary8p4se",
        "binary8p4sf",
        "binary6p1se",
        "binary8p5ue",
        "binary6p3uf",
    ];
    for (i, element) in elements.into_iter().enumerate() {
        for (j, rounding) in ElementRounding::NAMES.into_iter().enumerate() {
            for scale in [
                "e8m0",
                "ue5m3",
                "binary8p1uf",
                "binary8p4ue",
                "binary8p4se",
                "binary9p3sf",
            ] {
                if element == "binary6p1se" && scale != "e8m0" {
                    // Its numbers are too fine for a scale that is a float.
                    continue;
                }
                let text = format!("block(element={element},scale={scale},rounding={rounding})");
                check(&text, (i * 100 + j) as u64);
            }
        }
    }
}

#[test]
fn every_other_switch() {
    for element in [
        "fp8_e4m3",
        "fp8_e5m2",
        "binary8p3se",
        "binary8p5ue",
        "binary7p4uf",
    ] {
        for rest in [
            "overflow=infinity",
            "overflow=nan",
            "overflow=infinity,rounding=down",
            "overflow=infinity,rounding=up",
            "overflow=infinity,rounding=floor",
            "overflow=infinity,rounding=odd,negative_zero=false",
            "flush_outputs=true",
            "flush_outputs=true,rounding=away",
            "negative_zero=false",
            "flush_inputs=true",
            "random_bits=1",
            "random_bits=4",
            "random_bits=8,rounding=stochastic-b",
            "random_bits=31,rounding=stochastic-b",
            "random_bits=5,rounding=stochastic-c",
            "random_bits=31,rounding=stochastic-c",
        ] {
            for scale in ["e8m0", "ue4m3"] {
                check(
                    &format!("block(element={element},scale={scale},{rest})"),
                    17,
                );
            }
            check(
                &format!("mx(element={element},block_size=7,scale_mode=rceil,{rest})"),
                18,
            );
        }
    }
}

/// The largest finite magnitude is the scale, and infinities are elements: `ConvertToBlockMaxAbsFinite` of P3109.
#[test]
fn max_abs_finite() {
    for scale in ["ue4m3", "binary8p1uf", "binary8p3ue", "float32"] {
        check(
            &format!("block(element=binary8p4se,scale={scale},scale_mode=max_abs_finite)"),
            3,
        );
    }
    let format: BlockFormat =
        "block(element=binary8p4se,scale=binary8p4ue,block_size=4,scale_mode=max_abs_finite,non_finite=elements)"
            .parse()
            .unwrap();
    assert_eq!(format.non_finite, NonFinite::Elements);
    let of = |format: BlockFormat, x: [f32; 4]| {
        let packed = Packed::encode(format, &x, &[4], 0, Rounder::NearestEven).unwrap();
        let mut quantized = x;
        format
            .quantize(&mut quantized, &[4], 0, Rounder::NearestEven)
            .unwrap();
        for (x, y) in packed.decode().into_iter().zip(quantized) {
            assert!(same(x, y) || x == 0.0 && y == 0.0, "{x} {y}");
        }
        (packed.scales()[0], packed.view().codes())
    };
    // 0x40 is 1, 0x3c is 0.75, 0x7e the largest number, 0x7f Inf, 0x80 NaN.
    let x = [2.0, -1.5, f32::INFINITY, f32::NAN];
    let two = 0x88;
    assert_eq!(of(format, x), (two, vec![0x40, 0xbc, 0x7e, 0x80]));
    let mut keeps = format;
    keeps.conversion.overflow = ElementOverflow::Propagate;
    assert_eq!(of(keeps, x), (two, vec![0x40, 0xbc, 0x7f, 0x80]));
    // A scale that rounds to 0 makes every number 0; a block of NaN alone has the scale NaN.
    let tiny = [1e-30, -1e-30, 0.0, f32::INFINITY];
    assert_eq!(of(format, tiny), (0, vec![0; 4]));
    assert_eq!(of(keeps, tiny), (0, vec![0; 4]));
    assert_eq!(of(format, [f32::NAN; 4]), (0xff, vec![0x80; 4]));
}

/// The elements of blocks equal the codes that the report's own operation has, with every kind of element and scale.
#[test]
fn blocks_of_p3109_are_those_of_the_report() {
    use microscaling::p3109::{P3109Format, P3109Rounding, Projection, Saturation};
    let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0];
    let mut compared = 0;
    for (element, scale) in [
        ("binary8p4ue", "binary8p1uf"),
        ("binary8p5uf", "binary8p4se"),
        ("binary6p3ue", "binary8p3sf"),
        ("binary8p4se", "binary8p4sf"),
        ("binary6p3sf", "binary6p3se"),
        ("binary4p2uf", "binary12p5se"),
        ("binary3p1ue", "binary8p8uf"),
    ] {
        let [of_element, of_scale]: [P3109Format; 2] =
            [element, scale].map(|name| name.parse().unwrap());
        for (overflow, saturation) in [
            ("saturate", Saturation::SatFinite),
            ("propagate", Saturation::SatPropagate),
            ("infinity", Saturation::SatNone),
        ] {
            if saturation == Saturation::SatNone
                && of_element.is_signed()
                && !of_element.is_extended()
            {
                // The elements have NaN there, as fnuz formats have.
                continue;
            }
            for rounding in ["even", "nearest", "floor", "up", "down", "odd"] {
                let name = [
                    "NearestTiesToEven",
                    "NearestTiesToAway",
                    "TowardZero",
                    "TowardPositive",
                    "TowardNegative",
                    "ToOdd",
                ];
                let at = ["even", "nearest", "floor", "up", "down", "odd"]
                    .iter()
                    .position(|own| *own == rounding);
                let own = P3109Rounding::named(name[at.unwrap()], 0, 0).unwrap();
                let text = format!(
                    "block(element={element},scale={scale},block_size=8,scale_mode=max_abs_finite,non_finite=elements,rounding={rounding},overflow={overflow})"
                );
                let format: BlockFormat = text.parse().unwrap();
                let mut x = inputs(at.unwrap() as u64, 8 * 60, 12);
                for (i, special) in special.into_iter().cycle().take(60).enumerate() {
                    x[8 * i + i % 8] = special;
                }
                // NaN alone; the scale 0, beside which an Inf is 0.
                x[8 * 57..8 * 58].fill(f32::NAN);
                x[8 * 58..].fill(-0.0);
                x[8 * 58..][..2].copy_from_slice(&[f32::NEG_INFINITY, f32::NAN]);
                x[8 * 59 + 3] = f32::INFINITY;
                let packed =
                    Packed::encode(format, &x, &[x.len()], 0, Rounder::NearestEven).unwrap();
                let codes = packed.view().codes();
                let size = packed.scales().len() / 60;
                for (b, block) in x.chunks(8).enumerate() {
                    let nearest = Projection {
                        rounding: P3109Rounding::NearestTiesToEven,
                        saturation: Saturation::SatFinite,
                    };
                    let elements = Projection {
                        rounding: own,
                        saturation,
                    };
                    let block: Vec<f64> = block.iter().map(|x| f64::from(*x)).collect();
                    let expected = of_element.convert_to_block_max_abs_finite(
                        &block,
                        of_scale,
                        [nearest, elements],
                    );
                    let bytes = &packed.scales()[b * size..][..size];
                    let code = bytes
                        .iter()
                        .rev()
                        .fold(0, |code, byte| code << 8 | u32::from(*byte));
                    assert_eq!(
                        (code, &codes[8 * b..][..8]),
                        (expected.0, &expected.1[..]),
                        "{text}: {block:?}"
                    );
                    compared += 8;
                }
            }
        }
    }
    assert!(compared > 50_000, "{compared}");
}

/// Codes of scales whose format has its smallest normal number below float32's: the packed block is the quantized one, on both sides of
/// float32's smallest normal number.
#[test]
fn scales_of_subnormal_numbers_have_codes() {
    for scale in ["binary8p1uf", "binary9p2ue", "binary15p8uf", "binary16p8se"] {
        let text = format!("block(element=binary8p4se,scale={scale},block_size=1)");
        let format: BlockFormat = text.parse().unwrap();
        for i in 0..2000 {
            // 2^-130 to 2^-114 at a scale of an element's largest number.
            let x = f32::from_bits((20 + i * 7919 % 2000) << 16 | i << 3);
            let packed = Packed::encode(format, &[x], &[1], 0, Rounder::NearestEven).unwrap();
            let mut quantized = [x];
            let quantize = format.quantize(&mut quantized, &[1], 0, Rounder::NearestEven);
            quantize.unwrap();
            assert_eq!(packed.decode(), quantized, "{text}: {x:e}");
        }
    }
}

/// Bytes of another program may have a scale below 0.
#[test]
fn a_negative_scale_of_a_signed_format_counts() {
    use microscaling::p3109::P3109Format;
    let format: BlockFormat = "block(element=binary8p4se,scale=binary8p4se,block_size=2)"
        .parse()
        .unwrap();
    let report: P3109Format = "binary8p4se".parse().unwrap();
    let value = |code: u8| report.decode(code.into()).to_f32().unwrap();
    for scale in 0..=255_u8 {
        for codes in [[0x40, 0xc4], [0x01, 0x7e], [0x00, 0x80]] {
            let packed =
                Packed::from_parts(format, &[2], 0, None, vec![scale], codes.to_vec()).unwrap();
            for (got, code) in packed.decode().into_iter().zip(codes) {
                // A scale of NaN or Inf is the mark of a block without numbers.
                let expected = match value(scale) {
                    scale if scale.is_finite() => scale * value(code),
                    _ => f32::NAN,
                };
                assert!(
                    got == expected || got.is_nan() && expected.is_nan(),
                    "{scale:#x} {code:#x}: {got}"
                );
            }
        }
    }
}

/// Outputs of the chip in mode 0: e, then x and m.
#[rustfmt::skip] // by rows
const OUTPUTS: [(u8, &[(f32, i8)]); 11] = [
    (128, &[(1.0, 32), (-1.0, -32), (0.5, 16), (-0.5, -16), (1.5, 48), (-1.5, -48), (1.984375, 63), (-2.0, -64)]),
    (127, &[(1.0, 64), (0.015625, 1), (0.0078125, 0), (0.0234375, 1), (-0.015625, -1), (0.0, 0), (1.015625, 65), (-1.015625, -65)]),
    (127, &[(1.0, 64), (0.0078125, 0), (0.00012207031, 0), (0.000061035156, 0), (-0.00012207031, -1), (0.0000009536743, 0), (0.0, 0), (1.0, 64)]),
    (127, &[(-1.0, -64), (-0.5, -32), (-0.25, -16), (-0.75, -48), (-1.25, -80), (-1.75, -112), (-1.984375, -127), (-0.125, -8)]),
    (254, &[(3.4028235e38, 127), (1.7014117e38, 63), (1.0, 0), (-1.0, -1), (1.329228e36, 0), (-1.329228e36, -1), (0.0, 0), (0.0, 0)]),
    (255, &[(f32::INFINITY, 64), (f32::NEG_INFINITY, -64), (f32::NAN, 96), (-f32::NAN, -96), (1.0, 0), (-1.0, -1), (0.0, 0), (-0.0, 0)]),
    (0, &[(1e-45, 0), (1.1754942e-38, 0), (5.877472e-39, 0), (-5.877472e-39, 0)]),
    (134, &[(-114.77344, -58), (194.64453, 97), (-255.21875, -128), (184.04297, 92), (-92.30469, -47), (52.14453, 26), (-235.44922, -118), (24.363281, 12)]),
    (134, &[(-65.953125, -33), (192.67969, 96), (-38.64453, -20), (164.78906, 82), (-128.48828, -65), (54.20703, 27), (-94.20703, -48), (3.4023438, 1)]),
    (134, &[(-126.921875, -64), (103.92578, 51), (-3.765625, -2), (81.52734, 40), (-50.51953, -26), (226.28906, 113), (-113.21875, -57), (247.7461, 123)]),
    (134, &[(-226.79688, -114), (223.0039, 111), (-76.703125, -39), (189.8789, 94), (-45.51953, -23), (121.015625, 60), (-44.609375, -23), (31.011719, 15)]),
];

const LAST: (u8, &[(f32, i8)]) = (
    133,
    &[
        (-55.777344, -56),
        (123.15234, 123),
        (-78.52344, -79),
        (23.921875, 23),
        (-94.94531, -95),
        (76.90625, 76),
        (-81.02734, -82),
        (48.82422, 48),
    ],
);

/// e and m of a block.
fn block_of(format: BlockFormat, x: &[f32], rounder: Rounder) -> (u8, Vec<i8>) {
    let packed = Packed::encode(format, x, &[x.len()], 0, rounder).unwrap();
    let mut quantized = x.to_vec();
    format
        .quantize(&mut quantized, &[x.len()], 0, rounder)
        .unwrap();
    let e = packed.scales()[0];
    let codes: Vec<i8> = packed
        .view()
        .codes()
        .iter()
        .map(|code| *code as i8)
        .collect();
    for ((got, decoded), m) in quantized.iter().zip(packed.decode()).zip(&codes) {
        let expected = match (e, m.unsigned_abs()) {
            (255, 65..) => f32::NAN,
            _ => ieee(|| (f64::from(*m) * 2_f64.powi(i32::from(e) - 133)) as f32),
        };
        assert!(
            same(*got, expected),
            "{x:?}: {got:e}, expected {expected:e}"
        );
        assert!(
            same(decoded, expected),
            "{x:?}: {decoded:e}, expected {expected:e}"
        );
    }
    (e, codes)
}

#[test]
fn bfp16_of_the_npu_has_the_outputs_of_the_chip() {
    let format = BlockFormat::BFP16EBS8;
    assert_eq!("bfp16ebs8".parse(), Ok(format));
    assert_eq!(format.bits_per_element(), 9.0);
    let mut outputs = 0;
    for (e, pairs) in OUTPUTS.into_iter().chain([LAST]) {
        let (x, m): (Vec<f32>, Vec<i8>) = pairs.iter().copied().unzip();
        for rounder in [
            Rounder::NearestEven,
            Rounder::Stochastic(RandomStream::new(1, 2)),
        ] {
            assert_eq!(block_of(format, &x, rounder), (e, m.clone()), "{x:?}");
        }
        outputs += m.len();
    }
    assert_eq!(outputs, 92);
}

/// The chip's modes by number, and whether the exponent of the block below is 128.
const MODES: [(&str, bool); 10] = [
    ("down", false),
    ("up", true),
    ("floor", false),
    ("away", true),
    ("ties-down", false),
    ("ties-up", true),
    ("ties-to-zero", false),
    ("nearest", true),
    ("even", true),
    ("ties-to-odd", false),
];

fn in_mode(name: &str) -> BlockFormat {
    format!("bfp16ebs8(rounding={name})").parse().unwrap()
}

#[test]
fn ten_modes_of_the_npu() {
    let edge = 127.5 / 64.0;
    let x = [
        edge,
        -edge,
        1.0,
        -1.0,
        127.0 / 64.0,
        -127.0 / 64.0,
        0.5,
        -0.5,
    ];
    for (name, grows) in MODES {
        let (e, m) = block_of(in_mode(name), &x, Rounder::NearestEven);
        assert_eq!(e, 127 + u8::from(grows), "{name}");
        match name {
            "down" => assert_eq!(m[..2], [127, -128]),
            "even" => assert_eq!(m[..2], [64, -64]),
            _ => {}
        }
    }
}

/// A model in float64 of the ten modes, on blocks of one to eight numbers.
#[test]
fn renormalization_is_that_of_a_model() {
    let floor = |q: f64| q.floor();
    let to_nearest = |q: f64, tie: fn(f64) -> f64| match q - q.floor() {
        0.5 => tie(q),
        fraction if fraction > 0.5 => q.ceil(),
        _ => q.floor(),
    };
    let by_parity = |odd: f64| {
        move |q: f64| match q.floor().rem_euclid(2.0) == odd {
            true => q.floor(),
            false => q.ceil(),
        }
    };
    let round = |name: &str, q: f64| match name {
        "down" => floor(q),
        "up" => q.ceil(),
        "floor" => q.trunc(),
        "away" => q.signum() * q.abs().ceil(),
        "ties-down" => to_nearest(q, f64::floor),
        "ties-up" => to_nearest(q, f64::ceil),
        "ties-to-zero" => to_nearest(q, f64::trunc),
        "nearest" => to_nearest(q, |q| q.signum() * q.abs().ceil()),
        "even" if q - q.floor() == 0.5 => by_parity(0.0)(q),
        "ties-to-odd" if q - q.floor() == 0.5 => by_parity(1.0)(q),
        _ => to_nearest(q, f64::floor),
    };
    let mut grown = 0;
    for (name, _) in MODES {
        for (i, x) in inputs(5, 8 * 4000, 12).chunks(8).enumerate() {
            let x = &x[..1 + i % 8];
            let amax = x.iter().fold(0.0_f32, |amax, x| amax.max(x.abs()));
            let e = (amax.to_bits() >> 23) as i32;
            let of = |e: i32| -> Vec<f64> {
                let scaled = x.iter().map(|x| f64::from(*x) * 2_f64.powi(133 - e));
                scaled.map(|q| round(name, q)).collect()
            };
            let grows = of(e).iter().any(|m| *m > 127.0);
            grown += usize::from(grows);
            let e = e + i32::from(grows);
            let m: Vec<i8> = of(e).iter().map(|m| *m as i8).collect();
            let got = block_of(in_mode(name), x, Rounder::TowardZero);
            assert_eq!(got, (e as u8, m), "{name} {x:?}");
        }
    }
    assert!(grown > 100, "{grown}");
}

#[test]
fn errors_name_the_switch() {
    for (text, expected) in [
        ("mx(element=e2m1,overflow=nan)", "overflow is nan"),
        ("mx(element=e2m1,overflow=infinity)", "overflow is infinity"),
        (
            "mx(element=e4m3,overflow=propagate)",
            "overflow is propagate",
        ),
        ("mx(element=e4m3,overflow=renormalize)", "bfp16ebs8 alone"),
        (
            "mx(element=e4m3,overflow=wrap)",
            "expected one of saturate, propagate, infinity, nan",
        ),
        (
            "mx(element=int8,flush_outputs=true)",
            "flush_outputs is true",
        ),
        (
            "mx(element=e3m0,flush_outputs=true)",
            "flush_outputs is true",
        ),
        (
            "mx(element=e4m3,random_bits=0)",
            "random_bits is 0, expected 1 to 31",
        ),
        (
            "mx(element=e4m3,random_bits=32,rounding=stochastic-c)",
            "random_bits is 32, expected 1 to 31",
        ),
        (
            "mx(element=e4m3,random_bits=4,rounding=up)",
            "random_bits is `4`, expected `31` beside a rounding that draws no random numbers",
        ),
        (
            "mx(element=e4m3,rounding=nearby)",
            "expected one of even, nearest",
        ),
        (
            "mx(element=e4m3,flush_fp32_subnorms=true,flush_inputs=true)",
            "false beside flush_fp32_subnorms",
        ),
        (
            "mx(element=e4m3,scale_mode=max_abs_finite)",
            "scale_mode is `max_abs_finite`, expected `floor` beside a scale that is a power of two",
        ),
        (
            "block(element=e2m1,scale=ue4m3,four_over_six=true,rounding=up)",
            "block: rounding is `up`, expected no value beside tables, four_over_six",
        ),
        (
            "block(element=table(nf4),scale=float32,negative_zero=false)",
            "block: negative_zero is `false`, expected `true` beside tables",
        ),
        (
            "block(element=e2m1,scale=ue4m3,non_finite=elements)",
            "non_finite is elements",
        ),
        (
            "block(element=e4m3,scale=ue4m3,scale_mode=max_abs_finite,tensor_scale=true)",
            "scale_mode is max_abs_finite",
        ),
        (
            "bfp16ebs8(rounding=stochastic)",
            "rounding is stochastic, expected a mode of bfp16ebs8",
        ),
        ("bfp16ebs8(bit_width=40)", "bit_width is 40"),
        (
            "bfp16ebs8(overflow=saturate)",
            "unknown parameter `overflow`",
        ),
        (
            "block(element=binary8p4ue,scale=ue4m3,tensor_scale=true,block_size=16,eden=true)",
            "element format binary8p4ue of P3109: expected a signed format",
        ),
        (
            "mx(element=binary16p4se)",
            "element format binary16p4se of P3109",
        ),
        ("mx(element=binary8p9se)", "P3109: precision is 9"),
        (
            "block(element=e4m3,scale=binary16p4se)",
            "scale format binary16p4se of P3109: expected a format whose bits exceed",
        ),
        (
            "block(element=e4m3,scale=binary12p4uf)",
            "by at most 7 and with at most 15 bits without",
        ),
    ] {
        let error = BlockFormat::from_str(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn p3109_formats_as_elements_and_scales() {
    use microscaling::ScaleFormat;
    use microscaling::p3109::P3109Format;
    let (mut elements, mut scales) = (0, 0);
    for bits in 3..=16_u32 {
        for precision in 1..=bits {
            for letters in ["se", "sf", "ue", "uf"] {
                let name = format!("binary{bits}p{precision}{letters}");
                let Ok(report) = name.parse::<P3109Format>() else {
                    continue;
                };
                let element = name.parse::<ElementFormat>();
                let most = if report.is_signed() { 8 } else { 7 };
                let fits = bits - precision <= most;
                assert_eq!(element.is_ok(), fits, "{name}: {element:?}");
                if let Ok(element) = element {
                    elements += 1;
                    assert_eq!(element.bits(), bits);
                    assert_eq!(element.to_string().parse(), Ok(element), "{name}");
                    assert_eq!(Some(element.max()), report.max().to_f32());
                    assert_eq!(
                        Some(element.min_subnormal()),
                        report.min_positive().to_f32()
                    );
                    for code in 0..1 << bits {
                        let expected = report.decode(code).to_f32().unwrap();
                        assert!(same(element.decode(code), expected), "{name} {code:#x}");
                    }
                }
                let scale = name.parse::<ScaleFormat>();
                let fits = fits && (report.is_signed() || bits < 16);
                assert_eq!(scale.is_ok(), fits, "{name}: {scale:?}");
                if let Ok(scale) = scale {
                    scales += 1;
                    assert_eq!(scale.to_string(), name);
                    assert_eq!(scale.bits(), bits);
                    let float = scale.float().unwrap();
                    for code in 0..1 << bits {
                        let expected = report.decode(code).to_f32().unwrap();
                        assert!(same(float.decode(code), expected), "{name} {code:#x}");
                    }
                }
            }
        }
    }
    assert_eq!((elements, scales), (376, 360));
}
