//! Loss curves as SVG.

use std::{collections::BTreeSet, error::Error};

use burn_mx_lab::{
    drawing::{COLOURS, legend, svg},
    logarithmic,
};
use plotters::prelude::*;

use super::report::{CompareRun, SeedGroup, groups};

const SIZE: (u32, u32) = (960, 600);
/// A run's curve is averaged over one of this number of parts of its steps.
const SMOOTHING: usize = 40;

/// Draws the training loss of each format over its steps: a bold line for the average over neighbouring steps, the mean over the
/// seeds. Behind it is a band from the lowest to the highest seed, or with one seed a faint line for each step's loss.
///
/// The axis is logarithmic, because losses that differ late in training are all near zero.
pub(crate) fn loss_curves(title: &str, runs: &[CompareRun]) -> Result<String, Box<dyn Error>> {
    let curves: Vec<Curve> = groups(runs).iter().map(Curve::of).collect();
    let steps = curves.iter().map(|curve| curve.mean.len()).max();
    let steps = steps.unwrap_or(0);
    let drawn = curves.iter().flat_map(|curve| match &curve.band {
        Some(band) => band.clone().map(points).concat(),
        None => points(&curve.loss),
    });
    let (lowest, highest) = drawn
        .map(|(_, loss)| (loss, loss))
        .reduce(|(low, high), (loss, _)| (low.min(loss), high.max(loss)))
        .unwrap_or((0.1, 1.0));
    // At least a decade: an axis has to have a length.
    let range = lowest.min(highest / 10.0)..highest;
    let behind = match curves.iter().any(|curve| curve.band.is_some()) {
        true => "; band: all seeds",
        false => "",
    };

    svg(SIZE, |root| {
        let y = range.clone().log_scale();
        let mut chart = ChartBuilder::on(root)
            .caption(title, ("sans-serif", 22))
            .margin(16)
            .x_label_area_size(48)
            .y_label_area_size(72)
            .build_cartesian_2d(0..steps, y.with_key_points(logarithmic::ticks(&range)))?;
        chart
            .configure_mesh()
            .x_desc("step")
            .y_desc(format!(
                "training loss (bold: mean over 1/{SMOOTHING} of the steps{behind})"
            ))
            .y_label_formatter(&logarithmic::label)
            .axis_desc_style(("sans-serif", 16))
            .label_style(("sans-serif", 14))
            .bold_line_style(BLACK.mix(0.15))
            .light_line_style(WHITE)
            .draw()?;
        // The steps at which specs change.
        let stages = runs.iter().flat_map(|run| &run.stages);
        let changes: BTreeSet<usize> = stages.map(|stage| stage.from).collect();
        for step in changes.into_iter().filter(|step| *step < steps) {
            let line = [(step, range.start), (step, range.end)];
            chart.draw_series(DashedLineSeries::new(line, 4, 4, BLACK.mix(0.4).into()))?;
        }
        let coloured = || {
            let colours = (0..curves.len()).map(|index| colour(index, curves.len()));
            curves.iter().zip(colours)
        };
        for (curve, colour) in coloured() {
            match &curve.band {
                Some([low, high]) => {
                    let back = points(high).into_iter().rev();
                    let outline: Vec<_> = points(low).into_iter().chain(back).collect();
                    chart.draw_series([Polygon::new(outline, colour.mix(0.2))])?;
                }
                None => {
                    let line = LineSeries::new(points(&curve.loss), colour.mix(0.15));
                    chart.draw_series(line)?;
                }
            }
        }
        for (curve, colour) in coloured() {
            chart
                .draw_series(LineSeries::new(points(&curve.mean), colour.stroke_width(2)))?
                .label(&curve.label)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 24, y)], colour.stroke_width(3))
                });
        }
        legend(&mut chart, SeriesLabelPosition::UpperRight)
    })
}

/// The losses of a format.
struct Curve {
    label: String,
    /// Of each step, the mean over the seeds.
    loss: Vec<f32>,
    /// The same, averaged over neighbouring steps.
    mean: Vec<f32>,
    /// The lowest and the highest seed, averaged over neighbouring steps, if there are several.
    band: Option<[Vec<f32>; 2]>,
}

impl Curve {
    fn of(group: &SeedGroup<'_>) -> Self {
        let seeds: Vec<Vec<f32>> = group.losses().map(smooth).collect();
        let loss = group.loss();
        let over_seeds = |choose: fn(f32, f32) -> f32| -> Vec<f32> {
            let steps = 0..loss.len();
            let of_step = |step: usize| seeds.iter().map(move |seed| seed[step]).reduce(choose);
            steps.filter_map(of_step).collect()
        };
        Self {
            label: group.label(),
            mean: smooth(&loss),
            band: (seeds.len() > 1).then(|| [over_seeds(f32::min), over_seeds(f32::max)]),
            loss,
        }
    }
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

fn points(losses: impl AsRef<[f32]>) -> Vec<(usize, f64)> {
    let losses = losses.as_ref().iter().copied().enumerate();
    let drawable = losses.filter(|(_, loss)| is_drawable(*loss));
    drawable
        .map(|(step, loss)| (step, f64::from(loss)))
        .collect()
}

/// Centred moving average, over fewer steps at the ends.
fn smooth(losses: impl AsRef<[f32]>) -> Vec<f32> {
    let losses = losses.as_ref();
    let reach = losses.len() / (2 * SMOOTHING);
    (0..losses.len())
        .map(|step| {
            let window = &losses[step.saturating_sub(reach)..(step + reach + 1).min(losses.len())];
            window.iter().sum::<f32>() / window.len() as f32
        })
        .collect()
}
