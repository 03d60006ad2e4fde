//! Every recorded operand and rounding as a line of a table.

use super::{Figures, Run};

/// A figure and the name of its column.
type Column = (&'static str, fn(&Figures) -> Option<f64>);

const COLUMNS: [Column; 18] = [
    ("elements", |figures| Some(figures.elements as f64)),
    ("sqnr_db", |figures| figures.sqnr),
    ("mse", |figures| figures.mse),
    ("slope", |figures| figures.slope),
    ("underflow_percent", |figures| figures.underflow),
    ("saturated_percent", |figures| figures.saturation),
    ("amax", |figures| figures.amax),
    ("amin", |figures| figures.amin),
    ("non_finite", |figures| Some(figures.non_finite as f64)),
    ("error_scale", |figures| figures.error_parts?.scale),
    ("error_dead_zone", |figures| figures.error_parts?.dead_zone),
    ("error_grid", |figures| figures.error_parts?.grid),
    ("error_cosine", |figures| figures.error_parts?.cosine),
    ("scale_bias_log2", |figures| figures.error_parts?.scale_bias),
    ("dead_zone_percent", |figures| {
        figures.error_parts?.dead_zone_elements
    }),
    ("dialect_differing_percent", |figures| {
        figures.dialect?.differing_share
    }),
    ("plain_sqnr_db", |figures| figures.dialect?.plain_sqnr),
    ("plain_mse", |figures| figures.dialect?.plain_mse),
];

/// One line for each operand, each rounding of an elementwise op, and each of them in every further format.
pub(super) fn csv(runs: &[Run]) -> String {
    let columns = COLUMNS.iter().map(|(name, _)| *name);
    let header = "run thread step layer op product operand format what_if".split(' ');
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut line = |cells: Vec<String>| {
        writer
            .write_record(cells)
            .expect("every line has as many cells")
    };
    line(header.chain(columns).map(str::to_owned).collect());
    for run in runs {
        for step in run.steps.values() {
            let mut add = |names: [&str; 5], what_if: &str, figures: &Figures| {
                let place = [
                    run.name.clone(),
                    run.thread.to_string(),
                    step.step.to_string(),
                ];
                let names = names.into_iter().chain([what_if]).map(str::to_owned);
                let figures = COLUMNS
                    .iter()
                    .map(|(_, of)| of(figures).map(|x| x.to_string()));
                let figures = figures.map(Option::unwrap_or_default);
                line(place.into_iter().chain(names).chain(figures).collect());
            };
            for product in &step.products {
                let (op, kind) = (product.op.to_string(), product.product.to_string());
                for operand in &product.operands {
                    let format = operand.format.as_deref().unwrap_or_default();
                    let names: [&str; 5] = [&product.layer, &op, &kind, &operand.operand, format];
                    add(names, "", &operand.figures);
                    for (what_if, figures) in &operand.what_if {
                        add(names, what_if, figures);
                    }
                }
            }
            for op in &step.elementwise {
                let pass = op.pass.to_string();
                for rounding in &op.roundings {
                    let names: [&str; 5] =
                        [&op.layer, &op.op, &pass, &rounding.rounding, &op.format];
                    add(names, "", &rounding.figures);
                }
            }
        }
    }
    let bytes = writer.into_inner().expect("memory can be written to");
    String::from_utf8(bytes).expect("cells are UTF-8")
}
