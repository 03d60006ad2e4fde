//! The effect over each score as SVG: a panel for each group of products and score.

use std::{error::Error, ops::Range};

use burn_mx::record::Score;
use burn_mx_lab::{
    drawing::{COLOURS, legend, svg},
    logarithmic,
};
use plotters::prelude::*;

use super::{GROUPS, OperandRow, is_forward};
use crate::training::models::ModelName;

const SIZE: (u32, u32) = (1120, 840);
pub(crate) fn scatter(name: ModelName, rows: &[OperandRow]) -> Result<String, Box<dyn Error>> {
    let mut formats: Vec<&str> = Vec::new();
    for row in rows {
        if !formats.contains(&row.format.as_str()) {
            formats.push(&row.format);
        }
    }
    svg(SIZE, |root| {
        let panels = root.split_evenly((GROUPS.len(), Score::ALL.len()));
        let choices = GROUPS.into_iter().flat_map(|group| {
            Score::ALL
                .into_iter()
                .enumerate()
                .map(move |score| (group, score))
        });
        for (panel, ((forward, products), (at, score))) in panels.iter().zip(choices) {
            // A place without any effect, or that loses nothing, has no logarithm.
            let points: Vec<(&OperandRow, (f64, f64))> = rows
                .iter()
                .filter(|row| is_forward(row) == forward)
                .map(|row| (row, (row.scores[at], row.effect)))
                .filter(|(_, (score, effect))| *score > 0.0 && *effect > 0.0)
                .collect();
            let range = |of: &dyn Fn(&(f64, f64)) -> f64| {
                let values = points.iter().map(|(_, point)| of(point));
                let least = values.clone().fold(f64::INFINITY, f64::min);
                let most = values.fold(0.0, f64::max);
                match least < most {
                    true => least / 1.5..most * 1.5,
                    false => 0.1..10.0,
                }
            };
            let axis = |range: Range<f64>| {
                let ticks = logarithmic::ticks(&range);
                range.log_scale().with_key_points(ticks)
            };
            let (x, y) = (range(&|point| point.0), range(&|point| point.1));
            let mut chart = ChartBuilder::on(panel)
                .caption(
                    format!("{}: {products}, score {}", name.name(), score.name()),
                    ("sans-serif", 16),
                )
                .margin(10)
                .x_label_area_size(36)
                .y_label_area_size(64)
                .build_cartesian_2d(axis(x), axis(y))?;
            chart
                .configure_mesh()
                .light_line_style(WHITE)
                .x_desc("score: weight × noise / signal")
                .y_desc(match forward {
                    true => "change of the loss",
                    false => "error of the gradient",
                })
                .x_label_formatter(&logarithmic::label)
                .y_label_formatter(&logarithmic::label)
                .draw()?;
            for (format, color) in formats.iter().zip(COLOURS.iter().cycle()) {
                let points = points.iter().filter(|(row, _)| row.format == *format);
                let circles = points.map(|(_, point)| Circle::new(*point, 3, color.filled()));
                chart
                    .draw_series(circles)?
                    .label(*format)
                    .legend(|(x, y)| Circle::new((x + 8, y), 4, color.filled()));
            }
            // Between the cheap formats at the left and the ones that lose much.
            legend(&mut chart, SeriesLabelPosition::LowerMiddle)?;
        }
        Ok(())
    })
}
