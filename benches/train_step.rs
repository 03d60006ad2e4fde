//! Time of a training step and of inference, emulated over plain FP32.
//!
//! `cargo bench --bench train_step -- [--preset NAME]… [--variant NAME]… [--backend NAME]… [--json FILE]`
//!
//! Peer and self alternate in one process, so that what slows the machine down slows both down; the figure is the
//! median of the pairs' ratios. Inference uses one model again and again, as an evaluation does: its weights are
//! quantized once and kept.

mod support;

use std::time::{Duration, Instant};

use burn::tensor::backend::AutodiffBackend;
use clap::Parser;
use serde::Serialize;

use support::{Bench, Case, Common, SIZES, Trainer, Underneath, Variant, write_json};

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    common: Common,
    /// Seconds to measure each figure for
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
}

/// One line of the result.
#[derive(Serialize)]
struct Figure {
    backend: Underneath,
    preset: String,
    variant: Variant,
    hidden: usize,
    batch: usize,
    pass: &'static str,
    ms: f64,
    peer_ms: f64,
    ratio: f64,
}

/// Alternates `own` and `peer` for about `seconds`; medians in ms, and the median of the pairs' ratios.
fn pairs(seconds: f64, mut own: impl FnMut(), mut peer: impl FnMut()) -> (f64, f64, f64) {
    let time = |f: &mut dyn FnMut()| {
        let start = Instant::now();
        f();
        start.elapsed().as_secs_f64() * 1e3
    };
    for _ in 0..3 {
        own();
        peer();
    }
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let mut samples = Vec::new();
    while Instant::now() < end || samples.len() < 5 {
        samples.push((time(&mut own), time(&mut peer)));
    }
    let median = |value: fn(&(f64, f64)) -> f64| {
        let mut values: Vec<f64> = samples.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    (
        median(|pair| pair.0),
        median(|pair| pair.1),
        median(|pair| pair.0 / pair.1),
    )
}

/// The bench and its figures so far.
struct Times {
    seconds: f64,
    figures: Vec<Figure>,
}

impl Bench for Times {
    fn measure<Mx: AutodiffBackend, Fp32: AutodiffBackend>(
        &mut self,
        backend: Underneath,
        case: &Case,
        mx_device: &Mx::Device,
        fp32_device: &Fp32::Device,
    ) {
        for (hidden, batch) in SIZES {
            let mut own = Trainer::<Mx>::new(hidden, batch, mx_device);
            let mut peer = Trainer::<Fp32>::new(hidden, batch, fp32_device);
            let train = pairs(self.seconds, || own.step(), || peer.step());
            let inference = pairs(self.seconds, own.inference(), peer.inference());
            for (pass, (ms, peer_ms, ratio)) in [("train", train), ("inference", inference)] {
                println!(
                    "{:8} {:12} {:12} ({hidden:3}, {batch:3}) {pass:9} {ms:9.3} ms, FP32 {peer_ms:9.3} ms, ratio {ratio:.2}",
                    backend.name(),
                    case.preset,
                    case.variant.name(),
                );
                self.figures.push(Figure {
                    backend,
                    preset: case.preset.clone(),
                    variant: case.variant,
                    hidden,
                    batch,
                    pass,
                    ms,
                    peer_ms,
                    ratio,
                });
            }
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    let mut bench = Times {
        seconds: args.seconds,
        figures: Vec::new(),
    };
    args.common.measure(&mut bench)?;
    match &args.common.json {
        Some(path) => write_json(path, &bench.figures),
        None => Ok(()),
    }
}
