//! Products by the accumulators of chips, against the bfloat16 product.

use crate::{Args, Operands, Shape, median};
use burn_mx_lab::output::OutputFile;
use comfy_table::{Table, presets};
use microscaling::{RandomStream, Rounding};
use microscaling_product::{Accumulation, AccumulatorMatrix, ProductPath};
use serde::Serialize;
use std::error::Error;
use std::time::Instant;

/// One line of the result.
#[derive(Serialize)]
struct Figure {
    shape: String,
    accumulator: String,
    threads: u16,
    milliseconds: f64,
    products_s: f64,
    bfloat16_milliseconds: f64,
    over_bfloat16: f64,
}

/// Measures every accumulator with every shape and number of threads.
pub(crate) fn report(
    args: &Args,
    shapes: &[Shape],
    threads: &[u16],
    json: Option<OutputFile>,
) -> Result<(), Box<dyn Error>> {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header([
        "M×K×N",
        "accumulator",
        "threads",
        "ms",
        "products/s",
        "bfloat16, ms",
        "time over bfloat16",
    ]);
    let mut figures = Vec::new();
    for &threads in threads {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads.into())
            .build()?;
        for &shape in shapes {
            for accumulator in &args.accumulators {
                let figure = pool.install(|| {
                    measure(args, shape, accumulator, threads).map_err(|e| e.to_string())
                })?;
                table.add_row([
                    figure.shape.clone(),
                    figure.accumulator.clone(),
                    threads.to_string(),
                    format!("{:.1}", figure.milliseconds),
                    format!("{:.1e}", figure.products_s),
                    format!("{:.1}", figure.bfloat16_milliseconds),
                    format!("{:.1}", figure.over_bfloat16),
                ]);
                figures.push(figure);
            }
        }
    }
    println!("{table}");
    if let Some(file) = json {
        file.replace(&serde_json::to_vec_pretty(&figures)?)?;
    }
    Ok(())
}

/// Alternates the accumulator and the bfloat16 product.
fn measure(
    args: &Args,
    shape: Shape,
    accumulator: &Accumulation,
    threads: u16,
) -> Result<Figure, Box<dyn Error>> {
    let mut operands = Operands::new(shape);
    let Shape { m, k, n } = shape;
    let rounder = Rounding::NearestEven.with(RandomStream::new(0, 0));
    let quantized = |data: &[f32], shape, axis| {
        AccumulatorMatrix::quantize(&args.preset, data, shape, axis, rounder)
    };
    let lhs = quantized(&operands.lhs, [m, k], 1)?;
    let rhs = quantized(&operands.rhs, [k, n], 0)?;
    let (lhs, rhs) = (lhs.operand(), rhs.operand());
    let name = accumulator.to_string();
    let accumulator = accumulator.of(lhs.kind, rhs.kind)?;
    let path = match args.paths[..] {
        [] => ProductPath::current().unwrap_or(ProductPath::Portable),
        [path, ..] => path,
    };
    let mut result = vec![0.0; m * n];
    let (mut own, mut peer) = (Vec::new(), Vec::new());
    operands.emulated(path, args.preset);
    accumulator.multiply(&lhs, &rhs, &mut result)?;
    let end = Instant::now() + args.seconds;
    while Instant::now() < end || own.len() < 5 {
        let start = Instant::now();
        accumulator.multiply(&lhs, &rhs, &mut result)?;
        own.push(start.elapsed().as_secs_f64());
        let start = Instant::now();
        operands.emulated(path, args.preset);
        peer.push(start.elapsed().as_secs_f64());
    }
    let ratios = own.iter().zip(&peer).map(|(own, peer)| own / peer);
    let over_bfloat16 = median(ratios.collect());
    let own = median(own);
    Ok(Figure {
        shape: format!("{m}x{k}x{n}"),
        accumulator: name,
        threads,
        milliseconds: 1e3 * own,
        products_s: (m * k * n) as f64 / own,
        bfloat16_milliseconds: 1e3 * median(peer),
        over_bfloat16,
    })
}
