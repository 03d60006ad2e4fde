//! Time of a training step and of inference, emulated over plain FP32.
//!
//! `cargo bench --bench train_step -- [--model NAME]… [--preset NAME]… [--variant NAME]… [--backend NAME]… [--json FILE]`
//!
//! Peer and self alternate in one process, so that what slows the machine down slows both down; the figure is the
//! median of the pairs' ratios. Inference uses one model again and again, as an evaluation does: its weights are
//! quantized once and kept.

#[path = "../examples/support/backends.rs"]
mod backends;
#[path = "support/pairs.rs"]
mod pairs;
#[path = "support/seconds.rs"]
mod seconds;
mod support;

use burn::tensor::backend::AutodiffBackend;
use clap::Parser;

use pairs::{Time, Times};
use support::{Bench, Common, Trainer, Workload};

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    times: Times,
}

impl Bench for Times {
    type Value = Time;

    fn measure<Mx: AutodiffBackend, Fp32: AutodiffBackend>(
        &self,
        workload: Workload,
        mx_device: &Mx::Device,
        fp32_device: &Fp32::Device,
    ) -> Vec<(&'static str, Time)> {
        let mut own = Trainer::<Mx>::new(workload, mx_device);
        let mut peer = Trainer::<Fp32>::new(workload, fp32_device);
        let train = self.pairs(|| own.step(), || peer.step());
        let inference = self.pairs(own.inference(), peer.inference());
        vec![("train", train), ("inference", inference)]
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Args { common, times } = Args::parse();
    common.run(&times)
}
