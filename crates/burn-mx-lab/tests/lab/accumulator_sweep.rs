//! The sweep over the width of an accumulator.

use std::fs;

use serde_json::Value;

use super::Place;

#[test]
fn a_narrow_accumulator_loses_more() {
    let place = Place::new();
    let options = [
        "--model=cnn",
        "--epochs=1",
        "--k=64",
        "--k=4096",
        "--fraction-bits=3",
        "--fraction-bits=20",
        "--promote-every=0",
        "--promote-every=32",
        "--accumulator=hopper",
    ];
    let output = place.command("accumulator_sweep", &options);
    let stdout = String::from_utf8(output.stdout).expect("it prints text");
    assert!(output.status.success(), "{stdout}");
    let json = fs::read(place.path("out/accumulator_sweep.json")).expect("there is JSON");
    let json: Value = serde_json::from_slice(&json).expect("it is JSON");
    let error = |k: u64, bits: u64, every: u64| {
        let sums = json["sums"].as_array().expect("there are sums");
        let is_it = |sum: &&Value| {
            sum["k"] == k && sum["fraction_bits"] == bits && sum["promote_every"] == every
        };
        let found = sums.iter().find(is_it).expect("it was swept");
        found["relative_errors"][0]
            .as_f64()
            .expect("it is a number")
    };
    assert!(error(4096, 3, 0) > 10.0 * error(4096, 20, 0));
    assert!(error(4096, 3, 0) > 2.0 * error(64, 3, 0));
    assert!(error(4096, 3, 32) < error(4096, 3, 0));
    let named = json["named_sums"].as_array().expect("there are names");
    let of_hopper = |k: u64| named.iter().find(|sum| sum["k"] == k).expect("it is there");
    assert_eq!(of_hopper(4096)["accumulator"], "hopper");
    let hopper = of_hopper(4096)["relative_errors"][0].as_f64();
    // Hopper has 13 bits.
    assert!(hopper.is_some_and(|hopper| hopper > error(4096, 20, 0) && hopper < error(4096, 3, 0)));
    let gradients = json["models"]["cnn"]["gradients"]["units"]
        .as_array()
        .expect("there are gradients");
    let of = |i: usize| gradients[i][1].as_f64().expect("it is a number");
    // Of 3 and of 20 bits.
    assert!(of(0) > 10.0 * of(1), "{gradients:?}");
    let runs = json["models"]["cnn"]["runs"]
        .as_array()
        .expect("there are runs");
    let names = runs
        .iter()
        .map(|run| run["name"].as_str().expect("it is text"));
    let names: Vec<&str> = names.collect();
    assert_eq!(names[..3], ["fp32", "float32 sums", "hopper"]);
    assert_eq!(names.len(), 5);
    for chart in ["accumulator_sums.svg", "cnn_accumulators.svg"] {
        let svg =
            fs::read_to_string(place.path(&format!("out/{chart}"))).expect("there is a chart");
        assert!(
            svg.contains("never promoted") || svg.contains("20 bits"),
            "{chart}"
        );
    }
    for (table, lines) in [
        ("accumulator_sums.csv", 1 + 2 * (2 * 2 + 1)),
        ("cnn_accumulator_gradients.csv", 1 + 2 * 2 + 1),
        ("cnn_accumulators.csv", 1 + 5),
    ] {
        let csv =
            fs::read_to_string(place.path(&format!("out/{table}"))).expect("there is a table");
        assert_eq!(csv.lines().count(), lines, "{table}: {csv}");
    }
    let refusal = place.refusal("accumulator_sweep", &["--fraction-bits", "99"]);
    assert!(refusal.contains("99"), "{refusal}");
}
