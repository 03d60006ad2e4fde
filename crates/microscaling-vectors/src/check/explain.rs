//! Which neighbouring rules explain the differences.

use super::sample::Sample;
use super::{Cause, CheckReport};
use crate::layout::Direction;
use crate::set::VectorSet;

/// The share of the cases which a neighbouring rule changes that the device must confirm, in percent.
const CONFIRMED_PERCENT: u64 = 90;
/// Rules of which pairs are formed: those that explain the most alone.
const PAIRED: usize = 12;
/// The number of these rules that are always tried. The others are tried until a pair matches every case.
const USUAL: usize = 3;

/// The outputs of a rule for the cases of both samples. Cases that differ come first.
struct RuleOutcome {
    /// A fingerprint of the outputs.
    prints: Vec<u64>,
    /// Whether they are the device's.
    matches: Vec<bool>,
}

impl RuleOutcome {
    fn matching(&self) -> u64 {
        self.matches.iter().filter(|is_match| **is_match).count() as u64
    }

    /// Whether the device confirms what this rule changes of another one.
    fn is_confirmed_against(&self, other: &Self) -> bool {
        let (mut changed, mut confirmed) = (0, 0);
        let pairs = self.prints.iter().zip(&other.prints).zip(&self.matches);
        for ((own, other), is_match) in pairs {
            changed += u64::from(own != other);
            confirmed += u64::from(own != other && *is_match);
        }
        confirmed > 0 && 100 * confirmed >= CONFIRMED_PERCENT * changed
    }
}

struct Explainer<'a> {
    set: &'a dyn VectorSet,
    cases: Vec<&'a [u64]>,
    /// Input words of a case.
    inputs: usize,
    /// How many of the cases differ.
    differ: usize,
}

impl Explainer<'_> {
    fn outcome(&self, rules: &[usize]) -> RuleOutcome {
        let mut outputs = Vec::new();
        let (mut prints, mut matches) = (Vec::new(), Vec::new());
        for case in &self.cases {
            let (inputs, got) = case.split_at(self.inputs);
            outputs.clear();
            self.set.outputs(inputs, rules, &mut outputs);
            // FNV-1a, word by word.
            prints.push(
                outputs
                    .iter()
                    .fold(0xcbf2_9ce4_8422_2325, |print: u64, word| {
                        (print ^ word)
                            .wrapping_mul(0x0000_0100_0000_01b3)
                            .rotate_left(23)
                    }),
            );
            matches.push(self.set.same(&outputs, got));
        }
        RuleOutcome { prints, matches }
    }

    /// How many of the cases that differ an outcome explains.
    fn explained(&self, outcome: &RuleOutcome) -> usize {
        outcome.matches[..self.differ]
            .iter()
            .filter(|is_match| **is_match)
            .count()
    }

    fn name(&self, rule: usize) -> String {
        self.set.neighbours()[rule].name.clone()
    }

    fn text(&self, case: &[u64]) -> String {
        let (inputs, got) = case.split_at(self.inputs);
        let mut expected = Vec::new();
        self.set.outputs(inputs, &[], &mut expected);
        self.set.example(inputs, &expected, got)
    }

    /// A group of the cases that differ.
    fn cause(&self, name: String, is_in: impl Fn(usize) -> bool) -> Option<Cause> {
        let numbers: Vec<usize> = (0..self.differ).filter(|number| is_in(*number)).collect();
        let smallest = numbers.iter().map(|number| self.cases[*number]);
        let smallest = smallest.min_by_key(|case| self.set.size(&case[..self.inputs]))?;
        Some(Cause {
            name,
            cases: numbers.len() as u64,
            example: self.text(smallest),
        })
    }
}

/// A rule, or two, and the outcome.
struct RuleCandidate {
    rules: Vec<usize>,
    outcome: RuleOutcome,
}

/// The best explanation.
pub(super) fn explain(
    set: &dyn VectorSet,
    cases: u64,
    differ: &Sample,
    agree: &Sample,
) -> CheckReport {
    let explainer = Explainer {
        set,
        cases: differ.cases().chain(agree.cases()).collect(),
        inputs: set.layout().of(Direction::Input).words(),
        differ: differ.len(),
    };
    let mut report = CheckReport {
        cases,
        differ: differ.seen,
        example: explainer
            .cause(String::new(), |_| true)
            .map(|cause| cause.example),
        examined: differ.len() as u64,
        ..CheckReport::default()
    };
    if differ.seen == 0 {
        return report;
    }
    let base = explainer.outcome(&[]);
    let singles: Vec<RuleOutcome> = (0..set.neighbours().len())
        .map(|rule| explainer.outcome(&[rule]))
        .collect();
    let chosen = best(&explainer, &base, singles);
    let outcome = chosen.first().map_or(&base, |candidate| &candidate.outcome);
    if let Some(first) = chosen.first() {
        let names = |rules: &[usize]| {
            rules
                .iter()
                .map(|rule| explainer.name(*rule))
                .collect::<Vec<_>>()
        };
        report.rules = names(&first.rules);
        report.also = chosen[1..]
            .iter()
            .map(|candidate| names(&candidate.rules).join(" and "))
            .collect();
        report.causes = causes(&explainer, first);
        let agreeing = outcome.matches[explainer.differ..].iter();
        report.contradicted = agreeing.filter(|is_match| !**is_match).count() as u64;
    }
    report.unexplained = explainer.cause("no neighbouring rule".to_owned(), |case| {
        !outcome.matches[case]
    });
    report
}

/// The confirmed rules, or pairs of rules, that match the most cases.
fn best(
    explainer: &Explainer<'_>,
    base: &RuleOutcome,
    singles: Vec<RuleOutcome>,
) -> Vec<RuleCandidate> {
    // No pair can match more than every case.
    let all = singles
        .iter()
        .any(|single| single.matches.iter().all(|is_match| *is_match));
    let pairs = if all {
        Vec::new()
    } else {
        pairs(explainer, &singles)
    };
    let alone = singles
        .into_iter()
        .enumerate()
        .map(|(rule, outcome)| RuleCandidate {
            rules: vec![rule],
            outcome,
        });
    let alone = alone.filter(|candidate| candidate.outcome.is_confirmed_against(base));
    // One rule before two that match as much.
    let mut candidates: Vec<RuleCandidate> = alone.chain(pairs).collect();
    candidates.sort_by_key(|candidate| {
        (
            std::cmp::Reverse(candidate.outcome.matching()),
            candidate.rules.len(),
        )
    });
    let rank = |candidate: &RuleCandidate| (candidate.outcome.matching(), candidate.rules.len());
    let first = candidates.first().map(rank);
    candidates.retain(|candidate| Some(rank(candidate)) == first);
    candidates
}

/// Two rules at once, of those that explain the most alone. The device confirms what each of them changes.
fn pairs(explainer: &Explainer<'_>, singles: &[RuleOutcome]) -> Vec<RuleCandidate> {
    let mut useful: Vec<(usize, usize)> = singles
        .iter()
        .map(|single| explainer.explained(single))
        .enumerate()
        .collect();
    useful.sort_by_key(|(rule, explained)| (std::cmp::Reverse(*explained), *rule));
    let useful: Vec<usize> = useful.into_iter().map(|(rule, _)| rule).collect();
    let mut found = Vec::new();
    for (i, first) in useful.iter().enumerate().take(PAIRED) {
        // Where two rules change most cases together, the second one explains none alone.
        for second in &useful[i + 1..] {
            let [one, other] = [first, second].map(|rule| explainer.set.neighbours()[*rule].field);
            if one == other {
                continue;
            }
            let mut rules = vec![*first, *second];
            rules.sort_unstable();
            let outcome = explainer.outcome(&rules);
            if rules
                .iter()
                .all(|rule| outcome.is_confirmed_against(&singles[*rule]))
            {
                found.push(RuleCandidate { rules, outcome });
            }
        }
        let is_whole = |pair: &RuleCandidate| pair.outcome.matches.iter().all(|is_match| *is_match);
        if i >= USUAL && found.iter().any(is_whole) {
            break;
        }
    }
    found
}

/// The cases that differ, by the rule that explains each of them.
fn causes(explainer: &Explainer<'_>, best: &RuleCandidate) -> Vec<Cause> {
    let rules = &best.rules;
    let alone: Vec<RuleOutcome> = rules
        .iter()
        .map(|rule| explainer.outcome(&[*rule]))
        .collect();
    let by_one = |case: usize| alone.iter().position(|outcome| outcome.matches[case]);
    let explained = |case: usize| best.outcome.matches[case];
    let mut causes = Vec::new();
    for (place, rule) in rules.iter().enumerate() {
        causes.extend(explainer.cause(explainer.name(*rule), |case| {
            explained(case) && by_one(case) == Some(place)
        }));
    }
    let both = rules
        .iter()
        .map(|rule| explainer.name(*rule))
        .collect::<Vec<_>>()
        .join(", and ");
    causes.extend(explainer.cause(both, |case| explained(case) && by_one(case).is_none()));
    causes
}
