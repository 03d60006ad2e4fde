//! Measures a device's kernels against the device's own copies, products and float32.
//!
//! `cargo bench --bench devices --features cuda -- --backend cuda [--preset NAME]… [--size N] [--json FILE]`
//!
//! A square tensor of float32 is quantized along its last and its first axis, rounded to bfloat16 and transformed. Each
//! kernel reads and writes every byte once, like a copy. A figure is the share of the copy's bandwidth. An MX linear
//! layer quantizes its operands on the way. Its peers are plain products of float32 tensors and, if the device has them,
//! of bfloat16 tensors. Peers alternate in one process; a figure is the median of the ratios.

#![allow(clippy::too_many_lines, reason = "a measurement runs all its peers")]

mod support {
    pub(crate) mod seconds;
}

use std::path::PathBuf;
use std::time::{Duration, Instant};

use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, DType, FloatDType, TensorData, TensorMetadata};
use burn_mx::MxKernels;
use burn_mx::{
    BlockFormat, FloatFormat, OperandQuantization, RandomHadamard, RandomStream, Rounding,
};
use burn_mx_kernels::internal::{KernelOp, OperandForm, OperandLayout};
use clap::Parser;
use comfy_table::{Table, presets};
use serde::Serialize;

use burn_mx_lab::{backends::BackendName, output::OutputFile, with_backend};

#[derive(Parser)]
struct Args {
    /// Backend to measure; may be repeated [default: every compiled backend]
    #[arg(long = "backend", value_enum)]
    backends: Vec<BackendName>,
    /// Block format to measure; may be repeated
    #[arg(
        long = "preset",
        value_name = "NAME",
        default_values = ["mxfp8_e4m3", "mxfp4", "mx9", "nvfp4"]
    )]
    presets: Vec<BlockFormat>,
    /// Length of each axis of a tensor
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u16).range(1..))]
    size: u16,
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
    device: String,
    what: String,
    size: u16,
    ms: f64,
    peer: &'static str,
    peer_ms: f64,
    /// The peer's time over this one's: the share of the peer's speed that is reached.
    speed: f64,
}

/// Something to time: its result has to be waited for.
type Work<'a, B> = &'a dyn Fn() -> FloatTensor<B>;

/// The median times of two, one after the other again and again, in milliseconds, and of their ratio.
fn times<B: Backend>(
    device: &B::Device,
    seconds: Duration,
    own: Work<B>,
    peer: Work<B>,
) -> [f64; 3] {
    let time = |work: Work<B>| {
        B::sync(device).expect("the device computes");
        let began = Instant::now();
        // Held meanwhile: burn-fusion computes nothing that nobody has.
        let _result = work();
        B::sync(device).expect("the device computes");
        began.elapsed().as_secs_f64() * 1e3
    };
    // Kernels are compiled, and their variants tried, the first time.
    for work in [own, peer, own, peer] {
        time(work);
    }
    let mut pairs = Vec::new();
    let began = Instant::now();
    while began.elapsed() < seconds || pairs.len() < 5 {
        pairs.push([time(own), time(peer)]);
    }
    let median = |value: &dyn Fn(&[f64; 2]) -> f64| {
        let mut values: Vec<f64> = pairs.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    [
        median(&|pair| pair[0]),
        median(&|pair| pair[1]),
        median(&|pair| pair[1] / pair[0]),
    ]
}

/// Normally distributed numbers would take no other time.
fn numbers<B: Backend>(size: usize, device: &B::Device) -> FloatTensor<B> {
    let stream = RandomStream::new(0, 0);
    let number = |i| stream.draw(i) as i32 as f32 * 2.0_f32.powi(-31);
    let values: Vec<f32> = (0..(size * size) as u64).map(number).collect();
    B::float_from_data(TensorData::new(values, [size, size]), device)
}

fn measure<B: MxKernels>(args: &Args) -> Vec<Figure> {
    let device = B::Device::default();
    let name = B::name(&device);
    let size = usize::from(args.size);
    let x = numbers::<B>(size, &device);
    let w = numbers::<B>(size, &device);
    let mut figures = Vec::new();
    let mut compare = |what: String, peer, own: Work<B>, other: Work<B>| {
        let [ms, peer_ms, speed] = times::<B>(&device, args.seconds, own, other);
        println!("{name}  {what}: {ms:.3} ms, {speed:.2} of {peer}'s speed");
        figures.push(Figure {
            device: name.clone(),
            what,
            size: args.size,
            ms,
            peer,
            peer_ms,
            speed,
        });
    };

    let none = RandomStream::new(0, 0);
    // As many bytes as a kernel reads and writes that may not change what somebody else holds.
    let copy = || B::float_mul_scalar(x.clone(), 1.0.into());
    for format in &args.presets {
        for (axis, along) in [(1, "last"), (0, "first")] {
            for rounding in [Rounding::NearestEven, Rounding::Stochastic] {
                let own = || B::mx_quantize(x.clone(), axis, *format, rounding, none);
                let what = format!("{format}, {rounding}, along the {along} axis");
                compare(what, "a copy", &own, &copy);
            }
        }
    }
    let bfloat16 = FloatFormat::bfloat(16).expect("16 bits are allowed");
    compare(
        "rounding to bfloat16".to_owned(),
        "a copy",
        &|| B::float_round_to(x.clone(), bfloat16, Rounding::NearestEven, none),
        &copy,
    );
    let transform = RandomHadamard { block_size: 64 };
    for (axis, along) in [(1, "last"), (0, "first")] {
        compare(
            format!("random Hadamard transform, 64, along the {along} axis"),
            "a copy",
            &|| {
                let op = KernelOp::Hadamard {
                    axis,
                    transform,
                    signs: none.into(),
                    inverse: false,
                };
                B::kernel(op, [x.clone()])
            },
            &copy,
        );
    }

    let format = args.presets[0];
    let form = |place| OperandForm {
        place,
        quantization: OperandQuantization {
            elementwise: Some((bfloat16, Rounding::NearestEven)),
            blocks: Some((format, Rounding::NearestEven)),
            ..OperandQuantization::default()
        },
        significant_bits: format.significant_bits(),
        tensor_scale: None,
    };
    let linear = || {
        let lhs = B::kernels().product_operand(x.clone(), form(OperandLayout::LHS));
        let rhs = B::kernels().product_operand(w.clone(), form(OperandLayout::RHS));
        B::kernels().product(lhs, rhs)
    };
    compare(
        format!("linear layer in {format}"),
        "float32",
        &linear,
        &|| B::float_matmul(x.clone(), w.clone()),
    );
    if B::supports_dtype(&device, DType::BF16) {
        let narrow = |tensor: &FloatTensor<B>| B::float_cast(tensor.clone(), FloatDType::BF16);
        let (x, w) = (narrow(&x), narrow(&w));
        assert_eq!(x.dtype(), DType::BF16);
        compare(
            format!("linear layer in {format}"),
            "bfloat16",
            &linear,
            &|| B::float_matmul(x.clone(), w.clone()),
        );
    }
    figures
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    let json = args.json.as_deref().map(OutputFile::open).transpose()?;
    let backends = match args.backends.is_empty() {
        true => <BackendName as clap::ValueEnum>::value_variants(),
        false => &args.backends,
    };
    let mut figures = Vec::new();
    for &backend in backends {
        figures.extend(with_backend!(backend, B => measure::<B>(&args)));
    }
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header([
        "device",
        "what",
        "ms",
        "peer",
        "of the peer's speed",
    ]);
    for figure in &figures {
        table.add_row([
            figure.device.clone(),
            figure.what.clone(),
            format!("{:.3}", figure.ms),
            figure.peer.to_owned(),
            format!("{:.2}", figure.speed),
        ]);
    }
    println!("\n{table}");
    if let Some(file) = json {
        file.replace(&serde_json::to_vec_pretty(&figures)?)?;
    }
    Ok(())
}
