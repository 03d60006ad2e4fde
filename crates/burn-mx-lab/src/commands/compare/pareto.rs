//! The score over the mean bits of an operand, as SVG.

use std::error::Error;

use burn_mx_lab::drawing::{COLOURS, legend, svg};
use plotters::prelude::*;

use super::report::{CompareRun, groups};

const SIZE: (u32, u32) = (960, 560);
const FRONT: RGBColor = COLOURS[1];
const BEHIND: RGBColor = COLOURS[0];

/// A format.
struct Point {
    label: String,
    /// The base-2 logarithm of the mean bits of an element of an operand.
    bits: f64,
    /// Mean, least and largest score in percent over the seeds.
    score: [f64; 3],
}

/// Draws a point for each format, with a bar from the worst to the best seed, and the Pareto front. No other
/// format beats a format of the front in both bits and score.
pub(crate) fn score_over_bits(score: &str, runs: &[CompareRun]) -> Result<String, Box<dyn Error>> {
    let points = groups(runs);
    let points = points.iter().map(|group| Point {
        label: group.label(),
        bits: group.mean_bits().log2(),
        score: group.scores().map(|score| 100.0 * score),
    });
    let mut points: Vec<Point> = points.collect();
    points.sort_by(|a, b| a.bits.total_cmp(&b.bits));
    let mut front: Vec<(f64, f64)> = Vec::new();
    for point in &points {
        let last = front.last().map_or(f64::NEG_INFINITY, |(_, score)| *score);
        if point.score[0] > last {
            front.push((point.bits, point.score[0]));
        }
    }
    let least = points.iter().map(|point| point.score[1]);
    let least = least.fold(f64::INFINITY, f64::min);
    let most = points.iter().map(|point| point.score[2]);
    let most = most.fold(f64::NEG_INFINITY, f64::max);
    let margin = 0.08 * (most - least).max(1.0);
    svg(SIZE, |root| {
        let mut chart = ChartBuilder::on(root)
            .caption(
                format!("{score} over the bits of an operand"),
                ("sans-serif", 20),
            )
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size(64)
            // Of the logarithm: FP32 has 32 bits, and most formats 4 to 8.
            .build_cartesian_2d(1.8..5.4, least - margin..most + margin)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_desc("mean bits of an element of an operand of a training step (log scale)")
            .y_desc(format!("{score}, % (bar: from the worst to the best seed)"))
            .axis_desc_style(("sans-serif", 15))
            .x_labels(4)
            .x_label_formatter(&|bits: &f64| format!("{:.0}", bits.exp2()))
            .draw()?;
        let grey = BLACK.mix(0.4).stroke_width(2);
        chart
            .draw_series(LineSeries::new(front.iter().copied(), grey))?
            .label("Pareto front")
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], grey));
        for (label, color) in [("on the front", FRONT), ("behind the front", BEHIND)] {
            chart
                .draw_series(std::iter::empty::<Circle<(f64, f64), i32>>())?
                .label(label)
                .legend(move |(x, y)| Circle::new((x + 10, y), 5, color.filled()));
        }
        for (at, point) in points.iter().enumerate() {
            let is_front = front.contains(&(point.bits, point.score[0]));
            let color = match is_front {
                true => FRONT,
                false => BEHIND,
            };
            let [mean, least, most] = point.score;
            let bar = [(point.bits, least), (point.bits, most)];
            chart.draw_series([PathElement::new(bar, color.mix(0.5).stroke_width(2))])?;
            chart.draw_series([Circle::new((point.bits, mean), 5, color.filled())])?;
            // Neighbors at the same height write above and below.
            let offset = if at % 2 == 0 { -18 } else { 8 };
            let label = EmptyElement::at((point.bits, mean))
                + Text::new(point.label.clone(), (8, offset), ("sans-serif", 14));
            chart.draw_series([label])?;
        }
        legend(&mut chart, SeriesLabelPosition::LowerRight)
    })
}
