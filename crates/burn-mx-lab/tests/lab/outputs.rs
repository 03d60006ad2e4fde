//! Files that exist: inputs and files of others stay, files of earlier runs are replaced.

use std::fs;

use super::{Place, SMALL};

impl Place {
    /// The message of a command that ends with an error.
    fn fail(&self, command: &str, options: &[&str]) -> String {
        let output = self.command(command, options);
        assert!(!output.status.success(), "{command} {options:?}");
        String::from_utf8(output.stderr).expect("programs print text")
    }
}

#[test]
fn folders_of_compare() {
    let place = Place::new();
    place.mine("out/ffn_pareto.svg");
    let refusal = place.refusal("compare", SMALL);
    assert!(refusal.contains("ffn_pareto.svg' is there"), "{refusal}");
    place.is_mine("out/ffn_pareto.svg");

    place.mine("rec/report.html");
    let record = ["--out", "new", "--record", "rec"];
    let refusal = place.refusal("compare", &[SMALL, &record].concat());
    assert!(refusal.contains("is no report of a recorder"), "{refusal}");
    place.is_mine("rec/report.html");

    place.mine("saved/fp32/seed-0/model.mpk");
    let save = ["--out", "new", "--save", "saved", "--preset", "mxfp4"];
    let refusal = place.refusal("compare", &[SMALL, &save].concat());
    assert!(refusal.contains("no run wrote it"), "{refusal}");
    place.is_mine("saved/fp32/seed-0/model.mpk");

    let recipe = r#"{"specs": {"w_elem_format": "fp8_e4m3"}}"#;
    fs::write(place.path("recipe.json"), recipe).expect("it can be written");
    let same = [
        "--out",
        "new",
        "--recipe",
        "recipe.json",
        "--json",
        "./recipe.json",
    ];
    let refusal = place.refusal("compare", &[SMALL, &same].concat());
    assert!(
        refusal.contains("'recipe.json', which is read"),
        "{refusal}"
    );
    let text = fs::read_to_string(place.path("recipe.json")).expect("it is there");
    assert_eq!(text, recipe);
}

#[test]
fn search_replaces_no_scores() {
    let place = Place::new();
    let scores = "[]";
    fs::write(place.path("scores.json"), scores).expect("it can be written");
    let options = [
        "--scores",
        "scores.json",
        "--format",
        "mxfp4",
        "--bits",
        "5",
    ];
    for output in ["--out", "--json", "--csv"] {
        let out: &[&str] = if output == "--out" {
            &[]
        } else {
            &["--out", "new.json"]
        };
        let error = place.fail(
            "search",
            &[&options, out, &[output, "scores.json"]].concat(),
        );
        assert!(error.contains("which is read"), "{error}");
    }
    place.mine("found.svg");
    let error = place.fail("search", &[&options[..], &["--out", "found.json"]].concat());
    assert!(error.contains("found.svg' is there"), "{error}");
    place.is_mine("found.svg");
    let text = fs::read_to_string(place.path("scores.json")).expect("it is there");
    assert_eq!(text, scores);
}

#[test]
fn other_folders_of_results() {
    for (command, file, options) in [
        ("sensitivity", "cnn_scores.json", &["--model", "cnn"][..]),
        (
            "gradient_bias",
            "cnn_gradient_bias.svg",
            &["--model", "cnn"],
        ),
        ("accumulator_sweep", "accumulator_sums.csv", &["--sums"]),
        ("checkpoint", "gpt-oss.safetensors", &[]),
        ("quantize", "cnn-Float.safetensors", &["--config", "MX6"]),
    ] {
        let place = Place::new();
        let file = format!("new/{file}");
        place.mine(&file);
        let error = place.fail(command, &[options, &["--out", "new"]].concat());
        assert!(
            error.contains(&format!("{file}' is there")),
            "{command}: {error}"
        );
        place.is_mine(&file);
    }
}
