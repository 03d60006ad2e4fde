//! Whole sets of inputs against the oracle and against other crates.

use crate::float_state::ieee;
use crate::oracle;
use crate::oracle::{all_16_bit_floats, identical, pow2};
use microscaling::{
    BlockFormat, ElementFormat, FloatFormat, Headroom, RandomStream, Rounder, Rounding,
    ScaleFormat, ScaleMode, SharedExpMethod, Subnormals,
};
use std::collections::HashMap;

const STREAM: RandomStream = RandomStream::new(17, 4);

/// Pairs (x, amax) as blocks of two. The oracle rounds them once for each scale.
struct Pairs {
    table: Vec<f64>,
    amax: f32,
    pairs: Vec<f32>,
    expected: HashMap<(Option<i32>, Rounding), Vec<f32>>,
}

impl Pairs {
    fn new(element: ElementFormat, inputs: &[f32], amax: f32) -> Self {
        let inputs = inputs.iter().filter(|x| !x.is_finite() || x.abs() <= amax);
        Self {
            table: oracle::magnitudes(element),
            amax,
            pairs: inputs.flat_map(|x| [*x, amax]).collect(),
            expected: HashMap::new(),
        }
    }

    /// Quantizes the pairs, and compares both numbers of each.
    fn check(&mut self, format: BlockFormat) {
        let Self {
            table,
            amax,
            pairs,
            expected,
        } = self;
        let scale = oracle::scale_exponent(table, &format, *amax);
        for rounding in Rounding::ALL {
            let mut data = pairs.clone();
            format
                .quantize(&mut data, &[pairs.len() / 2, 2], 1, rounding.with(STREAM))
                .unwrap();
            let expected = expected.entry((scale, rounding)).or_insert_with(|| {
                let round = |(i, x): (usize, &f32)| {
                    let scale = if pairs[i & !1].is_finite() {
                        scale
                    } else {
                        None
                    };
                    oracle::round_element(table, scale, *x, rounding, STREAM.draw(i as u64))
                };
                pairs.iter().enumerate().map(round).collect()
            });
            for (i, (got, expected)) in data.iter().zip(expected).enumerate() {
                assert!(
                    identical(*got, *expected),
                    "{format:?} {rounding}: {:e} in a block of {:e} up to {amax:e} became {got:e}, not {expected:e}",
                    pairs[i],
                    pairs[i & !1],
                );
            }
        }
    }
}

#[test]
fn every_16_bit_float_in_blocks_of_many_scales() {
    let inputs = all_16_bit_floats();
    for element in ElementFormat::NAMED {
        // A scale of 1, the largest scale, a block that ends just under a power of two, and the scale 2^-127 from a normal and from
        // subnormals.
        let of_one = pow2(element.emax()) as f32;
        let edges = [
            of_one,
            f32::MAX,
            1.999_999_9,
            1.3e-37,
            f32::from_bits(0x007f_ffff),
            3e-42,
        ];
        for amax in edges {
            Pairs::new(element, &inputs, amax).check(BlockFormat::mx(element, 2));
        }
    }
}

#[test]
fn every_16_bit_float_as_a_block_of_its_own() {
    let inputs = all_16_bit_floats();
    for element in ElementFormat::NAMED {
        let table = oracle::magnitudes(element);
        let format = BlockFormat {
            shared_exp_method: SharedExpMethod::None,
            ..BlockFormat::mx(element, 32)
        };
        let scales: Vec<_> = inputs
            .iter()
            .map(|x| oracle::scale_exponent(&table, &format, x.abs()))
            .collect();
        for rounding in Rounding::ALL {
            let mut data = inputs.clone();
            format
                .quantize(&mut data, &[inputs.len()], 0, rounding.with(STREAM))
                .unwrap();
            for (i, (got, x)) in data.iter().zip(&inputs).enumerate() {
                let draw = STREAM.draw(i as u64);
                let expected = oracle::round_element(&table, scales[i], *x, rounding, draw);
                assert!(
                    identical(*got, expected),
                    "{element} {rounding}: {x:e} → {got:e}, not {expected:e}"
                );
            }
        }
    }
}

/// Every scale mode that knows a block by its largest magnitude, with every headroom.
fn modes_and_headrooms() -> impl Iterator<Item = (ScaleMode, Headroom)> {
    let headrooms = oracle::headrooms().into_iter();
    headrooms.flat_map(|headroom| oracle::MODES.map(|mode| (mode, headroom)))
}

/// Scale modes that reach beyond float32, and short scales.
#[test]
fn other_scales() {
    let inputs: Vec<f32> = all_16_bit_floats().into_iter().step_by(7).collect();
    for element in ElementFormat::NAMED {
        for amax in [f32::MAX, 1.9, 1.25e-38] {
            let mut pairs = Pairs::new(element, &inputs, amax);
            for (scale_mode, headroom) in modes_and_headrooms() {
                for scale_bits in [8, 5, 1] {
                    pairs.check(BlockFormat {
                        scale_mode,
                        scale: ScaleFormat::exponent(scale_bits).unwrap(),
                        headroom,
                        ..BlockFormat::mx(element, 2)
                    });
                }
            }
        }
    }
}

#[test]
fn scale_exponent_of_every_16_bit_float_and_its_neighbours() {
    let positive = all_16_bit_floats()
        .into_iter()
        .filter(|x| !x.is_sign_negative());
    let around = |x: f32| {
        let bits = x.to_bits();
        [bits.saturating_sub(1), bits, bits + 1].map(f32::from_bits)
    };
    let inputs: Vec<f32> = positive.step_by(5).flat_map(around).collect();
    // Powers of two times the largest element, and their neighbours.
    for element in ElementFormat::NAMED {
        let table = oracle::magnitudes(element);
        let edges = (-149..=127).flat_map(|e| {
            [1.0, f64::from(element.max()) / pow2(element.emax())]
                .map(|x| ieee(|| (x * pow2(e)).min(f64::from(f32::MAX)) as f32))
        });
        let inputs: Vec<f32> = inputs
            .iter()
            .copied()
            .chain(edges.flat_map(around))
            .collect();
        for (scale_mode, headroom) in modes_and_headrooms() {
            for scale_bits in [8, 4] {
                let format = BlockFormat {
                    scale_mode,
                    scale: ScaleFormat::exponent(scale_bits).unwrap(),
                    headroom,
                    ..BlockFormat::mx(element, 32)
                };
                for amax in &inputs {
                    assert_eq!(
                        format.scale_exponent(amax.to_bits()),
                        oracle::scale_exponent(&table, &format, *amax),
                        "{format:?}, amax {amax:e}"
                    );
                }
            }
        }
    }
}

/// Every tie: the numbers halfway between neighbours, and the float32s next to them.
#[test]
fn every_tie() {
    for element in ElementFormat::NAMED {
        let table = oracle::magnitudes(element);
        let halfway = table
            .windows(2)
            .map(|pair| ((pair[0] + pair[1]) / 2.0) as f32);
        let ties: Vec<f32> = halfway
            .flat_map(|tie| {
                let bits = tie.to_bits();
                [bits - 1, bits, bits + 1].map(f32::from_bits)
            })
            .flat_map(|x| [x, -x])
            .collect();
        Pairs::new(element, &ties, element.max()).check(BlockFormat::mx(element, 2));
    }
}

#[test]
fn nearest_is_exact_just_below_a_half() {
    let mut data = [0.499_999_97, 1.0, -0.499_999_97, 0.5];
    let format = BlockFormat::mx(ElementFormat::INT2, 4);
    format
        .quantize(&mut data, &[4], 0, Rounder::NearestAway)
        .unwrap();
    assert_eq!(data, [0.0, 1.0, 0.0, 1.0]);
}

/// The slice function, the scalar function and the oracle agree on bfloatN and fpN.
#[test]
fn float_formats_on_every_16_bit_float() {
    // Also patterns with all of their 23 mantissa bits in use.
    let scrambled = (0..1 << 16).map(|i| f32::from_bits(RandomStream::new(5, 5).draw(i)));
    let inputs: Vec<f32> = all_16_bit_floats().into_iter().chain(scrambled).collect();
    let formats = [10, 11, 16, 19, 24, 31]
        .map(FloatFormat::bfloat)
        .into_iter()
        .chain([7, 8, 12, 16, 19, 28, 29].map(FloatFormat::fp));
    for format in formats {
        for subnormals in [true, false] {
            let format = format.unwrap().with_subnormals(subnormals);
            let slow = oracle::Float {
                exponent_bits: format.exponent_bits(),
                mantissa_bits: format.mantissa_bits(),
                subnormals,
            };
            for rounding in Rounding::ALL {
                let mut data = inputs.clone();
                format.round_slice(&mut data, rounding.with(STREAM));
                for (i, (got, x)) in data.iter().zip(&inputs).enumerate() {
                    let draw = STREAM.draw(i as u64);
                    let expected = slow.round(*x, rounding, draw);
                    assert!(
                        identical(*got, expected)
                            && identical(format.round(*x, rounding, draw), expected),
                        "{format:?} {rounding}: {x:e} → {got:e}, not {expected:e}"
                    );
                }
            }
        }
    }
}

/// Every upper half of a float32 with lower halves around the tie.
fn patterns_around_bf16_ties() -> impl Iterator<Item = f32> {
    let lower = [0, 1, 0x1000, 0x7fff, 0x8000, 0x8001, 0xefff, 0xffff];
    (0..=0xffff_u32).flat_map(move |upper| lower.map(|lower| f32::from_bits(upper << 16 | lower)))
}

#[test]
fn bfloat16_even_is_half_bf16() {
    let format = FloatFormat::bfloat(16).unwrap();
    for x in patterns_around_bf16_ties() {
        let expected = half::bf16::from_f32(x).to_f32();
        assert!(
            identical(format.round(x, Rounding::NearestEven, 0), expected),
            "{x:e}"
        );
    }
}

#[test]
fn fp16_even_is_half_f16() {
    let format = FloatFormat::fp(16).unwrap();
    let ties = (0..0x7c00).map(|code| {
        let [low, high] = [code, code + 1].map(|code| half::f16::from_bits(code).to_f32());
        if high.is_finite() {
            (low + high) / 2.0
        } else {
            65520.0
        }
    });
    let around_ties = ties.flat_map(|tie| {
        let bits = tie.to_bits();
        [bits - 1, bits, bits + 1].map(f32::from_bits)
    });
    for x in patterns_around_bf16_ties().chain(around_ties) {
        let expected = half::f16::from_f32(x).to_f32();
        assert!(
            identical(format.round(x, Rounding::NearestEven, 0), expected),
            "{x:e}"
        );
    }
}

/// In a block whose scale is 1, fp8 elements are the conversions of the crate `float8`.
#[test]
fn fp8_even_is_float8() {
    type Convert = fn(f32) -> f32;
    let formats: [(ElementFormat, Convert); 2] = [
        (ElementFormat::FP8_E4M3, |x| {
            float8::F8E4M3::from_f32(x).to_f32()
        }),
        (ElementFormat::FP8_E5M2, |x| {
            float8::F8E5M2::from_f32(x).to_f32()
        }),
    ];
    for (element, convert) in formats {
        let amax = element.max().to_bits();
        let format = BlockFormat::mx(element, 32);
        for x in patterns_around_bf16_ties().filter(|x| x.abs() <= element.max()) {
            let got = format.round_element(x, [amax; 2], 1.0, Rounding::NearestEven, 0);
            assert!(
                identical(got, convert(x)),
                "{element}: {x:e} → {got:e}, not {:e}",
                convert(x)
            );
        }
    }
}

/// A fraction of 2^-30 of a step takes a draw among the largest 2^-30 of all to go up.
#[test]
fn stochastic_sees_small_fractions() {
    let format = BlockFormat::mx(ElementFormat::INT2, 2);
    let one = 1.0_f32.to_bits();
    let tiny = pow2(-30) as f32;
    let round = |x, draw| format.round_element(x, [one; 2], 1.0, Rounding::Stochastic, draw);
    assert_eq!(round(tiny, u32::MAX), 1.0);
    assert_eq!(round(tiny, u32::MAX - 3), 1.0);
    assert_eq!(round(tiny, u32::MAX - 4), 0.0);
    assert_eq!(round(-tiny, u32::MAX), -1.0);
    // Beyond 31 bits a fraction counts as none.
    assert_eq!(round(pow2(-32) as f32, u32::MAX), 0.0);
    assert_eq!(round(f32::from_bits(1), u32::MAX), 0.0);
    assert_eq!(round(0.0, u32::MAX), 0.0);
}

/// `flush_fp32_subnorms` ends exactly at the smallest normal number.
#[test]
fn flush_ends_at_the_smallest_normal() {
    for element in ElementFormat::NAMED {
        let format = BlockFormat {
            subnormals: Subnormals::FlushBlocks,
            ..BlockFormat::mx(element, 2)
        };
        let normal = f32::MIN_POSITIVE;
        let subnormal = f32::from_bits(normal.to_bits() - 1);
        let mut data = [normal, subnormal, subnormal, -subnormal];
        format
            .quantize(&mut data, &[4], 0, Rounder::NearestEven)
            .unwrap();
        assert_eq!(data[0], normal, "{element}");
        assert!(data[1] > 0.0, "{element}");
        assert_eq!(
            data[2..].iter().map(|x| x.to_bits()).collect::<Vec<_>>(),
            [0, 1 << 31],
            "{element}"
        );
    }
}
