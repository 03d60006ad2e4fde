//! The page: the files of `page` put together, with the records as JSON in it, run by run, layer by layer, a series over
//! steps for each figure.

use std::collections::{BTreeMap, HashMap};

use burn_mx_core::MxSpecs;
use serde::Serialize;
use serde_json::Value;

use super::{Figures, OperandRecord, ProductRecord, Run};
use crate::file::figures::{ElementwiseRecord, Histogram, RoundingRecord, StepRecord, SumFigures};

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
/// One script, in this order.
const SCRIPT: &str = concat!(
    include_str!("page/text.js"),
    include_str!("page/data.js"),
    include_str!("page/charts.js"),
    include_str!("page/map.js"),
    include_str!("page/detail.js"),
    include_str!("page/operands.js"),
    include_str!("page/elementwise.js"),
    include_str!("page/controls.js"),
);
/// The largest size of the page's data in bytes. The page stays below 5 MB.
const LARGEST: usize = 4_000_000;

/// The page.
pub(super) fn html(runs: &[Run]) -> String {
    // A long run shows only every n-th step.
    let steps = runs.iter().map(|run| run.steps.len()).max().unwrap_or(0);
    let mut shown = steps.max(1);
    let mut data = data(runs, shown);
    while data.len() > LARGEST && shown > 1 {
        shown = (shown * LARGEST / data.len()).clamp(1, shown - 1);
        data = self::data(runs, shown);
    }
    let title = title(runs);
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    // No name in the data may end the script that the data stand in.
    let data = data.replace('<', "\\u003c");
    PAGE.replacen("__STYLE__", STYLE.trim_end(), 1)
        .replacen("__SCRIPT__", SCRIPT.trim_end(), 1)
        .replacen("__TITLE__", &title, 1)
        .replacen("__DATA__", &data, 1)
}

fn title(runs: &[Run]) -> String {
    let names: Vec<_> = runs.iter().map(Run::title).collect();
    format!("What quantization did: {}", names.join(", "))
}

/// The data of the page, with at most about `shown` steps for each run.
pub(super) fn data(runs: &[Run], shown: usize) -> String {
    let longest = runs.iter().map(|run| run.steps.len()).max().unwrap_or(0);
    let every = longest.div_ceil(shown.min(longest).max(1)).max(1);
    let thinned = (every > 1)
        .then(|| format!("the page shows one of every {every} recorded steps, and the last step"));
    let data = Data {
        burn_mx_report: 1,
        title: title(runs),
        thinned,
        runs: runs.iter().map(|run| PageRun::new(run, every)).collect(),
    };
    serde_json::to_string(&data).expect("it has no maps but by text")
}

/// The field that every report has.
pub(super) const KEY: &str = "burn_mx_report";

#[derive(Serialize)]
struct Data {
    burn_mx_report: u32,
    title: String,
    thinned: Option<String>,
    runs: Vec<PageRun>,
}

#[derive(Serialize)]
struct PageRun {
    name: String,
    source: String,
    thread: usize,
    config: Value,
    steps: Vec<u64>,
    what_if: Vec<String>,
    /// The formats of `what_if` that a layer's specs can take.
    presets: Vec<String>,
    /// The cost of the last step, if its products' sizes were recorded.
    cost: Option<PageCost>,
    layers: Vec<ReportLayer>,
    /// How a processor computed products in bfloat16.
    products: Option<String>,
    /// Weights whose products were not emulated in any of the steps.
    not_emulated: Vec<String>,
    rows: Vec<Row>,
    results: Vec<ResultRow>,
    elementwise: Vec<RoundingRow>,
}

/// The cost of a step's products, by models.
#[derive(Serialize)]
struct PageCost {
    bits: f64,
    area: f64,
    microjoules: f64,
}

#[derive(Serialize)]
struct ReportLayer {
    name: String,
    op: String,
    specs: String,
}

/// An operand of a layer's product; every series has a value for each step.
#[derive(Serialize)]
struct Row {
    layer: usize,
    product: String,
    slot: Value,
    operand: String,
    format: Option<String>,
    elements: u64,
    blocks: u64,
    #[serde(flatten)]
    series: BTreeMap<&'static str, Series>,
    exact: Vec<Option<bool>>,
    scales: Vec<Option<Histogram>>,
    what_if: BTreeMap<String, BTreeMap<&'static str, Series>>,
}

#[derive(Serialize)]
struct ResultRow {
    layer: usize,
    product: String,
    relative_error: Series,
    cosine: Series,
    /// Figures of the sums by accumulator, the product's own first.
    sums: Vec<SumRow>,
}

/// The errors of an accumulator on a product's sums.
#[derive(Serialize)]
struct SumRow {
    accumulator: String,
    relative_error: Series,
    bits_lost: Series,
    cut_to_nothing: Series,
}

impl SumRow {
    fn set(rows: &mut Vec<Self>, [at, count]: [usize; 2], accumulator: &str, figures: &SumFigures) {
        let known = rows.iter().position(|row| row.accumulator == accumulator);
        let place = known.unwrap_or_else(|| {
            rows.push(Self {
                accumulator: accumulator.to_owned(),
                relative_error: vec![None; count],
                bits_lost: vec![None; count],
                cut_to_nothing: vec![None; count],
            });
            rows.len() - 1
        });
        let row = &mut rows[place];
        row.relative_error[at] = figures.relative_error.map(rounded);
        row.bits_lost[at] = figures.bits_lost.map(rounded);
        row.cut_to_nothing[at] = figures.cut_to_nothing.map(rounded);
    }
}

/// A rounding of an elementwise op.
#[derive(Serialize)]
struct RoundingRow {
    layer: String,
    op: String,
    pass: String,
    rounding: String,
    format: String,
    elements: u64,
    #[serde(flatten)]
    series: BTreeMap<&'static str, Series>,
    exact: Vec<Option<bool>>,
}

type Series = Vec<Option<f64>>;

/// A figure and its name on the page.
type Figure = (&'static str, fn(&Figures) -> Option<f64>);

/// The figures of an operand that the page draws.
const FIGURES: [Figure; 16] = [
    ("sqnr", |figures| figures.sqnr),
    ("mse", |figures| figures.mse),
    ("slope", |figures| figures.slope),
    ("underflow", |figures| figures.underflow),
    ("saturation", |figures| figures.saturation),
    ("amax", |figures| figures.amax),
    ("smallest", |figures| figures.amin),
    ("dynamic_range", |figures| figures.dynamic_range),
    ("non_finite", |figures| Some(figures.non_finite as f64)),
    ("sqnr_worst", |figures| figures.block_sqnr?[0]),
    ("sqnr_p01", |figures| figures.block_sqnr?[1]),
    ("sqnr_median", |figures| figures.block_sqnr?[2]),
    ("scale_mean", |figures| figures.scale_inv_log2_mean),
    ("scale_std", |figures| figures.scale_inv_log2_std),
    ("scale_min", |figures| figures.scale_inv_min),
    ("scale_max", |figures| figures.scale_inv_max),
];
/// The figures of an operand that the page draws of runs with parts of errors.
const PARTS: [Figure; 6] = [
    ("error_scale", |figures| figures.error_parts?.scale),
    ("error_dead_zone", |figures| figures.error_parts?.dead_zone),
    ("error_grid", |figures| figures.error_parts?.grid),
    ("error_cosine", |figures| figures.error_parts?.cosine),
    ("scale_bias", |figures| figures.error_parts?.scale_bias),
    ("dead_zone_elements", |figures| {
        figures.error_parts?.dead_zone_elements
    }),
];
/// The figures of an operand that the page draws of operands with a dialect.
const DIALECT: [Figure; 3] = [
    ("dialect_differing", |figures| {
        figures.dialect?.differing_share
    }),
    ("plain_sqnr", |figures| figures.dialect?.plain_sqnr),
    ("dialect_error_ratio", |figures| {
        figures.dialect?.error_ratio
    }),
];
/// The figures of a rounding of an elementwise op.
const ROUNDING: [Figure; 7] = [
    ("sqnr", |figures| figures.sqnr),
    ("mse", |figures| figures.mse),
    ("slope", |figures| figures.slope),
    ("underflow", |figures| figures.underflow),
    ("saturation", |figures| figures.saturation),
    ("amax", |figures| figures.amax),
    ("non_finite", |figures| Some(figures.non_finite as f64)),
];
/// The figures of formats that are not in use.
const WHAT_IF: [Figure; 4] = [
    ("sqnr", |figures| figures.sqnr),
    ("slope", |figures| figures.slope),
    ("underflow", |figures| figures.underflow),
    ("saturation", |figures| figures.saturation),
];

impl Row {
    /// Sets the figures of an operand at a step's place. `count` is the number of steps.
    fn set(&mut self, [at, count]: [usize; 2], operand: &OperandRecord) {
        let figures = &operand.figures;
        self.format.clone_from(&operand.format);
        (self.elements, self.blocks) = (figures.elements, figures.blocks);
        set(&mut self.series, &FIGURES, at, figures);
        let more: [(bool, &[Figure]); 2] = [
            (figures.error_parts.is_some(), &PARTS),
            (figures.dialect.is_some(), &DIALECT),
        ];
        for (_, names) in more.into_iter().filter(|(has, _)| *has) {
            if !self.series.contains_key(names[0].0) {
                self.series.extend(empty(names, count));
            }
            set(&mut self.series, names, at, figures);
        }
        self.exact[at] = Some(figures.exact);
        self.scales[at].clone_from(&figures.scale_inv_histogram);
        for (name, figures) in &operand.what_if {
            let series = self.what_if.entry(name.clone());
            let series = series.or_insert_with(|| empty(&WHAT_IF, count));
            set(series, &WHAT_IF, at, figures);
        }
    }
}

impl PageRun {
    fn new(run: &Run, every: usize) -> Self {
        let last = run.steps.len().saturating_sub(1);
        let steps = run.steps.values().enumerate();
        let steps = steps.filter(|(i, _)| i.is_multiple_of(every) || *i == last);
        let steps: Vec<&StepRecord> = steps.map(|(_, step)| step).collect();
        let presets = run.config.what_if.iter();
        let presets = presets.filter(|name| MxSpecs::preset(name).is_ok());
        let mut page = Self {
            name: run.name.clone(),
            source: run.source.display().to_string(),
            thread: run.thread,
            config: serde_json::to_value(&run.config).expect("it is plain JSON"),
            steps: steps.iter().map(|step| step.step).collect(),
            what_if: run.config.what_if.clone(),
            presets: presets.cloned().collect(),
            cost: run.cost().map(|cost| PageCost {
                bits: cost.bits,
                area: cost.area,
                microjoules: cost.picojoules / 1e6,
            }),
            layers: Vec::new(),
            products: run.products(),
            not_emulated: run.not_emulated(),
            rows: Vec::new(),
            results: Vec::new(),
            elementwise: Vec::new(),
        };
        let mut places = RowPlaces::default();
        for (at, step) in steps.iter().enumerate() {
            for product in &step.products {
                page.add(&mut places, at, product);
            }
            for op in &step.elementwise {
                page.add_elementwise(&mut places, at, op);
            }
        }
        page
    }

    /// Adds a product of the step at this place.
    fn add(&mut self, places: &mut RowPlaces, at: usize, product: &ProductRecord) {
        let count = self.steps.len();
        let layer = *places
            .layers
            .entry(product.layer.clone())
            .or_insert_with(|| {
                self.layers.push(ReportLayer {
                    name: product.layer.clone(),
                    op: product.op.to_string(),
                    specs: product.specs.clone(),
                });
                self.layers.len() - 1
            });
        let name = product.product.to_string();
        for operand in &product.operands {
            let key = (layer, name.clone(), operand.operand.clone());
            let row = *places.rows.entry(key).or_insert_with(|| {
                self.rows.push(Row {
                    layer,
                    product: name.clone(),
                    slot: serde_json::to_value(operand.slot).expect("it is a name"),
                    operand: operand.operand.clone(),
                    format: None,
                    elements: 0,
                    blocks: 0,
                    series: empty(&FIGURES, count),
                    exact: vec![None; count],
                    scales: vec![None; count],
                    what_if: BTreeMap::new(),
                });
                self.rows.len() - 1
            });
            self.rows[row].set([at, count], operand);
        }
        if product.result.is_none() && product.sums.is_none() {
            return;
        }
        let row = *places
            .results
            .entry((layer, name.clone()))
            .or_insert_with(|| {
                self.results.push(ResultRow {
                    layer,
                    product: name,
                    relative_error: vec![None; count],
                    cosine: vec![None; count],
                    sums: Vec::new(),
                });
                self.results.len() - 1
            });
        let row = &mut self.results[row];
        if let Some(result) = product.result {
            row.relative_error[at] = result.relative_error.map(rounded);
            row.cosine[at] = result.cosine.map(rounded);
        }
        if let Some(sums) = &product.sums {
            let own = (&sums.accumulator, &sums.figures);
            for (name, figures) in std::iter::once(own).chain(&sums.what_if) {
                SumRow::set(&mut row.sums, [at, count], name, figures);
            }
        }
    }

    /// Adds an elementwise op of the step at this place.
    fn add_elementwise(&mut self, places: &mut RowPlaces, at: usize, op: &ElementwiseRecord) {
        let count = self.steps.len();
        for RoundingRecord { rounding, figures } in &op.roundings {
            let pass = op.pass.to_string();
            let key = [&op.layer, &op.op, &pass, rounding].map(Clone::clone);
            let row = *places.roundings.entry(key).or_insert_with(|| {
                self.elementwise.push(RoundingRow {
                    layer: op.layer.clone(),
                    op: op.op.clone(),
                    pass,
                    rounding: rounding.clone(),
                    format: op.format.clone(),
                    elements: 0,
                    series: empty(&ROUNDING, count),
                    exact: vec![None; count],
                });
                self.elementwise.len() - 1
            });
            let row = &mut self.elementwise[row];
            row.elements = figures.elements;
            set(&mut row.series, &ROUNDING, at, figures);
            row.exact[at] = Some(figures.exact);
        }
    }
}

/// The places of rows, by their keys.
#[derive(Default)]
struct RowPlaces {
    layers: HashMap<String, usize>,
    rows: HashMap<(usize, String, String), usize>,
    results: HashMap<(usize, String), usize>,
    roundings: HashMap<[String; 4], usize>,
}

fn empty(figures: &[Figure], count: usize) -> BTreeMap<&'static str, Series> {
    let series = figures.iter().map(|(name, _)| (*name, vec![None; count]));
    series.collect()
}

fn set(series: &mut BTreeMap<&'static str, Series>, of: &[Figure], at: usize, figures: &Figures) {
    for (name, figure) in of {
        if let Some(series) = series.get_mut(name) {
            series[at] = figure(figures).map(rounded);
        }
    }
}

/// Rounds to five digits; a reader sees no more.
fn rounded(figure: f64) -> f64 {
    format!("{figure:.4e}").parse().unwrap_or(figure)
}
