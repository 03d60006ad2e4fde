//! Throughput of the products of quantized operands, against a float32 matrix product and the processor's peak.
//!
//! `cargo bench --bench products -- [--shape MxKxN]… [--path NAME]… [--threads N]… [--preset NAME] [--json FILE]
//! [--accumulator NAME]…`
//!
//! An emulated product quantizes two float32 tensors into bfloat16 panels, and multiplies the panels. The peer is the
//! crate `gemm` as burn-flex calls it, on the float32 tensors. Self and peer alternate in one process, on the same
//! threads. A multiplication and an addition are two operations. The peak is the throughput of the path's instruction
//! without dependencies, on one thread, times the threads.
//!
//! With `--accumulator` the accumulator of a chip multiplies operands that are quantized already. The peer is the bfloat16 product,
//! which quantizes its operands.

mod support {
    pub(crate) mod accumulators;
    pub(crate) mod seconds;
    pub(crate) mod shape;
}

use std::path::PathBuf;
use std::time::{Duration, Instant};

use burn_mx_lab::output::OutputFile;
use clap::Parser;
use comfy_table::{Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use microscaling::{BlockFormat, OperandQuantization, RandomStream, Rounding};
use microscaling_product::{Accumulation, Axis, Matrices, Panels, ProductPath, Side};
use serde::Serialize;

use support::shape::Shape;

#[derive(Parser)]
struct Args {
    /// Lengths of the product; may be repeated [default: lengths of a training step's products, and odd lengths]
    #[arg(long = "shape", value_name = "MxKxN")]
    shapes: Vec<Shape>,
    /// Path to measure; may be repeated [default: every path of this processor except portable]
    #[arg(long = "path", value_name = "NAME", value_parser = path)]
    paths: Vec<ProductPath>,
    /// Number of threads; may be repeated [default: 1 and all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Vec<u16>,
    /// Block format of both operands
    #[arg(long = "preset", value_name = "NAME", default_value = "mxfp8_e4m3")]
    preset: BlockFormat,
    /// Accumulator to measure, as hopper_promote128 or accumulator(order=…); may be repeated
    #[arg(long = "accumulator", value_name = "NAME")]
    accumulators: Vec<Accumulation>,
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

/// A path by its name, if this processor has it.
fn path(name: &str) -> Result<ProductPath, String> {
    let available = ProductPath::ALL
        .into_iter()
        .filter(|path| path.is_available());
    let names: Vec<_> = available.clone().map(ProductPath::name).collect();
    available
        .into_iter()
        .find(|path| path.name() == name)
        .ok_or_else(|| format!("this processor has {}", names.join(", ")))
}

/// The lengths of the training steps of `train_step`, then odd lengths.
const SHAPES: [[usize; 3]; 8] = [
    [512, 512, 2048],
    [512, 2048, 512],
    [2048, 512, 512],
    [128, 256, 1024],
    [16, 128, 512],
    [509, 1021, 251],
    [33, 77, 1000],
    [1, 1024, 1024],
];

/// One line of the result.
#[derive(Serialize)]
struct Figure {
    shape: String,
    path: &'static str,
    threads: u16,
    gflop_s: f64,
    gemm_gflop_s: f64,
    over_gemm: f64,
    of_peak: f64,
    quantizing: f64,
}

/// Operands of a product, and room for its results.
struct Operands {
    shape: Shape,
    lhs: Vec<f32>,
    rhs: Vec<f32>,
    result: Vec<f32>,
}

impl Operands {
    fn new(shape: Shape) -> Self {
        let numbers = |count: usize, stream: u64| {
            let stream = RandomStream::new(0, stream);
            let number = |i: u64| stream.draw(i) as i32 as f32 / 2.0_f32.powi(31);
            (0..count as u64).map(number).collect()
        };
        Self {
            shape,
            lhs: numbers(shape.m * shape.k, 0),
            rhs: numbers(shape.k * shape.n, 1),
            result: vec![0.0; shape.m * shape.n],
        }
    }

    /// The emulated product, and the share of the time that quantizing took.
    fn emulated(&mut self, path: ProductPath, format: BlockFormat) -> f64 {
        let Shape { m, k, n } = self.shape;
        let start = Instant::now();
        let quantization = OperandQuantization {
            blocks: Some((format, Rounding::NearestEven)),
            ..OperandQuantization::default()
        };
        let panels = |side, data, free, summed| {
            let matrices = Matrices {
                data,
                starts: &[0],
                free,
                summed,
                group: k,
            };
            Panels::quantize(side, matrices, quantization).expect("the format fits")
        };
        let axis = |length, stride| Axis { length, stride };
        let lhs = panels(Side::Lhs, &self.lhs, axis(m, k), axis(k, 1));
        let rhs = panels(Side::Rhs, &self.rhs, axis(n, 1), axis(k, n));
        let quantizing = start.elapsed();
        Panels::multiply_by(path, &lhs, &rhs, &[(0, 0)], &mut self.result)
            .expect("the operands fit");
        quantizing.as_secs_f64() / start.elapsed().as_secs_f64()
    }

    /// The float32 product.
    fn gemm(&mut self, threads: u16) {
        let Shape { m, k, n } = self.shape;
        let parallelism = match threads {
            1 => gemm::Parallelism::None,
            threads => gemm::Parallelism::Rayon(threads.into()),
        };
        let [k_stride, n_stride] = [k as isize, n as isize];
        // SAFETY: three row-major matrices of these lengths.
        unsafe {
            gemm::gemm(
                m,
                n,
                k,
                self.result.as_mut_ptr(),
                1,
                n_stride,
                false,
                self.lhs.as_ptr(),
                1,
                k_stride,
                self.rhs.as_ptr(),
                1,
                n_stride,
                0.0,
                1.0,
                false,
                false,
                false,
                parallelism,
            );
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Alternates self and peer.
fn measure(args: &Args, shape: Shape, path: ProductPath, threads: u16, peak: f64) -> Figure {
    let mut operands = Operands::new(shape);
    let (mut own, mut peer, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        operands.emulated(path, args.preset);
        operands.gemm(threads);
    }
    let end = Instant::now() + args.seconds;
    while Instant::now() < end || own.len() < 5 {
        let start = Instant::now();
        shares.push(operands.emulated(path, args.preset));
        own.push(start.elapsed().as_secs_f64());
        let start = Instant::now();
        operands.gemm(threads);
        peer.push(start.elapsed().as_secs_f64());
    }
    let Shape { m, k, n } = shape;
    let operations = 2.0 * (m * k * n) as f64 / 1e9;
    let ratios = own.iter().zip(&peer).map(|(own, peer)| peer / own);
    let over_gemm = median(ratios.collect());
    let gflop_s = operations / median(own);
    Figure {
        shape: shape.to_string(),
        path: path.name(),
        threads,
        gflop_s,
        gemm_gflop_s: operations / median(peer),
        over_gemm,
        of_peak: gflop_s / (peak * f64::from(threads)),
        quantizing: median(shares),
    }
}

/// Billions of operations in a second by the instruction of a path on one thread; infinite where there is none.
fn peak(path: ProductPath) -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        let (instructions, operations): (unsafe fn(u32), f64) = match path {
            ProductPath::Avx2 => (peaks::avx2, 16.0),
            ProductPath::Avx512 => (peaks::avx512, 32.0),
            ProductPath::Avx512Bf16 => (peaks::avx512_bf16, 64.0),
            ProductPath::AmxBf16 => (peaks::amx_bf16, 16_384.0),
            _ => return f64::INFINITY,
        };
        let count = 3_000_000;
        let once = || {
            let start = Instant::now();
            // SAFETY: a caller that asks for a path's peak has checked that the processor has the path.
            unsafe { instructions(count) };
            f64::from(count) * 24.0 * operations / start.elapsed().as_secs_f64() / 1e9
        };
        (0..7).map(|_| once()).fold(0.0, f64::max)
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = path;
        f64::INFINITY
    }
}

/// Twenty-four independent sums, `count` times.
#[cfg(target_arch = "x86_64")]
mod peaks {
    use core::arch::x86_64::*;
    use std::hint::black_box;

    /// # Safety
    /// The processor must have AVX2 and FMA.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn avx2(count: u32) {
        let x = _mm256_set1_ps(black_box(0.5));
        // As many as there are registers for.
        let mut sums = [x; 12];
        for _ in 0..2 * count {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(*sum, x, x);
            }
        }
        black_box(sums);
    }

    /// # Safety
    /// The processor must have AVX-512 F.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn avx512(count: u32) {
        let x = _mm512_set1_ps(black_box(0.5));
        let mut sums = [x; 24];
        for _ in 0..count {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(*sum, x, x);
            }
        }
        black_box(sums);
    }

    /// # Safety
    /// The processor must have AVX-512 F and BF16.
    #[target_feature(enable = "avx512f,avx512bf16")]
    pub(super) unsafe fn avx512_bf16(count: u32) {
        let x = _mm512_set1_ps(black_box(0.5));
        let pair: __m512bh = _mm512_cvtne2ps_pbh(x, x);
        let mut sums = [x; 24];
        for _ in 0..count {
            for sum in &mut sums {
                *sum = _mm512_dpbf16_ps(*sum, pair, pair);
            }
        }
        black_box(sums);
    }

    /// Of four sums, six times.
    ///
    /// # Safety
    /// The processor must have AMX-BF16, and the process the tiles.
    pub(super) unsafe fn amx_bf16(count: u32) {
        /// Palette 1, eight tiles of 16 rows of 64 bytes.
        #[repr(align(64))]
        struct Configuration([u8; 64]);
        let mut configuration = Configuration([0; 64]);
        configuration.0[0] = 1;
        for tile in 0..8 {
            configuration.0[16 + 2 * tile] = 64;
            configuration.0[48 + tile] = 16;
        }
        // SAFETY: as the caller says; the tiles are of zeros, and released.
        unsafe {
            core::arch::asm!(
                "ldtilecfg [{configuration}]",
                "2:",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "dec {count}",
                "jnz 2b",
                "tilerelease",
                configuration = in(reg) configuration.0.as_ptr(),
                count = inout(reg) u64::from(count) * 6 => _,
                out("tmm0") _,
                out("tmm1") _,
                out("tmm2") _,
                out("tmm3") _,
                out("tmm4") _,
                out("tmm5") _,
                out("tmm6") _,
                out("tmm7") _,
                options(nostack),
            );
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    let json = args.json.as_deref().map(OutputFile::open).transpose()?;
    let shapes = match args.shapes.is_empty() {
        true => SHAPES.map(|[m, k, n]| Shape { m, k, n }).to_vec(),
        false => args.shapes.clone(),
    };
    let paths = match args.paths.is_empty() {
        true => ProductPath::ALL
            .into_iter()
            .filter(|path| path.is_available() && *path != ProductPath::Portable)
            .collect(),
        false => args.paths.clone(),
    };
    let all = std::thread::available_parallelism()?.get().try_into()?;
    let threads = match (args.threads.is_empty(), all) {
        (false, _) => args.threads.clone(),
        (true, 1) => vec![1],
        (true, all) => vec![1, all],
    };

    if !args.accumulators.is_empty() {
        return support::accumulators::report(&args, &shapes, &threads, json);
    }
    let style = ProgressStyle::with_template("{msg} [{wide_bar}] {pos}/{len}")?;
    let count = shapes.len() * paths.len() * threads.len();
    let progress = ProgressBar::new(count as u64).with_style(style);
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header([
        "M×K×N",
        "path",
        "threads",
        "GFLOP/s",
        "gemm",
        "over gemm",
        "of peak",
        "quantizing",
    ]);
    let mut figures = Vec::new();
    for path in paths {
        let peak = peak(path);
        for &threads in &threads {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads.into())
                .build()?;
            for &shape in &shapes {
                progress.set_message(path.name());
                let figure = pool.install(|| measure(&args, shape, path, threads, peak));
                table.add_row([
                    figure.shape.clone(),
                    figure.path.to_owned(),
                    threads.to_string(),
                    format!("{:.0}", figure.gflop_s),
                    format!("{:.0}", figure.gemm_gflop_s),
                    format!("{:.2}", figure.over_gemm),
                    format!("{:.0} %", 100.0 * figure.of_peak),
                    format!("{:.0} %", 100.0 * figure.quantizing),
                ]);
                figures.push(figure);
                progress.inc(1);
            }
        }
    }
    progress.finish_and_clear();
    println!("{table}");
    if let Some(file) = json {
        file.replace(&serde_json::to_vec_pretty(&figures)?)?;
    }
    Ok(())
}
