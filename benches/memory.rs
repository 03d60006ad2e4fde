//! Peak heap memory of a training step and of inference, emulated over plain FP32.
//!
//! `cargo bench --bench memory -- [--preset NAME]… [--variant NAME]… [--backend NAME]… [--json FILE]`
//!
//! The peak counts everything of the model that is alive at once: parameters, activations, gradients, quantized
//! operands and kept weights.
//!
//! `cargo bench --bench memory -- --lora NAME…` measures a step of LoRA on packed weights of the preset, over the same step on the
//! unpacked weights.

mod support {
    pub(crate) mod lora;
    pub(crate) mod training;
}

use std::fmt;

use clap::Parser;
use peak_alloc::PeakAlloc;
use serde::Serialize;

use burn_mx::MxKernels;
use burn_mx::process::keep_quantized_weights;
use support::lora;
use support::training::{Bench, Common, Trained, Trainer, Workload};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    common: Common,
    /// Preset of a step of LoRA on Flex, in place of the models; may be repeated
    #[arg(long, value_name = "NAME", conflicts_with_all = ["presets", "variants", "models", "size", "backends", "json"])]
    lora: Vec<String>,
}

/// Peak bytes, emulated and of plain FP32.
#[derive(Serialize)]
struct Peak {
    bytes: usize,
    peer_bytes: usize,
    ratio: f64,
}

impl fmt::Display for Peak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [own, peer] = [self.bytes, self.peer_bytes].map(|x| x as f64 / f64::from(1 << 20));
        let ratio = self.ratio;
        write!(f, "{own:8.2} MiB, FP32 {peer:8.2} MiB, ratio {ratio:.2}")
    }
}

/// Peak bytes of a step, and of inference by the model after it; the trainer's own included.
fn peaks<B: Trained>(workload: Workload, device: &B::Device) -> [usize; 2] {
    /// The third use of a weight finds all of its kept copies.
    const WARM_UP: usize = 3;
    let before = HEAP.current_usage();
    let peak_of = |work: &mut dyn FnMut()| {
        (0..WARM_UP).for_each(|_| work());
        HEAP.reset_peak_usage();
        work();
        HEAP.peak_usage() - before
    };
    let mut trainer = Trainer::<B>::new(workload, device);
    let train = peak_of(&mut || trainer.step());
    let inference = peak_of(&mut trainer.inference());
    [train, inference]
}

/// Peak bytes of a step of LoRA: on packed weights, on float32 weights, and on float32 weights without kept copies.
fn lora_peaks(preset: &str) -> Result<[usize; 3], Box<dyn std::error::Error>> {
    fn peak(step: &mut dyn FnMut(), before: usize) -> usize {
        (0..3).for_each(|_| step());
        HEAP.reset_peak_usage();
        step();
        HEAP.peak_usage() - before
    }
    let before = HEAP.current_usage();
    let own = peak(&mut lora::trainer(lora::packed, preset)?, before);
    let float = peak(&mut lora::trainer(lora::float, preset)?, before);
    keep_quantized_weights(false);
    let alone = peak(&mut lora::trainer(lora::float, preset)?, before);
    keep_quantized_weights(true);
    Ok([own, float, alone])
}

struct Peaks;

impl Bench for Peaks {
    type Value = Peak;
    type Backend<B: MxKernels> = B;

    fn measure<Mx: Trained, Fp32: Trained>(
        &self,
        workload: Workload,
        mx_device: &Mx::Device,
        fp32_device: &Fp32::Device,
    ) -> Vec<(&'static str, Peak)> {
        // The first pass brings up threads and the scratch memory of products, which stays.
        peaks::<Fp32>(workload, fp32_device);
        peaks::<Mx>(workload, mx_device);
        let peer = peaks::<Fp32>(workload, fp32_device);
        let own = peaks::<Mx>(workload, mx_device);
        let peaks = own.into_iter().zip(peer).map(|(bytes, peer_bytes)| Peak {
            bytes,
            peer_bytes,
            ratio: bytes as f64 / peer_bytes as f64,
        });
        ["train", "inference"].into_iter().zip(peaks).collect()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    if args.lora.is_empty() {
        return args.common.run(&Peaks);
    }
    for preset in args.lora {
        // The first pass brings up threads and the scratch memory of products.
        lora_peaks(&preset)?;
        let [own, float, alone] = lora_peaks(&preset)?;
        for (peer, peer_bytes) in [("float32", float), ("without copies", alone)] {
            let ratio = own as f64 / peer_bytes as f64;
            let [own, peer_bytes] = [own, peer_bytes].map(|x| x as f64 / f64::from(1 << 20));
            let name = lora::name();
            println!(
                "{preset:12} {name} {own:8.2} MiB, {peer} {peer_bytes:8.2} MiB, ratio {ratio:.2}"
            );
        }
    }
    Ok(())
}
