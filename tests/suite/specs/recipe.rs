//! Recipes and their exempt layers.

use burn_mx::{Exemptions, MxSpecs, Recipe};

#[test]
fn how_many_layers_are_exempt() {
    let count = |head, last_percent, layers| Exemptions { head, last_percent }.count(layers);
    assert_eq!([0, 1, 9].map(|layers| count(false, 0, layers)), [0, 0, 0]);
    assert_eq!([0, 1, 9].map(|layers| count(true, 0, layers)), [0, 1, 1]);
    // A half and more is one layer, as is a share of which there is too little.
    let exempt = [0, 1, 2, 3, 11, 13, 21, 101].map(|layers| count(true, 15, layers));
    assert_eq!(exempt, [0, 1, 2, 2, 3, 3, 4, 16]);
    assert_eq!(count(false, 100, 7), 7);
}

#[test]
fn presets_are_recipes() {
    for name in MxSpecs::PRESETS {
        let recipe = Recipe::preset(name).unwrap();
        assert_eq!(recipe.specs, MxSpecs::preset(name).unwrap());
        let exempt = recipe.exempt_specs().resolve().unwrap();
        assert!(!exempt.has_mx(), "{name}");
        assert_eq!(
            exempt.float_format(),
            recipe.specs.resolve().unwrap().float_format()
        );
        assert_eq!(Recipe::preset(&name.to_uppercase()), Ok(recipe));
    }
    assert!(Recipe::preset("mxfp5").is_err());
}
