//! The exact choice against trying all of them.

use burn_mx_cost::{Candidate, Choice, ChoiceError, choose};
use microscaling::RandomStream;

/// The least score, and the least cost with it, of all choices within the budget.
fn brute_force(places: &[Vec<Candidate>], budget: f64) -> Option<(f64, f64)> {
    let mut all = vec![(0.0, 0.0)];
    for place in places {
        let with = |(score, cost): &(f64, f64)| {
            let (score, cost) = (*score, *cost);
            place
                .iter()
                .map(move |of| (score + of.score, cost + of.cost))
        };
        all = all.iter().flat_map(with).collect();
    }
    let within = all.into_iter().filter(|(_, cost)| *cost <= budget);
    within.min_by(|a, b| a.partial_cmp(b).unwrap())
}

fn assert_consistent(places: &[Vec<Candidate>], choice: &Choice) {
    let chosen = || {
        places
            .iter()
            .zip(&choice.candidates)
            .map(|(place, at)| place[*at])
    };
    assert_eq!(choice.score, chosen().fold(0.0, |sum, of| sum + of.score));
    assert_eq!(choice.cost, chosen().fold(0.0, |sum, of| sum + of.cost));
}

#[test]
fn the_best_of_all() {
    let stream = RandomStream::new(7, 1);
    let mut drawn = 0;
    let mut draw = |below: u32| {
        drawn += 1;
        f64::from(stream.draw(drawn) % below)
    };
    let (mut found, mut refused) = (0, 0);
    for _ in 0..2000 {
        let count = 1 + draw(6) as usize;
        let places: Vec<Vec<Candidate>> = (0..count)
            .map(|_| {
                let candidates = 1 + draw(5) as usize;
                // Whole numbers, so that sums are exact and there are ties; multiples of 1/8 among the scores.
                (0..candidates)
                    .map(|_| Candidate {
                        score: draw(40) / 8.0,
                        cost: draw(12),
                    })
                    .collect()
            })
            .collect();
        let budget = draw(12 * count as u32);
        match (choose(&places, budget), brute_force(&places, budget)) {
            (Ok(choice), Some(best)) => {
                assert_consistent(&places, &choice);
                assert_eq!((choice.score, choice.cost), best, "{places:?}, {budget}");
                found += 1;
            }
            (Err(ChoiceError::Budget { .. }), None) => refused += 1,
            (got, expected) => panic!("{got:?}, expected {expected:?}: {places:?}, {budget}"),
        }
    }
    assert!(found > 1000 && refused > 50, "{found} {refused}");
}

/// As many places as a model of 48 blocks has: sizes of layers times bits.
#[test]
fn many_places() {
    let stream = RandomStream::new(8, 1);
    let formats = [4.25, 4.5, 6.25, 8.25, 16.0];
    let places: Vec<Vec<Candidate>> = (0..48 * 12)
        .map(|place| {
            let elements = [1.0, 1.0, 4.0][place as usize % 3];
            let noise = f64::from(stream.draw(place)) / 2.0_f64.powi(32);
            let candidate = |bits: &f64| Candidate {
                score: noise * 2.0_f64.powf(-2.0 * bits),
                cost: elements * bits,
            };
            formats.iter().map(candidate).collect()
        })
        .collect();
    let elements: f64 = places.iter().map(|place| place[0].cost / formats[0]).sum();
    let choice = choose(&places, 5.0 * elements).unwrap();
    assert_consistent(&places, &choice);
    assert!(choice.cost <= 5.0 * elements * (1.0 + 1e-9));
    // No exchange of one place's candidate is within the budget and better.
    for (place, at) in places.iter().zip(&choice.candidates) {
        for other in place {
            let cost = choice.cost - place[*at].cost + other.cost;
            assert!(cost > 5.0 * elements || other.score >= place[*at].score);
        }
    }
    // Uniform formats are choices, too.
    for (number, bits) in formats.iter().enumerate().filter(|(_, bits)| **bits <= 5.0) {
        let uniform: f64 = places.iter().map(|place| place[number].score).sum();
        assert!(choice.score < uniform, "{bits}");
    }
}

#[test]
fn what_cannot_be_chosen_from() {
    let candidate = |score, cost| Candidate { score, cost };
    assert_eq!(choose(&[], 0.0).unwrap().candidates, [0; 0]);
    let places = [vec![candidate(1.0, 2.0)], vec![]];
    assert_eq!(choose(&places, 9.0), Err(ChoiceError::Empty { place: 1 }));
    let error = choose(&[vec![candidate(1.0, 2.0), candidate(f64::NAN, 1.0)]], 9.0).unwrap_err();
    let message = "candidate 1 of place 0: score is NaN, expected a finite number of at least 0";
    assert_eq!(error.to_string(), message);
    let error = choose(&[vec![candidate(1.0, 2.0)]], 1.5).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the budget is 1.5, and the cheapest candidates cost 2"
    );
    assert!(choose(&[vec![candidate(1.0, 2.0)]], f64::NAN).is_err());
}
