//! A ranking of columns, as text.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The columns of a layer in another order, the hottest first. The text form is their indices with spaces between: `2 0 1`.
/// In serde's formats the ranking is the list of indices.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u32>", into = "Vec<u32>")]
pub struct ColumnRanking(Arc<[u32]>);

/// The error for a list that is not a [`ColumnRanking`].
#[derive(Clone, PartialEq, Eq, Error)]
#[error(
    "`{found}` of {columns} columns; allowed: every index from 0 to {columns} − 1 once, with spaces between"
)]
pub struct ParseColumnRankingError {
    found: String,
    columns: usize,
}

microscaling::debug_is_display!(ParseColumnRankingError);

impl ColumnRanking {
    /// This order.
    ///
    /// # Errors
    /// An index that is missing or too large, or a list without indices.
    pub fn new(order: &[u32]) -> Result<Self, ParseColumnRankingError> {
        let error = |found| ParseColumnRankingError {
            found,
            columns: order.len(),
        };
        if order.is_empty() {
            return Err(error("no index".into()));
        }
        let mut is_there = vec![false; order.len()];
        for index in order {
            match is_there.get_mut(*index as usize) {
                Some(there) if !*there => *there = true,
                _ => return Err(error(index.to_string())),
            }
        }
        Ok(Self(order.into()))
    }

    /// The order by scores, the highest first. Equal scores and scores that are NaN stay in the order of their indices; NaN counts as
    /// higher than any number.
    ///
    /// # Errors
    /// No scores.
    pub fn of_scores(scores: &[f32]) -> Result<Self, ParseColumnRankingError> {
        let number = |score: f32| if score.is_nan() { f32::INFINITY } else { score };
        let mut order: Vec<u32> = (0..scores.len() as u32).collect();
        let score = |index: u32| number(scores[index as usize]);
        order.sort_by(|a, b| score(*b).total_cmp(&score(*a)));
        Self::new(&order)
    }

    /// The indices, the hottest first.
    pub fn order(&self) -> &[u32] {
        &self.0
    }
}

impl FromStr for ColumnRanking {
    type Err = ParseColumnRankingError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words = text.split_whitespace();
        let columns = words.clone().count();
        let index = |word: &str| {
            word.parse().map_err(|_| ParseColumnRankingError {
                found: word.into(),
                columns,
            })
        };
        Self::new(&words.map(index).collect::<Result<Vec<_>, _>>()?)
    }
}

impl TryFrom<Vec<u32>> for ColumnRanking {
    type Error = ParseColumnRankingError;

    fn try_from(order: Vec<u32>) -> Result<Self, Self::Error> {
        Self::new(&order)
    }
}

impl From<ColumnRanking> for Vec<u32> {
    fn from(ranking: ColumnRanking) -> Self {
        ranking.0.to_vec()
    }
}

impl Display for ColumnRanking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(u32::to_string).collect();
        f.write_str(&words.join(" "))
    }
}
