//! Peak heap memory of a training step and of inference, emulated over plain FP32.
//!
//! `cargo bench --bench memory -- [--preset NAME]… [--variant NAME]… [--backend NAME]… [--json FILE]`
//!
//! The peak counts all that is alive at once: parameters, activations, gradients, quantized operands and kept
//! weights, not what the process holds beside the model.

mod support;

use burn::tensor::backend::AutodiffBackend;
use clap::Parser;
use peak_alloc::PeakAlloc;
use serde::Serialize;

use support::{Bench, Case, Common, SIZES, Trainer, Underneath, Variant, write_json};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    common: Common,
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
    bytes: usize,
    peer_bytes: usize,
    ratio: f64,
}

/// Peak bytes of a step, and of inference by the model after it; the trainer's own included.
fn peaks<B: AutodiffBackend>(hidden: usize, batch: usize, device: &B::Device) -> [usize; 2] {
    /// The third use of a weight finds all that is kept of it.
    const WARM_UP: usize = 3;
    let before = HEAP.current_usage();
    let peak_of = |work: &mut dyn FnMut()| {
        (0..WARM_UP).for_each(|_| work());
        HEAP.reset_peak_usage();
        work();
        HEAP.peak_usage() - before
    };
    let mut trainer = Trainer::<B>::new(hidden, batch, device);
    let train = peak_of(&mut || trainer.step());
    let inference = peak_of(&mut trainer.inference());
    [train, inference]
}

/// The bench and its figures so far.
struct Peaks {
    figures: Vec<Figure>,
}

impl Bench for Peaks {
    fn measure<Mx: AutodiffBackend, Fp32: AutodiffBackend>(
        &mut self,
        backend: Underneath,
        case: &Case,
        mx_device: &Mx::Device,
        fp32_device: &Fp32::Device,
    ) {
        for (hidden, batch) in SIZES {
            // The first pass brings up threads and the scratch memory of products, which stays.
            peaks::<Fp32>(hidden, batch, fp32_device);
            peaks::<Mx>(hidden, batch, mx_device);
            let peer = peaks::<Fp32>(hidden, batch, fp32_device);
            let own = peaks::<Mx>(hidden, batch, mx_device);
            for (i, pass) in ["train", "inference"].into_iter().enumerate() {
                let (bytes, peer_bytes) = (own[i], peer[i]);
                let ratio = bytes as f64 / peer_bytes as f64;
                let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
                println!(
                    "{:8} {:12} {:12} ({hidden:3}, {batch:3}) {pass:9} {:8.2} MiB, FP32 {:8.2} MiB, ratio {ratio:.2}",
                    backend.name(),
                    case.preset,
                    case.variant.name(),
                    mib(bytes),
                    mib(peer_bytes),
                );
                self.figures.push(Figure {
                    backend,
                    preset: case.preset.clone(),
                    variant: case.variant,
                    hidden,
                    batch,
                    pass,
                    bytes,
                    peer_bytes,
                    ratio,
                });
            }
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    let mut bench = Peaks {
        figures: Vec::new(),
    };
    args.common.measure(&mut bench)?;
    match &args.common.json {
        Some(path) => write_json(path, &bench.figures),
        None => Ok(()),
    }
}
