//! A format for every operand of every layer, found under a budget from what a recorder saw.

mod budget;
mod candidates;
mod groups;
mod map;
mod outputs;
mod places;
mod random;
mod sensitivity;

use burn_mx_core::{MxSpecs, Recipe, Slot, SpecsError};
use burn_mx_cost::{ChoiceError, CostError, choose};
use burn_mx_module::PathError;
use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use serde::Serialize;

use crate::report::Report;
pub use budget::Budget;
pub use outputs::output_sensitivities;
use places::Places;
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
    /// The budget.
    pub budget: Budget,
    /// The specs for all but the formats of the places.
    pub specs: MxSpecs,
    /// The weights of the places.
    pub score: Score,
    /// The slots of the places. Operands of other slots keep the format of the specs, and the budget does not count them. Empty:
    /// all slots. `[Slot::W]` is a search for a trained model, whose weights alone are quantized.
    pub slots: Vec<Slot>,
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
    /// The [unit](Budget::unit) of costs.
    pub unit: &'static str,
    /// The totals of the choices.
    pub total: Total,
    /// The totals of each candidate for every place.
    pub uniform: Vec<(String, Total)>,
}

/// The totals of a choice for every place.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Total {
    /// Mean bits of an element of an operand.
    pub bits: f64,
    /// The cost in the [unit](Budget::unit) of the budget.
    pub cost: f64,
    /// The sum of the scores.
    pub score: f64,
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
    /// No operand of a slot of [`Search::slots`] was recorded.
    #[error("no operand of the slot `{}` was recorded, expected one of {}", name(*slot), names(recorded))]
    NoSlot {
        /// The slot.
        slot: Slot,
        /// The slots that were recorded.
        recorded: Vec<Slot>,
    },
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
    /// A layer cannot be scored.
    #[error("`{layer}`: {reason}")]
    Layer {
        /// The layer.
        layer: String,
        /// The reason.
        reason: &'static str,
    },
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
    #[error("{unit} is {budget}, expected {least:.3} at least, which the cheapest candidates have")]
    Budget {
        /// The [unit](Budget::unit) of the budget.
        unit: &'static str,
        /// The budget.
        budget: f64,
        /// The cost of the cheapest candidates.
        least: f64,
    },
    /// The records lack the size of a product, which a budget of energy or time needs.
    #[error(
        "the size of a product of `{layer}` was not recorded: expected records of both operands, by a recorder of this version, or a budget of bits"
    )]
    NoSize {
        /// The layer.
        layer: String,
    },
    /// The chip of the budget has no unit for a format.
    #[error(transparent)]
    Cost(#[from] CostError),
}

impl Search {
    /// Searches by all recorded steps.
    ///
    /// # Errors
    ///
    /// See [`SearchError`].
    pub fn find(&self, report: &Report) -> Result<Found, SearchError> {
        self.find_by(report.sensitivities(self.score)?)
    }

    /// Searches by given scores, such as [`output_sensitivities`] computes. [`score`](Self::score) has no effect.
    ///
    /// # Errors
    ///
    /// See [`SearchError`].
    pub fn find_by(&self, places: Vec<Sensitivity>) -> Result<Found, SearchError> {
        let places = Places::of(self, places)?;
        let budget = self.budget.limit() * places.shares;
        let choice = choose(&places.sums, budget).map_err(|error| match error {
            ChoiceError::Budget { least, .. } => self.too_little(least / places.shares),
            // Noise that is not a number is its own format's fault.
            error => SearchError::Format {
                format: self.formats.join(", "),
                reason: error.to_string(),
            },
        })?;
        places.found(self, &choice.candidates)
    }

    /// A random recipe under the same budget and constraints, to compare a found recipe with. Every place begins with the
    /// cheapest candidate. Then a random place gets a random candidate of a higher cost that the budget still pays for, until
    /// the budget pays for none. The same seed gives the same recipe. The scores of the places
    /// ([`Report::sensitivities`]) are added up, and do not count in the choice.
    ///
    /// # Errors
    ///
    /// See [`SearchError`].
    pub fn random(&self, places: Vec<Sensitivity>, seed: u64) -> Result<Found, SearchError> {
        let places = Places::of(self, places)?;
        let choice = random::choose(&places.sums, self.budget.limit() * places.shares, seed);
        let choice = choice.map_err(|least| self.too_little(least / places.shares))?;
        places.found(self, &choice)
    }

    fn too_little(&self, least: f64) -> SearchError {
        SearchError::Budget {
            unit: self.budget.unit(),
            budget: self.budget.limit(),
            least,
        }
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
        let names = self.uniform.iter().map(|(name, _)| format!("{name}, dB"));
        let headings = ["layer", "product", "slot", "elements", "weight", "format"];
        let headings = headings.map(str::to_owned);
        table
            .load_preset(ASCII_MARKDOWN)
            .set_header(headings.into_iter().chain(names));
        for FoundPlace { place, format } in &self.places {
            let cells = [
                place.layer.clone(),
                place.product.to_string(),
                name(place.slot),
                format!("{:.0}", place.elements),
                format!("{:.3}", place.weight),
                format.clone(),
            ];
            let losses = self
                .uniform
                .iter()
                .map(|(name, _)| match place.noise[name] {
                    0.0 => "exact".to_owned(),
                    noise => format!("{:.1}", -10.0 * noise.log10()),
                });
            table.add_row(cells.into_iter().chain(losses));
        }
        for column in table.column_iter_mut().skip(3) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let found = ("found".to_owned(), self.total);
        let totals = std::iter::once(&found).chain(&self.uniform);
        let totals = totals.map(|(name, total)| format!("{name}: {}", total.text(self.unit)));
        let totals: Vec<String> = totals.collect();
        format!("{table}\n\n{}", totals.join("\n"))
    }
}

impl Total {
    /// The totals in a line, with the cost in the [unit](Budget::unit) of the budget.
    pub fn text(&self, unit: &str) -> String {
        let Self { bits, cost, score } = self;
        let cost = match unit {
            "bits" => String::new(),
            _ => format!(" {cost:.4} {unit},"),
        };
        format!("{bits:.3} bits,{cost} score {score:.3e}")
    }
}

/// The name of a slot in tables, as in JSON.
fn name(slot: Slot) -> String {
    slot.field().replace("_elem_format", "")
}

fn names(slots: &[Slot]) -> String {
    let names = slots.iter().map(|slot| format!("`{}`", name(*slot)));
    names.collect::<Vec<_>>().join(", ")
}
