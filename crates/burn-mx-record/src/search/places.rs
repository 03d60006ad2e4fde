//! The places of a search, what each choice costs there, and the recipe of a choice.

use std::collections::BTreeMap;

use burn_mx_core::{MxSpecs, Recipe, Slot, SlotFormat};
use burn_mx_cost::Candidate;
use burn_mx_module::{PathError, Pattern};

use super::candidates::{self, CandidateFormat};
use super::groups::{self, Group};
use super::{Found, FoundPlace, Search, SearchError, Sensitivity};

/// The places, with the candidates for them.
pub(super) struct Places {
    places: Vec<Sensitivity>,
    formats: Vec<CandidateFormat>,
    /// By place and format.
    candidates: Vec<Vec<Candidate>>,
    groups: Vec<Group>,
    /// The sums over a group's places, by group and choice.
    pub(super) sums: Vec<Vec<Candidate>>,
    /// Elements of the operands of all places.
    pub(super) elements: f64,
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
        let groups = groups::groups(search, &places)?;
        let sums = groups.iter().map(|group| {
            let sum = |choice: &Vec<usize>| {
                let formats = group.places.iter().zip(choice);
                sum(formats.map(|(place, format)| candidates[*place][*format]))
            };
            group.choices.iter().map(sum).collect()
        });
        Ok(Self {
            sums: sums.collect(),
            places,
            formats,
            candidates,
            groups,
            elements,
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
        let chosen = self.candidates.iter().zip(&formats);
        let all = sum(chosen.map(|(candidates, format)| candidates[*format]));
        let uniform = search.formats.iter().enumerate();
        let uniform = uniform.map(|(at, name)| {
            let all = sum(self.candidates.iter().map(|place| place[at]));
            (name.clone(), all.cost / self.elements, all.score)
        });
        let uniform = uniform.collect();
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
            bits: all.cost / self.elements,
            score: all.score,
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

fn sum(candidates: impl Iterator<Item = Candidate>) -> Candidate {
    candidates.fold(Candidate::default(), |sum, one| Candidate {
        score: sum.score + one.score,
        cost: sum.cost + one.cost,
    })
}
