//! The trait of all sets of vectors.

use crate::cover::Cover;
use crate::layout::BusLayout;

/// A rule near the one of a set, which differs from it in one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeighbouringRule {
    /// The field of the rule. Two neighbours with one field exclude each other.
    pub field: &'static str,
    /// The rule in words.
    pub name: String,
}

/// A set of test vectors: cases by number, and the rule that gives each case its outputs.
///
/// A case is a list of words, the fields of [`layout`](Self::layout) one after the other. A set has the same cases in every later
/// version of the same [`name`](Self::name).
pub trait VectorSet {
    /// The description that names the set: format, rule, options, seed, version.
    fn name(&self) -> String;

    /// The fields of a case.
    fn layout(&self) -> &BusLayout;

    /// How many cases there are.
    fn cases(&self) -> u64;

    /// Appends the input words of a case, which is less than [`cases`](Self::cases).
    fn inputs(&self, case: u64, words: &mut Vec<u64>);

    /// The first input word that a device cannot be given, in words.
    fn refuse(&self, inputs: &[u64]) -> Option<String>;

    /// The neighbouring rules.
    fn neighbours(&self) -> &[NeighbouringRule];

    /// Appends the output words for the input words, by the rule of the set with these neighbours, given by their positions.
    fn outputs(&self, inputs: &[u64], neighbours: &[usize], words: &mut Vec<u64>);

    /// Whether a device's outputs count as the expected ones: every NaN is the same.
    fn same(&self, expected: &[u64], got: &[u64]) -> bool;

    /// How large inputs are, to choose the smallest example.
    fn size(&self, inputs: &[u64]) -> u128;

    /// Inputs and outputs for people: the text of an example.
    fn example(&self, inputs: &[u64], expected: &[u64], got: &[u64]) -> String;

    /// Counts what a case hits.
    fn cover(&self, inputs: &[u64], outputs: &[u64], cover: &mut Cover);
}
