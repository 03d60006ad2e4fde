//! Constraints of a search.

use burn_mx::Slot;
use burn_mx::record::Search;

use super::records::*;

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
fn other_slots_keep_the_format_of_the_specs_and_cost_nothing() {
    let with = |slots: &[Slot], bits| Search {
        slots: slots.to_vec(),
        ..search(bits)
    };
    let found = with(&[Slot::W], 8.25).find(&report(&[layer()]));
    let found = found.unwrap();
    let places: Vec<_> = found.places.iter().map(|place| place.place.slot).collect();
    // The wide format fits, because the other three operands do not count.
    assert_eq!((places, found.total.bits), (vec![Slot::W], 8.25));
    let found = with(&[Slot::W], 5.0).find(&report(&[layer()]));
    let found = found.unwrap();
    assert_eq!(found.total.bits, 4.25);
    let specs = &found.recipe.layers["up.weight"];
    assert_eq!(specs.w_elem_format.unwrap().to_string(), "mxfp4");
    assert_eq!(specs.a_elem_format.unwrap().to_string(), "mxfp8_e4m3");
    let map = found.map().unwrap();
    assert!(map.contains("weight") && !map.contains("gradient"));

    let error = with(&[Slot::W, Slot::ABpEx], 5.0).find(&report(&[layer()]));
    assert_eq!(
        error.unwrap_err().to_string(),
        "no operand of the slot `a_bp_ex` was recorded, expected one of `w`, `a`, `w_bp`, `a_bp_os`"
    );
}
