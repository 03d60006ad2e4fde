//! Recipes: found under a budget, scheduled over the steps; and the sensitivity of operands.

use std::fs;

use serde_json::Value;

use super::{Place, SMALL, losses};

/// A place with records of a short run, in the folder `seen`.
fn recorded() -> Place {
    let place = Place::new();
    let record = [
        "--epochs",
        "1",
        "--preset",
        "mxfp8_e4m3",
        "--record",
        "seen",
        "--record-every",
        "2",
        "--what-if",
        "mxfp4",
        "--what-if",
        "mxfp8_e4m3",
    ];
    place.compare(&[SMALL, &record].concat());
    place
}

#[test]
fn a_recipe_is_found_in_records_and_trains() {
    let place = recorded();
    let search = |options: &[&str]| {
        let formats = ["seen", "--format", "mxfp4", "--format", "mxfp8_e4m3"];
        let output = place.command("search", &[&formats[..], options].concat());
        let stdout = String::from_utf8(output.stdout).expect("it prints text");
        let stderr = String::from_utf8(output.stderr).expect("it prints text");
        (output.status.success(), stdout + &stderr)
    };
    for score in ["noise", "fisher"] {
        let out = format!("{score}.json");
        let options = [
            "--bits", "6", "--score", score, "--out", &out, "--random", "3", "--random", "4",
        ];
        let (success, text) = search(&options);
        assert!(success && text.contains("found: 5."), "{text}");
        // Both candidates are needed.
        let recipe = fs::read_to_string(place.path(&out)).expect("there is a recipe");
        assert!(recipe.contains("\"mxfp4\"") && recipe.contains("\"mxfp8_e4m3\""));
    }
    let read = |name: &str| fs::read_to_string(place.path(name)).expect("there is a recipe");
    // Random recipes know nothing of scores, and differ from each other.
    assert_eq!(read("noise_random_3.json"), read("fisher_random_3.json"));
    assert_ne!(read("noise_random_3.json"), read("noise_random_4.json"));
    let recipes = [
        "--recipe",
        "noise.json",
        "--recipe",
        "fisher.json",
        "--recipe",
        "noise_random_3.json",
    ];
    let options = [SMALL, &["--epochs", "1", "--preset", "mxfp4"], &recipes].concat();
    let (runs, _) = place.compare(&options);
    let names: Vec<_> = runs.iter().map(|run| &run["name"]).collect();
    assert_eq!(
        names,
        ["fp32", "mxfp4", "noise", "fisher", "noise_random_3"]
    );
    assert_ne!(losses(&runs[1]), losses(&runs[2]));

    let weights = ["--slot", "w", "--bits", "8.25", "--out", "weights.json"];
    let (success, text) = search(&weights);
    assert!(success && text.contains("found: 8.250 bits"), "{text}");
    // A trained model gets the formats of its weights.
    let weights = ["--slot", "w", "--bits", "6", "--out", "weights.json"];
    assert!(search(&weights).0);
    let options = [
        "--architecture",
        "ffn",
        "--epochs",
        "1",
        "--weights-only",
        "--recipe",
        "weights.json",
        "--recipe",
        "weights.json_ADAQUANT",
        "--iterations",
        "20",
        "--json",
        "rows.json",
    ];
    let output = place.command("quantize", &options);
    assert!(output.status.success(), "{output:?}");
    let rows: Value = serde_json::from_str(&read("rows.json")).expect("it is JSON");
    let names = [0, 1, 2].map(|row| &rows["rows"][row]["config"]);
    assert_eq!(
        names,
        ["Float", "weights, weights", "weights_ADAQUANT, weights"]
    );
    assert!(
        rows["rows"][2]["tuned"]
            .as_array()
            .is_some_and(|tuned| tuned.len() > 2)
    );

    let (success, text) = search(&["--slot", "v", "--bits", "6", "--out", "none.json"]);
    assert!(!success && text.contains("`a_bp_ex`"), "{text}");
    let (success, text) = search(&["--bits", "4", "--out", "none.json"]);
    assert!(
        !success && text.contains("expected 4.250 at least"),
        "{text}"
    );
    for (options, named) in [
        (["--bits", "6", "--chip", "b200"], "--chip"),
        (["--energy", "4", "--chip", "b200"], "--chip"),
        (["--bits", "6", "--cost-tables", "none"], "--cost-tables"),
        (["--bits", "6", "--time", "1"], "--bits"),
        (["--time", "1", "--chip", "none"], "expected one of h100"),
    ] {
        let (success, text) = search(&[&options[..], &["--out", "none.json"]].concat());
        assert!(!success && text.contains(named), "{text}");
    }
    for (options, unit) in [
        (["--energy", "100"], "picojoules"),
        (["--time", "100"], "microseconds"),
    ] {
        let (success, text) = search(&[&options[..], &["--out", "by_cost.json"]].concat());
        assert!(success && text.contains(unit), "{text}");
    }
    let (success, text) = search(&["--bits", "6", "--score", "hessian", "--out", "none.json"]);
    assert!(!success && text.contains("noise, fisher"), "{text}");
    assert!(!place.path("none.json").exists());
}

#[test]
fn short_runs_show_the_best_recipe() {
    let place = recorded();
    let search = |bits: &'static str, more: &[&'static str]| {
        let formats = ["--format", "mxfp4", "--format", "mxfp8_e4m3"];
        let options = ["--epochs", "1", "--search", "seen", "--bits", bits];
        let seeds = ["--seed", "1", "--seed", "2"];
        [SMALL, &options, &formats, &seeds, more].concat()
    };
    let (runs, stdout) = place.compare(&search("7.5", &["--found", "best.json", "--save", "run"]));
    let names: Vec<_> = runs.iter().step_by(2).map(|run| &run["name"]).collect();
    assert_eq!(names, ["fp32", "noise", "fisher", "mxfp4", "first_last"]);
    let mean = |name: &str| -> f64 {
        let own = runs.iter().filter(|run| run["name"] == name);
        own.map(|run| run["accuracy"].as_f64().expect("it is a number"))
            .sum()
    };
    let ranked: Vec<&str> = stdout
        .lines()
        .filter_map(|line| line.split_once(". ")?.1.split_once(": test accuracy"))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(ranked.len(), 4, "{stdout}");
    assert!(
        ranked.windows(2).all(|pair| mean(pair[0]) >= mean(pair[1])),
        "{stdout}"
    );
    // The recipe of the best run trains as that run did.
    let again = [
        "--epochs",
        "1",
        "--seed",
        "1",
        "--preset",
        "mxfp4",
        "--recipe",
        "best.json",
    ];
    let (again, _) = place.compare(&[SMALL, &again].concat());
    let best = runs
        .iter()
        .find(|run| run["name"] == ranked[0] && run["seed"] == 1);
    assert_eq!(losses(&again[2]), losses(best.expect("it is there")));

    let error = place.refusal("compare", &search("4", &[])[SMALL.len()..]);
    assert!(
        error.contains("--search") && error.contains("expected 4.250 at least"),
        "{error}"
    );
    let error = place.refusal("compare", &["--search", "seen"]);
    assert!(
        error.contains("--bits") && error.contains("--format"),
        "{error}"
    );
}

#[test]
fn a_schedule_changes_specs_between_two_steps() {
    let place = Place::new();
    let write = |name: &str, text: &str| fs::write(place.path(name), text).expect("it is written");
    write("one.json", r#"[{"from": 0, "preset": "mxfp4"}]"#);
    let two = r#"[{"from": 0, "preset": "mxfp4"}, {"from": 8, "preset": "mxfp8_e4m3"}]"#;
    write("two.json", two);
    let ramp =
        r#"[{"from": 0, "preset": "mxfp4"}, {"from": 3, "ramp": 9, "preset": "mxfp8_e4m3"}]"#;
    write("ramp.json", ramp);
    let schedules = |epochs: &'static str, more: &[&'static str]| {
        let options = [
            "--epochs",
            epochs,
            "--preset",
            "mxfp4",
            "--preset",
            "mxfp8_e4m3",
            "--schedule",
            "one.json",
            "--schedule",
            "two.json",
            "--schedule",
            "ramp.json",
        ];
        place.compare(&[SMALL, &options, more].concat()).0
    };
    // Six steps an epoch.
    let runs = schedules("3", &[]);
    let [mxfp4, mxfp8, one, two, ramp] = [1, 2, 3, 4, 5].map(|run| losses(&runs[run]));
    assert_eq!(one, mxfp4);
    // The loss of step 8 is the first one by the new specs.
    assert_eq!(two[..8], mxfp4[..8]);
    for step in 8..18 {
        assert!(
            two[step] != mxfp4[step] && two[step] != mxfp8[step],
            "{step}"
        );
    }
    assert_eq!(ramp[..3], mxfp4[..3]);
    assert_ne!(ramp[3..8], mxfp4[3..8]);
    assert_eq!(runs[4]["stages"][0]["from"], 8);
    assert_eq!(runs[4]["stages"][0]["specs"]["w_elem_format"], "fp8_e4m3");
    // Layer by layer.
    let stages = runs[5]["stages"].as_array().expect("there are stages");
    let steps = stages.iter().map(|stage| stage["from"].as_u64());
    let steps: Vec<u64> = steps.map(|step| step.expect("it is a number")).collect();
    assert!(
        steps.len() > 2 && steps[0] == 3 && steps.is_sorted(),
        "{steps:?}"
    );
    let plot = fs::read_to_string(place.path("out/ffn_loss.svg")).expect("there is a plot");
    assert!(plot.contains("ramp"));

    // A run that was resumed has the bits of one that went through, on either side of the change.
    for epochs in ["1", "2"] {
        let folder = if epochs == "1" { "saved1" } else { "saved2" };
        schedules(epochs, &["--save", folder]);
        let resumed = schedules("3", &["--save", folder, "--resume"]);
        for (run, resumed) in runs.iter().zip(&resumed) {
            assert_eq!(losses(run), losses(resumed), "{} {epochs}", run["name"]);
            assert_eq!(run["accuracy"], resumed["accuracy"]);
        }
    }

    write("late.json", r#"[{"from": 2, "preset": "mxfp4"}]"#);
    write(
        "layer.json",
        r#"[{"from": 0, "recipe": {"specs": {}, "layers": {"haed": {}}}}]"#,
    );
    for (file, fragment) in [
        ("late.json", "phase 0: `from` is 2, expected 0"),
        ("layer.json", "haed"),
        ("missing.json", "missing.json"),
    ] {
        let error = place.refusal("compare", &["--schedule", file]);
        assert!(
            error.contains("--schedule") && error.contains(fragment),
            "{error}"
        );
    }
}

#[test]
fn a_schedule_waits_for_a_limit() {
    let place = Place::new();
    let write = |name: &str, text: &str| fs::write(place.path(name), text).expect("it is written");
    let schedule = |limit: &str| {
        format!(
            r#"[{{"from": 0, "preset": "mxfp4"}}, {{"from": 4, "when": {limit}, "preset": "mxfp8_e4m3"}}]"#
        )
    };
    write("never.json", &schedule(r#"{"sqnr": 1.0}"#));
    write("soon.json", &schedule(r#"{"sqnr": 100.0}"#));
    write("zeros.json", &schedule(r#"{"underflow": 0.0}"#));
    let run = |epochs: &'static str, folder: &'static str, more: &[&'static str]| {
        let schedules = [
            "--schedule",
            "never.json",
            "--schedule",
            "soon.json",
            "--schedule",
        ];
        let options = ["zeros.json", "--preset", "mxfp4", "--epochs", epochs];
        let record = ["--record", folder, "--record-every", "3"];
        place
            .compare(&[SMALL, &schedules, &options, &record, more].concat())
            .0
    };
    // Six steps an epoch; steps 0, 3, 6, ... are recorded.
    let runs = run("2", "seen", &[]);
    let [mxfp4, never, soon, zeros] = [1, 2, 3, 4].map(|run| losses(&runs[run]));
    assert_eq!(never, mxfp4);
    assert_eq!(runs[2]["stages"].as_array().map(Vec::len), Some(0));
    for (run, losses) in [(&runs[3], soon), (&runs[4], zeros)] {
        // The record of step 3 is there after four steps.
        assert_eq!(run["stages"][0]["from"], 4);
        assert_eq!(losses[..4], mxfp4[..4]);
        assert_ne!(losses[4..], mxfp4[4..]);
    }
    // A run that goes on knows that it changed.
    run("1", "one", &["--save", "saved"]);
    let resumed = run("2", "one", &["--save", "saved", "--resume"]);
    for (run, resumed) in runs.iter().zip(&resumed) {
        assert_eq!(losses(run), losses(resumed), "{}", run["name"]);
        assert_eq!(run["stages"], resumed["stages"]);
    }

    let error = place.refusal("compare", &["--schedule", "soon.json"]);
    assert!(
        error.contains("`when` needs the figures of --record"),
        "{error}"
    );
    write(
        "first.json",
        r#"[{"from": 0, "when": {"sqnr": 1.0}, "preset": "mxfp4"}]"#,
    );
    let error = place.refusal("compare", &["--schedule", "first.json"]);
    assert!(
        error.contains("phase 0: `when` is Sqnr(1.0), expected none"),
        "{error}"
    );
}

#[test]
fn an_operand_alone_has_a_measured_effect() {
    let place = Place::new();
    let options = [
        "--model=cnn",
        "--format=mxfp4",
        "--format=mxfp8_e4m3",
        "--steps=10",
        "--batches=2",
    ];
    let output = place.command("sensitivity", &options);
    let stdout = String::from_utf8(output.stdout).expect("it prints text");
    assert!(output.status.success(), "{stdout}");
    let json = fs::read(place.path("out/cnn_sensitivity.json")).expect("there is JSON");
    let json: Value = serde_json::from_slice(&json).expect("it is JSON");
    let rows = json["rows"].as_array().expect("there are rows");
    let effect = |row: &Value| row["effect"].as_f64().expect("it is a number");
    assert!(rows.iter().all(|row| effect(row).is_finite()));
    // In the wider format nearly every operand matters less.
    let narrow = rows.iter().filter(|row| row["format"] == "mxfp4");
    let wide = rows.iter().filter(|row| row["format"] == "mxfp8_e4m3");
    let pairs: Vec<_> = narrow.zip(wide).collect();
    let less = pairs
        .iter()
        .filter(|(narrow, wide)| effect(wide) < effect(narrow));
    assert!(less.count() * 10 > pairs.len() * 8, "{stdout}");
    assert!(rows.iter().any(|row| row["product"] == "weight_gradient"));
    for one in json["correlations"].as_array().expect("there are some") {
        assert!(one["all"].as_f64().is_some_and(|all| all > 0.5), "{one}");
    }
    // ModelOpt's scores are of weights, and find a recipe.
    let options = [
        "--format",
        "mxfp4",
        "--format",
        "mxfp8_e4m3",
        "--slot",
        "w",
        "--bits",
        "6",
    ];
    let scores = ["--scores", "out/cnn_scores.json", "--out", "modelopt.json"];
    let output = place.command("search", &[&options[..], &scores].concat());
    let stdout = String::from_utf8(output.stdout).expect("it prints text");
    assert!(
        output.status.success() && stdout.contains("found: "),
        "{stdout}"
    );
    assert!(stdout.contains("stages.1.conv.weight"), "{stdout}");
    for file in ["cnn_sensitivity.svg", "cnn_sensitivity.csv"] {
        let text = fs::read_to_string(place.path(&format!("out/{file}"))).expect("it is there");
        assert!(text.contains("mxfp8_e4m3"));
    }
}
