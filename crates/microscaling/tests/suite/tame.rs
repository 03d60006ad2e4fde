//! Tame blocks, which devices round by float operations: the rule of any block gives the same bits.

use crate::float_state::ieee;
use microscaling::internal::{
    FloatScaleRule, PowerRules, ScaleAbove, ScalePair, Stochastic, SubScaleRule, TAME_END,
    UnitElement,
};
use microscaling::{BlockFormat, ElementFormat, FloatFormat, RandomStream, Rounding, with_rule};

const SIGN: u32 = 0x8000_0000;

/// Draws that decide about little and much.
fn draws(stream: RandomStream, at: u64) -> [u32; 4] {
    [stream.draw(at), 0, u32::MAX, stream.draw(at) | 0xffff_fff0]
}

/// Every number of bfloat16 below 2^100, and as many other ones, in units of a scale, by every rounding.
#[test]
fn elements() {
    let stream = RandomStream::new(1, 0);
    let pair = ScalePair {
        scale: 1_f32.to_bits(),
        inverse: 1_f32.to_bits(),
    };
    let round = |element: &UnitElement, rounding, abs, draw| {
        with_rule!(rounding, R => [
            element.round_tame::<R, u32>(pair, abs, draw),
            element.round_scaled::<R, u32>(pair, abs, draw),
        ])
    };
    for format in ElementFormat::NAMED {
        let element = UnitElement::of(format);
        if format.is_table() || format.emin() - (format.mantissa_bits() as i32) < -90 {
            continue;
        }
        for half in (0..TAME_END >> 16).step_by(3) {
            let near = stream.draw(half.into());
            for (abs, draw) in [half << 16, half << 16 | near & 0xffff]
                .into_iter()
                .zip([near, !near])
            {
                for rounding in Rounding::ALL {
                    let [got, expected] = ieee(|| round(&element, rounding, abs, draw));
                    assert_eq!(got, expected, "{format} {rounding} {abs:#x} {draw:#x}");
                }
            }
        }
    }
}

/// Ties, their neighbours, and draws that just reach the next number, or just do not.
#[test]
fn thresholds() {
    let element = UnitElement::of(ElementFormat::FP8_E4M3);
    let pair = ScalePair {
        scale: 1_f32.to_bits(),
        inverse: 1_f32.to_bits(),
    };
    for steps in 1..64_u32 {
        for exponent in -45..4 {
            let x = (steps as f32 * 2_f32.powi(exponent)).to_bits();
            for abs in [x - 1, x, x + 1] {
                for bit in 0..32 {
                    for draw in [(1_u32 << bit) - 1, 1 << bit, !(1 << bit), !((1 << bit) - 1)] {
                        let [got, expected] = ieee(|| {
                            [
                                element.round_tame::<Stochastic, u32>(pair, abs, draw),
                                element.round_scaled::<Stochastic, u32>(pair, abs, draw),
                            ]
                        });
                        assert_eq!(got, expected, "{abs:#x} {draw:#x}");
                    }
                }
            }
        }
    }
}

/// Numbers that are rounded to bfloat formats before.
#[test]
fn before() {
    let stream = RandomStream::new(2, 0);
    for bits in [10, 12, 16, 20, 31] {
        let format = FloatFormat::bfloat(bits).unwrap();
        assert!(format.rounds_tame());
        for i in 0..200_000 {
            let abs = 2_f32.powi(-90).to_bits();
            let abs = abs + stream.draw(i) % (TAME_END - abs);
            let abs = if i % 3 == 0 { abs & 0xffff_8000 } else { abs };
            for rounding in [
                Rounding::NearestAway,
                Rounding::NearestEven,
                Rounding::TowardZero,
            ] {
                let [got, expected] = ieee(|| {
                    with_rule!(rounding, R => [
                        format.round_tame::<R, u32>(abs),
                        format.round_word::<R, u32>(abs, 0),
                    ])
                });
                assert_eq!(got, expected, "{format} {rounding} {abs:#x}");
            }
        }
    }
}

/// Blocks with a largest magnitude of every exponent.
#[test]
fn blocks() {
    let stream = RandomStream::new(3, 0);
    let mut tame = 0;
    for name in [
        "mxfp8_e4m3",
        "mxfp8_e5m2",
        "mxfp6_e2m3",
        "mxfp4",
        "mx4",
        "mx9",
        "bfp16",
        "nvfp4",
        "nvfp4(tensor_scale=true)",
        "hif4",
        "mx(element=fp4_e2m1,block_size=32,scale_mode=rceil)",
        "mx(element=fp8_e4m3,block_size=32,scale_mode=even)",
        "block(element=fp6_e3m2,scale=ue5m2,block_size=32)",
    ] {
        let format: BlockFormat = name.parse().unwrap();
        for i in 0..40_000_u64 {
            let word = stream.draw(3 * i);
            let amax = (i as u32 % 255) << 23 | word & 0x7f_ffff;
            let amax = if i % 5 == 0 { amax & 0xffff_0000 } else { amax };
            let sub_amax = amax.saturating_sub((word >> 28) << 22);
            let abs = sub_amax.saturating_sub((stream.draw(3 * i + 1) % 40) << 21);
            let tensor_amax = amax.saturating_add((word >> 24 & 3) << 24).min(0x7f7f_ffff);
            for draw in draws(stream, 3 * i + 2) {
                for rounding in Rounding::ALL {
                    let both = ieee(|| match PowerRules::of(&format) {
                        Some(rules) => by_power(&rules, rounding, [amax, sub_amax, abs, draw]),
                        None => {
                            by_float(&format, rounding, [amax, sub_amax, abs, draw], tensor_amax)
                        }
                    });
                    if let Some([got, expected]) = both {
                        assert_eq!(
                            got, expected,
                            "{name} {rounding} {amax:#x} {sub_amax:#x} {abs:#x} {draw:#x}"
                        );
                        tame += 1;
                    }
                }
            }
        }
    }
    assert!(tame > 3_000_000, "{tame} elements of tame blocks");
}

fn by_power(rules: &PowerRules, rounding: Rounding, words: [u32; 4]) -> Option<[u32; 2]> {
    let [amax, sub_amax, abs, draw] = words;
    rules.is_tame(amax).then(|| {
        let steps = rules.grid(amax, sub_amax);
        let scale = rules.tame_scale(amax, sub_amax);
        with_rule!(rounding, R => [
            rules.round_tame::<R, u32>(scale, abs, draw),
            rules.round::<R, u32>(steps, abs | SIGN, draw) & !SIGN,
        ])
    })
}

fn by_float(
    format: &BlockFormat,
    rounding: Rounding,
    [amax, sub_amax, abs, draw]: [u32; 4],
    tensor_amax: u32,
) -> Option<[u32; 2]> {
    let rules = FloatScaleRule::for_words(format)?;
    let scale = (ScaleAbove::of(format)).map(|rule| rule.scale(tensor_amax));
    let refinement = match format.sub_scales {
        Some(_) => SubScaleRule::refinement([amax, sub_amax]),
        None => amax,
    };
    rules.is_tame(amax, scale).then(|| {
        let [by_rule, tame] = match scale {
            Some(scale) => [
                rules.with_tensor_scale(scale),
                rules.with_ordinary_tensor_scale(scale),
            ],
            None => [rules, rules],
        };
        let block_scale = by_rule.block_scale(amax, format.largest_unit().to_bits(), refinement);
        let (any, _) = by_rule.pair_and_doubled(block_scale, refinement);
        let pair = tame.tame_pair(amax, refinement);
        let element = rules.element;
        with_rule!(rounding, R => [
            element.round_tame::<R, u32>(pair, abs, draw),
            microscaling::internal::bits::product(
                element.round_scaled::<R, u32>(any, abs, draw),
                any.scale,
            ),
        ])
    })
}
