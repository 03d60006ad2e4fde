//! The effects of quantization: `compare --record`, `report`, `gradient_bias`, and the page in a browser.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{Place, SMALL, losses};

/// One epoch of six steps, every second one recorded, in two formats.
const RECORDED: &[&str] = &[
    "--epochs",
    "1",
    "--preset",
    "mxfp4",
    "--preset",
    "mxfp4_sr_rht",
];

fn lines(records: &Path) -> Vec<Value> {
    let text = fs::read_to_string(records).expect("there are records");
    let line = |line| serde_json::from_str(line).expect("a line is JSON");
    text.lines().map(line).collect()
}

#[test]
fn recorded_runs_are_the_same_and_reported() {
    let place = Place::new();
    let plain = place.compare(&[SMALL, RECORDED].concat()).0;
    let record = &[
        "--record",
        "rec",
        "--record-every",
        "2",
        "--record-elementwise",
        "--record-error-parts",
        "--what-if",
        "mxfp8_rceil",
        "--what-if",
        "mxfp4_sr_rht",
    ];
    let options = [SMALL, RECORDED, record].concat();
    let (recorded, stdout) = place.compare(&options);
    for (recorded, plain) in recorded.iter().zip(&plain) {
        assert_eq!(losses(recorded), losses(plain), "not a bit changes");
        assert_eq!(recorded["accuracy"], plain["accuracy"]);
    }
    assert!(stdout.contains("elementwise op"), "{stdout}");
    assert!(stdout.contains("error by scale"), "{stdout}");
    assert!(
        stdout.contains("rec/report.html") && stdout.contains("mxfp8_rceil: +"),
        "{stdout}"
    );

    let lines = lines(&place.path("rec/records.jsonl"));
    let headers = lines
        .iter()
        .filter(|line| line.get("burn_mx_records").is_some());
    assert_eq!(headers.count(), 2);
    for run in ["mxfp4", "mxfp4_sr_rht"] {
        let steps: Vec<&Value> = lines
            .iter()
            .filter(|line| line["run"] == run && line.get("step").is_some())
            .collect();
        let numbers: Vec<_> = steps.iter().map(|step| step["step"].as_u64()).collect();
        assert_eq!(numbers, [Some(0), Some(2), Some(4)], "{run}");
        let products = steps[0]["products"].as_array().expect("there are products");
        assert!(
            products
                .iter()
                .any(|product| product["layer"] == "head.weight")
        );
        // Embedding and head, two linear layers a block; the input has no gradient.
        let kinds = |kind| {
            products
                .iter()
                .filter(|product| product["product"] == kind)
                .count()
        };
        assert_eq!(kinds("forward"), kinds("weight_gradient"));
        assert_eq!(kinds("input_gradient") + 1, kinds("forward"));
    }

    // A folder has one sweep's records; another's would be lost in them.
    let refusal = place.refusal("compare", &options);
    assert!(
        refusal.contains("--record 'rec' has records already"),
        "{refusal}"
    );
    let refusal = place.refusal(
        "compare",
        &[SMALL, &["--record", "new", "--what-if", "mxfp5"]].concat(),
    );
    assert!(refusal.contains("`what_if` is mxfp5"), "{refusal}");
    let refusal = place.refusal("compare", &[SMALL, &["--what-if", "mxfp4"]].concat());
    assert!(refusal.contains("--record"), "{refusal}");
    fs::write(place.path("file"), "").expect("it can be written");
    let refusal = place.refusal("compare", &[SMALL, &["--record", "file/below"]].concat());
    assert!(
        refusal.contains("--record: cannot write 'file/below'"),
        "{refusal}"
    );

    // Another folder, in one report with the first.
    let other = [
        SMALL,
        &[
            "--epochs",
            "1",
            "--preset",
            "mxfp8_e4m3",
            "--record",
            "other",
        ],
    ]
    .concat();
    place.compare(&other);
    let output = place.command("report", &["rec", "other", "--out", "both"]);
    assert!(output.status.success());
    let table = String::from_utf8(output.stdout).expect("it prints text");
    for run in [
        "mxfp4, step 4",
        "mxfp4_sr_rht, step 4",
        "mxfp8_e4m3, step 0",
    ] {
        assert!(table.contains(run), "{run}: {table}");
    }
    let page = place.path("both/report.html");
    let html = fs::read_to_string(&page).expect("there is a page");
    assert!(html.len() < 5_000_000);
    for fetches in ["src=", "href=", "url(", "import ", "fetch("] {
        assert!(
            !html.contains(fetches),
            "the page is all there is: {fetches}"
        );
    }
    assert!(place.path("both/report.json").exists());
    let missing = place.command("report", &["nowhere"]);
    assert!(!missing.status.success());
    assert!(String::from_utf8_lossy(&missing.stderr).contains("nowhere"));
    match browser() {
        Some(browser) => in_a_browser(browser, &page),
        None => eprintln!("there is no Chromium: the page was not opened"),
    }
}

/// Chromium by one of its names.
fn browser() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let runs = |name: &&&str| Command::new(name).arg("--version").output().is_ok();
    names.iter().find(runs).copied()
}

/// Moves the slider, chooses a cell and another statistic; what happened is the page's last element.
const VISIT: &str = r##"<script>
const seen = [];
addEventListener("error", event => seen.push("error: " + event.message));
const cells = () => [...document.querySelectorAll(".cell")];
const texts = () => cells().map(cell => cell.textContent).join("|");
const step = document.getElementById("step"), shown = document.getElementById("step-value");
const last = texts();
seen.push("cells " + cells().length, "last step " + shown.textContent);
step.value = 0;
step.dispatchEvent(new Event("input", { bubbles: true }));
seen.push("first step " + shown.textContent, "cells " + (texts() === last ? "stay" : "change"));
const statistic = document.getElementById("statistic"), before = texts();
statistic.value = statistic.options[2].value;
statistic.dispatchEvent(new Event("change", { bubbles: true }));
seen.push("statistic " + (texts() === before ? "stays" : "changes"));
const title = () => document.getElementById("detail-title").textContent;
const chosen = title();
cells().at(-2).click();
seen.push("choice " + (title() === chosen ? "stays" : "changes"));
const roundings = () => document.querySelectorAll("#roundings td").length;
const few = roundings(), order = document.getElementById("elementwise-order");
order.value = "ops";
order.dispatchEvent(new Event("change", { bubbles: true }));
seen.push("roundings " + (few > 100 && roundings() > few && !document.getElementById("elementwise").hidden));
seen.push("charts " + (document.querySelectorAll("#figures svg").length > 3));
const fits = pane => pane.scrollWidth <= pane.clientWidth;
const panes = [document.documentElement, ...document.querySelectorAll(".scroll")];
seen.push("tables " + (panes.every(fits) ? "fit" : "are cut off"));
const comesBefore = document.getElementById("ranking").compareDocumentPosition(document.getElementById("maps"));
seen.push("worst " + (comesBefore & Node.DOCUMENT_POSITION_FOLLOWING ? "first" : "later"));
const log = document.createElement("pre");
log.id = "visit";
log.textContent = seen.join("; ");
document.body.append(log);
</script></body>"##;

fn in_a_browser(browser: &str, page: &Path) {
    let html = fs::read_to_string(page).expect("there is a page");
    let visited = page.with_file_name("visited.html");
    fs::write(&visited, html.replacen("</body>", VISIT, 1)).expect("it can be written");
    let profile = page.with_file_name("profile");
    let output = Command::new(browser)
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--dump-dom",
        ])
        .args([
            "--enable-logging=stderr",
            "--virtual-time-budget=4000",
            "--window-size=1400,1000",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", visited.display()))
        .output()
        .expect("the browser starts");
    let dom = String::from_utf8_lossy(&output.stdout);
    let console = String::from_utf8_lossy(&output.stderr);
    let complaints: Vec<_> = console
        .lines()
        .filter(|line| line.contains("CONSOLE"))
        .collect();
    assert!(complaints.is_empty(), "{complaints:?}");
    let visit = dom
        .split("<pre id=\"visit\">")
        .nth(1)
        .unwrap_or_else(|| panic!("no visit: {dom}{console}"));
    let visit = visit.split("</pre>").next().expect("it has an end");
    assert!(!visit.contains("error"), "{visit}");
    for happened in [
        "last step 4",
        "first step 0",
        "cells change",
        "statistic changes",
        "choice changes",
        "charts true",
        "roundings true",
        "tables fit",
        "worst first",
    ] {
        assert!(visit.contains(happened), "{happened}: {visit}");
    }
}

#[test]
fn gradient_bias_tells_recipes_apart() {
    let place = Place::new();
    let options = [
        "--model",
        "cnn",
        "--passes",
        "32",
        "--steps",
        "5",
        "--preset",
        "mxfp4",
        "--preset",
        "mxfp4_sr_rht",
        "--csv",
        "verdicts.csv",
    ];
    let output = place.command("gradient_bias", &options);
    let stdout = String::from_utf8(output.stdout).expect("it prints text");
    assert!(output.status.success(), "{stdout}");
    assert!(stdout.contains("stages.1.conv.weight"), "{stdout}");
    let json = fs::read(place.path("out/cnn_gradient_bias.json")).expect("there is JSON");
    let json: Value = serde_json::from_slice(&json).expect("it is JSON");
    let verdict = |recipe: &str| {
        let parameters = json[recipe]["parameters"]
            .as_array()
            .expect("there are parameters");
        let conv = parameters
            .iter()
            .find(|parameter| parameter["parameter"] == "stages.1.conv.weight");
        conv.expect("the model has it")["biases"][0]["verdict"].clone()
    };
    assert_eq!(verdict("mxfp4"), "biased");
    assert_eq!(verdict("mxfp4_sr_rht"), "unbiased");
    let csv = fs::read_to_string(place.path("verdicts.csv")).expect("there is CSV");
    for line in [
        "cnn,mxfp4,stages.1.conv.weight,all gradient products,biased,",
        "cnn,mxfp4_sr_rht,stages.1.conv.weight,all gradient products,unbiased,",
    ] {
        assert!(csv.contains(line), "{csv}");
    }
    let svg =
        fs::read_to_string(place.path("out/cnn_gradient_bias.svg")).expect("there is a chart");
    assert!(svg.contains("mxfp4_sr_rht: "));
    let refusal = place.refusal("gradient_bias", &["--passes", "7"]);
    assert!(refusal.contains("'7'"), "{refusal}");
}
