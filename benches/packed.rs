//! Products with a packed weight, by three ways to get at the weight's numbers.
//!
//! `cargo bench --bench packed -- [--shape MxKxN]… [--preset NAME]… [--threads N]… [--seconds S] [--json FILE]`
//!
//! M inputs of K numbers are multiplied with a weight of N rows of K numbers. *In place*: some rows of the weight are decoded into
//! a buffer that stays in the cache, and multiplied, and then the next rows. *Unpacked*: the whole weight is decoded, then
//! multiplied. *Kept*: the weight was decoded before, and takes four bytes a number. All three multiply by the crate `gemm` in
//! float32, in turn, on the same threads.

mod support {
    pub(crate) mod seconds;
    pub(crate) mod shape;
}

use std::path::PathBuf;
use std::time::{Duration, Instant};

use burn_mx_lab::output::OutputFile;
use clap::Parser;
use comfy_table::{Table, presets};
use microscaling::{BlockFormat, Packed, PackedView, RandomStream, Rounder};
use rayon::prelude::*;
use serde::Serialize;

use support::shape::Shape;

#[derive(Parser)]
struct Args {
    /// Inputs, summed numbers and outputs; may be repeated
    #[arg(long = "shape", value_name = "MxKxN", default_values = ["1x2048x2048", "4x2048x2048", "16x2048x2048", "64x2048x2048", "512x2048x2048", "1x512x512", "64x512x512"])]
    shapes: Vec<Shape>,
    /// Block format of the weight; may be repeated
    #[arg(long = "preset", value_name = "NAME", default_values = ["mxfp4", "mxfp8_e4m3", "nvfp4"])]
    presets: Vec<BlockFormat>,
    /// Number of threads; may be repeated
    #[arg(long, value_name = "N", default_values = ["1", "2"], value_parser = clap::value_parser!(u16).range(1..))]
    threads: Vec<u16>,
    /// Seconds to measure each figure for
    #[arg(long, default_value = "1", value_parser = support::seconds::seconds)]
    seconds: Duration,
    /// Also writes the figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Handed over by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

/// One line of the result, in microseconds.
#[derive(Serialize)]
struct Figure {
    shape: String,
    preset: String,
    threads: u16,
    in_place: f64,
    unpacked: f64,
    kept: f64,
}

/// Rows of the weight that are decoded at a time.
const ROWS: usize = 16;

/// `x [m, k]` times some rows `[rows, k]` of a weight, into columns of the result that begin at `out`, `[m, n]`.
///
/// # Safety
/// From `out` on the result must have `rows` columns in each of its m rows, which nobody else uses.
unsafe fn multiply(x: &[f32], weight: &[f32], out: *mut f32, Shape { m, k, n }: Shape) {
    let rows = weight.len() / k;
    let [k_stride, n_stride] = [k as isize, n as isize];
    // SAFETY: matrices of these lengths, the result as the caller says.
    unsafe {
        gemm::gemm(
            m,
            rows,
            k,
            out,
            1,
            n_stride,
            false,
            x.as_ptr(),
            1,
            k_stride,
            weight.as_ptr(),
            k_stride,
            1,
            0.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// A pointer that threads share; each writes its own columns.
#[derive(Clone, Copy)]
struct Columns(*mut f32);

// SAFETY: each user writes columns that nobody else uses.
unsafe impl Send for Columns {}
// SAFETY: as above.
unsafe impl Sync for Columns {}

impl Columns {
    fn at(self, column: usize) -> *mut f32 {
        self.0.wrapping_add(column)
    }
}

/// Each thread multiplies as many rows of the weight. `rows_of` calls its argument with rows of the weight, and the first one's
/// number.
fn product(
    x: &[f32],
    result: &mut [f32],
    shape: Shape,
    rows_of: impl Fn(core::ops::Range<usize>, &mut dyn FnMut(&[f32], usize)) + Sync,
) {
    assert!(x.len() == shape.m * shape.k && result.len() == shape.m * shape.n);
    let out = Columns(result.as_mut_ptr());
    let share = shape.n.div_ceil(rayon::current_num_threads());
    let starts: Vec<usize> = (0..shape.n).step_by(share).collect();
    starts.into_par_iter().for_each(|start| {
        let rows = start..(start + share).min(shape.n);
        rows_of(rows, &mut |weight, first| {
            // SAFETY: the result has a column for each row of the weight, and each row belongs to one thread.
            unsafe { multiply(x, weight, out.at(first), shape) };
        });
    });
}

fn in_place(x: &[f32], weight: &PackedView<'_>, result: &mut [f32], shape: Shape) {
    product(x, result, shape, |rows, multiply| {
        let mut buffer = vec![0.0; ROWS * shape.k];
        for start in rows.clone().step_by(ROWS) {
            let some = start..(start + ROWS).min(rows.end);
            let buffer = &mut buffer[..some.len() * shape.k];
            let decoded = weight.decode_into(some, buffer);
            decoded.expect("the rows are there");
            multiply(buffer, start);
        }
    });
}

fn kept(x: &[f32], weight: &[f32], result: &mut [f32], shape: Shape) {
    product(x, result, shape, |rows, multiply| {
        let first = rows.start;
        multiply(&weight[rows.start * shape.k..rows.end * shape.k], first);
    });
}

fn unpack(weight: &PackedView<'_>, to: &mut [f32], shape: Shape) {
    let share = shape.n.div_ceil(rayon::current_num_threads());
    let parts = to.par_chunks_mut(share * shape.k).enumerate();
    parts.for_each(|(part, to)| {
        let rows = part * share..part * share + to.len() / shape.k;
        let decoded = weight.decode_into(rows, to);
        decoded.expect("the rows are there");
    });
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn measure(seconds: Duration, shape: Shape, format: BlockFormat, threads: u16) -> Figure {
    let numbers = |count: usize, stream: u64| -> Vec<f32> {
        let stream = RandomStream::new(0, stream);
        let number = |i: u64| stream.draw(i) as i32 as f32 / 2.0_f32.powi(31);
        (0..count as u64).map(number).collect()
    };
    let x = numbers(shape.m * shape.k, 0);
    let weight = numbers(shape.n * shape.k, 1);
    let packed = Packed::encode(
        format,
        &weight,
        &[shape.n, shape.k],
        1,
        Rounder::NearestEven,
    );
    let packed = packed.expect("the format fits");
    let view = packed.view();
    let float = packed.decode();
    let mut room = float.clone();
    let mut results = [(); 3].map(|()| vec![0.0; shape.m * shape.n]);
    let mut times = [(); 3].map(|()| Vec::new());
    let end = Instant::now() + seconds;
    let mut is_warm = false;
    while Instant::now() < end || times[0].len() < 5 {
        let [one, two, three] = &mut results;
        let time = |work: &mut dyn FnMut()| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64() * 1e6
        };
        let now = [
            time(&mut || in_place(&x, &view, one, shape)),
            time(&mut || {
                unpack(&view, &mut room, shape);
                kept(&x, &room, two, shape);
            }),
            time(&mut || kept(&x, &float, three, shape)),
        ];
        if is_warm {
            for (times, now) in times.iter_mut().zip(now) {
                times.push(now);
            }
        }
        is_warm = true;
    }
    let [one, two, three] = &results;
    let largest = three
        .iter()
        .fold(0.0_f32, |most, value| most.max(value.abs()));
    for (value, wanted) in one.iter().chain(two).zip(three.iter().cycle()) {
        assert!((value - wanted).abs() <= 1e-5 * largest, "{value} {wanted}");
    }
    let [in_place, unpacked, kept] = times.map(median);
    Figure {
        shape: shape.to_string(),
        preset: format.to_string(),
        threads,
        in_place,
        unpacked,
        kept,
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    let json = args.json.as_deref().map(OutputFile::open).transpose()?;
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header([
        "M×K×N",
        "weight",
        "threads",
        "in place, µs",
        "unpacked, µs",
        "kept, µs",
        "in place over unpacked",
        "in place over kept",
    ]);
    let mut figures = Vec::new();
    for &threads in &args.threads {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads.into())
            .build()?;
        for &shape in &args.shapes {
            for &format in &args.presets {
                let figure = pool.install(|| measure(args.seconds, shape, format, threads));
                table.add_row([
                    figure.shape.clone(),
                    figure.preset.clone(),
                    threads.to_string(),
                    format!("{:.0}", figure.in_place),
                    format!("{:.0}", figure.unpacked),
                    format!("{:.0}", figure.kept),
                    format!("{:.2}", figure.in_place / figure.unpacked),
                    format!("{:.2}", figure.in_place / figure.kept),
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
