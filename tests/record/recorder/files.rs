//! Records on disk, and what cannot be.

use std::fs;
use std::path::Path;

use burn_mx::MxSpecs;
use burn_mx::module::label_parameters;
use burn_mx::record::{
    RECORDS, REPORT_HTML, REPORT_JSON, RecordError, Recorder, RecorderConfig, Report, TensorBoard,
};

use super::{folder, record_here, steps};
use crate::models::{Forward as _, Mlp, model};
use crate::support::{Mx, mx_device};

#[test]
fn a_run_that_dies_leaves_what_it_recorded() {
    let folder = folder();
    let device = mx_device(&MxSpecs::mxfp4());
    let run = |steps: u64, first: u64, append: bool| {
        let recorder = Recorder::new(RecorderConfig::default())
            .run("a")
            .first_step(first)
            .on_this_thread();
        let recording = match append {
            true => recorder.append(&folder),
            false => recorder.start(&folder),
        };
        let recording = recording.expect("the folder can be written to");
        let model = label_parameters(model::<Mlp, Mx>(&device));
        for _ in 0..steps {
            model.outputs(&device).sum().backward();
        }
        drop(recording);
    };
    run(3, 0, false);
    let path = folder.path().join(RECORDS);
    let whole = fs::read_to_string(&path).expect("it is there");
    assert_eq!(whole.lines().count(), 4);
    // Broken off in the middle of a line.
    fs::write(&path, &whole[..whole.len() - 200]).expect("it can be written");
    let report = Report::read([folder.path()]).expect("a torn end is no error");
    assert_eq!(steps(&report).len(), 2);
    // And gone on with: the later record of a step counts.
    run(3, 1, true);
    let report = Report::read([folder.path()]).expect("the torn line is passed over");
    let recorded: Vec<u64> = report.steps().map(|step| step.step).collect();
    assert_eq!(recorded, [0, 1, 2, 3]);

    report
        .save(folder.path().join("out"))
        .expect("it can be written");
    let html = fs::read_to_string(folder.path().join("out").join(REPORT_HTML)).expect("a page");
    assert!(html.contains("up.weight") && !html.contains("__DATA__"));
    let json = fs::read_to_string(folder.path().join("out").join(REPORT_JSON)).expect("its data");
    let json: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!(json["runs"][0]["steps"], serde_json::json!([0, 1, 2, 3]));
    assert!(report.table().contains("up.weight"));

    // Broken off in the middle of a letter, and after that a header.
    let (begun, _) = whole.split_at(whole.len() - 200);
    let mut torn = begun.replace("\"run\":\"a\"", "\"run\":\"ä\"").into_bytes();
    let letter = torn
        .iter()
        .rposition(|byte| *byte == 0xc3)
        .expect("it is there");
    torn.truncate(letter + 1);
    fs::write(&path, &torn).expect("it can be written");
    let report = Report::read([folder.path()]).expect("a torn end is no error");
    assert_eq!(steps(&report).len(), 2);
    torn.push(b'\n');
    torn.extend(whole.lines().next().expect("a header").bytes());
    fs::write(&path, &torn).expect("it can be written");
    let report = Report::read([folder.path()]).expect("another run goes on");
    assert_eq!(steps(&report).len(), 2);

    // A line that is none, in the middle.
    let torn = whole.replacen("\"step\":1", "\"step\":\"one\"", 1);
    fs::write(&path, torn).expect("it can be written");
    let error = Report::read([folder.path()])
        .expect_err("line 3 is no record")
        .to_string();
    assert!(error.contains("line 3") && error.contains("one"), "{error}");
}

/// The records of an event file, each with its length (TensorFlow, `core/lib/io/record_reader.cc`); checksums are tested beside
/// the writer.
fn events(bytes: &[u8]) -> Vec<&[u8]> {
    let mut rest = bytes;
    let mut events = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<8>() {
        let length = u64::from_le_bytes(*length) as usize;
        events.push(&after[4..4 + length]);
        rest = &after[4 + length + 4..];
    }
    events
}

/// One event file a run has every recorded figure; CSV has a line for each operand.
#[test]
fn records_as_curves_of_tensorboard_and_as_csv() {
    let folder = folder();
    let device = mx_device(&MxSpecs::mxfp4());
    let recording = Recorder::new(RecorderConfig::default())
        .run("../a")
        .tensorboard()
        .on_this_thread()
        .start(&folder)
        .expect("the folder can be written to");
    let model = label_parameters(model::<Mlp, Mx>(&device));
    for _ in 0..2 {
        model.outputs(&device).sum().backward();
    }
    let report = recording.finish().expect("all is written");

    // A run's name leads to no other folder.
    let run = fs::read_dir(folder.path().join("__a")).expect("a folder with the run's name");
    let files: Vec<_> = run.map(|entry| entry.expect("an entry").path()).collect();
    assert_eq!(files.len(), 1);
    let name = files[0].file_name().expect("a file").to_string_lossy();
    assert!(name.starts_with("events.out.tfevents."), "{name}");
    let bytes = fs::read(&files[0]).expect("it is there");
    let events = events(&bytes);
    assert_eq!(events.len(), 3, "the version, and two steps");
    let has = |event: &[u8], text: &str| event.windows(text.len()).any(|w| w == text.as_bytes());
    assert!(has(events[0], "brain.Event:2"));
    for (event, step) in events[1..].iter().zip(report.steps()) {
        for product in &step.products {
            for operand in &product.operands {
                let Some(sqnr) = operand.figures.sqnr else {
                    continue;
                };
                let tag = format!(
                    "{}/{}/{}/sqnr",
                    product.layer, product.product, operand.operand
                );
                let mut scalar = tag.replace(' ', "_").into_bytes();
                // `simple_value`, 32 bits, follows the tag.
                scalar.push(0x15);
                scalar.extend((sqnr as f32).to_le_bytes());
                let found = event.windows(scalar.len()).any(|w| w == scalar);
                assert!(found, "{tag}");
            }
        }
    }

    let csv = report.csv();
    let mut csv = csv::Reader::from_reader(csv.as_bytes());
    let header = csv.headers().expect("a header").clone();
    let column = |name: &str| {
        header
            .iter()
            .position(|other| other == name)
            .expect("a column")
    };
    let rows: Vec<_> = csv
        .records()
        .map(|row| row.expect("as many cells"))
        .collect();
    let operands = report
        .steps()
        .flat_map(|step| &step.products)
        .flat_map(|product| &product.operands);
    let expected: Vec<_> = operands.map(|operand| operand.figures.sqnr).collect();
    let sqnr: Vec<_> = rows
        .iter()
        .map(|row| row[column("sqnr_db")].parse().ok())
        .collect();
    assert_eq!(sqnr, expected);
}

#[test]
fn the_table_ranks_layers_and_has_a_line_to_try_the_worst_one() {
    let folder = folder();
    // The integers lose least.
    let formats = ["mxfp8_e4m3", "mx(element=int8,block_size=32)"];
    let config = RecorderConfig {
        what_if: formats.map(String::from).into(),
        ..RecorderConfig::default()
    };
    let recording = Recorder::new(config)
        .on_this_thread()
        .start(&folder)
        .expect("the folder can be written to");
    let device = mx_device(&MxSpecs::mxfp4());
    let model = label_parameters(model::<Mlp, Mx>(&device));
    model.outputs(&device).sum().backward();
    let report = recording.finish().expect("all is written");
    let products = || report.steps().flat_map(|step| &step.products);
    let sqnr = |layer: &str| {
        let of_layer = products().filter(|product| product.layer == layer);
        let operands = of_layer.flat_map(|product| &product.operands);
        operands
            .filter_map(|operand| operand.figures.sqnr)
            .fold(f64::INFINITY, f64::min)
    };
    let worst = products().map(|product| product.layer.as_str());
    let worst = worst
        .min_by(|a, b| sqnr(a).total_cmp(&sqnr(b)))
        .expect("there are products");
    let table = report.table();
    let (layers, _) = table
        .split_once("A low SQNR is not yet sensitivity")
        .expect("it says so");
    let first = layers
        .lines()
        .find(|line| line.contains(".weight"))
        .expect("a row");
    assert!(first.contains(worst), "{first}: {worst}");
    let line = format!("--layer '{worst}={}'", formats[1]);
    assert!(table.contains(&line), "{table}: {line}");
    let line = format!(
        "set_specs_at(model, \"{worst}\", &MxSpecs::preset(\"{}\")?.resolve()?)?;",
        formats[1]
    );
    assert!(table.contains(&line), "{table}: {line}");
}

#[test]
fn what_cannot_be_is_refused_before_any_work() {
    let message = |config: RecorderConfig| {
        let folder = folder();
        let error = Recorder::new(config)
            .on_this_thread()
            .start(&folder)
            .expect_err("it is refused");
        assert!(!folder.path().join(RECORDS).exists());
        error.to_string()
    };
    let default = RecorderConfig::default;
    assert_eq!(
        message(RecorderConfig {
            every: 0,
            ..default()
        }),
        "`every` is 0; allowed: 1 or more"
    );
    assert_eq!(
        message(RecorderConfig {
            start: 5,
            end: Some(5),
            ..default()
        }),
        "`end` is 5; allowed: more than `start`, 5"
    );
    assert!(
        message(RecorderConfig {
            operands: vec![],
            ..default()
        })
        .starts_with("`operands` is empty")
    );
    assert!(
        message(RecorderConfig {
            layers: vec!["a[".into()],
            ..default()
        })
        .starts_with("`layers` is a[")
    );
    let unknown = message(default().what_if(["mxfp5"]));
    assert!(
        unknown.starts_with("`what_if` is mxfp5") && unknown.contains("mxfp4_sr_rht"),
        "{unknown}"
    );
    assert!(message(default().what_if(["mxfp4", "mxfp4"])).contains("each format once"));
    let typo = serde_json::from_str::<RecorderConfig>(r#"{"evry": 3}"#).expect_err("a typo");
    assert!(typo.to_string().contains("evry"), "{typo}");

    let folder = folder();
    let file = folder.path().join("file");
    fs::write(&file, "").expect("it can be written");
    let below = Recorder::new(default())
        .on_this_thread()
        .start(file.join("below"))
        .expect_err("no folder");
    assert!(matches!(below, RecordError::Io { .. }) && below.to_string().contains("below"));
    let on_file = |result: Result<(), RecordError>| {
        let error = result.expect_err("a file is there").to_string();
        assert!(
            error.contains("file`: the path is a file; allowed: a folder"),
            "{error}"
        );
    };
    on_file(
        Recorder::new(default())
            .on_this_thread()
            .start(&file)
            .map(drop),
    );
    on_file(TensorBoard::create(&file).map(drop));

    let first = record_here(default(), &folder);
    let second = Recorder::new(default())
        .on_this_thread()
        .start(folder.path().join("other"));
    assert!(matches!(
        second.expect_err("there is one"),
        RecordError::Running { .. }
    ));
    drop(first);
    let again = Recorder::new(default())
        .on_this_thread()
        .start(&folder)
        .expect_err("it has records");
    assert!(matches!(again, RecordError::Exists { .. }) && again.to_string().contains(RECORDS));
    let missing = Report::read([Path::new("/nowhere/at/all")]).expect_err("there is none");
    assert!(missing.to_string().contains("/nowhere/at/all"), "{missing}");
}
