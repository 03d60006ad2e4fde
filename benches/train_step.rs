//! Time of a training step and of inference, emulated over plain FP32.
//!
//! `cargo bench --bench train_step -- [--model NAME]… [--preset NAME]… [--variant NAME]… [--backend NAME]… [--peer TYPE]
//! [--optimizer NAME] [--json FILE]`
//!
//! Peer and self alternate in one process, so that what slows the machine down slows both down; the figure is the
//! median of the pairs' ratios. A step ends when the device has computed it. Inference uses one model again and again, as an evaluation does: its weights are
//! quantized once and kept.
//!
//! `cargo bench --bench train_step -- --traffic` counts the bytes that a step reads and writes, op by op.
//!
//! `cargo bench --bench train_step -- --lora NAME…` measures a step of LoRA on packed weights of the preset, over the same step on the
//! unpacked weights.

mod support {
    pub(crate) mod lora;
    pub(crate) mod pairs;
    pub(crate) mod seconds;
    pub(crate) mod traffic;
    pub(crate) mod training;
}

use std::fmt;

use burn::tensor::DType;
use burn_mx::MxKernels;
use burn_mx::process::host_round_trips;
use clap::{Parser, ValueEnum};
use serde::Serialize;

use support::lora;
use support::pairs::{Time, Times};
use support::traffic::{CountedBackend, Traffic};
use support::training::{Bench, Common, Optimized, Trained, Trainer, Workload};

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    steps: Steps,
    /// Counts the bytes that a step reads and writes, in place of its time. An op reads its operands once and writes its result once;
    /// the least traffic has no passes that only quantize, round or copy. Copies by `reshape` are counted on Flex alone
    #[arg(long, conflicts_with_all = ["peer", "seconds", "lora"])]
    traffic: bool,
    /// Preset of a step of LoRA on Flex, in place of the models; may be repeated
    #[arg(long, value_name = "NAME", conflicts_with_all = ["presets", "variants", "models", "size", "backends", "json", "peer"])]
    lora: Vec<String>,
}

/// The options for the measurement and its duration.
#[derive(clap::Args)]
struct Steps {
    /// Type of the peer's numbers
    #[arg(long, value_enum, default_value = "float32")]
    peer: Peer,
    /// Optimizer of both models
    #[arg(long, value_enum, default_value = "sgd", conflicts_with = "lora")]
    optimizer: Optimized,
    #[command(flatten)]
    times: Times,
}

/// The type in which the backend alone computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Peer {
    Float32,
    /// Weights, activations and gradients in bfloat16
    Bfloat16,
    /// No peer in the process, as for a profiler
    None,
}

/// Times of a step or of inference, and the number of tensors that pass through the host's memory because a kernel is
/// missing.
#[derive(Serialize)]
struct Figure {
    #[serde(flatten)]
    time: Time,
    peer: Peer,
    optimizer: Optimized,
    host_round_trips: u64,
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.time)?;
        match self.host_round_trips {
            0 => Ok(()),
            count => write!(f, ", {count} tensors through the host's memory"),
        }
    }
}

impl Steps {
    fn figure(&self, mut own: impl FnMut(), peer: Option<impl FnMut()>) -> Figure {
        let before = host_round_trips();
        own();
        Figure {
            host_round_trips: host_round_trips() - before,
            time: self.times.pairs(own, peer),
            peer: self.peer,
            optimizer: self.optimizer,
        }
    }
}

impl Bench for Steps {
    type Value = Figure;
    type Backend<B: MxKernels> = B;

    fn measure<Mx: Trained, Fp32: Trained>(
        &self,
        workload: Workload,
        mx_device: &Mx::Device,
        fp32_device: &Fp32::Device,
    ) -> Vec<(&'static str, Figure)> {
        let mut own = Trainer::<Mx>::optimized(workload, self.optimizer, mx_device);
        let has_bfloat16 = Fp32::supports_dtype(fp32_device, DType::BF16);
        if self.peer == Peer::Bfloat16 && !has_bfloat16 {
            println!("{} has no bfloat16: no peer", Fp32::name(fp32_device));
            return Vec::new();
        }
        let optimizer = self.optimizer.of_peer();
        let peer = || Trainer::<Fp32>::optimized(workload, optimizer, fp32_device);
        let mut peer = match self.peer {
            Peer::Float32 => Some(peer()),
            Peer::Bfloat16 => Some(peer().in_bfloat16()),
            Peer::None => None,
        };
        let train = self.figure(|| own.step(), peer.as_mut().map(|peer| || peer.step()));
        let inference = peer.as_ref().map(Trainer::inference);
        let inference = self.figure(own.inference(), inference);
        vec![("train", train), ("inference", inference)]
    }
}

/// Counts the bytes of a step with this optimizer.
struct CountSteps(Optimized);

impl Bench for CountSteps {
    type Value = Traffic;
    type Backend<B: MxKernels> = CountedBackend<B>;

    fn measure<Mx: Trained, Fp32: Trained>(
        &self,
        workload: Workload,
        mx_device: &Mx::Device,
        fp32_device: &Fp32::Device,
    ) -> Vec<(&'static str, Traffic)> {
        fn second_step<B: Trained>(mut trainer: Trainer<B>) -> Traffic {
            trainer.step();
            Traffic::of(|| trainer.step())
        }
        let own = Trainer::<Mx>::optimized(workload, self.0, mx_device);
        let peer = Trainer::<Fp32>::optimized(workload, self.0.of_peer(), fp32_device);
        vec![("train", second_step(own)), ("FP32", second_step(peer))]
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Args {
        common,
        steps,
        traffic,
        lora,
    } = Args::parse();
    if traffic {
        return common.run(&CountSteps(steps.optimizer));
    }
    if lora.is_empty() {
        return common.run(&steps);
    }
    for preset in lora {
        let own = lora::trainer(lora::packed, &preset)?;
        let peer = lora::trainer(lora::float, &preset)?;
        let time = steps.times.pairs(own, Some(peer));
        println!("{preset:12} {} {time}", lora::name());
    }
    Ok(())
}
