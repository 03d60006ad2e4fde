//! A chart of the error over the number of passes.

use std::error::Error;

use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{Biases, Products, Verdict};

/// Pixels of a panel.
const PANEL: (u32, u32) = (420, 340);
/// Panels in a row.
const COLUMNS: usize = 3;
/// Errors below are not drawn.
const LEAST: f64 = 1e-7;

/// Draws ‖mean − g‖² / ‖g‖² over the number of passes as SVG. Each named recipe has a panel, each parameter a line in the colour of
/// its verdict. The biased parameter with the largest error has its name. A panel shows the test with all gradient products quantized, or the first choice of products if the configuration did not have
/// that.
///
/// # Errors
///
/// If `recipes` is empty, or drawing fails.
pub fn chart(recipes: &[(&str, &Biases)]) -> Result<String, Box<dyn Error>> {
    if recipes.is_empty() {
        return Err("there is no recipe to draw".into());
    }
    let columns = recipes.len().min(COLUMNS);
    let rows = recipes.len().div_ceil(columns);
    let size = (PANEL.0 * columns as u32, PANEL.1 * rows as u32);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE)?;
        for (panel, (name, biases)) in area.split_evenly((rows, columns)).iter().zip(recipes) {
            draw(panel, name, biases).map_err(|error| error.to_string())?;
        }
        area.present()?;
    }
    Ok(svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// The numbers of passes at the axis: each doubles the one before, or with many passes is ten times as large.
fn passes_shown(last: f64) -> Vec<f64> {
    let factor = if last < 100.0 { 2.0 } else { 10.0 };
    let passes = std::iter::successors(Some(1.0), |passes| Some(factor * passes));
    passes.take_while(|passes| *passes <= last).collect()
}

fn draw(area: &Area<'_>, name: &str, biases: &Biases) -> Result<(), Box<dyn Error>> {
    let products = match biases.config.products.contains(&Products::All) {
        true => Products::All,
        false => biases.config.products[0],
    };
    let last = biases.config.backward_passes as f64;
    let curves = |verdict| {
        let curves = (biases.parameters.iter()).map(|parameter| parameter.of(products));
        curves.filter(move |bias| bias.verdict == verdict)
    };
    let count = |verdict| curves(verdict).count();
    let caption = format!(
        "{name}: {} unbiased, {} biased",
        count(Verdict::Unbiased),
        count(Verdict::Biased)
    );
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 15))
        .margin(10)
        .x_label_area_size(34)
        .y_label_area_size(54)
        .build_cartesian_2d(
            (1.0..last).log_scale().with_key_points(passes_shown(last)),
            (LEAST..1.0).log_scale(),
        )?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("backward passes N")
        .y_desc("‖mean − g‖² / ‖g‖²")
        .y_label_formatter(&|error| format!("{error:.0e}"))
        .x_label_formatter(&|passes| format!("{passes:.0}"))
        .draw()?;
    let verdicts = [
        (
            Verdict::Unbiased,
            "an unbiased parameter",
            RGBColor(0, 114, 178),
        ),
        (Verdict::Biased, "a biased parameter", RGBColor(213, 94, 0)),
    ];
    for (verdict, label, colour) in verdicts {
        for (index, bias) in curves(verdict).enumerate() {
            let points = bias.passes.iter().zip(&bias.error);
            let points = points.map(|(passes, error)| (*passes as f64, error.max(LEAST)));
            let line = chart.draw_series(LineSeries::new(points, colour.mix(0.8)))?;
            if index == 0 {
                let legend = move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour);
                line.label(label).legend(legend);
            }
        }
    }
    if let Some((name, error)) = worst(biases, products) {
        let style = ("sans-serif", 12).into_text_style(area);
        // Above the line there may be the title.
        let (side, offset) = match error > 0.6 {
            true => (VPos::Top, 3),
            false => (VPos::Bottom, -3),
        };
        let style = style.pos(Pos::new(HPos::Right, side));
        let name = EmptyElement::at((last, error)) + Text::new(name.to_owned(), (0, offset), style);
        chart.draw_series([name])?;
    }
    // The error of an unbiased recipe falls like this.
    let guide = [(1.0, 0.1), (last, 0.1 / last)];
    let grey = BLACK.mix(0.5);
    chart
        .draw_series(DashedLineSeries::new(guide, 4, 4, grey.into()))?
        .label("1/N")
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], grey));
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerLeft)
        .label_font(("sans-serif", 11))
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.2))
        .draw()?;
    Ok(())
}

/// The biased parameter with the largest error among those that are drawn, and this error.
fn worst(biases: &Biases, products: Products) -> Option<(&str, f64)> {
    biases
        .parameters
        .iter()
        .map(|parameter| (&parameter.parameter, parameter.of(products)))
        .filter(|(_, bias)| bias.verdict == Verdict::Biased)
        .filter_map(|(name, bias)| Some((name.as_str(), *bias.error.last()?)))
        .filter(|(_, error)| (LEAST..1.0).contains(error))
        .max_by(|a, b| a.1.total_cmp(&b.1))
}
