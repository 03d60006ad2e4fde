//! Loss curves as SVG.

use std::{collections::BTreeSet, error::Error};

use plotters::prelude::*;

use super::{
    drawing::{COLOURS, legend, svg},
    report::{Run, groups},
};

const SIZE: (u32, u32) = (960, 600);
/// A run's curve is averaged over one of this number of parts of its steps.
const SMOOTHING: usize = 40;

/// Draws the training loss of each format over its steps: a faint line for each step's loss, a bold line for the
/// average over neighbouring steps.
///
/// The axis is logarithmic, because losses that differ late in training are all near zero.
pub(crate) fn loss_curves(title: &str, runs: &[Run]) -> Result<String, Box<dyn Error>> {
    let curves: Vec<(String, Vec<f32>)> = groups(runs)
        .iter()
        .map(|group| (group.label(), group.loss()))
        .collect();
    let steps = curves.iter().map(|(_, loss)| loss.len()).max().unwrap_or(0);
    let drawable = curves
        .iter()
        .flat_map(|(_, loss)| loss)
        .copied()
        .filter(|loss| is_drawable(*loss));
    let (lowest, highest) = drawable
        .map(|loss| (loss, loss))
        .reduce(|(low, high), (loss, _)| (low.min(loss), high.max(loss)))
        .unwrap_or((0.1, 1.0));
    // At least a decade: an axis has to have a length.
    let lowest = lowest.min(highest / 10.0);

    svg(SIZE, |root| {
        let mut chart = ChartBuilder::on(root)
            .caption(title, ("sans-serif", 22))
            .margin(16)
            .x_label_area_size(48)
            .y_label_area_size(72)
            .build_cartesian_2d(0..steps, (lowest..highest).log_scale())?;
        chart
            .configure_mesh()
            .x_desc("step")
            .y_desc(format!(
                "training loss (log scale; bold: mean over 1/{SMOOTHING} of the steps)"
            ))
            .axis_desc_style(("sans-serif", 16))
            .label_style(("sans-serif", 14))
            .bold_line_style(BLACK.mix(0.15))
            .light_line_style(WHITE)
            .draw()?;
        // The steps at which specs change.
        let stages = runs.iter().flat_map(|run| &run.stages);
        let changes: BTreeSet<usize> = stages.map(|stage| stage.from).collect();
        for step in changes.into_iter().filter(|step| *step < steps) {
            let line = [(step, lowest), (step, highest)];
            chart.draw_series(DashedLineSeries::new(line, 4, 4, BLACK.mix(0.4).into()))?;
        }
        let coloured = || {
            let colours = (0..curves.len()).map(|index| colour(index, curves.len()));
            curves.iter().zip(colours)
        };
        for ((_, loss), colour) in coloured() {
            chart.draw_series(LineSeries::new(points(loss), colour.mix(0.15)))?;
        }
        for ((label, loss), colour) in coloured() {
            let averaged = smooth(loss);
            chart
                .draw_series(LineSeries::new(points(&averaged), colour.stroke_width(2)))?
                .label(label)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 24, y)], colour.stroke_width(3))
                });
        }
        legend(&mut chart, SeriesLabelPosition::UpperRight)
    })
}

/// The colour of one among `curves`, FP32 being the first.
fn colour(index: usize, curves: usize) -> RGBAColor {
    let mx_curves = curves - 1;
    match index.checked_sub(1) {
        None => BLACK.to_rgba(),
        Some(mx) if mx_curves <= COLOURS.len() => COLOURS[mx].to_rgba(),
        // Too many for a palette: hues at equal distances.
        Some(mx) => HSLColor(mx as f64 / mx_curves as f64, 0.75, 0.42).to_rgba(),
    }
}

/// A logarithmic axis has no place for zero, and none has one for NaN.
fn is_drawable(loss: f32) -> bool {
    loss.is_finite() && loss > 0.0
}

fn points(losses: &[f32]) -> impl Iterator<Item = (usize, f32)> {
    losses
        .iter()
        .copied()
        .enumerate()
        .filter(|(_, loss)| is_drawable(*loss))
}

/// Centred moving average, over fewer steps at the ends.
fn smooth(losses: &[f32]) -> Vec<f32> {
    let reach = losses.len() / (2 * SMOOTHING);
    (0..losses.len())
        .map(|step| {
            let window = &losses[step.saturating_sub(reach)..(step + reach + 1).min(losses.len())];
            window.iter().sum::<f32>() / window.len() as f32
        })
        .collect()
}
