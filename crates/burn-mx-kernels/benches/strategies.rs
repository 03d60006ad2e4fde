//! Times each strategy of cubek for the products of a training step: a transformer block of 2048 features, 16 heads, 2 sequences of 1024
//! tokens.
//!
//! `cargo bench -p burn-mx-kernels --features cuda --bench strategies -- [--runtime cuda] [--product TEXT]… [--strategy TEXT]…`
//!
//! Operands are whole numbers from −2 to 2, so that the sums of every order are the same: a strategy whose product differs from the
//! naive strategy's is marked. The row `burn-mx` is what this crate launches. The last line of a table names the strategies that the device or
//! the shapes refuse; stderr and the JSON have the reasons.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use burn_backend::ops::FloatTensorOps;
use burn_backend::{Backend, DType, FloatDType, TensorData, TensorMetadata, read_sync};
use burn_cubecl::kernel::matmul::init_matmul_output;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeBackend, CubeRuntime};
use burn_mx_kernels::MxKernels;
use burn_mx_kernels::internal::Operand;
use clap::{Parser, ValueEnum};
use comfy_table::{Table, presets};
use cubek::matmul::definition::{MatmulElems, MatmulGlobalElems};
use cubek::matmul::launch::{Strategy, launch_ref};
use cubek::matmul::routines::BlueprintStrategy::Inferred;
use cubek::matmul::routines::simple::SimpleArgs;
use cubek::std::InputBinding;
use microscaling::RandomStream;
use serde::Serialize;

#[derive(Parser)]
struct Args {
    /// Runtime of CubeCL
    #[arg(long, value_enum, default_value_t = RuntimeName::value_variants()[0])]
    runtime: RuntimeName,
    /// Only products whose name contains this text; may be repeated
    #[arg(long = "product", value_name = "TEXT")]
    products: Vec<String>,
    /// Only strategies whose name contains this text; may be repeated
    #[arg(long = "strategy", value_name = "TEXT")]
    strategies: Vec<String>,
    /// Divides every length, for a device that is not a GPU
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    divide: u16,
    /// Milliseconds to measure each strategy for
    #[arg(long, value_name = "MS", default_value_t = 100)]
    time: u64,
    /// Writes the figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Handed over by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum RuntimeName {
    #[cfg(feature = "cuda")]
    Cuda,
    #[cfg(feature = "rocm")]
    Rocm,
    #[cfg(feature = "wgpu")]
    Wgpu,
}

#[cfg(not(any(feature = "cuda", feature = "rocm", feature = "wgpu")))]
compile_error!("the bench `strategies` needs one of the features `cuda`, `rocm` and `wgpu`");

/// A product `[batches, m, k] · [batches, k, n]`.
struct Product {
    name: String,
    batches: usize,
    /// m, k and n.
    lengths: [usize; 3],
    /// Whether columns of an operand, not rows, are contiguous.
    by_columns: [bool; 2],
}

/// Rows that a layer multiplies: the tokens.
const TOKENS: usize = 2048;

/// The products of a training step, with every length divided.
fn products(divide: u16) -> Vec<Product> {
    const OUTPUT: [bool; 2] = [false, true];
    const INPUT_GRADIENT: [bool; 2] = [false, false];
    const WEIGHT_GRADIENT: [bool; 2] = [true, false];
    let layer = |[from, to]: [usize; 2]| {
        let products = [
            ("output", [TOKENS, from, to], OUTPUT),
            ("input gradient", [TOKENS, to, from], INPUT_GRADIENT),
            ("weight gradient", [from, TOKENS, to], WEIGHT_GRADIENT),
        ];
        products.map(|(name, lengths, by_columns)| {
            (format!("{name}, {from} to {to}"), 1, lengths, by_columns)
        })
    };
    let attention = [
        ("scores", [1024, 128, 1024], OUTPUT),
        ("output", [1024, 1024, 128], INPUT_GRADIENT),
        ("gradient of keys", [1024, 1024, 128], WEIGHT_GRADIENT),
    ];
    let attention = attention
        .map(|(name, lengths, by_columns)| (format!("attention, {name}"), 32, lengths, by_columns));
    let layers = [[2048, 8192], [8192, 2048], [2048, 2048]];
    let all = layers.into_iter().flat_map(layer).chain(attention);
    let divided = |length: usize| (length / usize::from(divide)).max(16);
    all.map(|(name, batches, lengths, by_columns)| Product {
        name,
        batches,
        lengths: lengths.map(divided),
        by_columns,
    })
    .collect()
}

impl Product {
    /// Multiplications and additions.
    fn operations(&self) -> f64 {
        let all = self.lengths.iter().product::<usize>() * self.batches;
        2.0 * all as f64
    }
}

/// Every strategy of cubek for matrices, with its name.
fn strategies() -> Vec<(String, Strategy)> {
    macro_rules! by {
        ($settings:expr, $note:literal: $($name:ident)*) => {
            [$((concat!(stringify!($name), $note).to_owned(), Strategy::$name($settings))),*]
        };
    }
    let usual = by!(
        Default::default(), "":
        SimpleCyclicCmma SimpleCyclicMma SimpleStridedCmma SimpleStridedMma SimpleTilewiseCmma SimpleTilewiseMma
        SimpleAsyncStridedCmma SimpleAsyncStridedMma SimpleAsyncCyclicCmma SimpleAsyncCyclicMma SimpleTmaCmma SimpleTmaMma
        DoubleCyclicCmma DoubleCyclicMma DoubleTilewiseCmma DoubleTilewiseMma DoubleHybridCmma DoubleHybridMma
        DoubleAsyncCyclicCmma DoubleAsyncCyclicMma DoubleAsyncStridedCmma DoubleAsyncStridedMma DoubleTmaCmma DoubleTmaMma
        SpecializedCyclicCmma SpecializedCyclicMma SpecializedStridedCmma SpecializedStridedMma SpecializedTmaCmma
        SpecializedTmaMma OrderedDoubleCmma OrderedDoubleMma SimpleUnit DoubleUnit
    );
    let many_rows = SimpleArgs {
        multi_rows: true,
        ..SimpleArgs::default()
    };
    // cubek sets the kind of tiles that the name says.
    let many_rows = by!(
        Inferred(many_rows.clone()), ", many rows":
        SimpleCyclicCmma SimpleCyclicMma SimpleTmaCmma SimpleTmaMma
    );
    usual.into_iter().chain(many_rows).collect()
}

type B<R> = CubeBackend<R, f32, i32, u32>;

/// Whole numbers from −2 to 2 in the type that the device multiplies.
fn operand<R: CubeRuntime>(
    device: &R::CubeDevice,
    [batches, rows, columns]: [usize; 3],
    by_columns: bool,
    seed: u64,
) -> CubeTensor<R> {
    let stream = RandomStream::new(seed, 0);
    let number = |i| (stream.draw(i) % 5) as f32 - 2.0;
    let values: Vec<f32> = (0..(batches * rows * columns) as u64).map(number).collect();
    let [first, second] = if by_columns {
        [columns, rows]
    } else {
        [rows, columns]
    };
    let data = TensorData::new(values, [batches, first, second]);
    let tensor = B::<R>::float_from_data(data, device);
    let tensor = match B::<R>::supports_dtype(device, DType::BF16) {
        true => B::<R>::float_cast(tensor, FloatDType::BF16),
        false => tensor,
    };
    match by_columns {
        true => B::<R>::float_swap_dims(tensor, 1, 2),
        false => tensor,
    }
}

/// Where a product goes.
fn room<R: CubeRuntime>([lhs, rhs]: [&CubeTensor<R>; 2]) -> CubeTensor<R> {
    init_matmul_output(lhs, rhs, DType::F32)
}

/// Launches the product by a strategy of cubek, into `output`.
fn multiply<R: CubeRuntime>(
    strategy: &Strategy,
    [lhs, rhs]: [&CubeTensor<R>; 2],
    output: CubeTensor<R>,
) -> Result<CubeTensor<R>, String> {
    let mut elements = MatmulElems::from_globals(&MatmulGlobalElems {
        lhs: lhs.dtype.into(),
        rhs: rhs.dtype.into(),
        out: DType::F32.into(),
    });
    let [lhs_binding, rhs_binding] =
        [lhs, rhs].map(|tensor| InputBinding::new(tensor.clone().binding(), tensor.dtype.into()));
    let out = output.clone().binding();
    launch_ref(
        strategy,
        &lhs.client,
        lhs_binding,
        rhs_binding,
        out,
        &mut elements,
    )
    .map_err(|error| error.to_string())?;
    Ok(output)
}

/// Computes a product, into the tensor or elsewhere.
type Work<'a, R> = &'a dyn Fn(CubeTensor<R>) -> Result<CubeTensor<R>, String>;

/// Milliseconds of one call, of as many as fit in the time.
fn milliseconds<R: CubeRuntime>(
    time: Duration,
    operands: [&CubeTensor<R>; 2],
    work: Work<'_, R>,
) -> Result<f64, String> {
    let device = &operands[0].device;
    let sync = || B::<R>::sync(device).map_err(|error| error.to_string());
    // Compiles.
    work(room(operands))?;
    sync()?;
    let mut calls = 0;
    let began = Instant::now();
    while began.elapsed() < time || calls == 0 {
        // Together, so that the host's time for a launch does not count.
        for _ in 0..8 {
            work(room(operands))?;
        }
        sync()?;
        calls += 8;
    }
    Ok(began.elapsed().as_secs_f64() * 1e3 / f64::from(calls))
}

/// The sum of the magnitudes of the differences of two tensors, of which one NaN makes a NaN.
fn difference<R: CubeRuntime>(one: CubeTensor<R>, other: CubeTensor<R>) -> f32 {
    let sum = B::<R>::float_sum(B::<R>::float_abs(B::<R>::float_sub(one, other)));
    let data = read_sync(B::<R>::float_into_data(sum)).expect("the device computes");
    data.iter::<f32>().next().expect("one number")
}

/// A strategy's result for a product.
#[derive(Serialize)]
struct Figure {
    product: String,
    strategy: String,
    /// `None` if the product was refused.
    speed: Option<Speed>,
    /// Why it was.
    refused: Option<String>,
}

#[derive(Clone, Copy, Serialize)]
struct Speed {
    ms: f64,
    teraflops: f64,
    /// The sum of the magnitudes of differences from the naive strategy's product.
    difference: f32,
}

impl Figure {
    /// The text of a wrong or refused product.
    fn note(&self) -> String {
        match (self.speed, &self.refused) {
            (Some(speed), _) if speed.difference != 0.0 => {
                format!("wrong by {} in all", speed.difference)
            }
            (_, Some(reason)) => format!("refused: {reason}"),
            _ => String::new(),
        }
    }

    fn ms(&self) -> f64 {
        self.speed.map_or(f64::INFINITY, |speed| speed.ms)
    }
}

/// The figures of a product, the fastest first.
fn measure_product<R: CubeRuntime>(args: &Args, product: &Product) -> Vec<Figure>
where
    B<R>: MxKernels<FloatTensorPrimitive = CubeTensor<R>, Device = R::CubeDevice>,
{
    let device = R::CubeDevice::default();
    let time = Duration::from_millis(args.time);
    let ([m, k, n], batches) = (product.lengths, product.batches);
    let lhs = operand::<R>(&device, [batches, m, k], product.by_columns[0], 1);
    let rhs = operand::<R>(&device, [batches, k, n], product.by_columns[1], 2);
    let operands = [&lhs, &rhs];
    let expected =
        multiply(&Strategy::Naive, operands, room(operands)).expect("it refuses nothing");
    let figure = |strategy: &str, work: Work<'_, R>| {
        let tried = catch_unwind(AssertUnwindSafe(|| {
            // New memory may hold the product of the strategy before. No element of a product is 0.5.
            let shape = expected.shape();
            let other = B::<R>::float_full(shape, 0.5.into(), &device, FloatDType::F32);
            let difference = difference(work(other)?, expected.clone());
            let ms = milliseconds::<R>(time, operands, work)?;
            let teraflops = product.operations() / ms / 1e9;
            Ok(Speed {
                ms,
                teraflops,
                difference,
            })
        }));
        let tried: Result<Speed, String> = tried.unwrap_or_else(|_| Err("it panicked".to_owned()));
        let figure = Figure {
            product: product.name.clone(),
            strategy: strategy.to_owned(),
            speed: tried.as_ref().ok().copied(),
            refused: tried
                .err()
                .map(|error| error.split_whitespace().collect::<Vec<_>>().join(" ")),
        };
        let time = figure.speed.map(|speed| format!("{:.3} ms ", speed.ms));
        let (time, note) = (time.unwrap_or_default(), figure.note());
        eprintln!("{}: {strategy}: {time}{note}", product.name);
        figure
    };
    let ours = |_| {
        let [lhs, rhs] = operands.map(|tensor| Operand::of_values(tensor.clone()));
        Ok(B::<R>::kernels().product(lhs, rhs))
    };
    let mut figures = vec![figure("burn-mx", &ours)];
    for (name, strategy) in strategies()
        .iter()
        .filter(|(name, _)| has(&args.strategies, name))
    {
        figures.push(figure(name, &|output| multiply(strategy, operands, output)));
    }
    figures.sort_by(|one, other| one.ms().total_cmp(&other.ms()));
    println!(
        "\n{}: {batches} x [{m}, {k}] · [{k}, {n}], {:?}",
        product.name, lhs.dtype
    );
    figures
}

/// Whether a name has one of the texts, if there are any.
fn has(texts: &[String], name: &str) -> bool {
    texts.is_empty() || texts.iter().any(|text| name.contains(text.as_str()))
}

fn measure<R: CubeRuntime>(args: &Args)
where
    B<R>: MxKernels<FloatTensorPrimitive = CubeTensor<R>, Device = R::CubeDevice>,
{
    println!("{}", B::<R>::name(&R::CubeDevice::default()));
    let mut all = Vec::new();
    let products = products(args.divide).into_iter();
    for product in products.filter(|product| has(&args.products, &product.name)) {
        let figures = measure_product::<R>(args, &product);
        let mut table = Table::new();
        table
            .load_preset(presets::ASCII_MARKDOWN)
            .set_header(["strategy", "ms", "TFLOP/s", ""]);
        for (figure, speed) in figures
            .iter()
            .filter_map(|figure| Some((figure, figure.speed?)))
        {
            let [ms, rate] = [
                format!("{:.3}", speed.ms),
                format!("{:.1}", speed.teraflops),
            ];
            table.add_row([figure.strategy.clone(), ms, rate, figure.note()]);
        }
        let refused = figures.iter().filter(|figure| figure.speed.is_none());
        let refused: Vec<&str> = refused.map(|figure| figure.strategy.as_str()).collect();
        println!("{table}\nrefused: {}", refused.join("; "));
        all.extend(figures);
    }
    if let Some(path) = &args.json {
        let json = serde_json::to_vec_pretty(&all).expect("all of it is text and numbers");
        std::fs::write(path, json).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

fn main() {
    let args = Args::parse();
    match args.runtime {
        #[cfg(feature = "cuda")]
        RuntimeName::Cuda => measure::<cubecl::cuda::CudaRuntime>(&args),
        #[cfg(feature = "rocm")]
        RuntimeName::Rocm => measure::<cubecl::hip::HipRuntime>(&args),
        #[cfg(feature = "wgpu")]
        RuntimeName::Wgpu => measure::<burn_wgpu::WgpuRuntime>(&args),
    }
}
