//! The operands that lost most, as a table.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{ContentArrangement, Table};

use super::{Figures, OperandRecord, Run, StepRecord, SumFigures, operands};

/// Operands of a run in the table.
const SHOWN: usize = 10;
/// The gain in dB from which the table suggests another format.
const GAIN: f64 = 1.0;
/// The percentage from which the table mentions saturation or underflow.
const SATURATION: f64 = 1.0;
const UNDERFLOW: f64 = 10.0;

pub(super) fn worst_operands(runs: &[Run]) -> String {
    let tables = runs.iter().map(|run| match run.last() {
        Some(step) => {
            let more = [sums(step), elementwise(step)].into_iter().flatten();
            let more: String = more.map(|table| format!("\n{table}")).collect();
            format!("{}, step {}\n{}{more}", run.title(), step.step, table(run),)
        }
        None => format!("{}: no step was recorded", run.title()),
    });
    tables.collect::<Vec<_>>().join("\n\n")
}

fn table(run: &Run) -> Table {
    let mut table = Table::new();
    table
        .load_preset(UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header([
            "layer",
            "product",
            "operand",
            "format",
            "SQNR dB",
            "slope",
            "underflow %",
            "saturated %",
            "try",
        ]);
    let mut worst: Vec<_> = run.last().into_iter().flat_map(operands).collect();
    worst.retain(|(_, operand)| operand.figures.sqnr.is_some());
    worst.sort_by(|(_, a), (_, b)| {
        let [a, b] = [a, b].map(|operand| operand.figures.sqnr.unwrap_or(f64::INFINITY));
        a.total_cmp(&b)
    });
    for (product, operand) in worst.into_iter().take(SHOWN) {
        let figures = &operand.figures;
        table.add_row([
            product.layer.clone(),
            product.product.to_string(),
            operand.operand.clone(),
            operand.format.clone().unwrap_or_else(|| "–".into()),
            number(figures.sqnr, 1),
            number(figures.slope, 4),
            number(figures.underflow, 2),
            number(figures.saturation, 2),
            suggestion(operand),
        ]);
    }
    table
}

/// The products whose accumulator lost most; `None` if no product has one.
fn sums(step: &StepRecord) -> Option<Table> {
    let products = step.products.iter();
    let mut worst: Vec<_> = products
        .filter_map(|product| Some((product, product.sums.as_ref()?)))
        .collect();
    if worst.is_empty() {
        return None;
    }
    let error = |figures: &SumFigures| figures.relative_error.unwrap_or(0.0);
    worst.sort_by(|(_, a), (_, b)| error(&b.figures).total_cmp(&error(&a.figures)));
    let mut table = Table::new();
    table
        .load_preset(UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header([
            "layer",
            "product",
            "accumulator",
            "error of sums",
            "bits lost",
            "cut to nothing %",
            "try",
        ]);
    for (product, sums) in worst.into_iter().take(SHOWN) {
        let others = sums.what_if.iter();
        let best = others.min_by(|(_, a), (_, b)| error(a).total_cmp(&error(b)));
        let best = best.filter(|(_, figures)| error(figures) < error(&sums.figures));
        let scientific = |figures: &SumFigures| format!("{:.1e}", error(figures));
        table.add_row([
            product.layer.clone(),
            product.product.to_string(),
            sums.accumulator.clone(),
            scientific(&sums.figures),
            number(sums.figures.bits_lost, 1),
            number(sums.figures.cut_to_nothing, 2),
            best.map_or_else(
                || "–".into(),
                |(name, figures)| format!("{name}: {}", scientific(figures)),
            ),
        ]);
    }
    Some(table)
}

/// The worst roundings of elementwise ops; `None` if none were recorded.
fn elementwise(step: &StepRecord) -> Option<Table> {
    let roundings = step.elementwise.iter();
    let roundings =
        roundings.flat_map(|op| op.roundings.iter().map(move |rounding| (op, rounding)));
    let mut worst: Vec<_> = roundings
        .filter_map(|(op, rounding)| Some((rounding.figures.sqnr?, op, rounding)))
        .collect();
    if worst.is_empty() {
        return None;
    }
    worst.sort_by(|(a, ..), (b, ..)| a.total_cmp(b));
    let mut table = Table::new();
    table
        .load_preset(UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header([
            "layer",
            "elementwise op",
            "pass",
            "rounding of",
            "format",
            "SQNR dB",
            "slope",
            "underflow %",
            "saturated %",
        ]);
    for (sqnr, op, rounding) in worst.into_iter().take(SHOWN) {
        let figures = &rounding.figures;
        table.add_row([
            op.layer.clone(),
            op.op.clone(),
            op.pass.to_string(),
            rounding.rounding.clone(),
            op.format.clone(),
            number(Some(sqnr), 1),
            number(figures.slope, 4),
            number(figures.underflow, 2),
            number(figures.saturation, 2),
        ]);
    }
    Some(table)
}

fn number(figure: Option<f64>, digits: usize) -> String {
    figure.map_or_else(|| "–".into(), |figure| format!("{figure:.digits$}"))
}

/// A suggestion: the further format that loses least on this operand, or a hint from the figures.
fn suggestion(operand: &OperandRecord) -> String {
    let gain = |other: &Figures| match (other.sqnr, operand.figures.sqnr, other.exact) {
        (Some(other), Some(own), _) => Some(other - own),
        (None, Some(_), true) => Some(f64::INFINITY),
        _ => None,
    };
    let gains = operand.what_if.iter();
    let gains = gains.filter_map(|(name, other)| Some((name, gain(other)?)));
    let best = gains.max_by(|(_, a), (_, b)| a.total_cmp(b));
    let more = |figure: Option<f64>, limit| figure.is_some_and(|figure| figure >= limit);
    match best {
        Some((name, gain)) if gain >= GAIN => format!("{name}: +{gain:.1} dB"),
        _ if more(operand.figures.saturation, SATURATION) => {
            "a scale that does not saturate (rceil, headroom)".into()
        }
        _ if more(operand.figures.underflow, UNDERFLOW) => {
            "more exponent range or smaller blocks".into()
        }
        _ => "–".into(),
    }
}
