//! Checkpoints: `checkpoint` trains, saves in every layout, loads, compares, and lists the saved files.

use std::fs;

use super::Place;

fn said(place: &Place, options: &[&str]) -> String {
    let output = place.command("checkpoint", options);
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("it is text"));
    assert!(output.status.success(), "{options:?}: {stdout}{stderr}");
    stdout
}

/// The cells of a table, row by row, without its head.
fn rows(table: &str) -> Vec<Vec<&str>> {
    let rows = table.lines().filter(|line| line.starts_with("| "));
    let cells = rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect());
    cells.skip(1).collect()
}

#[test]
fn every_layout_is_loaded_bit_for_bit() {
    let place = Place::new();
    let table = said(&place, &["--epochs", "1", "--out", "saved"]);
    let rows = rows(&table);
    let names: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    let layouts = [
        "microscaling",
        "mxfp4-pack-quantized",
        "gpt-oss",
        "gguf-mxfp4",
    ];
    assert_eq!(names, [&["float32", "bfloat16"], &layouts[..]].concat());
    for row in &rows {
        assert_eq!(row[4], "the same, bit for bit", "{row:?}");
        let file = place.path("saved").join(format!("{}.safetensors", row[0]));
        let bytes: u64 = row[1].parse().expect("it is a number");
        assert!(fs::metadata(file).unwrap().len() > bytes, "{row:?}");
        let bits = if layouts.contains(&row[0]) {
            "4.2500"
        } else {
            ""
        };
        assert_eq!(row[3], bits, "{row:?}");
    }

    let held = said(&place, &["inspect", "saved/gpt-oss.safetensors"]);
    assert!(
        held.contains("| head.weight ") && held.contains("| gpt-oss | mxfp4  | [12, 64] "),
        "{held}"
    );
    assert!(
        held.contains("specs: w fp4_e2m1, a fp4_e2m1, block 32, bfloat16, round even"),
        "{held}"
    );
    let same = [
        "diff",
        "saved/gpt-oss.safetensors",
        "saved/mxfp4-pack-quantized.safetensors",
    ];
    assert_eq!(
        said(&place, &same),
        "13 of 13 weights are the same, byte for byte\n"
    );
}

#[test]
fn nvfp4_in_the_bytes_of_a_tool_and_in_its_own() {
    let place = Place::new();
    let table = said(
        &place,
        &["train", "--preset", "nvfp4", "--epochs", "1", "--out", "."],
    );
    for row in rows(&table) {
        match row[0] {
            "nvfp4-pack-quantized" => assert!(row[4].starts_with("the tool's weights"), "{row:?}"),
            _ => assert_eq!(row[4], "the same, bit for bit", "{row:?}"),
        }
    }
    let files = [
        "diff",
        "microscaling.safetensors",
        "nvfp4-pack-quantized.safetensors",
    ];
    let difference = said(&place, &files);
    assert!(!difference.starts_with("13 of 13"), "{difference}");
    let files = [
        "diff",
        "microscaling.safetensors",
        "modelopt-nvfp4.safetensors",
    ];
    assert!(said(&place, &files).starts_with("13 of 13"));
}

#[test]
fn what_cannot_be_is_said() {
    let place = Place::new();
    for (options, parts) in [
        (&["--preset", "quartet"][..], ["--preset", "transformed"]),
        (&["--preset", "none"], ["--preset", "no format"]),
        (&["--preset", "mxfp5"], ["mxfp5", "mxfp4"]),
        (&["inspect", "nowhere"], ["nowhere", "No such file"]),
    ] {
        let output = place.command("checkpoint", options);
        assert!(!output.status.success(), "{options:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        for part in parts {
            assert!(stderr.contains(part), "{options:?}: {stderr}");
        }
    }
}
