//! Budgets of energy and time.

use burn_mx::record::{Budget, Search, StepRecord};

use super::records::*;

/// Every choice for the four places of [`layer`].
fn every_choice(step: &StepRecord, budget: &Budget) -> Vec<(f64, f64)> {
    let names = ["mxfp4", "mxfp8_e4m3"];
    let choices = (0..16).map(|bits| [0, 1, 2, 3].map(|place| names[bits >> place & 1]));
    let totals = choices.map(|formats| {
        let numbers = formats.map(|name| {
            let format: burn_mx::BlockFormat = name.parse().unwrap();
            burn_mx::cost::Numbers::from(format)
        });
        let mut costs = 0.0;
        for pair in numbers.chunks(2) {
            let mut product = burn_mx::cost::Product::matmul("", [1, 64, 64, 1], pair[0], pair[1]);
            product.macs = 4096.0;
            costs += match budget {
                Budget::Energy { operations, .. } => {
                    let scales = operations.scales(pair[0], pair[1]);
                    (operations.multiply_accumulate(pair[0], pair[1], 32) + scales) / 2.0
                        + operations.memory(product.operand_bits()) / 8192.0
                }
                Budget::Time { chip, .. } => 1e6 * chip.seconds(&product).unwrap(),
                _ => unreachable!("it is not of products"),
            };
        }
        let operands = step.products.iter().flat_map(|product| &product.operands);
        let score = operands.zip(formats).map(|(operand, format)| {
            let sqnr = operand.what_if[format].sqnr.unwrap();
            10.0_f64.powf(-sqnr / 10.0)
        });
        (score.sum(), costs)
    });
    totals.collect()
}

#[test]
fn energy_and_time_are_of_products() {
    let tables = burn_mx::cost::Tables::default();
    let step = layer();
    let energy = |picojoules| Budget::Energy {
        picojoules,
        operations: tables.operations.clone(),
    };
    let time = |microseconds| Budget::Time {
        microseconds,
        chip: tables.chip("b200").unwrap().clone(),
    };
    let find = |budget: Budget| {
        let search = Search {
            budget,
            ..search(0.0)
        };
        search.find(&report(std::slice::from_ref(&step)))
    };
    for budget in [&energy as &dyn Fn(f64) -> Budget, &time] {
        let all = every_choice(&step, &budget(0.0));
        let mut limits: Vec<f64> = all.iter().map(|(_, cost)| *cost).collect();
        limits.sort_by(f64::total_cmp);
        assert!(limits[0] < limits[15]);
        for limit in &limits {
            let found = find(budget(*limit)).unwrap();
            let within = all.iter().filter(|(_, cost)| *cost <= limit * (1.0 + 1e-9));
            let best = within
                .map(|(score, _)| *score)
                .fold(f64::INFINITY, f64::min);
            assert!(
                (found.total.score - best).abs() < 1e-12,
                "{limit}: {found:?}"
            );
            assert!(found.total.cost <= limit * (1.0 + 1e-9));
        }
        let error = find(budget(0.5 * limits[0])).unwrap_err().to_string();
        assert!(error.contains("expected"), "{error}");
        let all = find(budget(0.0).unlimited()).unwrap();
        assert!((all.total.cost - limits[15]).abs() < 1e-9 * limits[15]);
        assert_eq!(all.total.bits, 8.25);
    }
    let mut without_size = step.clone();
    without_size.products[0].macs = 0;
    let search = Search {
        budget: energy(1.0),
        ..search(0.0)
    };
    let error = search
        .find(&report(std::slice::from_ref(&without_size)))
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the size of a product of `up.weight`"),
        "{error}"
    );
}
