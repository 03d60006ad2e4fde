//! The formats that a search chooses.

use burn_mx::record::{Score, Search, SearchError, StepRecord};
use burn_mx::{Recipe, Slot};
use serde_json::json;

use super::records::*;

#[test]
fn the_noisier_operand_gets_the_wider_format() {
    let steps = [step(0, 10.0), step(20, 20.0)];
    let found = search(6.25).find(&report(&steps)).unwrap();
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
    let error = |search: Search| search.find(&report(&steps)).unwrap_err().to_string();
    assert!(error(search(4.0)).contains("bits is 4, expected 4.250 at least"));
    let with = |format: &str| Search {
        formats: vec![format.into()],
        ..search(9.0)
    };
    assert!(error(with("nvfp4")).contains("`nvfp4` was not recorded for `up.weight`"));
    assert!(error(with("mxfp5")).contains("mxfp5"));
    assert_eq!(search(9.0).find(&report(&[])), Err(SearchError::Empty));
}

#[test]
fn fisher_weighs_forward_products_by_the_loss_and_gradients_by_their_share() {
    let step = training_step(|_| ());
    let places = report(std::slice::from_ref(&step))
        .sensitivities(Score::Fisher)
        .unwrap();
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
        let places = report(std::slice::from_ref(&step)).sensitivities(Score::Fisher);
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

#[test]
fn a_candidate_is_the_preset_that_was_recorded() {
    let format = |name: &str, slot| {
        let mut step = layer();
        for operand in step
            .products
            .iter_mut()
            .flat_map(|product| &mut product.operands)
        {
            let figures = operand.what_if["mxfp4"].clone();
            operand.what_if.insert(name.to_owned(), figures);
        }
        let search = Search {
            formats: vec![name.to_owned()],
            ..search(f64::INFINITY)
        };
        let found = search.find(&report(&[step]))?;
        let format = found.recipe.layers["up.weight"].slot_format(slot);
        Ok::<_, SearchError>(format.unwrap().to_string())
    };
    // Gradients in NVFP4 without a scale for the tensor are below the smallest scale of a block.
    let nvfp4 = format("nvfp4", Slot::ABpOs).unwrap();
    assert_eq!(nvfp4, "nvfp4(tensor_scale=true)");
    let parsed: burn_mx::BlockFormat = "nvfp4(block_size=32)".parse().unwrap();
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
        let found = search(bits)
            .find(&report(std::slice::from_ref(&step)))
            .unwrap();
        for specs in found.recipe.layers.values() {
            let resolved = specs.resolve().unwrap();
            // Not recorded: the format of the specs.
            let other = resolved.block_format(Slot::ABpEx).unwrap().to_string();
            assert_eq!(other, "mxfp8_e4m3");
        }
    }
}

#[test]
fn a_random_recipe_spends_the_same_budget() {
    let pairs = |pairs: &[[&str; 2]]| -> Vec<[String; 2]> {
        let pairs = pairs.iter();
        pairs.map(|pair| pair.map(str::to_owned)).collect()
    };
    let places = || report(&[layer()]).sensitivities(Score::Noise).unwrap();
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
        let best = search.find(&report(&[layer()])).unwrap();
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
