//! Throughput of quantizing in place, against a copy of the same bytes; or of packing, or of unpacking.
//!
//! `cargo bench --bench quantize -- [--work NAME] [--preset NAME]… [--threads N]… [--size N] [--json FILE]`
//!
//! A square tensor of float32 with blocks along its last or its first axis. Quantizing reads and writes every byte of
//! the tensor once. A copy reads every byte of one buffer and writes every byte of another. Both count as twice the
//! bytes of the tensor. (Further reads of the processor, such as a cache line before a write, do not count.) Copy and
//! kernel alternate in one process, on the same threads. The kernel begins with a tensor that the copy has driven out
//! of the caches, unless the caches hold three tensors.
//!
//! `--work pack` compares with the same copy, `pack-bf16` with one of the bf16 numbers that it packs.
//! `--work unpack-f32`, `unpack-bf16` and `unpack-f16` compare with a copy of their output: each thread decodes its own
//! rows. Packed codes and scales do not count as bytes.

mod support {
    pub(crate) mod seconds;
}

use std::path::PathBuf;
use std::time::{Duration, Instant};

use burn_mx_lab::output;
use clap::{Parser, ValueEnum};
use comfy_table::{Table, presets};
use half::{bf16, f16};
use indicatif::{ProgressBar, ProgressStyle};
use microscaling::{BlockFormat, DecodeNumber, Packed, PackedView, RandomStream, Rounding};
use rayon::prelude::*;
use serde::Serialize;

/// The work to measure.
#[derive(Clone, Copy, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Work {
    Quantize,
    Pack,
    PackBf16,
    UnpackF32,
    UnpackBf16,
    UnpackF16,
}

impl Work {
    /// Bytes that the peer's copy reads, and writes, for an element.
    const fn copied(self) -> usize {
        match self {
            Self::Quantize | Self::Pack | Self::UnpackF32 => 4,
            Self::PackBf16 | Self::UnpackBf16 | Self::UnpackF16 => 2,
        }
    }
}

#[derive(Parser)]
struct Args {
    /// Work to measure
    #[arg(long, value_enum, default_value_t = Work::Quantize)]
    work: Work,
    /// Block format to measure; may be repeated [default: every named format]
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
    #[arg(long, default_value = "1", value_parser = support::seconds::seconds)]
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
    work: Work,
    preset: String,
    axis: &'static str,
    threads: u16,
    gb_s: f64,
    memcpy_gb_s: f64,
    ratio: f64,
}

/// Copies with all threads of the current pool, as much each.
fn memcpy<T: Copy + Send + Sync>(from: &[T], to: &mut [T]) {
    let share = from.len().div_ceil(rayon::current_num_threads());
    let pieces = to.par_chunks_mut(share).zip(from.par_chunks(share));
    pieces.for_each(|(to, from)| to.copy_from_slice(from));
}

/// Decodes with all threads of the current pool, as many rows each.
fn unpack<T: DecodeNumber>(packed: &PackedView<'_>, to: &mut [T]) {
    let rows = packed.rows();
    let share = rows.div_ceil(rayon::current_num_threads());
    let width = to.len() / rows;
    to.par_chunks_mut(share * width)
        .enumerate()
        .for_each(|(i, to)| {
            let first = i * share;
            let rows = first..first + to.len() / width;
            packed
                .decode_into(rows, to)
                .expect("the rows are there, and as long as what they become");
        });
}

/// Seconds that a call takes.
fn seconds_of(call: impl FnOnce()) -> f64 {
    let start = Instant::now();
    call();
    start.elapsed().as_secs_f64()
}

/// Alternates for about that time. Medians of the seconds that the work and the copy take, and of the pairs' ratios.
fn medians(seconds: Duration, mut pair: impl FnMut() -> [f64; 2]) -> [f64; 3] {
    let end = Instant::now() + seconds;
    let mut pairs = Vec::new();
    while Instant::now() < end || pairs.len() < 5 {
        pairs.push(pair());
    }
    let median = |value: fn(&[f64; 2]) -> f64| {
        let mut values: Vec<f64> = pairs.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    [
        median(|[work, _]| *work),
        median(|[_, memcpy]| *memcpy),
        median(|[work, memcpy]| memcpy / work),
    ]
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

    /// The figures of [`medians`] in the current pool.
    fn measure(&mut self, args: &Args, format: BlockFormat, axis: usize) -> [f64; 3] {
        let rounder = args.rounding.with(RandomStream::new(1, 0));
        let shape = [self.size; 2];
        let pack = |data: &[f32]| {
            Packed::encode(format, data, &shape, axis, rounder)
                .expect("the data have the length of the shape, and the format was parsed")
        };
        match args.work {
            Work::Quantize => medians(args.seconds, || {
                memcpy(&self.source, &mut self.data);
                let memcpy = seconds_of(|| memcpy(&self.source, &mut self.copy));
                let own = seconds_of(|| {
                    format
                        .quantize(&mut self.data, &shape, axis, rounder)
                        .expect("the data have the length of the shape, and the format was parsed");
                });
                [own, memcpy]
            }),
            Work::Pack => medians(args.seconds, || {
                let memcpy = seconds_of(|| memcpy(&self.source, &mut self.copy));
                [seconds_of(|| drop(pack(&self.source))), memcpy]
            }),
            Work::PackBf16 => {
                let source: Vec<bf16> = self.source.iter().map(|x| bf16::from_f32(*x)).collect();
                let mut copy = source.clone();
                medians(args.seconds, || {
                    let memcpy = seconds_of(|| memcpy(&source, &mut copy));
                    let pack = || Packed::encode_from(format, &source, &shape, axis, rounder);
                    [seconds_of(|| drop(pack())), memcpy]
                })
            }
            Work::UnpackF32 => {
                let packed = pack(&self.source);
                unpacking(args.seconds, &packed.view(), &self.source, &mut self.data)
            }
            Work::UnpackBf16 => self.unpacking_halves::<bf16>(args.seconds, &pack(&self.source)),
            Work::UnpackF16 => self.unpacking_halves::<f16>(args.seconds, &pack(&self.source)),
        }
    }

    fn unpacking_halves<T: DecodeNumber>(&self, seconds: Duration, packed: &Packed) -> [f64; 3] {
        let source = vec![T::default(); self.source.len()];
        unpacking(seconds, &packed.view(), &source, &mut source.clone())
    }
}

fn unpacking<T: DecodeNumber>(
    seconds: Duration,
    packed: &PackedView<'_>,
    source: &[T],
    to: &mut [T],
) -> [f64; 3] {
    medians(seconds, || {
        let memcpy = seconds_of(|| memcpy(source, to));
        [seconds_of(|| unpack(packed, to)), memcpy]
    })
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
    let counted = 2.0 * (args.work.copied() * size * size) as f64 / 1e9;
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
                let [own, memcpy, ratio] = pool.install(|| buffers.measure(&args, *preset, axis));
                figures.push(Figure {
                    work: args.work,
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
        output::write(path, serde_json::to_vec_pretty(&figures)?)?;
    }
    Ok(())
}
