//! The places of a search, what each choice costs there, and the recipe of a choice.

use std::collections::BTreeMap;

use burn_mx_core::{MxSpecs, PointFormat, Recipe, Slot, SlotFormat};
use burn_mx_cost::{Candidate, Product};
use burn_mx_module::{PathError, Pattern};
use microscaling::{BlockFormat, FloatFormat};
use microscaling_product::Accumulation;

use super::candidates::{self, CandidateFormat};
use super::groups::{self, Group};
use super::{Found, FoundPlace, Search, SearchError, Sensitivity, Total};
use crate::products::Formats;

/// The places, with the candidates for them.
pub(super) struct Places {
    places: Vec<Sensitivity>,
    formats: Vec<CandidateFormat>,
    /// By place and format; the cost is in bits.
    candidates: Vec<Vec<Candidate>>,
    /// The products of the places, if the budget is of products.
    products: Vec<OfProduct>,
    /// The format of operands without blocks.
    elementwise: Option<FloatFormat>,
    groups: Vec<Group>,
    /// The sums over a group's places, by group and choice.
    pub(super) sums: Vec<Vec<Candidate>>,
    /// Elements of the operands of all places.
    elements: f64,
    /// The sum of all costs is at most the budget times this number.
    pub(super) shares: f64,
}

/// A product with a place.
struct OfProduct {
    layer: String,
    accumulation: Option<Accumulation>,
    macs: f64,
    result_elements: f64,
    operands: Vec<OfOperand>,
}

struct OfOperand {
    /// The number of its place; `None` if the search leaves its format alone.
    place: Option<usize>,
    /// The format without a place.
    format: Option<BlockFormat>,
    elements: f64,
}

impl Places {
    pub(super) fn of(search: &Search, mut places: Vec<Sensitivity>) -> Result<Self, SearchError> {
        let formats = search.formats.iter();
        let formats = formats.map(|format| CandidateFormat::new(format, &search.specs));
        let formats: Vec<CandidateFormat> = formats.collect::<Result<_, SearchError>>()?;
        let is_known =
            |pair: &&[String; 2]| pair.iter().all(|format| search.formats.contains(format));
        if let Some(pair) = search.pairs.iter().find(|pair| !is_known(pair)) {
            let pair = pair.clone();
            return Err(SearchError::NoCandidate { pair });
        }
        let all = places.clone();
        retain(search, &mut places)?;
        let elements: f64 = places.iter().map(|place| place.elements).sum();
        if elements == 0.0 {
            return Err(SearchError::Empty);
        }
        let mut candidates = Vec::new();
        for place in &places {
            let of_place = search.formats.iter().zip(&formats).map(|(name, format)| {
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
        let products = match search.budget.is_of_operands() {
            true => Vec::new(),
            false => products(search, &all, &places)?,
        };
        let macs = products.iter().map(|product| product.macs).sum();
        let mut all = Self {
            sums: Vec::new(),
            groups: groups::groups(search, &places)?,
            places,
            formats,
            candidates,
            products,
            elementwise: search.specs.resolve()?.float_format(),
            elements,
            shares: search.budget.shares(elements, macs),
        };
        let sums = all.groups.iter().map(|group| {
            let sums = group.choices.iter().map(|choice| {
                let choice = group.places.iter().copied().zip(choice.iter().copied());
                all.sum(search, &choice.collect())
            });
            sums.collect()
        });
        all.sums = sums.collect::<Result<_, SearchError>>()?;
        Ok(all)
    }

    /// The sums over some places in these formats, in the unit of the budget.
    fn sum(
        &self,
        search: &Search,
        choice: &BTreeMap<usize, usize>,
    ) -> Result<Candidate, SearchError> {
        let mut sum = Candidate::default();
        for (place, format) in choice {
            let one = self.candidates[*place][*format];
            sum.score += one.score;
            sum.cost += one.cost;
        }
        if search.budget.is_of_operands() {
            return Ok(sum);
        }
        sum.cost = 0.0;
        let has_place =
            |operand: &OfOperand| operand.place.is_some_and(|at| choice.contains_key(&at));
        for product in self
            .products
            .iter()
            .filter(|product| product.operands.iter().any(has_place))
        {
            let product = self.cost_product(product, choice);
            sum.cost += search.budget.cost(&product)?;
        }
        Ok(sum)
    }

    fn cost_product(&self, product: &OfProduct, choice: &BTreeMap<usize, usize>) -> Product {
        let format = |operand: &OfOperand| match operand.place {
            Some(place) => {
                let format = &self.formats[choice[&place]];
                Some(format.of(self.places[place].slot))
            }
            None => operand.format,
        };
        let [lhs, rhs] = [&product.operands[0], &product.operands[1]];
        let formats = Formats {
            points: [format(lhs), format(rhs)].map(|format| format.map(PointFormat::Block)),
            elementwise: self.elementwise,
            accumulation: product.accumulation,
        };
        let elements = [lhs.elements, rhs.elements, product.result_elements];
        formats.product(&product.layer, product.macs, elements)
    }

    /// The totals of a choice for every place.
    fn total(&self, search: &Search, formats: &[usize]) -> Result<Total, SearchError> {
        let chosen = self.candidates.iter().zip(formats);
        let bits: f64 = chosen
            .map(|(candidates, format)| candidates[*format].cost)
            .sum();
        let all = self.sum(search, &formats.iter().copied().enumerate().collect())?;
        Ok(Total {
            bits: bits / self.elements,
            cost: all.cost / self.shares,
            score: all.score,
        })
    }

    /// The recipe of a choice for each group.
    pub(super) fn found(self, search: &Search, choice: &[usize]) -> Result<Found, SearchError> {
        let in_blocks = candidates::in_blocks(&search.specs)?;
        let mut formats = vec![0; self.places.len()];
        for (group, at) in self.groups.iter().zip(choice) {
            for (place, format) in group.places.iter().zip(&group.choices[*at]) {
                formats[*place] = *format;
            }
        }
        let total = self.total(search, &formats)?;
        let uniform = search.formats.iter().enumerate();
        let uniform = uniform.map(|(at, name)| {
            let everywhere = vec![at; self.places.len()];
            Ok((name.clone(), self.total(search, &everywhere)?))
        });
        let uniform = uniform.collect::<Result<_, SearchError>>()?;
        let mut layers: BTreeMap<String, MxSpecs> = BTreeMap::new();
        let places = self.places.into_iter().zip(&formats).map(|(place, at)| {
            let specs = layers.entry(place.layer.clone());
            let specs = specs.or_insert_with(|| in_blocks.clone());
            let format = self.formats[*at].of(place.slot);
            *specs.slot_format_mut(place.slot) = Some(SlotFormat::Block(format));
            FoundPlace {
                place,
                format: search.formats[*at].clone(),
            }
        });
        let places = places.collect();
        Ok(Found {
            recipe: Recipe {
                specs: search.specs.clone(),
                layers,
                ..Recipe::default()
            },
            places,
            unit: search.budget.unit(),
            total,
            uniform,
        })
    }
}

/// Keeps the places that the search chooses formats for.
fn retain(search: &Search, places: &mut Vec<Sensitivity>) -> Result<(), SearchError> {
    let keep = search.keep.iter().map(|pattern| Pattern::new(pattern));
    let keep: Vec<Pattern> = keep.collect::<Result<_, PathError>>()?;
    places.retain(|place| !keep.iter().any(|pattern| pattern.matches(&place.layer)));
    let is_recorded = |slot: &Slot| places.iter().any(|place| place.slot == *slot);
    if let Some(slot) = search.slots.iter().find(|slot| !is_recorded(slot)) {
        return Err(match places.is_empty() {
            true => SearchError::Empty,
            false => SearchError::NoSlot {
                slot: *slot,
                recorded: Slot::ALL.into_iter().filter(is_recorded).collect(),
            },
        });
    }
    if !search.slots.is_empty() {
        places.retain(|place| search.slots.contains(&place.slot));
    }
    Ok(())
}

/// The products that have a place. Both operands and the size of each must be known.
fn products(
    search: &Search,
    all: &[Sensitivity],
    places: &[Sensitivity],
) -> Result<Vec<OfProduct>, SearchError> {
    let specs = search.specs.resolve()?;
    let mut products: Vec<OfProduct> = Vec::new();
    let mut kinds = Vec::new();
    for one in all {
        let key = (&one.layer, one.product);
        let is_same = |place: &Sensitivity| (&place.layer, place.product) == key;
        if !places.iter().any(is_same) {
            continue;
        }
        let at = kinds.iter().position(|known| *known == key);
        let at = at.unwrap_or_else(|| {
            kinds.push(key);
            products.push(OfProduct {
                layer: one.layer.clone(),
                accumulation: specs.accumulator(one.product),
                macs: one.macs,
                result_elements: one.result_elements,
                operands: Vec::new(),
            });
            products.len() - 1
        });
        products[at].operands.push(OfOperand {
            place: places
                .iter()
                .position(|place| is_same(place) && place.slot == one.slot),
            format: specs.block_format(one.slot),
            elements: one.elements,
        });
    }
    let is_whole = |product: &&OfProduct| product.macs > 0.0 && product.operands.len() == 2;
    match products.iter().find(|product| !is_whole(product)) {
        Some(product) => Err(SearchError::NoSize {
            layer: product.layer.clone(),
        }),
        None => Ok(products),
    }
}
