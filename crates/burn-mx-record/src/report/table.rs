//! The layers and the operands that lost most, as tables.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{ContentArrangement, Table};

use super::{Figures, OperandRecord, ProductRecord, Run, StepRecord, SumFigures, operands};
use crate::file::dialect_figures::DialectFigures;
use burn_mx_core::MxSpecs;

/// Layers of a run in the table, and operands.
const SHOWN: usize = 10;
/// The gain in dB from which the table suggests another format.
const GAIN: f64 = 1.0;
/// The percentage from which the table mentions saturation or underflow.
const SATURATION: f64 = 1.0;
const UNDERFLOW: f64 = 10.0;

pub(super) fn worst(runs: &[Run]) -> String {
    let tables = runs.iter().map(|run| match run.last() {
        Some(step) => {
            let more = [
                error_parts(step),
                dialects(step),
                sums(step),
                elementwise(step),
            ]
            .into_iter()
            .flatten();
            let more: String = more.map(|table| format!("\n{table}")).collect();
            let not_emulated = match run.not_emulated() {
                names if names.is_empty() => String::new(),
                names => format!(", not emulated: {}", names.join(", ")),
            };
            let products = run.products();
            let products = products.map_or(String::new(), |how| format!(", products {how}"));
            format!(
                "{}, step {}{products}{not_emulated}\n{}\n{}{more}",
                run.title(),
                step.step,
                layers(step),
                table(step)
            )
        }
        None => format!("{}: no step was recorded", run.title()),
    });
    tables.collect::<Vec<_>>().join("\n\n")
}

/// An empty table with this header.
fn with_header<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header);
    table
}

/// The operands with an error, the worst one first.
fn by_sqnr(step: &StepRecord) -> Vec<(f64, &ProductRecord, &OperandRecord)> {
    let with_error = operands(step)
        .filter_map(|(product, operand)| Some((operand.figures.sqnr?, product, operand)));
    let mut worst: Vec<_> = with_error.collect();
    worst.sort_by(|(a, ..), (b, ..)| a.total_cmp(b));
    worst
}

/// The worst layers by their worst operand, and lines that try the first one with a parameter in another format.
fn layers(step: &StepRecord) -> String {
    let mut table = with_header([
        "layer",
        "worst operand",
        "SQNR dB",
        "largest error of a result %",
    ]);
    let mut shown = Vec::<&str>::new();
    let mut line = None;
    for (sqnr, product, operand) in by_sqnr(step) {
        let layer = product.layer.as_str();
        if shown.contains(&layer) || shown.len() == SHOWN {
            continue;
        }
        shown.push(layer);
        let of_layer = step.products.iter().filter(|other| other.layer == layer);
        let errors = of_layer.filter_map(|other| other.result?.relative_error);
        let error = errors.max_by(f64::total_cmp).map(|error| 100.0 * error);
        table.add_row([
            layer.to_owned(),
            format!("{} of {}", operand.operand, product.product),
            number(Some(sqnr), 1),
            number(error, 1),
        ]);
        // Names that the recorder made up have a space; a parameter's path has none.
        if !layer.contains(' ') {
            line.get_or_insert((layer, operand));
        }
    }
    let Some((layer, operand)) = line else {
        return format!("{table}\n");
    };
    // A layer's specs can be a preset; a block format alone says nothing of the rest.
    let better = best(operand, |name| MxSpecs::preset(name).is_ok());
    let better = better.filter(|(_, gain)| *gain >= GAIN);
    let (preset, specs) = match better {
        Some((name, _)) => (
            name.as_str(),
            format!("MxSpecs::preset(\"{name}\")?.resolve()?"),
        ),
        None => ("fp32", "MxSpecs::none().resolve()?".into()),
    };
    format!(
        "{table}\n\
         A low SQNR is not yet sensitivity: a layer is sensitive if the loss or the accuracy changes with its format. Try it:\n    \
         model = set_specs_at(model, \"{layer}\", &{specs})?;\n    \
         compare … --layer '{layer}={preset}'\n"
    )
}

fn table(step: &StepRecord) -> Table {
    let mut table = with_header([
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
    for (sqnr, product, operand) in by_sqnr(step).into_iter().take(SHOWN) {
        let figures = &operand.figures;
        table.add_row([
            product.layer.clone(),
            product.product.to_string(),
            operand.operand.clone(),
            operand.format.clone().unwrap_or_else(|| "–".into()),
            number(Some(sqnr), 1),
            number(figures.slope, 4),
            number(figures.underflow, 2),
            number(figures.saturation, 2),
            suggestion(operand),
        ]);
    }
    table
}

/// The parts of the errors of the worst operands; `None` if no operand has them.
fn error_parts(step: &StepRecord) -> Option<Table> {
    let mut worst = by_sqnr(step);
    worst.retain(|(.., operand)| operand.figures.error_parts.is_some());
    if worst.is_empty() {
        return None;
    }
    let mut table = with_header([
        "layer",
        "product",
        "operand",
        "error by scale",
        "by dead zone",
        "by grid",
        "cosine of scale and grid",
        "log2 of scale over exact scale",
        "in dead zone %",
    ]);
    for (_, product, operand) in worst.into_iter().take(SHOWN) {
        let parts = operand.figures.error_parts?;
        table.add_row([
            product.layer.clone(),
            product.product.to_string(),
            operand.operand.clone(),
            number(parts.scale, 3),
            number(parts.dead_zone, 3),
            number(parts.grid, 3),
            number(parts.cosine, 3),
            number(parts.scale_bias, 3),
            number(parts.dead_zone_elements, 1),
        ]);
    }
    Some(table)
}

/// The operands whose dialect costs most; `None` if no operand has one.
fn dialects(step: &StepRecord) -> Option<Table> {
    let mut costly: Vec<_> = operands(step)
        .filter_map(|(product, operand)| Some((operand.figures.dialect?, product, operand)))
        .collect();
    if costly.is_empty() {
        return None;
    }
    costly.sort_by(|(a, ..), (b, ..)| {
        let of = |figures: &DialectFigures| figures.error_ratio.unwrap_or(0.0);
        of(b).total_cmp(&of(a))
    });
    let mut table = with_header([
        "layer",
        "product",
        "operand",
        "dialect",
        "elements that differ from the format's own rule %",
        "SQNR dB",
        "of the own rule",
        "error over the own rule's",
    ]);
    for (figures, product, operand) in costly.into_iter().take(SHOWN) {
        table.add_row([
            product.layer.clone(),
            product.product.to_string(),
            operand.operand.clone(),
            figures.dialect.to_string(),
            number(figures.differing_share, 2),
            number(operand.figures.sqnr, 1),
            number(figures.plain_sqnr, 1),
            number(figures.error_ratio, 3),
        ]);
    }
    Some(table)
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
    let mut table = with_header([
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

/// The further format with such a name that loses least on this operand, and how much less than its own format, in dB.
fn best(operand: &OperandRecord, is_wanted: impl Fn(&str) -> bool) -> Option<(&String, f64)> {
    let gain = |other: &Figures| match (other.sqnr, operand.figures.sqnr, other.exact) {
        (Some(other), Some(own), _) => Some(other - own),
        (None, Some(_), true) => Some(f64::INFINITY),
        _ => None,
    };
    let wanted = operand.what_if.iter().filter(|(name, _)| is_wanted(name));
    let gains = wanted.filter_map(|(name, other)| Some((name, gain(other)?)));
    gains.max_by(|(_, a), (_, b)| a.total_cmp(b))
}

/// A suggestion: the further format that loses least on this operand, or a hint from the figures.
fn suggestion(operand: &OperandRecord) -> String {
    let more = |figure: Option<f64>, limit| figure.is_some_and(|figure| figure >= limit);
    match best(operand, |_| true) {
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
