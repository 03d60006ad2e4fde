//! A random choice under a budget.

use burn_mx_cost::Candidate;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

/// The largest relative error of a sum of costs.
const SLACK: f64 = 1e-9;

/// A random candidate for each place, of which no single one can be exchanged for a more expensive candidate under the budget. If
/// even the cheapest candidates cost more than the budget, the error is their cost.
pub(super) fn choose(places: &[Vec<Candidate>], budget: f64, seed: u64) -> Result<Vec<usize>, f64> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut choice = Vec::new();
    let mut cost = 0.0;
    for candidates in places {
        let costs = candidates.iter().map(|candidate| candidate.cost);
        let least = costs.fold(f64::INFINITY, f64::min);
        let cheapest: Vec<usize> = numbers(candidates, |cost| cost == least).collect();
        choice.push(
            *cheapest
                .choose(&mut random)
                .expect("a place has candidates"),
        );
        cost += least;
    }
    let budget = budget + SLACK * budget.abs();
    if budget.is_nan() || cost > budget {
        return Err(cost);
    }
    loop {
        let dearer = places.iter().zip(&choice).map(|(candidates, now)| {
            let now = candidates[*now].cost;
            let left = budget - cost;
            let fits = move |of: f64| of > now && of - now <= left;
            numbers(candidates, fits).collect::<Vec<usize>>()
        });
        let dearer = dearer
            .enumerate()
            .filter(|(_, candidates)| !candidates.is_empty());
        let dearer: Vec<(usize, Vec<usize>)> = dearer.collect();
        let Some((place, candidates)) = dearer.choose(&mut random) else {
            return Ok(choice);
        };
        let new = candidates.choose(&mut random).expect("there is one");
        cost += places[*place][*new].cost - places[*place][choice[*place]].cost;
        choice[*place] = *new;
    }
}

/// The numbers of the candidates of such a cost.
fn numbers(
    candidates: &[Candidate],
    is_meant: impl Fn(f64) -> bool,
) -> impl Iterator<Item = usize> {
    let costs = candidates
        .iter()
        .map(|candidate| candidate.cost)
        .enumerate();
    costs.filter_map(move |(at, cost)| is_meant(cost).then_some(at))
}
