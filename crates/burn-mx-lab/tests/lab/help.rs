//! The help, and the usage in messages.

use std::process::Command;

use super::{PROGRAM, Place};

/// The subcommands by purpose.
const GROUPS: [(&str, &[&str]); 4] = [
    (
        "Train and compare:",
        &["compare", "search", "sensitivity", "accumulator-sweep"],
    ),
    (
        "Quantize a trained network:",
        &["quantize", "pretrained", "checkpoint"],
    ),
    ("Look at one run:", &["report", "gradient-bias"]),
    ("Check the numbers:", &["published", "conformance"]),
];

fn help(options: &[&str]) -> String {
    let output = Command::new(PROGRAM).args(options).output();
    let output = output.expect("the program starts");
    assert!(output.status.success(), "{options:?}");
    String::from_utf8(output.stdout).expect("it prints text")
}

#[test]
fn every_subcommand_stands_under_its_heading() {
    let help = help(&["--help"]);
    // A heading's lines, up to the next empty line: names and descriptions.
    let mut paragraphs = help.split("\n\n").map(str::lines);
    for (heading, names) in GROUPS {
        let mut lines = paragraphs
            .find_map(|mut lines| (lines.next() == Some(heading)).then_some(lines))
            .unwrap_or_else(|| panic!("{heading}: {help}"));
        for name in names {
            let line = lines.next().expect("each name has a line").trim_start();
            let (found, about) = line.split_once(' ').expect("a name, and what it does");
            assert_eq!(found, *name);
            assert!(about.trim_start().len() > 20, "{line}");
        }
        assert_eq!(lines.next(), None, "{heading}");
    }
}

#[test]
fn usage_names_the_program_and_the_subcommand() {
    let place = Place::new();
    for (_, names) in GROUPS {
        for name in names {
            let text = help(&[name, "--help"]);
            assert!(
                text.contains(&format!("Usage: burn-mx-lab {name} ")),
                "{text}"
            );
            // An option that clap refuses.
            let error = place.refusal(name, &["--no-such-option"]);
            assert!(error.contains("--no-such-option"), "{error}");
            assert!(
                error.contains(&format!("Usage: burn-mx-lab {name}")),
                "{error}"
            );
        }
    }
    // Values that a subcommand refuses after clap.
    for (name, options) in [
        ("compare", &["--batch-size", "2000"][..]),
        ("quantize", &["--config", "MXFP3"]),
        ("pretrained", &["--data", "missing"]),
        ("accumulator-sweep", &["--fraction-bits", "99"]),
        ("checkpoint", &["--preset", "none"]),
        ("gradient-bias", &["--csv", "missing/bias.csv"]),
    ] {
        let error = place.refusal(name, options);
        assert!(
            error.contains(&format!("Usage: burn-mx-lab {name}")),
            "{error}"
        );
        assert!(error.contains(options[0]), "{error}");
    }
}

#[test]
fn names_with_underscores_are_accepted() {
    for (old, new) in [
        ("gradient_bias", "gradient-bias"),
        ("accumulator_sweep", "accumulator-sweep"),
    ] {
        assert_eq!(help(&[old, "--help"]), help(&[new, "--help"]));
    }
}
