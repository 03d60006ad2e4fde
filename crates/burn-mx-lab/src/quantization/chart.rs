//! A chart of what quantization lost: the noise of a model's outputs over the bits of its operands.

use std::error::Error;

use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::QuantizedRow;
use crate::drawing::{COLOURS, legend, svg};

const SIZE: (u32, u32) = (900, 560);
const TUNED: RGBColor = COLOURS[0];
const PLAIN: RGBColor = COLOURS[1];

/// A configuration with noise: its name, bits of an element, decibels, and whether fast fine-tuning changed it.
struct Point<'a> {
    name: &'a str,
    at: (f64, f64),
    is_tuned: bool,
}

/// The signal-to-noise ratio of each row's outputs over the mean bits of an element. The float model and a model without noise
/// have no point.
pub(super) fn chart(title: &str, rows: &[QuantizedRow]) -> Result<String, Box<dyn Error>> {
    fn point(row: &QuantizedRow) -> Option<Point<'_>> {
        Some(Point {
            name: &row.config,
            at: (row.cost.bits, row.sqnr.filter(|sqnr| sqnr.is_finite())?),
            is_tuned: !row.tuned.is_empty(),
        })
    }
    let points: Vec<Point<'_>> = rows.iter().filter_map(point).collect();
    let range = |of: fn(&Point<'_>) -> f64, below: f64, above: f64| {
        let values = points.iter().map(of);
        let (least, most) = values
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            });
        match least <= most {
            true => least - below..most + above,
            false => 0.0..1.0,
        }
    };
    let bits = range(|point| point.at.0, 0.5, 1.2);
    let decibels = range(|point| point.at.1, 2.0, 3.0);
    // The height and the width of a name.
    let near = (
        (bits.end - bits.start) / 6.0,
        (decibels.end - decibels.start) / 32.0,
    );

    svg(SIZE, |root| {
        let mut chart = ChartBuilder::on(root)
            .caption(title, ("sans-serif", 20))
            .margin(14)
            .x_label_area_size(46)
            .y_label_area_size(60)
            .build_cartesian_2d(bits, decibels)?;
        chart
            .configure_mesh()
            .x_desc("bits of an element, mean over the operands of the model's products")
            .y_desc("SQNR of the outputs (dB): higher is better")
            .axis_desc_style(("sans-serif", 15))
            .label_style(("sans-serif", 13))
            .bold_line_style(BLACK.mix(0.12))
            .light_line_style(WHITE)
            .draw()?;
        for (is_tuned, label, colour) in [
            (false, "as configured", PLAIN),
            (true, "after fast fine-tuning", TUNED),
        ] {
            let points = points.iter().filter(|point| point.is_tuned == is_tuned);
            let dots = points.map(|point| Circle::new(point.at, 5, colour.filled()));
            chart
                .draw_series(dots)?
                .label(label)
                .legend(move |at| Circle::new((at.0 + 10, at.1), 5, colour.filled()));
        }
        for point in &points {
            // A tuned configuration stands above the plain one of the same format, which has the name.
            let plain = points.iter().find(|other| {
                !other.is_tuned && point.is_tuned && point.name.starts_with(other.name)
            });
            if let Some(plain) = plain {
                chart.draw_series(LineSeries::new([plain.at, point.at], TUNED.mix(0.5)))?;
                continue;
            }
            // To the left, if the name would cover another point.
            let is_covering = points.iter().any(|other| {
                let apart = other.at.0 - point.at.0;
                apart > 0.0 && apart < near.0 && (other.at.1 - point.at.1).abs() < near.1
            });
            let (side, x) = match is_covering {
                true => (HPos::Right, -9),
                false => (HPos::Left, 9),
            };
            let style = ("sans-serif", 13).into_text_style(root);
            let style = style.pos(Pos::new(side, VPos::Center));
            let name = EmptyElement::at(point.at) + Text::new(point.name.to_owned(), (x, 0), style);
            chart.draw_series([name])?;
        }
        legend(&mut chart, SeriesLabelPosition::UpperLeft)
    })
}
