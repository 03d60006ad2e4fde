//! The error of every named format over the bits that an element takes.

use std::{error::Error, ops::Range};

use burn_mx_lab::drawing::{COLOURS, legend, svg};
use microscaling::{BlockFormat, Rounding};
use plotters::{coord::Shift, prelude::*};

use super::random::{Distribution, RandomNumbers, decibels, error, quantized};

const SIZE: (u32, u32) = (1100, 720);
const SAMPLES: usize = 1 << 17;
/// A multiple of the blocks' lengths.
const ROW: usize = 1 << 10;

const DISTRIBUTIONS: [(&str, Distribution, RGBColor); 3] = [
    ("normal", Distribution::Gauss, COLOURS[1]),
    ("Laplace", Distribution::Laplace, COLOURS[0]),
    ("Student t, 5 degrees", Distribution::Student(5), COLOURS[2]),
];

/// A format, its bits, and its decibels for each distribution.
type Measured = (&'static str, f64, [f64; 3]);

fn measure() -> Result<Vec<Measured>, Box<dyn Error>> {
    let mut numbers = RandomNumbers::new(9);
    let data = DISTRIBUTIONS.map(|(_, distribution, _)| numbers.many(distribution, SAMPLES));
    let mut measured = Vec::new();
    for name in BlockFormat::NAMES {
        let format: BlockFormat = name.parse()?;
        let mut of_format = [0.0; 3];
        for (decibel, x) in of_format.iter_mut().zip(&data) {
            let q = quantized(format, x, ROW, Rounding::NearestEven, 0)?;
            *decibel = decibels(error(x, &q));
        }
        measured.push((name, format.bits_per_element(), of_format));
    }
    Ok(measured)
}

/// Formats of fewer bits than this have a picture of their own, too, since they are many.
const FEW_BITS: f64 = 5.0;

pub(crate) fn error_over_bits() -> Result<String, Box<dyn Error>> {
    let measured = measure()?;
    let (few, more): (Vec<Measured>, Vec<Measured>) = measured
        .iter()
        .copied()
        .partition(|(_, bits, _)| *bits < FEW_BITS);
    svg(SIZE, |root| {
        let root = root.titled(
            "Quantization noise of block formats on random numbers",
            ("sans-serif", 22),
        )?;
        let (left, right) = root.split_horizontally(SIZE.0 * 11 / 20);
        draw(&left, "all formats", &measured, &more, 3.5..10.2)?;
        draw(&right, "formats of four bits", &few, &few, 3.95..4.85)?;
        Ok(())
    })
}

/// Draws the measured formats, and the names of some of them.
fn draw(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    caption: &str,
    measured: &[Measured],
    named: &[Measured],
    bits: Range<f64>,
) -> Result<(), Box<dyn Error>> {
    let all = measured.iter().flat_map(|(.., of_format)| of_format);
    let (lowest, highest) = all.fold((f64::INFINITY, 0.0_f64), |(low, high), decibels| {
        (low.min(*decibels), high.max(*decibels))
    });
    let range = lowest.floor() - 1.0..highest.ceil() + 1.0;
    let name_height = (range.end - range.start) / 36.0;
    let name_distance = (bits.end - bits.start) / 90.0;
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 16))
        .margin(16)
        .x_label_area_size(48)
        .y_label_area_size(64)
        .build_cartesian_2d(bits, range)?;
    chart
        .configure_mesh()
        .x_desc("bits per element, including the block's scale")
        .y_desc("signal over quantization noise (dB)")
        .axis_desc_style(("sans-serif", 15))
        .label_style(("sans-serif", 13))
        .bold_line_style(BLACK.mix(0.15))
        .light_line_style(WHITE)
        .draw()?;
    for (index, (label, _, colour)) in DISTRIBUTIONS.into_iter().enumerate() {
        let points = measured.iter().map(|(_, bits, of_format)| {
            Circle::new((*bits, of_format[index]), 4, colour.mix(0.8).filled())
        });
        chart
            .draw_series(points)?
            .label(label)
            .legend(move |at| Circle::new((at.0 + 10, at.1), 4, colour.filled()));
    }
    for names in columns(named) {
        // Names of formats that are as good as each other stand below each other.
        let mut last = f64::INFINITY;
        for (name, bits, decibels) in names {
            last = (decibels + name_height / 2.0).min(last - name_height);
            let at = (bits + name_distance, last);
            let style = ("sans-serif", 13).into_font().color(&BLACK);
            chart.draw_series([Text::new(name, at, style)])?;
        }
    }
    legend(&mut chart, SeriesLabelPosition::UpperLeft)
}

/// The formats, with their bits and their decibels on normal numbers. Formats with the same bits stand together, the
/// best first.
fn columns(measured: &[Measured]) -> Vec<Vec<(&'static str, f64, f64)>> {
    let entry = |(name, bits, of_format): &Measured| (*name, *bits, of_format[0]);
    let mut all: Vec<_> = measured.iter().map(entry).collect();
    all.sort_by(|a, b| a.1.total_cmp(&b.1).then(b.2.total_cmp(&a.2)));
    all.chunk_by(|a, b| a.1 == b.1).map(<[_]>::to_vec).collect()
}
