//! Files that are there: inputs and files of others stay, files of earlier runs are replaced.

use std::fs;

use super::{Place, SMALL};

const MINE: &str = "mine";

impl Place {
    fn mine(&self, name: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("it is in a folder")).expect("it can be made");
        fs::write(path, MINE).expect("it can be written");
    }

    fn is_mine(&self, name: &str) {
        let text = fs::read_to_string(self.path(name)).expect("it is there");
        assert_eq!(text, MINE, "{name}");
    }

    /// What an example says that ends with an error.
    fn fail(&self, example: &str, options: &[&str]) -> String {
        let output = self.command(example, options);
        assert!(!output.status.success(), "{example} {options:?}");
        String::from_utf8(output.stderr).expect("examples print text")
    }
}

#[test]
fn a_plot_of_somebody_else_stays() {
    let place = Place::new();
    let options = ["--epochs", "1", "--preset", "none"];
    place.mine("out/ffn_loss.svg");
    let refusal = place.refusal("ffn", &options);
    assert!(refusal.contains("out/ffn_loss.svg' is there"), "{refusal}");
    place.is_mine("out/ffn_loss.svg");
    fs::remove_file(place.path("out/ffn_loss.svg")).expect("it is there");
    for _ in 0..2 {
        place.run("ffn", &options);
    }
    // Changed since then.
    place.mine("out/ffn_loss.svg");
    place.refusal("ffn", &options);
    place.is_mine("out/ffn_loss.svg");
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
    for (example, file, options) in [
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
        let error = place.fail(example, &[options, &["--out", "new"]].concat());
        assert!(
            error.contains(&format!("{file}' is there")),
            "{example}: {error}"
        );
        place.is_mine(&file);
    }
}
