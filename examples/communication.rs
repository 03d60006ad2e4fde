//! The error of a sum over ranks, by format and by the way of partial sums. The program prints a table, and draws it if a file is named.
//!
//! ```text
//! cargo run --release --example communication -- docs/src/communication.svg
//! ```

use std::error::Error;

use burn::backend::{Flex, flex::FlexDevice};
use burn::tensor::{Distribution, Tensor, backend::Backend};
use burn_mx::optim::communication::{Communication, Route, TensorState};
use burn_mx_lab::drawing::{COLOURS, svg};
use plotters::prelude::*;

const RANKS: [usize; 6] = [2, 4, 8, 16, 32, 64];
const COUNT: usize = 1 << 14;

const FORMATS: [(&str, &str); 3] = [
    ("INT4, a scale per 32", "int4_signed"),
    ("MXFP8 E4M3", "mxfp8_e4m3"),
    ("bfloat16", "bfloat16"),
];

const ROUTES: [(&str, Route); 3] = [
    ("ring", Route::Ring),
    ("tree", Route::Tree),
    ("all to all", Route::AllToAll),
];

/// The relative mean square error of an `all_reduce` of normal numbers.
fn error(format: &str, route: Route, operands: &[Tensor<Flex, 1>]) -> Result<f64, Box<dyn Error>> {
    let wire = Communication {
        format: Some(format.to_owned()),
        route,
        ..Communication::default()
    };
    let sum = wire.all_reduce(operands.to_vec(), &mut TensorState::default())?;
    let operands: Vec<Vec<f32>> = operands
        .iter()
        .map(|operand| operand.to_data().to_vec())
        .collect::<Result<_, _>>()?;
    let (mut lost, mut all) = (0.0, 0.0);
    for (at, sum) in sum.into_data().to_vec::<f32>()?.into_iter().enumerate() {
        let exact: f64 = operands.iter().map(|operand| f64::from(operand[at])).sum();
        lost += (f64::from(sum) - exact).powi(2);
        all += exact.powi(2);
    }
    Ok(lost / all)
}

fn main() -> Result<(), Box<dyn Error>> {
    Flex::seed(&FlexDevice, 0);
    let normal = |_| Tensor::random([COUNT], Distribution::Normal(0.0, 1.0), &FlexDevice);
    let operands: Vec<Tensor<Flex, 1>> = (0..64).map(normal).collect();
    let mut curves = Vec::new();
    println!(
        "{:24} {:12} {}",
        "format",
        "route",
        RANKS.map(|ranks| format!("{ranks:>9}")).concat()
    );
    for (name, format) in FORMATS {
        for (of_route, route) in ROUTES {
            let errors = RANKS.map(|ranks| error(format, route, &operands[..ranks]));
            let errors = errors.into_iter().collect::<Result<Vec<f64>, _>>()?;
            let row: String = errors.iter().map(|error| format!("{error:9.1e}")).collect();
            println!("{name:24} {of_route:12} {row}");
            curves.push((format!("{name}, {of_route}"), errors));
        }
    }
    if let Some(file) = std::env::args().nth(1) {
        std::fs::write(&file, drawn(&curves)?)?;
        println!("{file}");
    }
    Ok(())
}

/// A line for each format and route: a colour for the format, and a width for the route.
fn drawn(curves: &[(String, Vec<f64>)]) -> Result<String, Box<dyn Error>> {
    svg((900, 560), |root| {
        let mut chart = ChartBuilder::on(root)
            .caption(
                "Error of a sum over ranks, normal numbers",
                ("sans-serif", 20),
            )
            .margin(14)
            .margin_right(250)
            .x_label_area_size(46)
            .y_label_area_size(76)
            .build_cartesian_2d((2.0..64.0).log_scale().base(2.0), (1e-6..1.0).log_scale())?;
        chart
            .configure_mesh()
            .x_desc("ranks")
            .y_desc("relative mean square error")
            .x_label_formatter(&|ranks| format!("{ranks:.0}"))
            .y_label_formatter(&|error| format!("{error:.0e}"))
            .axis_desc_style(("sans-serif", 15))
            .label_style(("sans-serif", 13))
            .bold_line_style(BLACK.mix(0.12))
            .light_line_style(WHITE)
            .draw()?;
        for (index, (name, errors)) in curves.iter().enumerate() {
            let width = [4, 2, 1][index % ROUTES.len()];
            let style = COLOURS[index / ROUTES.len()].stroke_width(width);
            let points = RANKS
                .iter()
                .map(|ranks| *ranks as f64)
                .zip(errors.iter().copied());
            chart.draw_series(LineSeries::new(points, style).point_size(width + 1))?;
            // The name stands at the end of the line.
            let (x, y) = chart.backend_coord(&(64.0, errors[RANKS.len() - 1]));
            let font = ("sans-serif", 13)
                .into_font()
                .color(&COLOURS[index / ROUTES.len()]);
            root.draw(&Text::new(name.clone(), (x + 10, y - 6), font))?;
        }
        Ok(())
    })
}
