//! The results: scores of a model under a configuration, and the table of all of them.

use burn_mx::{
    cost::{Cost, Tables},
    ptq::TunedLayer,
    record::{Pass, products},
};
use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use serde::{Serialize, Serializer, ser::SerializeMap};

/// A model's results under a configuration.
#[derive(Debug, Serialize)]
pub struct QuantizedRow {
    /// The configuration's name.
    pub config: String,
    /// The size of the checkpoint: packed weights, all else in float32.
    pub bytes: u64,
    /// The scores, each by its key.
    #[serde(flatten, serialize_with = "by_key")]
    pub scores: Vec<Score>,
    /// ‖y‖² / ‖q − y‖² in dB, with q all outputs, and y the outputs of the float model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sqnr: Option<f64>,
    /// The results of fast fine-tuning.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tuned: Vec<TunedLayer>,
    /// The cost of the products of a forward pass in hardware, by models.
    #[serde(serialize_with = "relative_cost")]
    pub cost: Cost,
}

/// The cost of what a forward pass of a model with labels multiplies.
pub fn inference(forward: impl FnOnce()) -> Cost {
    Tables::default().cost(&products(Pass::Inference, forward))
}

fn relative_cost<S: Serializer>(cost: &Cost, serializer: S) -> Result<S::Ok, S::Error> {
    let fields = [
        ("bits", cost.bits),
        ("area", cost.area),
        ("picojoules", cost.picojoules),
    ];
    serializer.collect_map(fields)
}

/// The meaning of the table's last columns.
pub(super) fn legend() -> String {
    let tables = Tables::default();
    format!(
        "models of the products of one batch, no measurements: bits of an element of an operand; \
         area: gates of a multiply-accumulate lane, as a multiple of MXFP8 E4M3's ({}); \
         energy: of multiplications, sums, and operands read once ({})",
        tables.area.source, tables.operations.source
    )
}

/// A number that says how good a model is.
#[derive(Debug)]
pub struct Score {
    /// In JSON.
    pub key: &'static str,
    /// In the table.
    pub heading: &'static str,
    /// The number.
    pub value: f64,
    /// Whether it is a share from 0 to 1, shown in percent.
    pub is_share: bool,
}

impl Score {
    /// A share from 0 to 1.
    pub fn share(key: &'static str, heading: &'static str, value: f64) -> Self {
        Self {
            is_share: true,
            ..Self::number(key, heading, value)
        }
    }

    /// Any other number.
    pub fn number(key: &'static str, heading: &'static str, value: f64) -> Self {
        Self {
            key,
            heading,
            value,
            is_share: false,
        }
    }

    fn text(&self) -> String {
        match self.is_share {
            true => format!("{:.2} %", 100.0 * self.value),
            false => format!("{:.4}", self.value),
        }
    }
}

fn by_key<S: Serializer>(scores: &[Score], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    for score in scores {
        map.serialize_entry(score.key, &score.value)?;
    }
    map.end()
}

/// Signal to quantization noise, in dB.
pub fn sqnr(got: &[f32], wanted: &[f32]) -> f64 {
    let noise = got
        .iter()
        .zip(wanted)
        .map(|(q, y)| f64::from(q - y).powi(2));
    let signal = wanted.iter().map(|y| f64::from(*y).powi(2));
    10.0 * (signal.sum::<f64>() / noise.sum::<f64>()).log10()
}

/// The share of items whose class is the first, and among the first five, by logits.
pub fn among_first(logits: &[f32], classes: &[usize]) -> [f64; 2] {
    let count = classes.len();
    let rows = logits.chunks(logits.len() / count).zip(classes);
    let ranks: Vec<usize> = rows.map(|(logits, class)| rank(logits, *class)).collect();
    [1, 5].map(|among| {
        let right = ranks.iter().filter(|rank| **rank < among).count();
        right as f64 / count as f64
    })
}

/// How many of an item's logits rank before this class.
fn rank(logits: &[f32], class: usize) -> usize {
    let wanted = logits[class];
    // A number that is none is right of nothing.
    let is_before = |logit: &&f32| **logit >= wanted || logit.is_nan() || wanted.is_nan();
    logits.iter().filter(is_before).count() - 1
}

/// The rows as a table, of the same scores each.
pub(super) fn table(rows: &[QuantizedRow]) -> Table {
    let mut table = Table::new();
    let scores = rows[0].scores.iter().map(|score| score.heading);
    let headings = ["DataType / Config", "Model size"].into_iter();
    table.load_preset(ASCII_MARKDOWN);
    table.set_header(
        headings
            .chain(scores)
            .chain(["SQNR", "Bits", "Area", "Energy"]),
    );
    for row in rows {
        let sqnr = row.sqnr.map(|sqnr| format!("{sqnr:.1} dB"));
        let cells = [
            row.config.clone(),
            format!("{:.1} kB", row.bytes as f64 / 1e3),
        ];
        let scores = row.scores.iter().map(Score::text);
        table.add_row(cells.into_iter().chain(scores).chain([
            sqnr.unwrap_or_default(),
            format!("{:.2}", row.cost.bits),
            format!("{:.2}", row.cost.area),
            format!("{:.1} µJ", row.cost.picojoules / 1e6),
        ]));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
