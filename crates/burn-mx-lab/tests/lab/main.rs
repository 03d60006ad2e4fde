//! The program as a user runs it: its subcommands, options, files and messages.

#![allow(
    clippy::too_many_lines,
    reason = "tests follow a run from its data to its report"
)]

mod accumulator_sweep;
mod checkpoint;
mod conformance;
#[cfg(all(unix, feature = "tui"))]
mod dashboard;
#[path = "../../../../tests/shared/emulation.rs"]
mod emulation;
mod held_out;
mod help;
#[path = "../../../../tests/shared/noise.rs"]
mod noise;
mod oracle;
mod outputs;
#[path = "../../../../tests/shared/place.rs"]
mod place;
mod quantize;
mod record;
mod search;
#[cfg(all(unix, feature = "tui"))]
mod terminal;

use std::process::Command;

use serde_json::Value;

use place::{Place, losses};

const PROGRAM: &str = env!("CARGO_BIN_EXE_burn-mx-lab");

/// Every model of `compare`, with options that make it small.
const MODELS: [(&str, &[&str]); 4] = [
    (
        "ffn",
        &["--model", "ffn", "--hidden", "16", "--batch-size", "256"],
    ),
    (
        "cnn",
        &["--model", "cnn", "--channels", "4", "--batch-size", "256"],
    ),
    (
        "lstm",
        &["--model", "lstm", "--hidden", "16", "--batch-size", "256"],
    ),
    (
        "transformer",
        &[
            "--model",
            "transformer",
            "--hidden",
            "16",
            "--blocks",
            "1",
            "--batch-size",
            "1024",
        ],
    ),
];
/// The first of them, which has every option but the sizes of others.
const SMALL: &[&str] = MODELS[0].1;

/// The command that runs a subcommand.
fn start(name: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg(name);
    command
}

/// The lines that two runs with the same options share.
fn result(run: &Value) -> [&Value; 4] {
    ["name", "seed", "loss", "accuracy"].map(|field| &run[field])
}

fn assert_same_results(left: &[Value], right: &[Value], what: &str) {
    assert_eq!(left.len(), right.len(), "{what}");
    for (left, right) in left.iter().zip(right) {
        assert_eq!(result(left), result(right), "{what}");
    }
}

#[test]
fn every_model_trains_in_fp32_and_in_mx_and_reports_both() {
    for (model, small) in MODELS {
        let place = Place::new();
        let options = [small, &["--epochs", "3", "--preset", "mxfp8_e4m3"]].concat();
        let (runs, stdout) = place.compare(&options);
        assert_eq!(
            runs.iter().map(|run| &run["name"]).collect::<Vec<_>>(),
            ["fp32", "mxfp8_e4m3"]
        );
        for run in &runs {
            let losses: Vec<f64> = losses(run)
                .iter()
                .map(|loss| loss.as_f64().expect("losses are finite"))
                .collect();
            let steps = losses.len() / 3;
            let [first, last] = [&losses[..steps], &losses[2 * steps..]]
                .map(|epoch| epoch.iter().sum::<f64>() / steps as f64);
            assert!(last < first, "{model} learns: {first} → {last}");
            assert!(run["step_ms"].as_f64().expect("a time") > 0.0);
            assert!((0.0..=1.0).contains(&run["accuracy"].as_f64().expect("a share")));
        }
        assert_ne!(losses(&runs[0]), losses(&runs[1]), "{model}: MX counts");
        assert!(runs[0]["specs"].is_null());
        assert_eq!(runs[1]["specs"]["w_elem_format"], "fp8_e4m3");

        for column in ["format", "bits", "final loss", "time a step", "overhead"] {
            assert!(stdout.contains(column), "{model}: {stdout}");
        }
        let plot = place.path("out").join(format!("{model}_loss.svg"));
        let plot = std::fs::read_to_string(plot).expect("there is a plot");
        assert!(plot.starts_with("<svg") && plot.contains("mxfp8_e4m3"));
    }
}

#[test]
fn a_run_that_was_resumed_has_the_bits_of_one_that_went_through() {
    for (model, small) in MODELS {
        let place = Place::new();
        // Random numbers in all of the model, other specs and numbers in one part. Burn folds the last step's statistics into batch norm's
        // running ones by an op that draws: once more in a model that does not come from a record.
        let specs: &[&str] = match model {
            "cnn" => &["--first-last", "mxfp8_e5m2"],
            _ => &[
                "--round",
                "stochastic",
                "--first-last",
                "mxfp8_e5m2,round=stochastic",
            ],
        };
        let options = |epochs: &'static str| [small, specs, &["--epochs", epochs]].concat();
        let (through, _) = place.compare(&options("3"));
        place.compare(&[&options("1")[..], &["--save", "saved"]].concat());
        let resume = [&options("3")[..], &["--save", "saved", "--resume"]].concat();
        let (resumed, _) = place.compare(&resume);
        assert_same_results(&through, &resumed, model);
        // Nothing is left to do.
        let (again, _) = place.compare(&resume);
        assert_same_results(&through, &again, model);
        assert!(place.path("saved/fp32/seed-0/model.mpk").exists());
    }
}

#[test]
fn a_checkpoint_that_was_broken_off_is_passed_over() {
    let place = Place::new();
    let options = |epochs: &'static str| [SMALL, &["--epochs", epochs]].concat();
    let (through, _) = place.compare(&options("3"));
    place.compare(&[&options("2")[..], &["--save", "saved"]].concat());
    let broken = place.path("saved/fp32/seed-0/checkpoint/optim-2.mpk");
    let bytes = std::fs::read(&broken).expect("there is a checkpoint");
    std::fs::write(&broken, &bytes[..bytes.len() / 2]).expect("it can be written");
    let (resumed, _) =
        place.compare(&[&options("3")[..], &["--save", "saved", "--resume"]].concat());
    assert_same_results(&through, &resumed, "from the epoch before");
    // And where a part is missing: epoch 3 is trained again.
    let missing = place.path("saved/fp32/seed-0/checkpoint/scheduler-3.mpk");
    std::fs::remove_file(missing).expect("there is a checkpoint");
    let (resumed, _) =
        place.compare(&[&options("3")[..], &["--save", "saved", "--resume"]].concat());
    assert_same_results(&through, &resumed, "without a part");
}

#[test]
fn a_resumed_run_has_to_be_the_same_run() {
    let place = Place::new();
    let save = [
        &["--batch-size", "256"][..],
        &["--epochs", "1", "--save", "saved"],
    ]
    .concat();
    let with = |more: &[&'static str]| [&save[..], more].concat();

    let error = place.refusal("compare", &with(&["--resume"]));
    assert!(error.contains("--save 'saved' has no such run"), "{error}");
    place.compare(&save);
    let error = place.refusal("compare", &save);
    assert!(error.contains("add --resume"), "{error}");
    for (option, field) in [
        (["--lr", "0.25"], "has lr 0.0005, and now it is 0.25"),
        (["--hidden", "32"], "has model.hidden 128"),
        (["--block-size", "16"], "has specs.block_size 32"),
        (["--layer", "head=fp32"], "has layers []"),
    ] {
        let error = place.refusal("compare", &[&with(&["--resume"])[..], &option].concat());
        assert!(error.contains(field), "{option:?}: {error}");
    }
    let error = place.refusal("compare", &["--resume"]);
    assert!(error.contains("--save"), "{error}");
}

#[test]
fn layers_have_the_specs_that_the_command_line_gives_them() {
    let place = Place::new();
    let ffn = |options: &[&'static str]| {
        let always = ["--hidden", "16", "--batch-size", "256", "--epochs", "1"];
        place.compare(&[&always, options].concat()).0
    };
    let mxfp4 = ["--preset", "mxfp4", "--bfloat", "0"];
    let plain = ffn(&mxfp4);
    let (fp32, mxfp4_alone) = (losses(&plain[0]), losses(&plain[1]));
    assert_ne!(fp32, mxfp4_alone);

    // Every product has a parameter, so nothing is left of the preset but functions by formula, which round nothing here.
    let all_fp32 = ffn(&[&mxfp4[..], &["--layer", "*=fp32"]].concat());
    let mxint8 = ["--preset", "mxint8", "--bfloat", "0"];
    let all_fp32_too = ffn(&[&mxint8[..], &["--layer", "*=fp32"]].concat());
    assert_eq!(losses(&all_fp32[1]), losses(&all_fp32_too[1]));
    let number = |loss: &Value| loss.as_f64().expect("losses are finite");
    for (layers, fp32) in losses(&all_fp32[1]).iter().zip(fp32) {
        assert!((number(layers) - number(fp32)).abs() < 2e-3);
    }
    let same = ffn(&[&mxfp4[..], &["--layer", "*=mxfp4,bfloat=0"]].concat());
    assert_eq!(losses(&same[1]), mxfp4_alone);

    let first_last = ffn(&[&mxfp4[..], &["--first-last", "fp32"]].concat());
    assert_ne!(losses(&first_last[1]), mxfp4_alone);
    assert_ne!(losses(&first_last[1]), fp32);
    let by_name = ["--layer", "embed=fp32", "--layer", "head=fp32"];
    let by_name = ffn(&[&mxfp4[..], &by_name].concat());
    assert_eq!(losses(&by_name[1]), losses(&first_last[1]));
    assert_eq!(by_name[1]["layers"][1]["pattern"], "head");
    assert_eq!(by_name[0]["layers"], Value::Array(vec![]), "FP32 has none");

    // Of two that match, the later one counts.
    let later = ["--layer", "*=mxfp8_e4m3", "--layer", "*=fp32"];
    let later = ffn(&[&mxfp4[..], &later].concat());
    assert_eq!(losses(&later[1]), losses(&all_fp32[1]));
}

#[test]
fn every_model_has_a_first_and_a_last_layer() {
    for (model, small) in MODELS {
        let place = Place::new();
        let options = [small, &["--epochs", "1", "--preset", "mxfp4"]].concat();
        let (alone, _) = place.compare(&options);
        let (with, stdout) =
            place.compare(&[&options[..], &["--first-last", "mxfp8_e4m3"]].concat());
        assert_ne!(losses(&alone[1]), losses(&with[1]), "{model}");
        assert!(stdout.contains("head=mxfp8_e4m3"), "{model}: {stdout}");
    }
}

#[test]
fn several_seeds_give_a_mean_and_a_deviation() {
    let place = Place::new();
    let seeds = ["--epochs", "2", "--seed", "1", "--seed", "2"];
    let (runs, stdout) = place.compare(&[SMALL, &seeds].concat());
    let seeds: Vec<_> = runs.iter().map(|run| &run["seed"]).collect();
    assert_eq!(seeds, [1, 2, 1, 2]);
    assert_ne!(losses(&runs[0]), losses(&runs[1]));
    assert!(stdout.contains("±") && stdout.contains("means over 2 seeds"));
    let (alone, _) = place.compare(&[SMALL, &["--epochs", "2", "--seed", "2"]].concat());
    assert_same_results(&alone, &[runs[1].clone(), runs[3].clone()], "seed 2");
}

#[test]
fn quarks_name_of_a_format_is_the_preset() {
    let place = Place::new();
    let ffn = |preset| {
        let options = ["--epochs", "1", "--preset", preset];
        place.compare(&[SMALL, &options].concat()).0
    };
    for (quarks, preset) in [("MXFP8E4M3", "mxfp8_e4m3"), ("MX6", "mx6")] {
        let run = &ffn(quarks)[1];
        assert_eq!(run["name"], preset);
        assert_same_results(&ffn(preset)[1..], std::slice::from_ref(run), quarks);
    }
    let layer = ["--layer", "head=MXFP4E2M1"];
    place.compare(&[SMALL, &["--epochs", "1"], &layer].concat());
    let twice = ["--preset", "mx9", "--preset", "MX9"];
    let error = place.refusal("compare", &twice);
    assert!(
        error.contains("--preset 'mx9' is given more than once"),
        "{error}"
    );
}

#[test]
fn what_cannot_be_is_refused_before_any_work() {
    let place = Place::new();
    for (options, expected) in [
        (&["--preset", "mxfp5"][..], &["'mxfp5'", "mxfp8_e4m3"][..]),
        (
            &["--preset", "mxfp4", "--preset", "mxfp4"],
            &["--preset 'mxfp4'", "more than once"],
        ),
        (&["--layer", "head"], &["'head'", "PATTERN=PRESET"]),
        (&["--layer", "haed=fp32"], &["haed", "has head, embed, "]),
        (&["--layer", "head[=fp32"], &["head[", "glob"]),
        (
            &["--layer", "head=mxfp5"],
            &["'mxfp5'", "fp32", "mxfp8_e4m3"],
        ),
        (&["--layer", "head=mxfp4,bfloat=9"], &["'9'", "bfloat"]),
        (
            &["--layer", "head=mxfp4,blok_size=9"],
            &["--blok_size", "FIELD=VALUE"],
        ),
        (&["--first-last", "fp23"], &["'fp23'", "fp32"]),
        (&["--bfloat", "16", "--fp", "16"], &["bfloat", "fp"]),
        (&["--batch-size", "2000"], &["--batch-size '2000'", "1437"]),
        (&["--epochs", "0"], &["'0'", "1..=10000"]),
        (&["--hidden", "5000"], &["--hidden '5000'", "1..=4096"]),
        (
            &["--channels", "4"],
            &["--channels '4'", "ffn has none", "cnn"],
        ),
        (
            &["--model", "transformer", "--hidden", "18"],
            &["--hidden '18'", "multiple of its 4 heads"],
        ),
        (
            &["--model", "cnn", "--blocks", "2"],
            &["--blocks '2'", "cnn has none", "transformer"],
        ),
        (
            &["--model", "mlp"],
            &["'mlp'", "ffn, cnn, lstm, transformer"],
        ),
        (&["--json", "none/runs.json"], &["--json", "none/runs.json"]),
        (&["--lr", "-1"], &["'-1'", "above 0"]),
        (&["--out", "/dev/null/out"], &["--out", "/dev/null/out"]),
        (&["--progress", "tui"], &["'tui'", "auto, bar, lines, none"]),
    ] {
        let error = place.refusal("compare", options);
        for fragment in expected {
            assert!(error.contains(fragment), "{options:?}: {error}");
        }
    }
    let left = std::fs::read_dir(place.0.path()).expect("the place is there");
    let left: Vec<_> = left.flatten().map(|entry| entry.file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}
