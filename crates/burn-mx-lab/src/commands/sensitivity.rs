//! Which score says how much an operand needs a wide format? Each operand of each layer is quantized alone, and the effect is
//! measured: on the loss for operands of forward products, on the gradient for operands of gradient products. The scores that
//! `search` chooses by are compared with the measured effects by the rank correlation.
//!
//! ```text
//! cargo run --release --bin burn-mx-lab -- sensitivity
//! cargo run --release --bin burn-mx-lab -- sensitivity --model cnn --format mxfp4 --format nvfp4 --batches 16
//! ```

mod chart;
mod measured;
mod ranks;

use std::{error::Error, fs, path::PathBuf};

use burn_mx::{
    BlockFormat, MxSpecs, Slot,
    record::{Score, Sensitivity},
};
use burn_mx_lab::own_files;
use clap::builder::RangedU64ValueParser;
use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use serde::Serialize;

use crate::training::models::ModelName;

/// Quantize one operand at a time, and compare the effect with the scores of a search
#[derive(Debug, clap::Args)]
pub(crate) struct SensitivityArgs {
    /// Models to try; repeat it
    #[arg(long = "model", value_enum, default_values_t = [ModelName::Cnn, ModelName::Transformer])]
    models: Vec<ModelName>,

    /// Block formats to try; repeat it
    #[arg(
        long = "format",
        value_name = "FORMAT",
        default_values = ["mxfp4", "mxfp6_e2m3", "mxfp8_e4m3"]
    )]
    formats: Vec<BlockFormat>,

    /// Preset with the specs for all but the formats, such as roundings
    #[arg(long, value_name = "NAME", default_value = "mxfp8_e4m3")]
    preset: String,

    /// Steps in full precision before
    #[arg(long, value_name = "N", default_value_t = 100)]
    steps: usize,

    /// Batches of the measurement
    #[arg(long, value_name = "N", default_value_t = 8)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=1000))]
    batches: usize,

    /// Items in a batch
    #[arg(long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=1000))]
    batch_size: usize,

    /// Seed of the model's weights and of the order of items
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,

    /// Folder for <model>_sensitivity.svg, .json and .csv, and for <model>_scores.json with ModelOpt's scores of weights, which
    /// `search --scores` reads; created if missing
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
}

/// An operand in a format: its scores, and the measured effect.
#[derive(Debug, Serialize)]
pub(crate) struct OperandRow {
    /// The place, with the weight 1.
    #[serde(flatten)]
    pub(crate) place: Sensitivity,
    pub(crate) format: String,
    /// By the scores of [`Score::ALL`].
    pub(crate) scores: Vec<f64>,
    /// The effect of a forward product is the change of the loss, the root mean square over the batches. The effect of a gradient
    /// product is the norm of the gradient's error over the norm of the gradient.
    pub(crate) effect: f64,
}

/// The rank correlation of a score with the effect.
#[derive(Debug, Serialize)]
pub(crate) struct Correlation {
    pub(crate) products: &'static str,
    pub(crate) score: &'static str,
    /// Over places and formats.
    pub(crate) all: f64,
    /// Over places alone, the mean over the formats. A search needs to tell places apart.
    pub(crate) places: f64,
}

/// The endings of a model's files.
const ENDINGS: [&str; 4] = [
    "sensitivity.svg",
    "sensitivity.json",
    "sensitivity.csv",
    "scores.json",
];

pub(crate) fn run(args: &SensitivityArgs) -> Result<(), Box<dyn Error>> {
    let specs = MxSpecs::preset(&args.preset)?;
    fs::create_dir_all(&args.out)
        .map_err(|error| format!("--out '{}': {error}", args.out.display()))?;
    let path = |name: ModelName, ending: &str| args.out.join(format!("{}_{ending}", name.name()));
    for &name in &args.models {
        for ending in ENDINGS {
            own_files::check(&path(name, ending)).map_err(|error| format!("--out: {error}"))?;
        }
    }
    for &name in &args.models {
        let (rows, outputs) = measured::rows(args, &specs, name)?;
        let mut correlations = correlations(args, &rows);
        correlations.extend(of_weights(args, &rows, &outputs));
        let (rows_table, summary) = (table(&rows), summary(&correlations));
        println!("{}\n{rows_table}\n\n{summary}\n", name.name());
        let json = serde_json::json!({"rows": rows, "correlations": correlations});
        let texts = [
            chart::scatter(name, &rows)?,
            serde_json::to_string_pretty(&json)?,
            csv(&rows)?,
            serde_json::to_string_pretty(&outputs)?,
        ];
        for (ending, text) in ENDINGS.iter().zip(texts) {
            let path = path(name, ending);
            own_files::write(&path, text)?;
            println!("{}", path.display());
        }
    }
    Ok(())
}

/// Whether a place belongs to a forward product, with the names of the two groups of products.
pub(crate) const GROUPS: [(bool, &str); 2] = [(true, "forward"), (false, "gradients")];

pub(crate) fn is_forward(row: &OperandRow) -> bool {
    row.place.product == burn_mx::record::ProductKind::Forward
}

fn correlations(args: &SensitivityArgs, rows: &[OperandRow]) -> Vec<Correlation> {
    let mut correlations = Vec::new();
    for (forward, products) in GROUPS {
        let group = || rows.iter().filter(|row| is_forward(row) == forward);
        for (at, score) in Score::ALL.into_iter().enumerate() {
            let of_rows = group().map(|row| (row, row.scores[at]));
            correlations.push(correlation(
                args,
                [products, score.name()],
                of_rows.collect(),
            ));
        }
    }
    correlations
}

/// The correlations for weights of forward products, with ModelOpt's scores beside the others.
fn of_weights(
    args: &SensitivityArgs,
    rows: &[OperandRow],
    outputs: &[Sensitivity],
) -> Vec<Correlation> {
    const PRODUCTS: &str = "forward, weights";
    // The places that ModelOpt's formula has a score for.
    let scored: Vec<(&OperandRow, f64)> = rows
        .iter()
        .filter(|row| is_forward(row) && row.place.slot == Slot::W)
        .filter_map(|row| {
            let mut outputs = outputs.iter();
            let place = outputs.find(|place| place.layer == row.place.layer)?;
            Some((row, place.score(&row.format)?))
        })
        .collect();
    let mut correlations = Vec::new();
    for (at, score) in Score::ALL.into_iter().enumerate() {
        let same = scored.iter().map(|(row, _)| (*row, row.scores[at]));
        correlations.push(correlation(args, [PRODUCTS, score.name()], same.collect()));
    }
    correlations.push(correlation(args, [PRODUCTS, "ModelOpt"], scored));
    correlations
}

/// The correlation of the scores of these rows with the effects.
fn correlation(
    args: &SensitivityArgs,
    [products, score]: [&'static str; 2],
    scored: Vec<(&OperandRow, f64)>,
) -> Correlation {
    let of = |is_meant: &dyn Fn(&OperandRow) -> bool| {
        let pairs = scored.iter().filter(|(row, _)| is_meant(row));
        let pairs = pairs.map(|(row, score)| (*score, row.effect));
        ranks::correlation(&pairs.collect::<Vec<_>>())
    };
    let by_format = args.formats.iter().map(|format| {
        let name = format.to_string();
        of(&|row| row.format == name)
    });
    Correlation {
        products,
        score,
        all: of(&|_| true),
        places: by_format.sum::<f64>() / args.formats.len() as f64,
    }
}

fn cells(row: &OperandRow) -> Vec<String> {
    let place = &row.place;
    let names = [
        place.layer.clone(),
        place.product.to_string(),
        place.slot.field().replace("_elem_format", ""),
        row.format.clone(),
    ];
    let scores = row.scores.iter().map(|score| format!("{score:.3e}"));
    let effect = format!("{:.3e}", row.effect);
    names.into_iter().chain(scores).chain([effect]).collect()
}

fn heading() -> Vec<String> {
    let names = ["layer", "product", "slot", "format"].map(str::to_owned);
    let scores = Score::ALL.map(|score| score.name().to_owned());
    names
        .into_iter()
        .chain(scores)
        .chain(["effect".to_owned()])
        .collect()
}

fn table(rows: &[OperandRow]) -> Table {
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN).set_header(heading());
    table.add_rows(rows.iter().map(cells));
    for column in table.column_iter_mut().skip(4) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn csv(rows: &[OperandRow]) -> Result<String, Box<dyn Error>> {
    let mut csv = csv::Writer::from_writer(Vec::new());
    csv.write_record(heading())?;
    for row in rows {
        csv.write_record(cells(row))?;
    }
    Ok(String::from_utf8(csv.into_inner()?)?)
}

fn summary(correlations: &[Correlation]) -> Table {
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN).set_header([
        "products",
        "score",
        "rank correlation",
        "within a format",
    ]);
    for one in correlations {
        table.add_row([
            one.products.to_owned(),
            one.score.to_owned(),
            format!("{:.3}", one.all),
            format!("{:.3}", one.places),
        ]);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
