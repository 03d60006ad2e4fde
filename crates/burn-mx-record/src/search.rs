//! A format for every operand of every layer, found under a budget from what a recorder saw.

mod candidates;
mod groups;
mod map;
mod sensitivity;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use burn_mx_core::{MxSpecs, Recipe, SlotFormat, SpecsError};
use burn_mx_cost::{Candidate, ChoiceError, choose};
use burn_mx_module::{PathError, Pattern};
use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use serde::Serialize;

use crate::file::figures::StepRecord;
use crate::report::Report;
use candidates::CandidateFormat;
pub use sensitivity::{Score, Sensitivity};

/// A search for a [`Recipe`].
///
/// A place is an operand of a product of a layer: the weight of a forward product, the output gradient of a weight gradient. The
/// recorder measured what each place would lose in each candidate format
/// ([`RecorderConfig::what_if`](super::RecorderConfig::what_if)). The score of a candidate is the noise over the signal of the
/// operand times the [weight](Score) of the place, the mean over the recorded steps. The search takes one candidate for each
/// place, so that the sum of the scores is the least under the budget; the choice is exact.
///
/// The scores are a model, and they add up. Train with the recipe, and see.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// The candidates by the names that the recorder's `what_if` has: block formats, or presets that differ from the specs in
    /// formats alone. `nvfp4` is the preset, which scales each tensor.
    pub formats: Vec<String>,
    /// The budget: mean bits of an element of an operand, over all places.
    pub bits: f64,
    /// The specs for all but the formats of the places.
    pub specs: MxSpecs,
    /// The weights of the places.
    pub score: Score,
    /// Layers that the recipe leaves unchanged: paths, prefixes of paths, or globs. The budget does not count them.
    pub keep: Vec<String>,
    /// Pairs of formats that the hardware multiplies, in either order. Empty: it multiplies any two.
    pub pairs: Vec<[String; 2]>,
    /// Whether a tensor has one format in both of its products. A weight and an input have a forward and a gradient product, an
    /// output gradient has two gradient products.
    pub shared: bool,
}

/// A recipe, and the reason for each of its choices.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Found {
    /// The recipe.
    pub recipe: Recipe,
    /// The choices, in the order of the places' first products.
    pub places: Vec<FoundPlace>,
    /// Mean bits of an element of an operand.
    pub bits: f64,
    /// The sum of the scores.
    pub score: f64,
    /// Each candidate for every place: mean bits, and the sum of the scores.
    pub uniform: Vec<(String, f64, f64)>,
}

/// A choice.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FoundPlace {
    /// The place, with the noise of each candidate.
    #[serde(flatten)]
    pub place: Sensitivity,
    /// The chosen candidate.
    pub format: String,
}

/// The reasons for which a search fails.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// A candidate does not name a format.
    #[error("format `{format}`: {reason}")]
    Format {
        /// The candidate.
        format: String,
        /// The reason.
        reason: String,
    },
    /// The records do not have what a candidate would lose.
    #[error("format `{format}` was not recorded for `{layer}`, expected one of {}; see `RecorderConfig::what_if`", recorded.join(", "))]
    NotRecorded {
        /// The candidate.
        format: String,
        /// The first layer without it.
        layer: String,
        /// The formats that were recorded.
        recorded: Vec<String>,
    },
    /// No product of a layer with a named weight was recorded.
    #[error(
        "no layer with a weight was recorded: label the parameters of the model (`label_parameters`)"
    )]
    Empty,
    /// The records lack what [`Score::Fisher`] weighs a place by.
    #[error(
        "`{layer}` has no record of the {missing}: expected training steps with all products and the statistic `result`, or \
         the score `noise`"
    )]
    NoWeight {
        /// The layer.
        layer: String,
        /// The product whose result, or the operand that was not recorded.
        missing: &'static str,
    },
    /// The specs do not resolve.
    #[error(transparent)]
    Specs(#[from] SpecsError),
    /// A pattern of [`Search::keep`] is not valid.
    #[error("keep: {0}")]
    Keep(#[from] PathError),
    /// A format of [`Search::pairs`] is not a candidate.
    #[error("the pair `{}`, `{}`: expected two of the candidates", pair[0], pair[1])]
    NoCandidate {
        /// The pair.
        pair: [String; 2],
    },
    /// The pairs of formats leave a layer without a choice.
    #[error("the pairs of formats leave `{layer}` without a choice")]
    Pairs {
        /// The layer.
        layer: String,
    },
    /// No choice is within the budget.
    #[error("bits is {bits}, expected {least:.3} at least, which the cheapest candidates have")]
    Budget {
        /// The mean bits that were asked for.
        bits: f64,
        /// The mean bits of the cheapest candidates.
        least: f64,
    },
}

impl Search {
    /// Searches by all recorded steps.
    ///
    /// # Errors
    ///
    /// See [`SearchError`].
    pub fn find(&self, report: &Report) -> Result<Found, SearchError> {
        self.find_in(report.steps())
    }

    fn find_in<'a>(
        &self,
        steps: impl Iterator<Item = &'a StepRecord>,
    ) -> Result<Found, SearchError> {
        let formats = self.formats.iter();
        let formats = formats.map(|format| CandidateFormat::new(format, &self.specs));
        let formats: Vec<CandidateFormat> = formats.collect::<Result<_, SearchError>>()?;
        let is_known =
            |pair: &&[String; 2]| pair.iter().all(|format| self.formats.contains(format));
        if let Some(pair) = self.pairs.iter().find(|pair| !is_known(pair)) {
            let pair = pair.clone();
            return Err(SearchError::NoCandidate { pair });
        }
        let keep = self.keep.iter().map(|pattern| Pattern::new(pattern));
        let keep: Vec<Pattern> = keep.collect::<Result<_, PathError>>()?;
        let mut places = sensitivity::of_steps(steps, self.score)?;
        places.retain(|place| !keep.iter().any(|pattern| pattern.matches(&place.layer)));
        let all: f64 = places.iter().map(|place| place.elements).sum();
        if all == 0.0 {
            return Err(SearchError::Empty);
        }
        let mut candidates = Vec::new();
        for place in &places {
            let of_place = self.formats.iter().zip(&formats).map(|(name, format)| {
                let score = place.score(name).ok_or_else(|| SearchError::NotRecorded {
                    format: name.clone(),
                    layer: place.layer.clone(),
                    recorded: place.noise.keys().cloned().collect(),
                })?;
                Ok(Candidate {
                    score,
                    cost: format.of(place.slot).bits_per_element() * place.elements,
                })
            });
            candidates.push(of_place.collect::<Result<Vec<_>, SearchError>>()?);
        }
        let groups = groups::groups(self, &places)?;
        let sums = groups.iter().map(|group| {
            let sum = |choice: &Vec<usize>| {
                let formats = group.places.iter().zip(choice);
                let formats = formats.map(|(place, format)| candidates[*place][*format]);
                formats.fold(Candidate::default(), |sum, one| Candidate {
                    score: sum.score + one.score,
                    cost: sum.cost + one.cost,
                })
            };
            group.choices.iter().map(sum).collect::<Vec<_>>()
        });
        let sums: Vec<Vec<Candidate>> = sums.collect();
        let choice = choose(&sums, self.bits * all).map_err(|error| match error {
            ChoiceError::Budget { least, .. } => SearchError::Budget {
                bits: self.bits,
                least: least / all,
            },
            // Noise that is no number has no format to blame but itself.
            error => SearchError::Format {
                format: self.formats.join(", "),
                reason: error.to_string(),
            },
        })?;
        let in_blocks = candidates::in_blocks(&self.specs)?;
        let mut layers: BTreeMap<String, MxSpecs> = BTreeMap::new();
        let mut chosen = Vec::new();
        let mut formats_of_places = vec![0; places.len()];
        for (group, at) in groups.iter().zip(&choice.candidates) {
            for (place, format) in group.places.iter().zip(&group.choices[*at]) {
                formats_of_places[*place] = *format;
            }
        }
        for (place, at) in places.into_iter().zip(&formats_of_places) {
            let specs = layers.entry(place.layer.clone());
            let specs = specs.or_insert_with(|| in_blocks.clone());
            *specs.slot_format_mut(place.slot) =
                Some(SlotFormat::Block(formats[*at].of(place.slot)));
            chosen.push(FoundPlace {
                place,
                format: self.formats[*at].clone(),
            });
        }
        let uniform = self.formats.iter().enumerate();
        let uniform = uniform.map(|(at, name)| {
            let of_places = || candidates.iter().map(|place| place[at]);
            let bits = of_places().map(|one| one.cost).sum::<f64>() / all;
            (name.clone(), bits, of_places().map(|one| one.score).sum())
        });
        Ok(Found {
            uniform: uniform.collect(),
            recipe: Recipe {
                specs: self.specs.clone(),
                layers,
                ..Recipe::default()
            },
            places: chosen,
            bits: choice.cost / all,
            score: choice.score,
        })
    }
}

impl Report {
    /// Every operand of a layer with a weight, with its noise in each of the recorded formats
    /// ([`RecorderConfig::what_if`](super::RecorderConfig::what_if)), the means over all recorded steps.
    ///
    /// # Errors
    ///
    /// If the records lack what the score weighs an operand by.
    pub fn sensitivities(&self, score: Score) -> Result<Vec<Sensitivity>, SearchError> {
        sensitivity::of_steps(self.steps(), score)
    }
}

impl Found {
    /// The choices as a table, each with what the candidates lose there, and the uniform choices.
    pub fn table(&self) -> String {
        let mut table = Table::new();
        let names = self.uniform.iter().map(|(name, ..)| format!("{name}, dB"));
        let headings = ["layer", "product", "slot", "elements", "weight", "format"];
        let headings = headings.map(str::to_owned);
        table
            .load_preset(ASCII_MARKDOWN)
            .set_header(headings.into_iter().chain(names));
        for FoundPlace { place, format } in &self.places {
            let cells = [
                place.layer.clone(),
                place.product.to_string(),
                place.slot.field().replace("_elem_format", ""),
                format!("{:.0}", place.elements),
                format!("{:.3}", place.weight),
                format.clone(),
            ];
            let losses = self
                .uniform
                .iter()
                .map(|(name, ..)| match place.noise[name] {
                    0.0 => "exact".to_owned(),
                    noise => format!("{:.1}", -10.0 * noise.log10()),
                });
            table.add_row(cells.into_iter().chain(losses));
        }
        for column in table.column_iter_mut().skip(3) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut text = format!(
            "{table}\n\nfound: {:.3} bits, score {:.5}",
            self.bits, self.score
        );
        for (name, bits, score) in &self.uniform {
            text += &format!("\n{name}: {bits:.3} bits, score {score:.5}");
        }
        text
    }
}
