//! Curves of validation loss as SVG.

use std::error::Error;

use plotters::prelude::*;

use burn_mx_lab::drawing::{COLOURS, legend, svg};

/// A name and its losses, by the number of steps.
pub(super) type Named<'a> = (&'a str, &'a [(usize, f32)]);

/// Draws how much higher the losses of all runs are than the losses of the first one. `None` without a second run, or if no difference is finite.
///
/// # Errors
///
/// If the drawing fails.
pub(super) fn gaps(runs: &[Named<'_>]) -> Result<Option<String>, Box<dyn Error>> {
    let Some(((first, of_first), others)) = runs.split_first() else {
        return Ok(None);
    };
    let gap = |(step, loss): &(usize, f32)| {
        let of_first = of_first.iter().find(|(at, _)| at == step);
        (*step, of_first.map_or(f32::NAN, |(_, first)| loss - first))
    };
    let gaps = others.iter().map(|(name, losses)| {
        let gaps: Vec<_> = losses.iter().map(gap).collect();
        (*name, gaps)
    });
    let gaps: Vec<_> = gaps.collect();
    let named: Vec<Named<'_>> = gaps.iter().map(|(name, gaps)| (*name, &gaps[..])).collect();
    let mut all = named.iter().flat_map(|(_, gaps)| gaps.iter());
    if !all.any(|(_, gap)| gap.is_finite()) {
        return Ok(None);
    }
    let title = format!("Validation loss above that of {first}");
    // Gaps do not fall, so the legend needs a place above. A line of text takes a 27th of the chart's height.
    let legend = ((named.len() + 1) as f32 / 27.0).min(0.6);
    let above = legend * (1.0 + MARGIN) / (1.0 - legend);
    drawn(&title, "gap (nats a token)", above, &named).map(Some)
}

/// Draws the curves. The axis ends a little above the largest number after the first quarter of the steps, to separate formats.
///
/// # Errors
///
/// If no number is finite.
pub(super) fn curves(title: &str, runs: &[Named<'_>]) -> Result<String, Box<dyn Error>> {
    drawn(title, "validation loss (nats a token)", MARGIN, runs)
}

/// The share of the range of numbers that stays free below, and above at least.
const MARGIN: f32 = 0.08;

/// The curves, with a share of their range free `above`.
fn drawn(
    title: &str,
    axis: &str,
    above: f32,
    runs: &[Named<'_>],
) -> Result<String, Box<dyn Error>> {
    let losses = || runs.iter().flat_map(|(_, losses)| losses.iter());
    let finite = || losses().filter(|(_, loss)| loss.is_finite());
    let steps = losses().map(|(step, _)| *step).max().unwrap_or(0);
    let lowest = finite()
        .map(|(_, loss)| *loss)
        .fold(f32::INFINITY, f32::min);
    let late = finite().filter(|(step, _)| 4 * *step >= steps);
    let highest = late
        .map(|(_, loss)| *loss)
        .fold(f32::NEG_INFINITY, f32::max);
    if lowest > highest {
        return Err("there is no loss to draw".into());
    }
    let range = (highest - lowest).max(0.01);
    let (bottom, top) = (lowest - MARGIN * range, highest + above * range);
    svg((960, 600), |root| {
        let mut chart = ChartBuilder::on(root)
            .caption(title, ("sans-serif", 22))
            .margin(16)
            .x_label_area_size(48)
            .y_label_area_size(72)
            .build_cartesian_2d(0..steps, bottom..top)?;
        chart
            .configure_mesh()
            .x_desc("step")
            .y_desc(axis)
            .axis_desc_style(("sans-serif", 16))
            .label_style(("sans-serif", 14))
            .bold_line_style(BLACK.mix(0.15))
            .light_line_style(WHITE)
            .draw()?;
        for (at, (name, losses)) in runs.iter().enumerate() {
            let colour = match at % (COLOURS.len() + 1) {
                0 => BLACK,
                at => COLOURS[at - 1],
            };
            // A second round of colours is dashed by its points alone.
            let width = if at <= COLOURS.len() { 2 } else { 1 };
            let points = losses
                .iter()
                .copied()
                .filter(|(_, loss)| loss.is_finite() && *loss <= top);
            let points: Vec<(usize, f32)> = points.collect();
            let last = losses.last().map_or(f32::NAN, |(_, loss)| *loss);
            chart
                .draw_series(LineSeries::new(points.clone(), colour.stroke_width(width)))?
                .label(format!("{name}: {last:.4}"))
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 24, y)], colour.stroke_width(width + 1))
                });
            let dots = points.iter().map(|at| Circle::new(*at, 3, colour.filled()));
            chart.draw_series(dots)?;
        }
        legend(&mut chart, SeriesLabelPosition::UpperRight)
    })
}
