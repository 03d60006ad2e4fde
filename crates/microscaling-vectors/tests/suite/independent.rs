//! Values, conversions and blocks against sources that know nothing of this crate.

use crate::cases;
use flate2::read::GzDecoder;
use half::{bf16, f16};
use microscaling::{BlockFormat, ElementFormat, Packed, Rounder};
use microscaling_vectors::{
    BlockSet, CodeFormat, CodeSet, ElementOverflow, ElementRounding, ElementRule, ElementSet,
    InputType, VectorSet,
};
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

fn elements(format: &str, input: InputType, rule: ElementRule, exhaustive: bool) -> ElementSet {
    ElementSet::new(format.parse().unwrap(), input, rule, exhaustive, 0, None).unwrap()
}

fn ieee() -> ElementRule {
    ElementRule {
        overflow: ElementOverflow::Infinity,
        ..ElementRule::default()
    }
}

#[test]
fn halves_are_those_of_the_crate_half() {
    for (format, wide) in [("float16", false), ("bfloat16", true)] {
        let set = elements(format, InputType::Float32, ieee(), false);
        for (inputs, outputs) in cases(&set) {
            let x = f32::from_bits(inputs[0] as u32);
            let expected = if wide {
                bf16::from_f32(x).to_bits()
            } else {
                f16::from_f32(x).to_bits()
            };
            assert!(
                set.same(&[expected.into()], &outputs),
                "{format} {x:e}: {outputs:x?}"
            );
        }
        let codes = cases(&CodeSet::new(format.parse().unwrap(), None));
        assert_eq!(codes.len(), 65_536);
        for (code, value) in codes {
            let code = code[0] as u16;
            let x = if wide {
                bf16::from_bits(code).to_f32()
            } else {
                f16::from_bits(code).to_f32()
            };
            let value = f32::from_bits(value[0] as u32);
            assert!(
                x.to_bits() == value.to_bits() || (x.is_nan() && value.is_nan()),
                "{format} {code:#x}"
            );
        }
    }
    // Every float16 as bfloat16, and the other way.
    let set = elements("bfloat16", InputType::Float16, ieee(), true);
    for (inputs, outputs) in cases(&set) {
        let expected = bf16::from_f32(f16::from_bits(inputs[0] as u16).to_f32()).to_bits();
        assert!(set.same(&[expected.into()], &outputs), "{inputs:x?}");
    }
    let set = elements("float16", InputType::Bfloat16, ieee(), true);
    assert_eq!(set.cases(), 65_536);
    for (inputs, outputs) in cases(&set) {
        let expected = f16::from_f32(bf16::from_bits(inputs[0] as u16).to_f32()).to_bits();
        assert!(set.same(&[expected.into()], &outputs), "{inputs:x?}");
    }
}

/// The rows of a file of the crate `microscaling`, without the header.
fn rows(name: &str) -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../microscaling/tests/data/p3109")
        .join(name);
    let mut text = String::new();
    GzDecoder::new(File::open(path).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    text.lines()
        .skip(1)
        .map(|line| line.split(',').map(str::to_owned).collect())
        .collect()
}

#[test]
fn p3109_values_are_those_of_the_working_group() {
    let mut sets: HashMap<String, Vec<Vec<u64>>> = HashMap::new();
    let rows = rows("values.csv.gz");
    assert_eq!(rows.len(), 13_296);
    for row in rows {
        let set = sets.entry(row[0].clone()).or_insert_with(|| {
            let set = CodeSet::new(row[0].parse().unwrap(), None);
            cases(&set)
                .into_iter()
                .map(|(_, outputs)| outputs)
                .collect()
        });
        let got = f32::from_bits(set[row[1].parse::<usize>().unwrap()][0] as u32);
        let expected = match &row[2][..] {
            "nan" => f64::NAN,
            "inf" => f64::INFINITY,
            "-inf" => f64::NEG_INFINITY,
            text => {
                let (significand, exponent) = text.split_once('p').unwrap_or((text, "0"));
                significand.parse::<f64>().unwrap() * 2.0_f64.powi(exponent.parse().unwrap())
            }
        };
        assert!(
            f64::from(got) == expected || (got.is_nan() && expected.is_nan()),
            "{row:?}: {got:e}"
        );
    }
}

#[test]
fn p3109_projections_are_those_of_an_exact_model() {
    let rows = rows("project.csv.gz");
    assert_eq!(rows.len(), 19_440);
    let mut sets: HashMap<[String; 4], ElementSet> = HashMap::new();
    for row in rows {
        let key = [0, 2, 3, 4].map(|i| row[i].clone());
        let set = sets.entry(key).or_insert_with(|| {
            let rule = ElementRule {
                rounding: row[2].parse().unwrap(),
                overflow: row[3].parse().unwrap(),
                random_bits: row[4].parse::<u32>().unwrap().max(1),
                ..ElementRule::default()
            };
            ElementSet::new(
                row[0].parse().unwrap(),
                InputType::Float32,
                rule,
                false,
                0,
                Some(1),
            )
            .unwrap()
        });
        let x = u64::from_str_radix(&row[1], 16).unwrap();
        let mut code = Vec::new();
        set.outputs(&[x, row[5].parse().unwrap()], &[], &mut code);
        assert_eq!(code, [row[6].parse::<u64>().unwrap()], "{row:?}");
    }
}

/// The codes of the library, for numbers below 2^(emax + 1): the largest number beside them fixes the scale at 1.
#[test]
fn elements_are_those_of_blocks_with_the_scale_one() {
    let roundings = [
        (ElementRounding::TiesToEven, Rounder::NearestEven),
        (ElementRounding::TiesToAway, Rounder::NearestAway),
        (ElementRounding::TowardZero, Rounder::TowardZero),
    ];
    let mut compared = 0;
    for name in ElementFormat::NAMES {
        let element: ElementFormat = name.parse().unwrap();
        let format = BlockFormat::mx(element, 2);
        let limit = 2.0 * f64::from(2.0_f32.powi(element.emax()));
        for (rounding, rounder) in roundings {
            let rule = ElementRule {
                rounding,
                ..ElementRule::default()
            };
            let set = ElementSet::new(
                CodeFormat::Element(element),
                InputType::Float32,
                rule,
                false,
                0,
                Some(20_000),
            )
            .unwrap();
            for (inputs, outputs) in cases(&set) {
                let x = f32::from_bits(inputs[0] as u32);
                if x.is_nan() || f64::from(x).abs() >= limit {
                    continue;
                }
                let packed = Packed::encode(format, &[x, element.max()], &[2], 0, rounder).unwrap();
                assert_eq!(packed.scales(), [127]);
                assert_eq!(
                    u64::from(packed.view().codes()[0]),
                    outputs[0],
                    "{name} {rounding} {x:e}"
                );
                compared += 1;
            }
        }
    }
    assert!(compared > 100_000, "{compared}");
}

/// Stochastic rounding of the library, whose random word's upper 31 bits are the vector's.
#[test]
fn stochastic_rounding_is_the_librarys() {
    let element = ElementFormat::FP8_E4M3;
    let rule = ElementRule {
        rounding: "stochastic".parse().unwrap(),
        ..ElementRule::default()
    };
    let stream = microscaling::RandomStream::new(3, 1);
    let set = elements("fp8_e4m3", InputType::Float32, rule, false);
    let mut inputs: Vec<f32> = cases(&set)
        .iter()
        .map(|(inputs, _)| f32::from_bits(inputs[0] as u32))
        .collect();
    inputs.retain(|x| x.abs() < 512.0);
    for (i, x) in inputs.into_iter().enumerate() {
        let format = BlockFormat::mx(element, 0);
        let mut block = vec![0.0; 2 + i % 5];
        block[0] = element.max();
        block[1 + i % 5] = x;
        let place = (1 + i % 5) as u64;
        let packed = Packed::encode(
            format,
            &block,
            &[block.len()],
            0,
            Rounder::Stochastic(stream),
        )
        .unwrap();
        let mut code = Vec::new();
        set.outputs(
            &[x.to_bits().into(), u64::from(stream.draw(place) >> 1)],
            &[],
            &mut code,
        );
        assert_eq!(
            code,
            [u64::from(packed.view().codes()[place as usize])],
            "{x:e}"
        );
    }
}

/// The scale by OCP MX v1.0 in float64, and elements by a search among all codes.
#[test]
fn blocks_are_those_of_a_plain_model() {
    for name in [
        "mxfp8_e4m3",
        "mxfp8_e5m2",
        "mxfp6_e3m2",
        "mxfp6_e2m3",
        "mxfp4",
        "mxint8",
    ] {
        let format: BlockFormat = name.parse().unwrap();
        let element = format.element;
        let numbers: Vec<f64> = (0..1_u32 << (element.bits() - 1))
            .map(|code| f64::from(element.decode(code)))
            .filter(|x| x.is_finite())
            .collect();
        let set = BlockSet::new(
            format,
            InputType::Float32,
            ElementRule::default(),
            true,
            1,
            None,
        )
        .unwrap();
        for (inputs, outputs) in cases(&set) {
            let count = inputs[0] as usize;
            let x: Vec<f32> = inputs[1..][..count]
                .iter()
                .map(|word| f32::from_bits(*word as u32))
                .collect();
            let amax = x
                .iter()
                .fold(0.0_f64, |amax, x| amax.max(f64::from(*x).abs()));
            if x.iter().any(|x| !x.is_finite()) {
                assert_eq!(outputs[0], 255, "{name}");
                continue;
            }
            // Zero counts as 2^-126.
            let log2 = if amax == 0.0 {
                -126
            } else {
                amax.log2().floor() as i32
            };
            let exponent = (log2 - element.emax()).max(-127);
            assert_eq!(outputs[0], (exponent + 127) as u64, "{name} {amax:e}");
            for (i, x) in x.iter().enumerate() {
                let scaled = f64::from(*x).abs() / 2.0_f64.powi(exponent);
                let nearest = (0..numbers.len()).min_by(|a, b| {
                    let distance = |code: usize| {
                        (scaled.min(numbers[numbers.len() - 1]) - numbers[code]).abs()
                    };
                    distance(*a)
                        .total_cmp(&distance(*b))
                        .then((a % 2).cmp(&(b % 2)))
                });
                let nearest = nearest.unwrap() as u64;
                let bits = element.bits();
                let expected = match (x.is_sign_negative(), element.is_integer()) {
                    (false, _) => nearest,
                    (true, true) => nearest.wrapping_neg() & ((1 << bits) - 1),
                    (true, false) => nearest | 1 << (bits - 1),
                };
                assert_eq!(outputs[1 + i], expected, "{name} {x:e} of amax {amax:e}");
                let value = f64::from(f32::from_bits(outputs[1 + set_length(&set) + i] as u32));
                let magnitude = numbers[nearest as usize] * 2.0_f64.powi(exponent);
                assert_eq!(value.abs(), f64::from(magnitude as f32), "{name}");
            }
        }
    }
}

fn set_length(set: &BlockSet) -> usize {
    let code = set
        .layout()
        .fields()
        .iter()
        .find(|field| field.name == "code");
    code.unwrap().length
}

/// The words of any described format are the library's own packing.
#[test]
fn every_described_block_format_has_vectors() {
    for name in BlockFormat::NAMES.into_iter().chain([
        "block(element=e3m2,scale=ue5m3,block_size=32)",
        "mx(element=int4,block_size=16,scale_mode=rceil)",
        "nvfp4(tensor_scale=true)",
        "nvfp4(outer_size=128)",
        "mx(element=fp8_e4m3,block_size=4,square=true)",
        "bfp(bit_width=12,block_size=16)",
    ]) {
        let format: BlockFormat = name.parse().unwrap();
        let set = BlockSet::new(
            format,
            InputType::Bfloat16,
            ElementRule::default(),
            true,
            0,
            None,
        )
        .unwrap();
        assert!(set.cases() > 200, "{name}: {}", set.cases());
        let (_, outputs) = &cases(&set)[set.cases() as usize - 1];
        assert_eq!(
            outputs.len(),
            set.layout().words() - 1 - set_length(&set),
            "{name}"
        );
        let report = crate::report(&set, |_, outputs| outputs.to_vec());
        assert_eq!((report.differ, report.cases), (0, set.cases()), "{name}");
    }
}
