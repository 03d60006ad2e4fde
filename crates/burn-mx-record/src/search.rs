//! A format for every operand of every layer, found under a budget from what a recorder saw.

use std::collections::{BTreeMap, BTreeSet};

use burn_mx_core::{MxSpecs, Recipe, Slot, SlotFormat};
use burn_mx_cost::{Candidate, ChoiceError, choose};
use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use microscaling::BlockFormat;

use super::{Figures, ProductKind, Report, StepRecord};

/// A search for a [`Recipe`].
///
/// A place is an operand of a product of a layer: the weight of a forward product, the output gradient of a weight gradient. The
/// recorder measured what each place would lose in each candidate format
/// ([`RecorderConfig::what_if`](super::RecorderConfig::what_if)). The score of a candidate is the noise over the signal of the
/// operand, the mean over the recorded steps. The search takes one candidate for each place, so that the sum of the scores is
/// the least under the budget; the choice is exact.
///
/// The scores are a model: they add up, and every place counts the same. Train with the recipe, and see.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// The candidates, block formats by the names that the recorder's `what_if` has.
    pub formats: Vec<String>,
    /// The budget: mean bits of an element of an operand, over all places.
    pub bits: f64,
    /// The specs for all but the formats of the places.
    pub specs: MxSpecs,
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
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FoundPlace {
    /// The layer's name.
    pub layer: String,
    /// The layer's product.
    pub product: ProductKind,
    /// The slot of the operand's format.
    pub slot: Slot,
    /// Elements of the operand, the mean over the steps.
    pub elements: f64,
    /// The chosen candidate.
    pub format: String,
    /// Noise over signal by candidate.
    pub noise: BTreeMap<String, f64>,
}

/// The reasons for which a search fails.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// A candidate does not name a block format.
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
    /// No choice is within the budget.
    #[error("bits is {bits}, expected {least:.3} at least, which the cheapest candidates have")]
    Budget {
        /// The mean bits that were asked for.
        bits: f64,
        /// The mean bits of the cheapest candidates.
        least: f64,
    },
}

/// A place in the records.
struct Recorded {
    layer: String,
    product: ProductKind,
    slot: Slot,
    elements: f64,
    steps: f64,
    /// The sums over the steps.
    noise: BTreeMap<String, f64>,
}

impl Search {
    /// Searches by all recorded steps.
    ///
    /// # Errors
    ///
    /// See [`SearchError`].
    pub fn find(&self, report: &Report) -> Result<Found, SearchError> {
        let steps: Vec<&StepRecord> = report.steps().collect();
        self.find_in(steps.iter().copied())
    }

    fn find_in<'a>(
        &self,
        steps: impl Iterator<Item = &'a StepRecord> + Clone,
    ) -> Result<Found, SearchError> {
        let bits = self.formats.iter().map(|format| {
            let parsed = format.parse::<BlockFormat>();
            let parsed = parsed.map_err(|error| SearchError::Format {
                format: format.clone(),
                reason: error.to_string(),
            })?;
            Ok((parsed, parsed.bits_per_element()))
        });
        let formats: Vec<(BlockFormat, f64)> = bits.collect::<Result<_, SearchError>>()?;
        let places = recorded(steps);
        let all: f64 = places.iter().map(|place| place.elements).sum();
        if all == 0.0 {
            return Err(SearchError::Empty);
        }
        let mut candidates = Vec::new();
        for place in &places {
            let of_place = self.formats.iter().zip(&formats).map(|(name, (_, bits))| {
                let noise = place
                    .noise
                    .get(name)
                    .ok_or_else(|| SearchError::NotRecorded {
                        format: name.clone(),
                        layer: place.layer.clone(),
                        recorded: place.noise.keys().cloned().collect(),
                    })?;
                Ok(Candidate {
                    score: noise / place.steps,
                    cost: bits * place.elements,
                })
            });
            candidates.push(of_place.collect::<Result<Vec<_>, SearchError>>()?);
        }
        let choice = choose(&candidates, self.bits * all).map_err(|error| match error {
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
        let mut layers: BTreeMap<String, MxSpecs> = BTreeMap::new();
        let mut chosen = Vec::new();
        for (place, at) in places.into_iter().zip(&choice.candidates) {
            let specs = layers.entry(place.layer.clone());
            let specs = specs.or_insert_with(|| self.specs.clone());
            *field(specs, place.slot) = Some(SlotFormat::Block(formats[*at].0));
            let mean = |(name, noise): (String, f64)| (name, noise / place.steps);
            chosen.push(FoundPlace {
                format: self.formats[*at].clone(),
                noise: place.noise.into_iter().map(mean).collect(),
                layer: place.layer,
                product: place.product,
                slot: place.slot,
                elements: place.elements,
            });
        }
        let uniform = self.formats.iter().zip(&formats).enumerate();
        let uniform = uniform.map(|(at, (name, (_, bits)))| {
            let score = candidates.iter().map(|place| place[at].score).sum();
            (name.clone(), *bits, score)
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

/// The places of layers with weights, with the noise of each candidate.
fn recorded<'a>(steps: impl Iterator<Item = &'a StepRecord> + Clone) -> Vec<Recorded> {
    let products = || steps.clone().flat_map(|step| &step.products);
    let is_weight = |slot| matches!(slot, Slot::W | Slot::WBp);
    let with_weight = products().filter(|product| {
        let mut operands = product.operands.iter();
        operands.any(|operand| is_weight(operand.slot))
    });
    let layers: BTreeSet<&str> = with_weight.map(|product| product.layer.as_str()).collect();
    let mut places: Vec<Recorded> = Vec::new();
    for product in products().filter(|product| layers.contains(product.layer.as_str())) {
        for operand in &product.operands {
            let same = |place: &Recorded| {
                (place.layer.as_str(), place.product, place.slot)
                    == (product.layer.as_str(), product.product, operand.slot)
            };
            let at = places.iter().position(same).unwrap_or_else(|| {
                places.push(Recorded {
                    layer: product.layer.clone(),
                    product: product.product,
                    slot: operand.slot,
                    elements: 0.0,
                    steps: 0.0,
                    noise: BTreeMap::new(),
                });
                places.len() - 1
            });
            let place = &mut places[at];
            place.steps += 1.0;
            let weight = 1.0 / place.steps;
            place.elements += weight * (operand.figures.elements as f64 - place.elements);
            for (name, figures) in &operand.what_if {
                *place.noise.entry(name.clone()).or_default() += noise(figures);
            }
        }
    }
    places
}

/// Noise over signal; 0 of an operand of zeros, as of one without an error.
fn noise(figures: &Figures) -> f64 {
    figures.sqnr.map_or(0.0, |sqnr| 10.0_f64.powf(-sqnr / 10.0))
}

fn field(specs: &mut MxSpecs, slot: Slot) -> &mut Option<SlotFormat> {
    match slot {
        Slot::W => &mut specs.w_elem_format,
        Slot::A => &mut specs.a_elem_format,
        Slot::WBp => &mut specs.w_elem_format_bp,
        Slot::ABp => &mut specs.a_elem_format_bp,
        Slot::ABpEx => &mut specs.a_elem_format_bp_ex,
        Slot::ABpOs => &mut specs.a_elem_format_bp_os,
    }
}

impl Found {
    /// The choices as a table, each with what the candidates lose there, and the uniform choices.
    pub fn table(&self) -> String {
        let mut table = Table::new();
        let names = self.uniform.iter().map(|(name, ..)| format!("{name}, dB"));
        let headings = ["layer", "product", "slot", "elements", "format"].map(str::to_owned);
        table
            .load_preset(ASCII_MARKDOWN)
            .set_header(headings.into_iter().chain(names));
        for place in &self.places {
            let cells = [
                place.layer.clone(),
                place.product.to_string(),
                place.slot.field().replace("_elem_format", ""),
                format!("{:.0}", place.elements),
                place.format.clone(),
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
            "{table}\n\nfound: {:.3} bits, noise {:.5}",
            self.bits, self.score
        );
        for (name, bits, score) in &self.uniform {
            text += &format!("\n{name}: {bits:.3} bits, noise {score:.5}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A step of a layer with a forward product, and of attention without a weight. The weight is noisy, the input is not.
    fn step(number: u64, sqnr: f64) -> StepRecord {
        let operand = |slot: &str, elements, [narrow, wide]: [f64; 2]| {
            json!({
                "slot": slot, "operand": "", "format": null, "elements": elements, "blocks": 1,
                "what_if": {
                    "mxfp4": {"elements": elements, "blocks": 1, "sqnr": narrow},
                    "mxfp8_e4m3": {"elements": elements, "blocks": 1, "sqnr": wide},
                },
            })
        };
        let product = |layer: &str, op: &str, operands: Vec<serde_json::Value>| {
            json!({
                "layer": layer, "op": op, "product": "forward", "uses": 1, "specs": "", "operands": operands,
            })
        };
        let step = json!({
            "run": "", "thread": 0, "step": number,
            "products": [
                product("up.weight", "linear", vec![
                    operand("a", 64, [30.0, 40.0]),
                    operand("w", 64, [sqnr, 25.0]),
                ]),
                product("matmul", "matmul", vec![operand("a", 640, [1.0, 2.0])]),
            ],
        });
        serde_json::from_value(step).unwrap()
    }

    fn search(bits: f64) -> Search {
        Search {
            formats: vec!["mxfp4".into(), "mxfp8_e4m3".into()],
            bits,
            specs: MxSpecs::default(),
        }
    }

    #[test]
    fn the_noisier_operand_gets_the_wider_format() {
        let steps = [step(0, 10.0), step(20, 20.0)];
        let found = search(6.25).find_in(steps.iter()).unwrap();
        let formats: Vec<_> = found
            .places
            .iter()
            .map(|place| place.format.as_str())
            .collect();
        assert_eq!(formats, ["mxfp4", "mxfp8_e4m3"]);
        assert_eq!(found.bits, 6.25);
        assert!((found.score - (1e-3 + 10.0_f64.powf(-2.5))).abs() < 1e-12);
        // The mean of the noise of both steps.
        assert!((found.places[1].noise["mxfp4"] - 0.055).abs() < 1e-12);
        let specs = &found.recipe.layers["up.weight"];
        assert_eq!(found.recipe.layers.len(), 1);
        assert_eq!(specs.w_elem_format.unwrap().to_string(), "mxfp8_e4m3");
        assert_eq!(specs.a_elem_format.unwrap().to_string(), "mxfp4");
        assert_eq!(specs.a_elem_format_bp_os, None);
        assert!(
            found.table().contains("found: 6.250 bits"),
            "{}",
            found.table()
        );
        let text = serde_json::to_string(&found.recipe).unwrap();
        assert_eq!(serde_json::from_str::<Recipe>(&text).unwrap(), found.recipe);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let steps = [step(0, 10.0)];
        let error = |search: Search| search.find_in(steps.iter()).unwrap_err().to_string();
        assert!(error(search(4.0)).contains("bits is 4, expected 4.250 at least"));
        let with = |format: &str| Search {
            formats: vec![format.into()],
            ..search(9.0)
        };
        assert!(error(with("nvfp4")).contains("`nvfp4` was not recorded for `up.weight`"));
        assert!(error(with("mxfp5")).contains("mxfp5"));
        assert_eq!(search(9.0).find_in([].iter()), Err(SearchError::Empty));
    }
}
