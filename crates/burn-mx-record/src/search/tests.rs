use super::*;
use burn_mx_core::Slot;
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
        budget: Budget::Bits(bits),
        specs: MxSpecs::mxfp8_e4m3(),
        score: Score::Noise,
        slots: Vec::new(),
        keep: Vec::new(),
        pairs: Vec::new(),
        shared: false,
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
    assert_eq!(found.total.bits, 6.25);
    assert!((found.total.score - (1e-3 + 10.0_f64.powf(-2.5))).abs() < 1e-12);
    // The mean of the noise of both steps.
    assert!((found.places[1].place.noise["mxfp4"] - 0.055).abs() < 1e-12);
    let specs = &found.recipe.layers["up.weight"];
    assert_eq!(found.recipe.layers.len(), 1);
    assert_eq!(specs.w_elem_format.unwrap().to_string(), "mxfp8_e4m3");
    assert_eq!(specs.a_elem_format.unwrap().to_string(), "mxfp4");
    // The product was not recorded: the format of the specs.
    let other = specs.a_elem_format_bp_os.unwrap().to_string();
    assert_eq!(other, "mxfp8_e4m3");
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

/// A training step of two layers, `first` and `last`. Their gradients have the mean squares 1 and 3.
fn training_step(statistics: impl Fn(&mut serde_json::Value)) -> StepRecord {
    let product = |layer: &str, product: &str, operand: (&str, &str), mean_square: f64| {
        json!({
            "layer": layer, "op": "linear", "product": product, "uses": 1, "specs": "",
            "operands": [{
                "slot": operand.0, "operand": operand.1, "format": null, "elements": 8, "blocks": 1,
                "what_if": {"mxfp4": {"elements": 8, "blocks": 1, "sqnr": 20.0, "mse": 0.01}},
            }],
            "result": {"relative_error": 0.1, "cosine": 1.0, "elements": 10, "mean_square": mean_square},
        })
    };
    let mut step = json!({
        "run": "", "thread": 0, "step": 0,
        "products": [
            product("first", "forward", ("w", "weight"), 6.0),
            product("last", "forward", ("w", "weight"), 2.0),
            product("last", "input_gradient", ("w_bp", "weight"), 1.0),
            product("last", "weight_gradient", ("a_bp_ex", "output gradient"), 3.0),
            product("first", "weight_gradient", ("a_bp_ex", "output gradient"), 1.0),
        ],
    });
    statistics(&mut step);
    serde_json::from_value(step).unwrap()
}

#[test]
fn fisher_weighs_forward_products_by_the_loss_and_gradients_by_their_share() {
    let step = training_step(|_| ());
    let places = sensitivity::of_steps([&step].into_iter(), Score::Fisher).unwrap();
    let weights: Vec<f64> = places.iter().map(|place| place.weight).collect();
    // Forward: 60 and 20 times the output gradient's mean square, 1. Gradients: 10, which the input gradient passes to `first`, 30
    // and 10.
    let expected = [1.5, 0.5, 0.6, 1.8, 0.6];
    for (weight, expected) in weights.iter().zip(expected) {
        assert!((weight - expected).abs() < 1e-12, "{weights:?}");
    }
    let score = places[0].score("mxfp4").unwrap();
    assert!((score - 0.015).abs() < 1e-12);
    assert_eq!(places[0].score("mxfp8_e4m3"), None);
}

#[test]
fn fisher_names_what_was_not_recorded() {
    let error = |step: StepRecord| {
        let places = sensitivity::of_steps([&step].into_iter(), Score::Fisher);
        places.unwrap_err().to_string()
    };
    let without_result = training_step(|step| step["products"][1]["result"] = json!(null));
    let text = error(without_result);
    assert!(
        text.contains("`last` has no record of the result of the forward product"),
        "{text}"
    );
    let exact = training_step(|step| {
        step["products"][4]["operands"][0]["what_if"] = json!({});
    });
    let text = error(exact);
    assert!(
        text.contains("`first` has no record of the output gradient"),
        "{text}"
    );
}

/// The formats of the places.
fn formats(search: &Search, step: &StepRecord) -> Result<Vec<String>, SearchError> {
    let found = search.find_in([step].into_iter())?;
    let places = found.places.into_iter();
    Ok(places.map(|place| place.format).collect())
}

/// A layer with a noisy weight and a quiet input in its forward product, and the other way around in its gradient products.
fn layer() -> StepRecord {
    let operand = |slot: &str, narrow: f64| {
        json!({
            "slot": slot, "operand": "", "format": null, "elements": 64, "blocks": 2,
            "what_if": {
                "mxfp4": {"elements": 64, "blocks": 2, "sqnr": narrow},
                "mxfp8_e4m3": {"elements": 64, "blocks": 2, "sqnr": 40.0},
            },
        })
    };
    let product = |kind: &str, operands: [serde_json::Value; 2]| {
        json!({
            "layer": "up.weight", "op": "linear", "product": kind, "uses": 1, "specs": "", "operands": operands,
            "macs": 4096, "result_elements": 4096, "elementwise": "bfloat16",
        })
    };
    let step = json!({
        "run": "", "thread": 0, "step": 0,
        "products": [
            product("forward", [operand("a", 30.0), operand("w", 10.0)]),
            product("input_gradient", [operand("a_bp_os", 11.0), operand("w_bp", 31.0)]),
        ],
    });
    serde_json::from_value(step).unwrap()
}

#[test]
fn hardware_that_multiplies_equal_formats_alone() {
    let free = search(6.25);
    let [wide, narrow] = ["mxfp8_e4m3", "mxfp4"];
    assert_eq!(
        formats(&free, &layer()).unwrap(),
        [narrow, wide, wide, narrow]
    );
    let equal = Search {
        pairs: [wide, narrow]
            .map(|format| [format.into(), format.into()])
            .to_vec(),
        ..free.clone()
    };
    // The forward product is the noisier one.
    assert_eq!(
        formats(&equal, &layer()).unwrap(),
        [wide, wide, narrow, narrow]
    );
    let shared = Search {
        shared: true,
        ..free.clone()
    };
    // The weight has one format in both products, and is the noisier tensor.
    assert_eq!(
        formats(&shared, &layer()).unwrap(),
        [narrow, wide, narrow, wide]
    );
    let mixed = Search {
        pairs: vec![[wide.into(), narrow.into()]],
        shared: true,
        ..free
    };
    assert_eq!(
        formats(&mixed, &layer()).unwrap(),
        [narrow, wide, narrow, wide]
    );
}

#[test]
fn constraints_that_cannot_be_are_named() {
    let error = |search: Search| formats(&search, &layer()).unwrap_err().to_string();
    let unknown = Search {
        pairs: vec![["mxfp4".into(), "nvfp4".into()]],
        ..search(6.25)
    };
    assert_eq!(
        error(unknown),
        "the pair `mxfp4`, `nvfp4`: expected two of the candidates"
    );
    let keep = |pattern: &str| Search {
        keep: vec![pattern.into()],
        ..search(6.25)
    };
    assert!(error(keep("up")).contains("no layer with a weight"));
    assert!(error(keep("up[")).contains("keep: "));
    assert!(formats(&keep("down"), &layer()).is_ok());
}

#[test]
fn a_candidate_is_the_preset_that_was_recorded() {
    let format = |name: &str, slot| {
        let candidate = candidates::CandidateFormat::new(name, &MxSpecs::mxfp8_e4m3());
        candidate.map(|candidate| candidate.of(slot).to_string())
    };
    // Gradients in NVFP4 without a scale for the tensor are below the smallest scale of a block.
    let nvfp4 = format("nvfp4", Slot::ABpOs).unwrap();
    assert_eq!(nvfp4, "nvfp4(tensor_scale=true)");
    let parsed: microscaling::BlockFormat = "nvfp4(block_size=32)".parse().unwrap();
    let candidate = format("nvfp4(block_size=32)", Slot::W).unwrap();
    assert_eq!(candidate, parsed.to_string());
    let error = format("mxfp4_sr_rht", Slot::W).unwrap_err().to_string();
    assert!(error.contains("other roundings or transforms"), "{error}");
    assert!(format("none", Slot::W).is_err() && format("mxfp5", Slot::W).is_err());
}

#[test]
fn every_layer_of_a_recipe_resolves() {
    let step = layer();
    for bits in [4.25, 4.5, 8.25] {
        let found = search(bits).find_in([&step].into_iter()).unwrap();
        for specs in found.recipe.layers.values() {
            let resolved = specs.resolve().unwrap();
            // Not recorded: the format of the specs.
            let other = resolved.block_format(Slot::ABpEx).unwrap().to_string();
            assert_eq!(other, "mxfp8_e4m3");
        }
    }
}

#[test]
fn other_slots_keep_the_format_of_the_specs_and_cost_nothing() {
    let with = |slots: &[Slot], bits| Search {
        slots: slots.to_vec(),
        ..search(bits)
    };
    let found = with(&[Slot::W], 8.25).find_in([&layer()].into_iter());
    let found = found.unwrap();
    let places: Vec<_> = found.places.iter().map(|place| place.place.slot).collect();
    // The wide format fits, because the other three operands do not count.
    assert_eq!((places, found.total.bits), (vec![Slot::W], 8.25));
    let found = with(&[Slot::W], 5.0).find_in([&layer()].into_iter());
    let found = found.unwrap();
    assert_eq!(found.total.bits, 4.25);
    let specs = &found.recipe.layers["up.weight"];
    assert_eq!(specs.w_elem_format.unwrap().to_string(), "mxfp4");
    assert_eq!(specs.a_elem_format.unwrap().to_string(), "mxfp8_e4m3");
    let map = found.map().unwrap();
    assert!(map.contains("weight") && !map.contains("gradient"));

    let error = with(&[Slot::W, Slot::ABpEx], 5.0).find_in([&layer()].into_iter());
    assert_eq!(
        error.unwrap_err().to_string(),
        "no operand of the slot `a_bp_ex` was recorded, expected one of `w`, `a`, `w_bp`, `a_bp_os`"
    );
}

#[test]
fn a_random_recipe_spends_the_same_budget() {
    let pairs = |pairs: &[[&str; 2]]| -> Vec<[String; 2]> {
        let pairs = pairs.iter();
        pairs.map(|pair| pair.map(str::to_owned)).collect()
    };
    let places = || sensitivity::of_steps([&layer()].into_iter(), Score::Noise).unwrap();
    let free = search(6.25);
    let one = Search {
        pairs: pairs(&[["mxfp4", "mxfp8_e4m3"]]),
        ..free.clone()
    };
    let shared = Search {
        shared: true,
        ..free.clone()
    };
    for search in [&free, &one, &shared] {
        let best = search.find_in([&layer()].into_iter()).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..60 {
            let random = || search.random(places(), seed).unwrap();
            let found = random();
            assert_eq!(found, random());
            // Two of four places fit, and no place more.
            assert_eq!(found.total.bits, 6.25);
            assert!(found.total.score >= best.total.score);
            let formats: Vec<String> = found.places.iter().map(|one| one.format.clone()).collect();
            // As a search for this choice alone, so within the constraints.
            if search.shared {
                assert!(
                    formats[0] != formats[1] && formats[1] == formats[3],
                    "{formats:?}"
                );
            } else if !search.pairs.is_empty() {
                assert!(
                    formats[0] != formats[1] && formats[2] != formats[3],
                    "{formats:?}"
                );
            }
            for (place, format) in found.places.iter().zip(&formats) {
                let specs = found.recipe.layers["up.weight"].clone();
                let specs = specs.slot_format(place.place.slot).unwrap();
                assert_eq!(&specs.to_string(), format);
            }
            seen.insert(formats);
        }
        // Every choice of this cost.
        let all = if search.shared {
            2
        } else if search.pairs.is_empty() {
            6
        } else {
            4
        };
        assert_eq!(seen.len(), all, "{seen:?}");
    }
    let error = search(4.0).random(places(), 0).unwrap_err();
    assert!(error.to_string().contains("expected 4.250 at least"));
    let widest = search(100.0).random(places(), 0).unwrap();
    assert_eq!(widest.total.bits, 8.25);
}

/// Every choice for the four places of [`layer`].
fn every_choice(step: &StepRecord, budget: &Budget) -> Vec<(f64, f64)> {
    let names = ["mxfp4", "mxfp8_e4m3"];
    let choices = (0..16).map(|bits| [0, 1, 2, 3].map(|place| names[bits >> place & 1]));
    let totals = choices.map(|formats| {
        let numbers = formats.map(|name| {
            let format: microscaling::BlockFormat = name.parse().unwrap();
            burn_mx_cost::Numbers::from(format)
        });
        let mut costs = 0.0;
        for pair in numbers.chunks(2) {
            let mut product = burn_mx_cost::Product::matmul("", [1, 64, 64, 1], pair[0], pair[1]);
            product.macs = 4096.0;
            costs += match budget {
                Budget::Energy { operations, .. } => {
                    operations.multiply_accumulate(pair[0], pair[1], 32) / 2.0
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
    let tables = burn_mx_cost::Tables::default();
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
        search.find_in([&step].into_iter())
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
    let error = search.find_in([&without_size].into_iter()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the size of a product of `up.weight`"),
        "{error}"
    );
}
