//! The set of matrix tiles: m × n dot products of m rows with n columns.

use super::set::DotSet;
use crate::VERSION;
use crate::cover::Cover;
use crate::error::VectorsError;
use crate::layout::{BusField, BusLayout, Direction};
use crate::set::{NeighbouringRule, VectorSet};
use std::fmt;
use std::str::FromStr;

/// Rows and columns of a tile's result. As text `4x8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TileShape {
    /// Rows of the left operand and of the result.
    pub rows: usize,
    /// Columns of the right operand and of the result.
    pub columns: usize,
}

/// Most rows, or columns.
const MOST: usize = 64;

impl FromStr for TileShape {
    type Err = VectorsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let sides = text.split_once('x');
        let sides = sides.and_then(|(m, n)| m.parse().ok().zip(n.parse().ok()));
        let is_allowed = |(m, n): &(usize, usize)| (1..=MOST).contains(m) && (1..=MOST).contains(n);
        let sides = sides.filter(is_allowed);
        let error = || {
            let allowed = format!("rows and columns, 1 to {MOST} each, such as 4x8");
            VectorsError::option("tile", text, allowed)
        };
        sides
            .map(|(rows, columns)| Self { rows, columns })
            .ok_or_else(error)
    }
}

impl fmt::Display for TileShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.rows, self.columns)
    }
}

/// Tiles of matrix products under an accumulator: the dot products of some rows with some columns.
///
/// A case has the fields of a [`DotSet`]'s case, each as often as the tile has rows (`a`, `a_scale`), columns (`b`, `b_scale`) or numbers (`c`,
/// `sum`, row by row). Consecutive dot products give the rows and columns, and lie on the diagonal of the tile.
#[derive(Debug, Clone)]
pub struct TileSet {
    dot: DotSet,
    shape: TileShape,
    layout: BusLayout,
}

impl TileSet {
    /// Tiles of the dot products of a set.
    pub fn new(dot: DotSet, shape: TileShape) -> Self {
        let fields = dot.layout().fields().iter().map(|field| BusField {
            length: Self::copies(field.name, shape) * field.words(),
            ..field.clone()
        });
        let layout = BusLayout::new(fields.collect());
        Self { dot, shape, layout }
    }

    /// How often a tile has a field of a dot product.
    fn copies(name: &str, shape: TileShape) -> usize {
        match name {
            "a" | "a_scale" => shape.rows,
            "b" | "b_scale" => shape.columns,
            _ => shape.rows * shape.columns,
        }
    }

    /// The input fields of a dot product: name, and words.
    fn fields(&self) -> Vec<(&'static str, usize)> {
        let inputs = self.dot.layout().of(Direction::Input);
        let fields = inputs.fields().iter();
        fields.map(|field| (field.name, field.words())).collect()
    }

    /// The dot products on a tile's diagonal.
    fn on_diagonal(&self) -> u64 {
        self.shape.rows.min(self.shape.columns) as u64
    }

    /// The inputs of the dot product in a row and a column.
    fn one(&self, inputs: &[u64], row: usize, column: usize) -> Vec<u64> {
        let mut words = Vec::new();
        let mut rest = inputs;
        for (name, count) in self.fields() {
            let (own, tail) = rest.split_at(count * Self::copies(name, self.shape));
            let at = match name {
                "a" | "a_scale" => row,
                "b" | "b_scale" => column,
                _ => row * self.shape.columns + column,
            };
            words.extend_from_slice(&own[at * count..][..count]);
            rest = tail;
        }
        words
    }

    /// All dot products of a tile, row by row.
    fn each<'a>(&'a self, inputs: &'a [u64]) -> impl Iterator<Item = Vec<u64>> + 'a {
        let columns = self.shape.columns;
        let all = 0..self.shape.rows * columns;
        all.map(move |at| self.one(inputs, at / columns, at % columns))
    }

    /// The first dot product whose sum differs: its place, and its inputs.
    fn first(&self, inputs: &[u64], [expected, got]: [&[u64]; 2]) -> (usize, Vec<u64>) {
        let same = |at: usize| self.dot.same(&expected[at..=at], &got[at..=at]);
        let at = (0..expected.len()).find(|at| !same(*at)).unwrap_or(0);
        let columns = self.shape.columns;
        (at, self.one(inputs, at / columns, at % columns))
    }
}

impl VectorSet for TileSet {
    fn name(&self) -> String {
        let dot = self.dot.name();
        let dot = dot.trim_start_matches("dot ");
        let end = format!(" version={VERSION}");
        let dot = dot.trim_end_matches(&end);
        format!(
            "tile shape={} tiles={} of {dot}{end}",
            self.shape,
            self.cases()
        )
    }

    fn layout(&self) -> &BusLayout {
        &self.layout
    }

    fn cases(&self) -> u64 {
        self.dot.cases().div_ceil(self.on_diagonal())
    }

    fn inputs(&self, case: u64, words: &mut Vec<u64>) {
        let first = case * self.on_diagonal();
        let dots: Vec<Vec<u64>> = (0..self.shape.rows.max(self.shape.columns) as u64)
            .map(|i| {
                let mut inputs = Vec::new();
                self.dot.inputs((first + i) % self.dot.cases(), &mut inputs);
                inputs
            })
            .collect();
        let mut start = 0;
        for (name, count) in self.fields() {
            for copy in 0..Self::copies(name, self.shape) {
                let from = match name {
                    "c" => copy / self.shape.columns,
                    _ => copy,
                };
                words.extend_from_slice(&dots[from][start..][..count]);
            }
            start += count;
        }
    }

    fn refuse(&self, inputs: &[u64]) -> Option<String> {
        self.each(inputs).find_map(|one| self.dot.refuse(&one))
    }

    fn neighbours(&self) -> &[NeighbouringRule] {
        self.dot.neighbours()
    }

    fn outputs(&self, inputs: &[u64], neighbours: &[usize], words: &mut Vec<u64>) {
        for one in self.each(inputs) {
            self.dot.outputs(&one, neighbours, words);
        }
    }

    fn same(&self, expected: &[u64], got: &[u64]) -> bool {
        (0..expected.len()).all(|at| self.dot.same(&expected[at..=at], &got[at..=at]))
    }

    fn size(&self, inputs: &[u64]) -> u128 {
        self.each(inputs).map(|one| self.dot.size(&one)).sum()
    }

    fn example(&self, inputs: &[u64], expected: &[u64], got: &[u64]) -> String {
        let (at, one) = self.first(inputs, [expected, got]);
        let text = self.dot.example(&one, &expected[at..=at], &got[at..=at]);
        let columns = self.shape.columns;
        format!("row {}, column {}: {text}", at / columns, at % columns)
    }

    fn cover(&self, inputs: &[u64], outputs: &[u64], cover: &mut Cover) {
        for (one, sum) in self.each(inputs).zip(outputs) {
            self.dot.cover(&one, &[*sum], cover);
        }
    }
}
