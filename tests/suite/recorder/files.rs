//! Records on disk, and what cannot be.

use std::fs;
use std::path::Path;

use burn_mx::MxSpecs;
use burn_mx::module::label_parameters;
use burn_mx::record::{
    RECORDS, REPORT_HTML, REPORT_JSON, RecordError, Recorder, RecorderConfig, Report,
};

use super::super::models::{Forward as _, Mlp, model};
use super::super::support::{Mx, mx_device};
use super::{folder, record_here, steps};

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
