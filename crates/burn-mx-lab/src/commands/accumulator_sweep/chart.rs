//! The sweep as SVG: two panels side by side.

use std::error::Error;

use burn_mx_lab::drawing::{legend, svg};
use plotters::coord::Shift;
use plotters::prelude::*;

use super::{Unit, gradients::GradientErrors, sums::SumError, training::Runs};
use crate::training::models::ModelName;

const SIZE: (u32, u32) = (1280, 520);
/// The smallest error that is drawn: of sums that are exact, too.
const LEAST: f64 = 1e-9;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A line, or points, by name.
struct Curve {
    name: String,
    points: Vec<(f64, f64)>,
}

/// The axes of a panel.
struct Axes {
    title: String,
    x: &'static str,
    y: &'static str,
    logarithmic_x: bool,
    logarithmic_y: bool,
    /// Where there are no curves.
    legend: SeriesLabelPosition,
}

/// Errors over K: of every width without promotion, and of every promotion with one width.
pub(crate) fn sums(errors: &[SumError<Unit>]) -> Result<String, Box<dyn Error>> {
    let never = errors.iter().filter(|error| error.unit.promote_every == 0);
    let by_width = curves(never, |error| {
        let name = format!("{} bits", error.unit.fraction_bits);
        (name, error.k as f64, error.relative_errors[0])
    });
    let widths: Vec<u32> = errors
        .iter()
        .map(|error| error.unit.fraction_bits)
        .collect();
    // Hopper's, if there.
    let width = if widths.contains(&13) { 13 } else { widths[0] };
    let of_width = errors
        .iter()
        .filter(|error| error.unit.fraction_bits == width);
    let by_promotion = curves(of_width, |error| {
        (
            promotion(error.unit.promote_every),
            error.k as f64,
            error.relative_errors[0],
        )
    });
    let axes = |title: String, legend| Axes {
        legend,
        title,
        x: "K, elements of a sum",
        y: "relative error of the sums",
        logarithmic_x: true,
        logarithmic_y: true,
    };
    drawn(|left, right| {
        panel(
            left,
            &axes(
                "Random operands, no promotion".into(),
                SeriesLabelPosition::LowerRight,
            ),
            &by_width,
            &[],
        )?;
        let title = format!("Random operands, {width} fraction bits");
        panel(
            right,
            &axes(title, SeriesLabelPosition::UpperLeft),
            &by_promotion,
            &[],
        )
    })
}

/// The gradient's error and the score over fraction bits.
pub(crate) fn model(
    name: ModelName,
    gradients: &GradientErrors,
    runs: &[Runs],
) -> Result<String, Box<dyn Error>> {
    let errors = curves(&gradients.units, |(unit, error)| {
        (
            promotion(unit.promote_every),
            f64::from(unit.fraction_bits),
            *error,
        )
    });
    let swept = runs
        .iter()
        .filter_map(|run| Some((run.fraction_bits?, run)));
    let scores = curves(swept, |(bits, run)| {
        (
            "mean of the seeds".to_owned(),
            f64::from(bits),
            run.mean()[1],
        )
    });
    let others = runs.iter().filter(|run| run.fraction_bits.is_none());
    let others: Vec<_> = others
        .map(|run| (run.name.clone(), run.mean()[1]))
        .collect();
    let axes = |title: &str, y, logarithmic_y| Axes {
        legend: match logarithmic_y {
            true => SeriesLabelPosition::UpperRight,
            false => SeriesLabelPosition::LowerRight,
        },
        title: format!("{}: {title}", name.name()),
        x: "fraction bits of the accumulator",
        y,
        logarithmic_x: false,
        logarithmic_y,
    };
    let of_gradient = axes("gradient", "error against float32 sums", true);
    let quantization = [("quantization alone".to_owned(), gradients.quantization)];
    let of_score = axes("after training", name.task().score(), false);
    drawn(|left, right| {
        panel(left, &of_gradient, &errors, &quantization)?;
        panel(right, &of_score, &scores, &others)
    })
}

fn promotion(every: usize) -> String {
    match every {
        0 => "never promoted".to_owned(),
        every => format!("promoted every {every}"),
    }
}

/// Points by the names of their curves, in the order in which the names come.
fn curves<T>(
    points: impl IntoIterator<Item = T>,
    point: impl Fn(T) -> (String, f64, f64),
) -> Vec<Curve> {
    let mut curves = Vec::<Curve>::new();
    for (name, x, y) in points.into_iter().map(point) {
        match curves.iter_mut().find(|curve| curve.name == name) {
            Some(curve) => curve.points.push((x, y)),
            None => curves.push(Curve {
                name,
                points: vec![(x, y)],
            }),
        }
    }
    for curve in &mut curves {
        curve.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    curves
}

fn drawn(
    panels: impl FnOnce(&Area<'_>, &Area<'_>) -> Result<(), Box<dyn Error>>,
) -> Result<String, Box<dyn Error>> {
    svg(SIZE, |root| {
        let (left, right) = root.split_horizontally(SIZE.0 / 2);
        panels(&left, &right)
    })
}

/// Lines, and levels that are drawn dashed. Logarithms are of base ten.
fn panel(
    area: &Area<'_>,
    axes: &Axes,
    curves: &[Curve],
    levels: &[(String, f64)],
) -> Result<(), Box<dyn Error>> {
    let x_of = |x: f64| if axes.logarithmic_x { x.log2() } else { x };
    let y_of = |y: f64| {
        if axes.logarithmic_y {
            y.max(LEAST).log10()
        } else {
            y
        }
    };
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let xs: Vec<f64> = points().map(|(x, _)| x_of(*x)).collect();
    let ys = points()
        .map(|(_, y)| *y)
        .chain(levels.iter().map(|(_, y)| *y));
    let ys: Vec<f64> = ys.map(y_of).filter(|y| y.is_finite()).collect();
    let range = |values: &[f64]| {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let margin = 0.05 * (most - least).max(1e-3);
        least - margin..most + margin
    };
    if xs.is_empty() || ys.is_empty() {
        return Ok(());
    }
    let mut chart = ChartBuilder::on(area)
        .caption(&axes.title, ("sans-serif", 20))
        .margin(14)
        .x_label_area_size(46)
        .y_label_area_size(76)
        .build_cartesian_2d(range(&xs), range(&ys))?;
    let logarithmic_x = |x: &f64| format!("{:.0}", x.exp2());
    let linear_x = |x: &f64| format!("{x:.0}");
    let logarithmic_y = |y: &f64| format!("{:.0e}", 10.0_f64.powf(*y));
    let linear_y = |y: &f64| format!("{y:.3}");
    chart
        .configure_mesh()
        .x_desc(axes.x)
        .y_desc(axes.y)
        .x_label_formatter(if axes.logarithmic_x {
            &logarithmic_x
        } else {
            &linear_x
        })
        .y_label_formatter(if axes.logarithmic_y {
            &logarithmic_y
        } else {
            &linear_y
        })
        .axis_desc_style(("sans-serif", 15))
        .label_style(("sans-serif", 13))
        .bold_line_style(BLACK.mix(0.12))
        .light_line_style(WHITE)
        .draw()?;
    let all = curves.len() + levels.len();
    let colour = |index: usize| HSLColor(index as f64 / all as f64, 0.75, 0.4).to_rgba();
    for (index, curve) in curves.iter().enumerate() {
        let style = colour(index).stroke_width(2);
        let points = || {
            let points = curve.points.iter().map(|(x, y)| (x_of(*x), y_of(*y)));
            points.filter(|(_, y)| y.is_finite())
        };
        chart
            .draw_series(LineSeries::new(points(), style).point_size(3))?
            .label(&curve.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], style));
    }
    let (first, last) = (range(&xs).start, range(&xs).end);
    for (index, (name, level)) in levels.iter().enumerate() {
        let style = colour(curves.len() + index).stroke_width(2);
        let ends = [(first, y_of(*level)), (last, y_of(*level))];
        let dashes = DashedLineSeries::new(ends, 6, 4, style);
        chart
            .draw_series(dashes)?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], style));
    }
    legend(&mut chart, axes.legend.clone())
}
