//! Places whose formats depend on each other.

use burn_mx_core::Slot;

use super::{Search, SearchError, Sensitivity};

/// Places that get their formats together.
pub(super) struct Group {
    /// Numbers of places.
    pub(super) places: Vec<usize>,
    /// Each allowed choice: the numbers of the places' formats.
    pub(super) choices: Vec<Vec<usize>>,
}

/// The groups of the places, with at least one choice each.
pub(super) fn groups(search: &Search, places: &[Sensitivity]) -> Result<Vec<Group>, SearchError> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (at, place) in places.iter().enumerate() {
        let depends = |group: &Vec<usize>| {
            let mut others = group.iter();
            others.any(|other| search.depend(&places[*other], place))
        };
        let (mut joined, others): (Vec<_>, Vec<_>) = groups.into_iter().partition(depends);
        joined.push(vec![at]);
        groups = others;
        groups.push(joined.concat());
    }
    groups.sort();
    let with_choices = groups.into_iter().map(|group| {
        let mut choices = vec![Vec::new()];
        for (count, place) in group.iter().enumerate() {
            let longer = choices.iter().flat_map(|choice: &Vec<usize>| {
                let formats = 0..search.formats.len();
                formats.map(move |format| [&choice[..], &[format]].concat())
            });
            let allowed = |choice: &Vec<usize>| {
                let (format, before) = (choice[count], &choice[..count]);
                let mut earlier = group.iter().zip(before);
                earlier.all(|(other, of_other)| {
                    let (other, place) = (&places[*other], &places[*place]);
                    search.allows((other, *of_other), (place, format))
                })
            };
            choices = longer.filter(allowed).collect();
        }
        match choices.is_empty() {
            true => Err(SearchError::Pairs {
                layer: places[group[0]].layer.clone(),
            }),
            false => Ok(Group {
                places: group,
                choices,
            }),
        }
    });
    with_choices.collect()
}

impl Search {
    /// Whether the formats of two places depend on each other.
    fn depend(&self, one: &Sensitivity, other: &Sensitivity) -> bool {
        let by_product = !self.pairs.is_empty() || !self.budget.is_of_operands();
        let is_product = by_product && one.product == other.product;
        let is_tensor = self.shared && tensor(one.slot) == tensor(other.slot);
        // A layer's specs have one format for a slot. In a matrix product with a weight both gradients read the slot `a_bp_os`.
        let is_slot = one.slot == other.slot;
        one.layer == other.layer && (is_product || is_tensor || is_slot)
    }

    /// Whether two places of a group may have these formats.
    fn allows(
        &self,
        (one, of_one): (&Sensitivity, usize),
        (other, of_other): (&Sensitivity, usize),
    ) -> bool {
        let is_one = match self.shared {
            true => tensor(one.slot) == tensor(other.slot),
            false => one.slot == other.slot,
        };
        let [left, right] = [of_one, of_other].map(|format| &self.formats[format]);
        let is_pair = |pair: &[String; 2]| {
            let [a, b] = pair;
            (a, b) == (left, right) || (a, b) == (right, left)
        };
        let is_product = !self.pairs.is_empty() && one.product == other.product;
        (!is_one || of_one == of_other) && (!is_product || self.pairs.iter().any(is_pair))
    }
}

/// The first slot of the same tensor.
fn tensor(slot: Slot) -> Slot {
    match slot {
        Slot::W | Slot::WBp => Slot::W,
        Slot::A | Slot::ABp => Slot::A,
        Slot::ABpEx | Slot::ABpOs => Slot::ABpEx,
    }
}
