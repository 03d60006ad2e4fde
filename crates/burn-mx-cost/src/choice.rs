//! One candidate for each place, so that a sum of scores is least under a budget: a multiple-choice knapsack, solved exactly.

use std::cmp::Ordering;

/// A candidate for a place.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Candidate {
    /// The harm to the model: less is better. Finite, at least 0.
    pub score: f64,
    /// The cost: bits, joules, seconds. Finite, at least 0.
    pub cost: f64,
}

/// A choice for every place.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The number of the candidate of each place.
    pub candidates: Vec<usize>,
    /// The sum of the scores.
    pub score: f64,
    /// The sum of the costs.
    pub cost: f64,
}

/// The reasons for which a choice is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ChoiceError {
    /// A place has no candidates.
    #[error("place {place} has no candidate, expected one at least")]
    Empty {
        /// The number of the place.
        place: usize,
    },
    /// A number of a candidate is none that can be added up.
    #[error(
        "candidate {candidate} of place {place}: {field} is {got}, expected a finite number of at least 0"
    )]
    Number {
        /// The number of the place.
        place: usize,
        /// The number of the candidate.
        candidate: usize,
        /// `score` or `cost`.
        field: &'static str,
        /// The value.
        got: f64,
    },
    /// Even the cheapest candidates cost too much.
    #[error("the budget is {budget}, and the cheapest candidates cost {least}")]
    Budget {
        /// The budget.
        budget: f64,
        /// The least cost that there is.
        least: f64,
    },
}

/// The largest relative error of a sum.
const SLACK: f64 = 1e-9;

/// A partial choice of the places up to one.
#[derive(Clone, Copy)]
struct State {
    score: f64,
    cost: f64,
    /// The number of the state before, in the list of the previous place.
    before: usize,
    candidate: usize,
}

/// Chooses a candidate for each place. The cheapest choice wins among choices with the same score. The result depends on the
/// arguments alone.
///
/// The search goes place by place and keeps partial choices. Three rules drop a partial choice:
/// * another partial choice has neither a larger score nor a larger cost;
/// * the budget does not pay for the remaining places;
/// * a bound, which allows fractions of candidates, is worse than a known choice.
///
/// The time grows with the number of different costs. Costs in whole units (bits) keep this number small.
///
/// # Errors
/// [`ChoiceError`].
pub fn choose(places: &[Vec<Candidate>], budget: f64) -> Result<Choice, ChoiceError> {
    check(places)?;
    let hulls: Vec<Hull> = places.iter().map(|place| Hull::of(place)).collect();
    let least: f64 = hulls.iter().map(|hull| hull.cheapest.cost).sum();
    // The sums are rounded, each in its own order.
    let slack = SLACK * budget.abs();
    if budget.is_nan() || least > budget + slack {
        return Err(ChoiceError::Budget { budget, least });
    }
    // The least cost of the places from each one on, and the steps of their hulls, the best ones first.
    let rests: Vec<Rest> = (0..=places.len())
        .map(|from| Rest::of(&hulls[from..]))
        .collect();
    let worst: f64 = hulls.iter().map(|hull| hull.cheapest.score).sum();
    let mut best = rests[0].bound(budget).1 + SLACK * worst;
    let mut layers: Vec<Vec<State>> = Vec::new();
    let mut states = vec![State {
        score: 0.0,
        cost: 0.0,
        before: 0,
        candidate: 0,
    }];
    for (place, rest) in places.iter().zip(&rests[1..]) {
        let mut next = Vec::with_capacity(states.len() * place.len());
        for (before, state) in states.iter().enumerate() {
            for (candidate, of) in place.iter().enumerate() {
                let (score, cost) = (state.score + of.score, state.cost + of.cost);
                let left = budget + slack - cost;
                if left < rest.least {
                    continue;
                }
                let (lower, upper) = rest.bound(left);
                if score + lower > best {
                    continue;
                }
                best = best.min(score + upper + SLACK * worst);
                next.push(State {
                    score,
                    cost,
                    before,
                    candidate,
                });
            }
        }
        next.sort_by(|a, b| order([a.cost, a.score], [b.cost, b.score]));
        let mut least = f64::INFINITY;
        next.retain(|state| {
            let is_better = state.score < least;
            least = least.min(state.score);
            is_better
        });
        layers.push(std::mem::replace(&mut states, next));
    }
    let last = states
        .iter()
        .enumerate()
        .min_by(|(_, a), (_, b)| order([a.score, a.cost], [b.score, b.cost]));
    let (mut at, found) = last.expect("the cheapest candidates are within the budget");
    let (score, cost) = (found.score, found.cost);
    layers.push(states);
    let mut candidates = vec![0; places.len()];
    for place in (0..places.len()).rev() {
        let state = layers[place + 1][at];
        candidates[place] = state.candidate;
        at = state.before;
    }
    Ok(Choice {
        candidates,
        score,
        cost,
    })
}

fn check(places: &[Vec<Candidate>]) -> Result<(), ChoiceError> {
    for (place, candidates) in places.iter().enumerate() {
        if candidates.is_empty() {
            return Err(ChoiceError::Empty { place });
        }
        for (candidate, of) in candidates.iter().enumerate() {
            for (field, got) in [("score", of.score), ("cost", of.cost)] {
                if !(got.is_finite() && got >= 0.0) {
                    return Err(ChoiceError::Number {
                        place,
                        candidate,
                        field,
                        got,
                    });
                }
            }
        }
    }
    Ok(())
}

fn order(a: [f64; 2], b: [f64; 2]) -> Ordering {
    a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1]))
}

/// The candidates of a place that no mixture of two others beats.
struct Hull {
    cheapest: Candidate,
    /// From each such candidate to the next: less score for more cost, the best exchange first.
    steps: Vec<Candidate>,
}

impl Hull {
    fn of(place: &[Candidate]) -> Self {
        let mut sorted = place.to_vec();
        sorted.sort_by(|a, b| order([a.cost, a.score], [b.cost, b.score]));
        let mut corners: Vec<Candidate> = Vec::new();
        for candidate in sorted {
            if corners
                .last()
                .is_some_and(|last| candidate.score >= last.score)
            {
                continue;
            }
            while let [.., a, b] = &corners[..] {
                // Whether b lies on the line from a to the candidate, or above.
                let (rise, run) = (a.score - b.score, b.cost - a.cost);
                if rise * (candidate.cost - a.cost) > (a.score - candidate.score) * run {
                    break;
                }
                corners.pop();
            }
            corners.push(candidate);
        }
        let step = |pair: &[Candidate]| Candidate {
            score: pair[0].score - pair[1].score,
            cost: pair[1].cost - pair[0].cost,
        };
        Self {
            cheapest: corners[0],
            steps: corners.windows(2).map(step).collect(),
        }
    }
}

/// Places of which nothing is chosen yet.
struct Rest {
    /// The cost of the cheapest candidates.
    least: f64,
    /// The sums of scores and costs: of the cheapest candidates, then after each exchange along the hulls, the best exchange
    /// first.
    sums: Vec<Candidate>,
}

impl Rest {
    fn of(hulls: &[Hull]) -> Self {
        let mut steps: Vec<Candidate> = hulls.iter().flat_map(|hull| hull.steps.clone()).collect();
        steps.sort_by(|a, b| (b.score * a.cost).total_cmp(&(a.score * b.cost)));
        let sum = |of: fn(&Candidate) -> f64| hulls.iter().map(|hull| of(&hull.cheapest)).sum();
        let mut sum = Candidate {
            score: sum(|cheapest| cheapest.score),
            cost: sum(|cheapest| cheapest.cost),
        };
        let least = sum.cost;
        let mut sums = vec![sum];
        for step in steps {
            sum.score -= step.score;
            sum.cost += step.cost;
            sums.push(sum);
        }
        Self { least, sums }
    }

    /// With so much to spend, at least the least cost: a score that no choice is below, and one that a choice has.
    fn bound(&self, budget: f64) -> (f64, f64) {
        let paid = self.sums.partition_point(|sum| sum.cost <= budget).max(1);
        let whole = self.sums[paid - 1];
        let Some(next) = self.sums.get(paid) else {
            return (whole.score - SLACK * self.sums[0].score, whole.score);
        };
        let part = ((budget - whole.cost) / (next.cost - whole.cost)).clamp(0.0, 1.0);
        let mixed = whole.score + part * (next.score - whole.score);
        (mixed - SLACK * self.sums[0].score, whole.score)
    }
}
