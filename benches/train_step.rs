//! Time of a training step and of inference, emulated over plain FP32.
//!
//! `cargo bench --bench train_step -- [--model NAME]… [--preset NAME]… [--variant NAME]… [--backend NAME]… [--json FILE]`
//!
//! Peer and self alternate in one process, so that what slows the machine down slows both down; the figure is the
//! median of the pairs' ratios. Inference uses one model again and again, as an evaluation does: its weights are
//! quantized once and kept.

#[path = "support/seconds.rs"]
mod seconds;
mod support;

use std::fmt;
use std::time::{Duration, Instant};

use burn::tensor::backend::AutodiffBackend;
use clap::Parser;
use serde::Serialize;

use support::{Bench, Common, Trainer, Workload};

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    times: Times,
}

/// How long to measure.
#[derive(clap::Args)]
struct Times {
    /// Seconds to measure each figure for
    #[arg(long, default_value = "3", value_parser = seconds::seconds)]
    seconds: Duration,
}

/// Median milliseconds, emulated and of plain FP32, and the median of the pairs' ratios.
#[derive(Serialize)]
struct Time {
    ms: f64,
    peer_ms: f64,
    ratio: f64,
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ms, peer_ms, ratio } = self;
        write!(f, "{ms:9.3} ms, FP32 {peer_ms:9.3} ms, ratio {ratio:.2}")
    }
}

impl Times {
    /// Alternates `own` and `peer`.
    fn pairs(&self, mut own: impl FnMut(), mut peer: impl FnMut()) -> Time {
        let time = |f: &mut dyn FnMut()| {
            let start = Instant::now();
            f();
            start.elapsed().as_secs_f64() * 1e3
        };
        for _ in 0..3 {
            own();
            peer();
        }
        let end = Instant::now() + self.seconds;
        let mut samples = Vec::new();
        while Instant::now() < end || samples.len() < 5 {
            samples.push((time(&mut own), time(&mut peer)));
        }
        let median = |value: fn(&(f64, f64)) -> f64| {
            let mut values: Vec<f64> = samples.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        Time {
            ms: median(|pair| pair.0),
            peer_ms: median(|pair| pair.1),
            ratio: median(|pair| pair.0 / pair.1),
        }
    }
}

impl Bench for Times {
    type Value = Time;

    fn measure<Mx: AutodiffBackend, Fp32: AutodiffBackend>(
        &self,
        workload: Workload,
        mx_device: &Mx::Device,
        fp32_device: &Fp32::Device,
    ) -> [Time; 2] {
        let mut own = Trainer::<Mx>::new(workload, mx_device);
        let mut peer = Trainer::<Fp32>::new(workload, fp32_device);
        let train = self.pairs(|| own.step(), || peer.step());
        [train, self.pairs(own.inference(), peer.inference())]
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Args { common, times } = Args::parse();
    common.run(&times)
}
