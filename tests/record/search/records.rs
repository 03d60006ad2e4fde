//! Records of a few products, and searches in them.

use burn_mx::MxSpecs;
use burn_mx::record::{Budget, RECORDS, Report, Score, Search, SearchError, StepRecord};
use serde_json::json;

/// The report of these steps, read from a file.
pub(crate) fn report(steps: &[StepRecord]) -> Report {
    let folder = tempfile::tempdir().unwrap();
    let header = json!({"burn_mx_records": 1, "run": "", "config": {}});
    let steps = steps
        .iter()
        .map(|step| serde_json::to_string(step).unwrap());
    let lines: Vec<String> = std::iter::once(header.to_string()).chain(steps).collect();
    std::fs::write(folder.path().join(RECORDS), lines.join("\n")).unwrap();
    Report::read([folder.path()]).unwrap()
}

/// A step of a layer with a forward product, and of attention without a weight. The weight is noisy, the input is not.
pub(crate) fn step(number: u64, sqnr: f64) -> StepRecord {
    let operand = |slot: &str, elements, [narrow, wide]: [f64; 2]| {
        json!({
            "slot": slot, "operand": "", "format": null, "elements": elements, "blocks": 1,
            "what_if": {
                "mxfp4": {"elements": elements, "blocks": 1, "sqnr": narrow},
                "mxfp8_e4m3": {"elements": elements, "blocks": 1, "sqnr": wide},
            },
        })
    };
    let product = |layer: &str, op: &str, operands: Vec<serde_json::Value>| {
        json!({
            "layer": layer, "op": op, "product": "forward", "uses": 1, "specs": "", "operands": operands,
        })
    };
    let step = json!({
        "run": "", "thread": 0, "step": number,
        "products": [
            product("up.weight", "linear", vec![
                operand("a", 64, [30.0, 40.0]),
                operand("w", 64, [sqnr, 25.0]),
            ]),
            product("matmul", "matmul", vec![operand("a", 640, [1.0, 2.0])]),
        ],
    });
    serde_json::from_value(step).unwrap()
}

pub(crate) fn search(bits: f64) -> Search {
    Search {
        formats: vec!["mxfp4".into(), "mxfp8_e4m3".into()],
        budget: Budget::Bits(bits),
        specs: MxSpecs::mxfp8_e4m3(),
        score: Score::Noise,
        slots: Vec::new(),
        keep: Vec::new(),
        pairs: Vec::new(),
        shared: false,
    }
}

/// A training step of two layers, `first` and `last`. Their gradients have the mean squares 1 and 3.
pub(crate) fn training_step(statistics: impl Fn(&mut serde_json::Value)) -> StepRecord {
    let product = |layer: &str, product: &str, operand: (&str, &str), mean_square: f64| {
        json!({
            "layer": layer, "op": "linear", "product": product, "uses": 1, "specs": "",
            "operands": [{
                "slot": operand.0, "operand": operand.1, "format": null, "elements": 8, "blocks": 1,
                "what_if": {"mxfp4": {"elements": 8, "blocks": 1, "sqnr": 20.0, "mse": 0.01}},
            }],
            "result": {"relative_error": 0.1, "cosine": 1.0, "elements": 10, "mean_square": mean_square},
        })
    };
    let mut step = json!({
        "run": "", "thread": 0, "step": 0,
        "products": [
            product("first", "forward", ("w", "weight"), 6.0),
            product("last", "forward", ("w", "weight"), 2.0),
            product("last", "input_gradient", ("w_bp", "weight"), 1.0),
            product("last", "weight_gradient", ("a_bp_ex", "output gradient"), 3.0),
            product("first", "weight_gradient", ("a_bp_ex", "output gradient"), 1.0),
        ],
    });
    statistics(&mut step);
    serde_json::from_value(step).unwrap()
}

/// A layer with a noisy weight and a quiet input in its forward product, and the other way around in its gradient products.
pub(crate) fn layer() -> StepRecord {
    let operand = |slot: &str, narrow: f64| {
        json!({
            "slot": slot, "operand": "", "format": null, "elements": 64, "blocks": 2,
            "what_if": {
                "mxfp4": {"elements": 64, "blocks": 2, "sqnr": narrow},
                "mxfp8_e4m3": {"elements": 64, "blocks": 2, "sqnr": 40.0},
            },
        })
    };
    let product = |kind: &str, operands: [serde_json::Value; 2]| {
        json!({
            "layer": "up.weight", "op": "linear", "product": kind, "uses": 1, "specs": "", "operands": operands,
            "macs": 4096, "result_elements": 4096, "elementwise": "bfloat16",
        })
    };
    let step = json!({
        "run": "", "thread": 0, "step": 0,
        "products": [
            product("forward", [operand("a", 30.0), operand("w", 10.0)]),
            product("input_gradient", [operand("a_bp_os", 11.0), operand("w_bp", 31.0)]),
        ],
    });
    serde_json::from_value(step).unwrap()
}

/// The formats of the places.
pub(crate) fn formats(search: &Search, step: &StepRecord) -> Result<Vec<String>, SearchError> {
    let found = search.find(&report(std::slice::from_ref(step)))?;
    let places = found.places.into_iter();
    Ok(places.map(|place| place.format).collect())
}
