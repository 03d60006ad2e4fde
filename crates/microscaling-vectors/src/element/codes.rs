//! The set of codes.

use super::format::{CodeFormat, CodePlan};
use crate::VERSION;
use crate::choice::CaseChoice;
use crate::cover::Cover;
use crate::layout::{BusField, BusLayout};
use crate::set::{NeighbouringRule, VectorSet};
use microscaling::p3109::CodeValue;

/// Every code of a format, with the value.
///
/// The value is a float32, or, where float32 does not hold all numbers of the format, four fields: the class (0 number, 1 Inf,
/// 2 NaN), the sign, and significand · 2^exponent.
#[derive(Debug, Clone)]
pub struct CodeSet {
    format: CodeFormat,
    /// None of tables.
    plan: Option<CodePlan>,
    layout: BusLayout,
    fits: bool,
    choice: CaseChoice,
    neighbours: Vec<NeighbouringRule>,
}

/// The neighbours of decoding.
const DECODING: [(&str, &str); 5] = [
    ("subnormals", "subnormal codes become zero"),
    ("negative zero", "-0 lost"),
    ("bias", "exponent bias one too large (values half as large)"),
    (
        "bias",
        "exponent bias one too small (values twice as large)",
    ),
    ("specials", "codes of Inf and NaN read as numbers"),
];

impl CodeSet {
    /// All codes, or so many that are spread evenly.
    pub fn new(format: CodeFormat, limit: Option<u64>) -> Self {
        let fits = match format {
            CodeFormat::Element(_) => true,
            CodeFormat::P3109(format) => format.fits_float32(),
        };
        let mut fields = vec![BusField::input("code", format.bits(), 0)];
        match fits {
            true => fields.push(BusField::output("value", 32, 0)),
            false => fields.extend(
                [
                    ("class", 2),
                    ("negative", 1),
                    ("significand", 16),
                    ("exponent", 16),
                ]
                .map(|(name, bits)| BusField::output(name, bits, 0)),
            ),
        }
        // A table has no fields that a neighbour could read otherwise.
        let plan = format.plan().ok();
        let has_neighbours = fits && plan.is_some();
        let neighbours = DECODING.iter().filter(|_| has_neighbours);
        Self {
            format,
            plan,
            layout: BusLayout::new(fields),
            fits,
            choice: CaseChoice::new(0, 1 << format.bits(), limit),
            neighbours: neighbours
                .map(|(field, name)| NeighbouringRule {
                    field,
                    name: (*name).to_owned(),
                })
                .collect(),
        }
    }

    /// The value by neighbouring rules.
    fn deviating(&self, code: u32, neighbours: &[usize]) -> f32 {
        let mut x = match self.format {
            // With the sign of -0.
            CodeFormat::Element(format) => format.decode(code),
            CodeFormat::P3109(format) => format.decode(code).to_f32().unwrap_or(f32::NAN),
        };
        let Some(plan) = self.plan else {
            return x;
        };
        let (magnitude, negative) = plan.magnitude(code);
        for neighbour in neighbours {
            match neighbour {
                0 if plan.is_subnormal(magnitude) && x.is_finite() => x = 0.0_f32.copysign(x),
                1 if x == 0.0 => x = 0.0,
                2 if x.is_finite() => x /= 2.0,
                3 if x.is_finite() => x *= 2.0,
                4 if !x.is_finite() => {
                    let (significand, exponent) = plan.number(magnitude);
                    let number = CodeValue::Finite {
                        negative,
                        significand: significand as u32,
                        exponent,
                    };
                    x = number.to_f32().unwrap_or(f32::INFINITY);
                }
                _ => {}
            }
        }
        x
    }
}

impl VectorSet for CodeSet {
    fn name(&self) -> String {
        format!("codes format={} version={VERSION}", self.format)
    }

    fn layout(&self) -> &BusLayout {
        &self.layout
    }

    fn cases(&self) -> u64 {
        self.choice.cases()
    }

    fn inputs(&self, case: u64, words: &mut Vec<u64>) {
        words.push(self.choice.candidate(case));
    }

    fn refuse(&self, _: &[u64]) -> Option<String> {
        None
    }

    fn neighbours(&self) -> &[NeighbouringRule] {
        &self.neighbours
    }

    fn outputs(&self, inputs: &[u64], neighbours: &[usize], words: &mut Vec<u64>) {
        let code = inputs[0] as u32;
        if self.fits {
            let x = self.deviating(code, neighbours);
            let pattern = if x.is_nan() {
                f32::NAN.to_bits()
            } else {
                x.to_bits()
            };
            words.push(pattern.into());
            return;
        }
        words.extend(match self.format.decode(code) {
            CodeValue::Nan => [2, 0, 0, 0],
            CodeValue::Infinite { negative } => [1, negative.into(), 0, 0],
            CodeValue::Finite {
                negative,
                significand,
                exponent,
            } => [
                0,
                negative.into(),
                significand.into(),
                (exponent as i16 as u16).into(),
            ],
        });
    }

    fn same(&self, expected: &[u64], got: &[u64]) -> bool {
        let is_nan = |words: &[u64]| self.fits && f32::from_bits(words[0] as u32).is_nan();
        expected == got || (is_nan(expected) && is_nan(got))
    }

    fn size(&self, inputs: &[u64]) -> u128 {
        inputs[0].into()
    }

    fn example(&self, inputs: &[u64], expected: &[u64], got: &[u64]) -> String {
        let value = self.format.decode(inputs[0] as u32);
        let hex = |words: &[u64]| {
            words
                .iter()
                .map(|word| format!("{word:#x}"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        format!(
            "code {:#x} ({value}): expected {}, got {}",
            inputs[0],
            hex(expected),
            hex(got)
        )
    }

    fn cover(&self, inputs: &[u64], _: &[u64], cover: &mut Cover) {
        cover.expect("codes", 1 << self.format.bits());
        cover.code("codes", inputs[0]);
    }
}
