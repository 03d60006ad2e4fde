//! The outcomes of the checks of one golden file on one backend.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::compare::Mismatch;

/// The outcome of one check.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// Everything agrees.
    Passed,
    /// These tensors do not.
    Failed(Vec<Mismatch>),
    /// The kind of case, which is not built yet.
    Skipped(String),
}

impl From<Vec<Mismatch>> for Outcome {
    fn from(mismatches: Vec<Mismatch>) -> Self {
        if mismatches.is_empty() {
            Self::Passed
        } else {
            Self::Failed(mismatches)
        }
    }
}

impl From<Option<Mismatch>> for Outcome {
    fn from(mismatch: Option<Mismatch>) -> Self {
        mismatch.into_iter().collect::<Vec<_>>().into()
    }
}

/// All checks of one golden file on one backend.
#[derive(Clone, Debug)]
pub(crate) struct CheckReport {
    name: String,
    passed: usize,
    /// The failed cases, with their mismatches.
    failed: Vec<(String, Vec<Mismatch>)>,
    /// Number of skipped checks by kind.
    skipped: BTreeMap<String, usize>,
    /// The results that were compared, by the rule.
    rules: BTreeMap<String, BTreeSet<String>>,
}

impl CheckReport {
    /// An empty report for the file `name` on `backend`; files that need no backend have `slice`.
    pub(crate) fn new(name: &str, backend: &str) -> Self {
        Self {
            name: format!("{name}[{backend}]"),
            passed: 0,
            failed: Vec::new(),
            skipped: BTreeMap::new(),
            rules: BTreeMap::new(),
        }
    }

    /// Adds a check. `case` says which case it is.
    pub(crate) fn add(&mut self, case: impl fmt::Display, outcome: impl Into<Outcome>) {
        match outcome.into() {
            Outcome::Passed => self.passed += 1,
            Outcome::Failed(mismatches) => self.failed.push((case.to_string(), mismatches)),
            Outcome::Skipped(kind) => *self.skipped.entry(kind).or_default() += 1,
        }
    }

    /// Notes by which rule something is compared.
    pub(crate) fn note(&mut self, what: impl Into<String>, rule: String) {
        self.rules.entry(rule).or_default().insert(what.into());
    }

    pub(crate) fn passed(&self) -> usize {
        self.passed
    }

    pub(crate) fn failed(&self) -> usize {
        self.failed.len()
    }

    pub(crate) fn skipped(&self) -> usize {
        self.skipped.values().sum()
    }

    /// The report as JSON, with every failing case.
    pub(crate) fn json(&self) -> serde_json::Value {
        let failed = self.failed.iter().map(|(case, mismatches)| {
            let mismatches: Vec<String> = mismatches.iter().map(ToString::to_string).collect();
            serde_json::json!({ "case": case, "mismatches": mismatches })
        });
        serde_json::json!({
            "name": self.name,
            "passed": self.passed,
            "failed": failed.collect::<Vec<_>>(),
            "skipped": self.skipped,
        })
    }

    /// The report as text, with at most this number of failing cases.
    pub(crate) fn text(&self, max_failures: usize) -> String {
        let (passed, failed, skipped) = (self.passed(), self.failed(), self.skipped());
        let mut lines = vec![format!(
            "{}: {passed} passed, {failed} failed, {skipped} skipped",
            self.name
        )];
        for (case, mismatches) in self.failed.iter().take(max_failures) {
            lines.push(format!("  FAILED {case}"));
            lines.extend(mismatches.iter().map(|mismatch| format!("    {mismatch}")));
        }
        if failed > max_failures {
            lines.push(format!("  … and {} more", failed - max_failures));
        }
        for (kind, count) in &self.skipped {
            lines.push(format!("  skipped {count}: {kind}: not implemented"));
        }
        for (rule, compared) in &self.rules {
            let compared: Vec<&str> = compared.iter().map(String::as_str).collect();
            lines.push(format!("  {rule}: {}", compared.join(", ")));
        }
        if passed + failed == 0 {
            lines.push("  NOTHING WAS CHECKED".to_owned());
        }
        lines.join("\n")
    }
}
