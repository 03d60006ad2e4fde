//! Comparing the outputs of a device with a rule and its neighbours.

mod explain;
mod sample;

use crate::error::VectorsError;
use crate::forms::{DumpPart, DumpReader};
use crate::layout::Direction;
use crate::set::VectorSet;
use explain::explain;
use sample::Sample;

/// Where the inputs of a dump come from.
pub enum DumpInputs {
    /// The set's own cases, in order. A dump that has inputs must have these.
    OfSet,
    /// The dump has its own inputs.
    OfDump,
    /// Another file, case by case.
    Of(Box<DumpReader>),
}

/// A group of cases whose outputs differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// The rule that the device follows, in words.
    pub name: String,
    /// How many cases.
    pub cases: u64,
    /// The smallest of them, in words.
    pub example: String,
}

/// The result of a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckReport {
    /// Cases that were compared.
    pub cases: u64,
    /// Cases whose outputs differ from the rule's.
    pub differ: u64,
    /// The smallest case that differs, in words.
    pub example: Option<String>,
    /// Cases that differ and were looked at: all of them, or some spread evenly where there are very many.
    pub examined: u64,
    /// The neighbouring rules which the device follows: none, one, or two at once.
    pub rules: Vec<String>,
    /// Other neighbouring rules that explain the same cases: the set does not tell them apart.
    pub also: Vec<String>,
    /// The examined cases, by cause.
    pub causes: Vec<Cause>,
    /// The examined cases that no neighbouring rule explains.
    pub unexplained: Option<Cause>,
    /// Examined cases in which the device agrees with the set's rule, but not with [`rules`](Self::rules).
    pub contradicted: u64,
}

impl CheckReport {
    /// The share of the examined differences without an explanation.
    pub fn share_unexplained(&self) -> f64 {
        let unexplained = self.unexplained.as_ref().map_or(0, |cause| cause.cases);
        unexplained as f64 / self.examined.max(1) as f64
    }
}

/// Compares a dump with a set, and names the neighbouring rules that explain the differences. The dump is read as a stream.
///
/// # Errors
/// * [`VectorsError::Length`]: the dump has more or fewer cases than its inputs.
/// * [`VectorsError::Line`]: a case cannot be read, or its inputs are not the expected ones.
pub fn check(
    set: &dyn VectorSet,
    dump: &mut DumpReader,
    mut inputs: DumpInputs,
) -> Result<CheckReport, VectorsError> {
    let width = set.layout().of(Direction::Input).words();
    if matches!(inputs, DumpInputs::OfDump) && dump.part() != DumpPart::Whole {
        let reason = format!(
            "has the outputs alone; expected the inputs, too: {}",
            set.layout().names()
        );
        return Err(VectorsError::Layout {
            name: dump.name().to_owned(),
            reason,
        });
    }
    let mut comparison = Comparing::new(set);
    let (mut read, mut given, mut expected) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let there = dump.next(&mut read)?;
        let case = comparison.cases;
        let wanted = match &mut inputs {
            DumpInputs::OfSet => {
                given.clear();
                let more = case < set.cases();
                if more {
                    set.inputs(case, &mut given);
                }
                more
            }
            DumpInputs::OfDump => {
                given.clear();
                given.extend(read.iter().take(width));
                there
            }
            DumpInputs::Of(reader) => {
                let more = reader.next(&mut given)?;
                given.truncate(width);
                more
            }
        };
        if there != wanted {
            return Err(wrong_length(set, dump, &mut inputs, there, case));
        }
        if !there {
            return Ok(comparison.report());
        }
        let line = |reason| VectorsError::Line {
            name: dump.name().to_owned(),
            line: dump.line(),
            reason,
        };
        if let Some(reason) = set.refuse(&given) {
            return Err(line(format!("case {case}, from 0 on: {reason}")));
        }
        let outputs = match dump.part() {
            DumpPart::Whole => {
                let mut words = read[..width].iter().zip(&given);
                if let Some((got, expected)) = words.find(|(got, expected)| got != expected) {
                    return Err(line(format!(
                        "case {case}, from 0 on, has the input {got:#x}, expected {expected:#x}. If the dump has cases of its own: \
                         `--own-inputs` takes the dump's inputs, `--inputs FILE` a file's"
                    )));
                }
                &read[width..]
            }
            DumpPart::Inputs | DumpPart::Outputs => &read[..],
        };
        expected.clear();
        set.outputs(&given, &[], &mut expected);
        comparison.case(&given, &expected, outputs);
    }
}

/// The error of a dump that ends too early or too late.
fn wrong_length(
    set: &dyn VectorSet,
    dump: &DumpReader,
    inputs: &mut DumpInputs,
    there: bool,
    case: u64,
) -> VectorsError {
    let expected = match inputs {
        DumpInputs::OfSet => set.cases(),
        DumpInputs::OfDump => case,
        DumpInputs::Of(reader) => {
            let mut words = Vec::new();
            while matches!(reader.next(&mut words), Ok(true)) {}
            reader.cases()
        }
    };
    let got = match there {
        true => format!("{}+", dump.cases()),
        false => dump.cases().to_string(),
    };
    VectorsError::Length {
        name: dump.name().to_owned(),
        got,
        expected,
    }
}

/// Cases that have been compared so far.
struct Comparing<'a> {
    set: &'a dyn VectorSet,
    cases: u64,
    differ: Sample,
    agree: Sample,
}

impl<'a> Comparing<'a> {
    fn new(set: &'a dyn VectorSet) -> Self {
        let words = set.layout().words();
        Self {
            set,
            cases: 0,
            differ: Sample::new(words),
            agree: Sample::new(words),
        }
    }

    fn case(&mut self, inputs: &[u64], expected: &[u64], got: &[u64]) {
        self.cases += 1;
        let sample = match self.set.same(expected, got) {
            true => &mut self.agree,
            false => &mut self.differ,
        };
        sample.push(inputs, got);
    }

    fn report(self) -> CheckReport {
        explain(self.set, self.cases, &self.differ, &self.agree)
    }
}
