//! Throughput of quantizing in place, against a copy of the same bytes.
//!
//! `cargo bench --bench quantize -- [--preset NAME]… [--threads N]… [--size N] [--json FILE]`
//!
//! A square tensor of float32 with blocks along its last or its first axis. Quantizing reads every byte
//! of it once and writes it once, a copy reads every byte of one buffer and writes every byte of another: both
//! count as twice the bytes of the tensor. (What a processor reads beside that, such as a line of the cache
//! that is about to be written, does not count.) Copy and kernel alternate in one process, on the same threads;
//! the kernel begins with a tensor that the copy has driven out of the caches, unless they hold three of them.

#[path = "support/seconds.rs"]
mod seconds;

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Parser;
use comfy_table::{Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use microscaling::{BlockFormat, RandomStream, Rounding};
use rayon::prelude::*;
use serde::Serialize;

#[derive(Parser)]
struct Args {
    /// Block format to measure; may be repeated [default: every one with a name]
    #[arg(long = "preset", value_name = "NAME")]
    presets: Vec<BlockFormat>,
    /// Number of threads; may be repeated [default: 1 and all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Vec<u16>,
    /// Length of each of the two axes
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u16).range(1..))]
    size: u16,
    /// Rounding mode
    #[arg(long, default_value_t)]
    rounding: Rounding,
    /// Seconds to measure each figure for
    #[arg(long, default_value = "1", value_parser = seconds::seconds)]
    seconds: Duration,
    /// Also writes the figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Handed over by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

/// One line of the result.
#[derive(Serialize)]
struct Figure {
    preset: String,
    axis: &'static str,
    threads: u16,
    gb_s: f64,
    memcpy_gb_s: f64,
    ratio: f64,
}

/// Copies with all threads of the current pool, as much each.
fn memcpy(from: &[f32], to: &mut [f32]) {
    let share = from.len().div_ceil(rayon::current_num_threads());
    let pieces = to.par_chunks_mut(share).zip(from.par_chunks(share));
    pieces.for_each(|(to, from)| to.copy_from_slice(from));
}

/// The three buffers of a measurement.
struct Buffers {
    size: usize,
    source: Vec<f32>,
    data: Vec<f32>,
    copy: Vec<f32>,
}

impl Buffers {
    /// Normally distributed numbers, as weights and activations are.
    fn new(size: usize) -> Self {
        let stream = RandomStream::new(0, 0);
        let number = |i: usize| -> f32 {
            let words = (0..12).map(|j| f64::from(stream.draw(12 * i as u64 + j)) / 2_f64.powi(32));
            (words.sum::<f64>() - 6.0) as f32
        };
        let source: Vec<f32> = (0..size * size).into_par_iter().map(number).collect();
        Self {
            size,
            data: source.clone(),
            copy: source.clone(),
            source,
        }
    }

    /// Alternates for about that time in the current pool. Medians of the seconds that quantizing and
    /// copying take, and of the pairs' ratios.
    fn measure(
        &mut self,
        format: BlockFormat,
        axis: usize,
        rounding: Rounding,
        seconds: Duration,
    ) -> [f64; 3] {
        let end = Instant::now() + seconds;
        let mut pairs = Vec::new();
        while Instant::now() < end || pairs.len() < 5 {
            memcpy(&self.source, &mut self.data);
            let start = Instant::now();
            memcpy(&self.source, &mut self.copy);
            let memcpy = start.elapsed().as_secs_f64();
            let start = Instant::now();
            format
                .quantize(
                    &mut self.data,
                    &[self.size; 2],
                    axis,
                    rounding.with(RandomStream::new(1, 0)),
                )
                .expect("the data have the length of the shape, and the format was parsed");
            pairs.push((start.elapsed().as_secs_f64(), memcpy));
        }
        let median = |value: fn(&(f64, f64)) -> f64| {
            let mut values: Vec<f64> = pairs.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        [
            median(|pair| pair.0),
            median(|pair| pair.1),
            median(|pair| pair.1 / pair.0),
        ]
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = Args::parse();
    if args.presets.is_empty() {
        let named = BlockFormat::NAMES.iter().map(|name| name.parse());
        args.presets = named.collect::<Result<_, _>>()?;
    }
    if args.threads.is_empty() {
        args.threads = vec![1, u16::try_from(rayon::current_num_threads())?];
        args.threads.dedup();
    }
    let size = usize::from(args.size);
    let mut buffers = Buffers::new(size);
    let counted = 2.0 * (size_of::<f32>() * size * size) as f64 / 1e9;
    let bar = ProgressBar::new((2 * args.presets.len() * args.threads.len()) as u64).with_style(
        ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} {eta}")?,
    );
    let mut figures = Vec::new();
    for &threads in &args.threads {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads.into())
            .build()?;
        for (axis, name) in [(1, "last"), (0, "first")] {
            for preset in &args.presets {
                bar.set_message(format!("{preset}, {name} axis, {threads} threads"));
                let [own, memcpy, ratio] =
                    pool.install(|| buffers.measure(*preset, axis, args.rounding, args.seconds));
                figures.push(Figure {
                    preset: preset.to_string(),
                    axis: name,
                    threads,
                    gb_s: counted / own,
                    memcpy_gb_s: counted / memcpy,
                    ratio,
                });
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(["preset", "axis", "threads", "GB/s", "memcpy GB/s", "ratio"]);
    for figure in &figures {
        table.add_row([
            figure.preset.clone(),
            figure.axis.to_string(),
            figure.threads.to_string(),
            format!("{:.1}", figure.gb_s),
            format!("{:.1}", figure.memcpy_gb_s),
            format!("{:.2}", figure.ratio),
        ]);
    }
    println!("{table}");
    if let Some(path) = &args.json {
        serde_json::to_writer_pretty(File::create(path)?, &figures)?;
    }
    Ok(())
}
