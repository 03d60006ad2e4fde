//! `vectors` and `check`: pipelines, files, exit statuses, errors.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use support::{files, refuse, run, succeed};

/// `microscaling vectors … | microscaling check …`
fn piped(folder: &Path, vectors: &str, check: &str) -> (i32, String) {
    let program = env!("CARGO_BIN_EXE_microscaling");
    let mut first = Command::new(program)
        .args(vectors.split_whitespace())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let second = Command::new(program)
        .args(check.split_whitespace())
        .current_dir(folder)
        .stdin(first.stdout.take().unwrap())
        .output()
        .unwrap();
    first.wait().unwrap();
    let said = [second.stdout, second.stderr].concat();
    (
        second.status.code().unwrap(),
        String::from_utf8(said).unwrap(),
    )
}

#[test]
fn a_stream_is_checked_without_a_file() {
    let folder = tempfile::tempdir().unwrap();
    for form in ["hex", "csv", "jsonl", "npy"] {
        for set in [
            "codes binary8p4se",
            "elements fp8_e5m2 --input float16 --exhaustive --overflow infinity",
            "elements binary6p3uf --rounding ToOdd --overflow SatNone",
            "elements fp4_e2m1 --rounding stochastic --random-bits 8 --seed 3",
            "blocks nvfp4 --input bfloat16 --limit 200",
            "blocks mxint8 --no-values",
            "dot hopper_promote128 --lhs fp8_e4m3 --rhs fp8_e5m2 --limit 60",
        ] {
            let (status, said) = piped(
                folder.path(),
                &format!("vectors {set} --form {form}"),
                &format!("check {set} --dump -"),
            );
            assert_eq!(status, 0, "{set} {form}: {said}");
            assert!(said.contains("no difference"), "{said}");
        }
    }
}

#[test]
fn what_a_device_does_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (status, said) = piped(
        folder.path(),
        "vectors elements fp8_e4m3 --rounding nearest --flush-outputs",
        "check elements fp8_e4m3",
    );
    assert_eq!(status, 1);
    let line = "The device follows another rule: ties away from zero, and subnormal outputs flushed to zero (after rounding)";
    assert!(said.contains(line), "{said}");
    let (status, said) = piped(
        folder.path(),
        "vectors elements fp8_e4m3 --rounding nearest",
        "check elements fp8_e4m3 --json",
    );
    assert_eq!(status, 1);
    let json: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(json["rules"][0], "ties away from zero");
    assert_eq!(json["causes"][0]["cases"], json["differ"]);
    assert_eq!(json["share_unexplained"], 0.0);
    // Vectors of a narrower unit, with the inputs of the dump.
    let narrow = "accumulator(order=joint,terms=16,fraction_bits=13,output=f32_rz)";
    let wide = narrow.replace("13", "14");
    let (status, said) = piped(
        folder.path(),
        &format!("vectors dot {narrow} --lhs mxfp8_e4m3"),
        &format!("check dot {wide} --lhs mxfp8_e4m3 --own-inputs"),
    );
    assert_eq!(status, 1);
    assert!(
        said.contains("The device follows another rule: one fraction bit narrower"),
        "{said}"
    );
}

#[test]
fn files_are_written_once_and_read_beside_their_inputs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let said = succeed(
        folder,
        "vectors elements fp8_e4m3 -o e4m3.hex --limit 50 --cover --json",
    );
    let json: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&json["cases"], &json["cover"][0]["of"]),
        (&50.into(), &256.into())
    );
    assert_eq!(files(folder), ["e4m3.hex", "e4m3.layout.json"]);
    let layout: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(folder.join("e4m3.layout.json")).unwrap())
            .unwrap();
    assert_eq!(layout["fields"][0]["lowest_bit"], 8);
    assert_eq!(layout["bits"], 40);
    refuse(
        folder,
        "vectors elements fp8_e4m3 -o e4m3.hex",
        &["e4m3", "exists", "--force"],
    );
    succeed(
        folder,
        "vectors elements fp8_e4m3 -o e4m3.npy --form npy --limit 50",
    );
    refuse(
        folder,
        "vectors elements fp8_e4m3 -o e4m3.npy --form npy",
        &["e4m3.npy exists"],
    );
    // The outputs alone, as a simulator writes them.
    let text = fs::read_to_string(folder.join("e4m3.hex")).unwrap();
    let codes: Vec<&str> = text.lines().skip(2).map(|line| &line[8..]).collect();
    fs::write(folder.join("out.hex"), codes.join("\n")).unwrap();
    succeed(
        folder,
        "check elements fp8_e4m3 --inputs e4m3.npy --dump out.hex",
    );
    succeed(folder, "check elements fp8_e4m3 --limit 50 --dump out.hex");
    refuse(
        folder,
        "check elements fp8_e4m3 --dump out.hex",
        &["out.hex has 50 cases, expected 2280"],
    );
    refuse(
        folder,
        "check elements fp8_e4m3 --dump out.hex --own-inputs",
        &["the outputs alone"],
    );
    refuse(
        folder,
        "check elements fp6_e3m2 --input float16 --dump out.hex --inputs e4m3.npy",
        &["e4m3.npy", "'code'"],
    );
    refuse(
        folder,
        "check blocks mxfp4 --dump out.hex",
        &["words of 2 digits"],
    );
    refuse(
        folder,
        "check elements fp8_e4m3 --dump missing.hex",
        &["missing.hex"],
    );
}

#[test]
fn wrong_options_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (line, parts) in [
        ("vectors elements fp9_e4m3", vec!["fp9_e4m3"]),
        ("vectors elements binary8p9se", vec!["precision"]),
        (
            "vectors elements fp8_e4m3 --rounding sideways",
            vec!["rounding of elements `sideways`", "ties-to-zero"],
        ),
        (
            "vectors elements fp8_e4m3 --random-bits 4",
            vec!["random-bits is 4", "rounding even"],
        ),
        (
            "vectors elements fp8_e4m3 --rounding stochastic --random-bits 40",
            vec!["random-bits is 40; allowed: 1 to 31"],
        ),
        ("vectors elements fp8_e4m3 --json", vec!["--form"]),
        (
            "vectors elements fp8_e4m3 --form xml",
            vec!["form is xml", "jsonl"],
        ),
        ("vectors dot hopper --lhs mxfp4", vec!["hopper"]),
        (
            "vectors dot hopper --lhs fp8_e4m3 --trace 100000",
            vec!["trace is 100000"],
        ),
        ("vectors dot hopper --lhs mx9", vec!["operand is mx9"]),
    ] {
        refuse(folder, line, &parts);
    }
    let said = succeed(
        folder,
        "vectors dot ampere --lhs float16 --tell-apart volta --trace 0",
    );
    assert!(
        said.contains("largest exponent") && said.matches("\nsum: ").count() == 2,
        "{said}"
    );
    let (status, said) = run(folder, "vectors blocks mxfp4 --cover --csv");
    assert_eq!(status, 0);
    assert!(
        said.starts_with("Covered,Hit,Of\ncodes,16,16\nscales,254,256\n"),
        "{said}"
    );
}

/// A device that breaks ties away from zero shows in every block format.
#[test]
fn blocks_of_every_kind_have_ties() {
    let folder = tempfile::tempdir().unwrap();
    for format in [
        "mxfp4",
        "mx6",
        "mx9",
        "bfp16",
        "bfp(bit_width=12,block_size=7)",
        "hif4",
        "nf4",
        "nvint4",
        "nvfp4(tensor_scale=true)",
        "nvfp4(tensor_scale=true,square=true)",
        "nvfp4(outer_size=0)",
        "block(element=e2m1,scale=ue5m3,block_size=16,outer_size=128)",
        "mx(element=fp8_e4m3,block_size=1)",
        "nvfp4(four_over_six=true)",
        "block(element=fp8_e4m3,scale=ue4m3,block_size=1)",
        "block(element=binary8p4se,scale=binary8p1uf,block_size=16)",
    ] {
        let (status, said) = piped(
            folder.path(),
            &format!("vectors blocks {format} --rounding nearest"),
            &format!("check blocks {format}"),
        );
        assert_eq!(status, 1, "{format}: {said}");
        let named = said.contains("follows another rule: ties away from zero\n");
        assert!(named, "{format}: {said}");
    }
}

#[test]
fn a_second_rule_is_named_where_one_explains_all_differences() {
    let folder = tempfile::tempdir().unwrap();
    for (rounding, words) in [
        ("up", "rounding toward +Inf"),
        ("down", "rounding toward -Inf"),
    ] {
        let (status, said) = piped(
            folder.path(),
            &format!("vectors elements fp8_e4m3 --rounding {rounding} --flush-inputs"),
            "check elements fp8_e4m3",
        );
        assert_eq!(status, 1);
        let both = format!("follows another rule: {words}, and subnormal inputs flushed to zero");
        assert!(said.contains(&both), "{said}");
    }
}

#[test]
fn options_without_effect_and_endless_sets_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    for (line, words) in [
        (
            "vectors elements fp6_e3m2 --overflow nan",
            "overflow is nan; allowed: saturate",
        ),
        (
            "vectors blocks mxfp4 --overflow infinity",
            "overflow is infinity; allowed: saturate",
        ),
        (
            "vectors blocks mx(element=fp4_e2m1,block_size=100000000000)",
            "at most 65536 elements",
        ),
        ("vectors elements fp8_e4m3 --limit 0", "0 is not in 1"),
    ] {
        let (status, said) = piped(folder.path(), "vectors codes fp4_e2m1", line);
        assert_eq!(status, 2, "{line}");
        assert!(said.contains(words), "{line}: {said}");
    }
}

#[test]
fn the_form_follows_the_ending() {
    let folder = tempfile::tempdir().unwrap();
    let (status, said) = piped(
        folder.path(),
        "vectors codes fp4_e2m1",
        "vectors elements fp4_e2m1 --output four.csv",
    );
    assert_eq!(status, 0, "{said}");
    let text = fs::read_to_string(folder.path().join("four.csv")).unwrap();
    assert!(text.starts_with("input,code\n"), "{text}");
    let (status, said) = piped(
        folder.path(),
        "vectors codes fp4_e2m1",
        "vectors elements fp4_e2m1 --form csv --output -",
    );
    assert_eq!(
        (status, said.starts_with("input,code\n")),
        (0, true),
        "{said}"
    );
    assert!(!folder.path().join("-").exists());
}

/// The rule of a chip, described once: vectors take it from the description.
#[test]
fn a_described_chip_is_its_own_rule() {
    let folder = tempfile::tempdir().unwrap();
    for format in [
        "bfp16ebs8",
        "bfp16ebs8(rounding=even)",
        "mx(element=e4m3,rounding=down,overflow=nan,negative_zero=false)",
        "block(element=e2m1,scale=ue5m3,rounding=ties-to-odd,block_size=16)",
        "nvfp4(tensor_scale=true)",
        "block(element=binary6p3se,scale=binary8p4ue,scale_mode=max_abs_finite,non_finite=elements,block_size=8)",
        "mx(element=e4m3,random_bits=4,rounding=stochastic-b,block_size=16)",
    ] {
        let (status, said) = piped(
            folder.path(),
            &format!("vectors blocks {format}"),
            &format!("check blocks {format}"),
        );
        assert_eq!(status, 0, "{format}: {said}");
    }
    // The library's default mode in place of the chip's is found.
    let (status, said) = piped(
        folder.path(),
        "vectors blocks bfp16ebs8(rounding=even)",
        "check blocks bfp16ebs8 --own-inputs",
    );
    assert_eq!(status, 1, "{said}");
    assert!(
        said.contains("follows another rule: ties to even\n"),
        "{said}"
    );
    let (status, said) = piped(
        folder.path(),
        "vectors codes fp4_e2m1",
        "vectors blocks mx(element=e4m3,rounding=down) --rounding up",
    );
    assert_eq!(status, 2, "{said}");
    assert!(
        said.contains("no options beside the format's own rule"),
        "{said}"
    );
}

#[test]
fn an_unsigned_format_without_infinities_may_follow_sat_none() {
    let folder = tempfile::tempdir().unwrap();
    let (status, said) = piped(
        folder.path(),
        "vectors elements binary8p4uf --overflow SatNone",
        "check elements binary8p4uf",
    );
    assert_eq!(status, 1, "{said}");
    assert!(
        said.contains("follows another rule: numbers below 0 become NaN (SatNone)"),
        "{said}"
    );
}

#[test]
fn an_unknown_ending_is_an_error_with_the_known_ones() {
    let folder = tempfile::tempdir().unwrap();
    let (status, said) = piped(
        folder.path(),
        "vectors codes fp4_e2m1",
        "vectors elements fp4_e2m1 --output four.txt",
    );
    assert_eq!(status, 2, "{said}");
    assert!(
        said.contains("`.txt` says no form; allowed: .hex, .csv, .jsonl, .npy"),
        "{said}"
    );
    assert!(!folder.path().join("four.txt").exists());
}

#[cfg(unix)]
#[test]
fn a_pipe_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe.hex");
    let made = std::process::Command::new("mkfifo")
        .arg(&pipe)
        .status()
        .unwrap();
    assert!(made.success());
    let (status, said) = piped(
        folder.path(),
        "vectors codes fp4_e2m1",
        "vectors elements fp4_e2m1 --output pipe.hex --force",
    );
    assert_eq!(status, 2, "{said}");
    assert!(said.contains("is a pipe or a device"), "{said}");
    assert!(!pipe.metadata().unwrap().is_file());
}

#[test]
fn bytes_behind_an_array_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (status, said) = piped(
        folder.path(),
        "vectors codes fp4_e2m1",
        "vectors elements fp4_e2m1 --output four.npy",
    );
    assert_eq!(status, 0, "{said}");
    let file = folder.path().join("four.npy");
    let mut bytes = fs::read(&file).unwrap();
    bytes.push(0);
    fs::write(&file, bytes).unwrap();
    let (status, said) = piped(
        folder.path(),
        "vectors codes fp4_e2m1",
        "check elements fp4_e2m1 --dump four.npy",
    );
    assert_eq!(status, 2, "{said}");
    assert!(said.contains("bytes come after the last record"), "{said}");
}

/// Sums that are wider, and rounded in another way; and promotions where there are none.
#[test]
fn sums_of_another_unit_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let unit =
        |rest: &str| format!("accumulator(order=joint,terms=16,fraction_bits=14,output={rest})");
    for (device, expected, words) in [
        (
            "f32_rne",
            "e8m13_rz",
            "sums in float32, rounded half to even",
        ),
        (
            "f32_rz,promote_every=64",
            "f32_rz",
            "promotion every 64 elements, where there is none",
        ),
    ] {
        let (status, said) = piped(
            folder.path(),
            &format!("vectors dot {} --lhs fp8_e4m3 --length 256", unit(device)),
            &format!(
                "check dot {} --lhs fp8_e4m3 --length 256 --own-inputs",
                unit(expected)
            ),
        );
        assert_eq!(status, 1, "{said}");
        assert!(said.contains(words), "{device}: {said}");
    }
}

#[test]
fn tiles_of_a_matrix_unit() {
    let folder = tempfile::tempdir().unwrap();
    let unit = "accumulator(order=joint,terms=8,fraction_bits=13,output=f32_rz)";
    let (status, said) = piped(
        folder.path(),
        &format!("vectors dot {unit} --lhs fp8_e4m3 --length 16 --tile 4x8"),
        &format!("check dot {unit} --lhs fp8_e4m3 --length 16 --tile 4x8"),
    );
    assert_eq!(status, 0, "{said}");
    let narrow = unit.replace("13", "12");
    let (status, said) = piped(
        folder.path(),
        &format!("vectors dot {narrow} --lhs fp8_e4m3 --length 16 --tile 4x8"),
        &format!("check dot {unit} --lhs fp8_e4m3 --length 16 --tile 4x8 --own-inputs"),
    );
    assert_eq!(status, 1, "{said}");
    assert!(
        said.contains("follows another rule: one fraction bit narrower\n"),
        "{said}"
    );
    assert!(said.contains("row 0, column"), "{said}");
    let (status, said) = piped(
        folder.path(),
        "vectors codes fp4_e2m1",
        "vectors dot hopper --lhs fp8_e4m3 --tile 4x4 --trace 0",
    );
    assert_eq!(status, 2, "{said}");
}
