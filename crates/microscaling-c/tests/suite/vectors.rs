//! The cases of `microscaling vectors`: each one gives the same outputs in C.

use crate::blocks::{NPU, P3109, SWITCHES};
use crate::compiled::{Compiled, has_compiler};
use microscaling::{BlockFormat, ElementRounding};
use microscaling_c::{Reference, Subject};
use microscaling_vectors::{BlockSet, CodeFormat, ElementRule, ElementSet, InputType, VectorSet};

/// The number of a mode in a header.
pub(crate) fn number(rounding: ElementRounding) -> u32 {
    match rounding {
        ElementRounding::TiesToAway => 0,
        ElementRounding::TiesToEven => 1,
        ElementRounding::TowardZero => 2,
        ElementRounding::Stochastic(_) => 3,
        ElementRounding::TiesToZero => 4,
        ElementRounding::TiesToOdd => 5,
        ElementRounding::TiesTowardPositive => 6,
        ElementRounding::TiesTowardNegative => 7,
        ElementRounding::AwayFromZero => 8,
        ElementRounding::TowardPositive => 9,
        ElementRounding::TowardNegative => 10,
        ElementRounding::ToOdd => 11,
    }
}

fn compiled(subject: Subject) -> Compiled {
    Compiled::new(&Reference::new(subject).unwrap(), subject, false)
}

/// Inputs and outputs of each case.
fn cases(set: &dyn VectorSet) -> Vec<[Vec<u64>; 2]> {
    let case = |case| {
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        set.inputs(case, &mut inputs);
        set.outputs(&inputs, &[], &mut outputs);
        [inputs, outputs]
    };
    (0..set.cases()).map(case).collect()
}

/// A word of N random bits as a header takes the word.
fn draw(random: u64, rule: &ElementRule) -> u32 {
    (random as u32) << (32 - rule.random_bits)
}

fn check_elements(
    text: &str,
    compiled: &Compiled,
    format: CodeFormat,
    rule: ElementRule,
    mode: u32,
) {
    let set = ElementSet::new(format, InputType::Float32, rule, false, 7, None).unwrap();
    let cases = cases(&set);
    let command = |inputs: &[u64]| {
        let random = inputs.get(1).copied().unwrap_or(0);
        [1, inputs[0] as u32, mode, draw(random, &rule)]
    };
    let got = compiled.run(
        cases
            .iter()
            .flat_map(|[inputs, _]| command(inputs))
            .collect(),
    );
    assert_eq!(got.len(), cases.len());
    for ([inputs, outputs], got) in cases.iter().zip(got) {
        let wanted = outputs[0];
        assert_eq!(u64::from(got), wanted, "{text}, mode {mode}: {inputs:x?}");
    }
}

/// Each mode of a caller, for elements alone.
#[test]
fn modes_of_hardware_equal_the_vectors() {
    if !has_compiler() {
        return;
    }
    for text in [
        "fp8_e4m3",
        "fp8_e5m2",
        "fp4_e2m1",
        "int8",
        "float(exponent_bits=4,mantissa_bits=0,bias=7,specials=none)",
        "float(exponent_bits=4,mantissa_bits=3,bias=8,specials=fnuz)",
    ] {
        let format = text.parse().unwrap();
        let compiled = compiled(text.parse().unwrap());
        for rounding in ElementRounding::FIXED {
            let rule = ElementRule {
                rounding,
                ..ElementRule::default()
            };
            check_elements(text, &compiled, format, rule, number(rounding));
        }
    }
}

/// Elements of blocks without their scale: all switches, also for Inf and NaN.
#[test]
fn elements_with_switches_equal_the_vectors() {
    if !has_compiler() {
        return;
    }
    for text in SWITCHES.iter().chain(&NPU[..1]).chain(&P3109) {
        let format: BlockFormat = text.parse().unwrap();
        let rule = ElementRule::of(&format);
        // An Inf that has no code becomes NaN among elements alone, and the largest number in a block.
        let has_infinity = format.element.infinity_code().is_some();
        if rule.overflow == microscaling::ElementOverflow::Propagate && !has_infinity {
            continue;
        }
        let compiled = compiled(Subject::Block(format));
        // The format's own mode counts, for any mode of a caller.
        let mode = match format.conversion.rounding {
            Some(rounding) if !rounding.is_stochastic() => number(ElementRounding::AwayFromZero),
            _ => number(rule.rounding),
        };
        let rule = ElementRule {
            // Elements alone are not rounded again.
            overflow: match rule.overflow {
                microscaling::ElementOverflow::Renormalize => {
                    microscaling::ElementOverflow::Saturate
                }
                overflow => overflow,
            },
            ..rule
        };
        check_elements(
            text,
            &compiled,
            CodeFormat::Element(format.element),
            rule,
            mode,
        );
    }
}

/// Whole blocks: scale, codes and values.
#[test]
fn blocks_with_switches_equal_the_vectors() {
    if !has_compiler() {
        return;
    }
    for text in SWITCHES.iter().chain(&NPU).chain(&P3109) {
        let format: BlockFormat = text.parse().unwrap();
        let rule = ElementRule::of(&format);
        if format.tensor_scale {
            // A case is a tensor there.
            continue;
        }
        let own = ElementRule::default();
        let set = BlockSet::new(format, InputType::Float32, own, true, 7, Some(600)).unwrap();
        let cases = cases(&set);
        let compiled = compiled(Subject::Block(format));
        let mut commands = Vec::new();
        let length = |inputs: &[u64]| match rule.rounding.is_stochastic() {
            true => (inputs.len() - 1) / 2,
            false => inputs.len() - 1,
        };
        for [inputs, _] in &cases {
            let (count, length) = (inputs[0] as usize, length(inputs));
            commands.extend([2, count as u32, number(rule.rounding), 1.0_f32.to_bits()]);
            commands.extend(inputs[1..=count].iter().map(|x| *x as u32));
            let random = |i: usize| inputs.get(1 + length + i).copied().unwrap_or(0);
            commands.extend((0..count).map(|i| draw(random(i), &rule)));
        }
        let got = compiled.run(commands);
        let mut rest = &got[..];
        for (number, [inputs, outputs]) in cases.iter().enumerate() {
            let (count, length) = (inputs[0] as usize, length(inputs));
            let (block, behind) = rest.split_at(1 + 3 * count);
            rest = behind;
            assert_eq!(
                u64::from(block[0]),
                outputs[0],
                "{text}: case {number}: scale"
            );
            for (i, element) in block[1..].chunks_exact(3).enumerate() {
                let wanted = [outputs[1 + i], outputs[1 + length + i]];
                let got = [element[1], element[2]].map(u64::from);
                assert_eq!(got, wanted, "{text}: case {number}: {:#x}", inputs[1 + i]);
            }
        }
        assert!(rest.is_empty());
    }
}
