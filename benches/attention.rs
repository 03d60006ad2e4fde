//! Time of attention, forward and backward, by specs without the field `attention`, and with it.
//!
//! `cargo bench --bench attention -- [--seconds S]`
//!
//! Peer and self alternate in one process. `scope` compares attention that is written out in an `attention_scope` with the same outside of a
//! scope. `op` compares Burn's op by specs that emulate nothing with the wrapped backend's own op. Neither has the field, so both ratios are
//! 1 but for noise. `points` compares Burn's op with the field and without the field: the price of formats.

mod support {
    pub(crate) mod pairs;
    pub(crate) mod seconds;
}

use burn::backend::{Autodiff, Flex};
use burn::tensor::activation::softmax;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::module::attention;
use burn::tensor::{Distribution, Tensor};
use burn_mx::{MxAutodiff, MxDevice, MxSpecs, attention_scope};
use clap::Parser;

use support::pairs::Times;

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    times: Times,
    /// For cargo, which passes it to each bench
    #[arg(long, hide = true)]
    bench: bool,
}

type Mx = MxAutodiff<Flex>;

/// Heads, positions, features.
const SHAPES: [[usize; 3]; 3] = [[1, 8, 8], [4, 64, 32], [8, 256, 64]];

fn operands<B: AutodiffBackend>(
    [heads, positions, features]: [usize; 3],
    device: &B::Device,
) -> [Tensor<B, 4>; 3] {
    let shape = [1, heads, positions, features];
    [0; 3].map(|_| Tensor::random(shape, Distribution::Default, device).require_grad())
}

/// Forward and backward by Burn's op.
fn by_op<B: AutodiffBackend>(operands: &[Tensor<B, 4>; 3]) {
    let [q, k, v] = operands.clone();
    let _ = attention(q, k, v, None, None, Default::default())
        .sum()
        .backward();
}

/// Forward and backward by two matmuls and a softmax.
fn written_out(operands: &[Tensor<Mx, 4>; 3]) {
    let [q, k, v] = operands.clone();
    let _ = softmax(q.matmul(k.transpose()) * 0.125, 3)
        .matmul(v)
        .sum()
        .backward();
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Args { times, bench: _ } = Args::parse();
    let device = |specs: MxSpecs| MxDevice::new(Default::default(), &specs);
    let points = "attention(q=nvfp4,k=nvfp4,v=nvfp4,probabilities=nvfp4,d_output=mxfp8_e5m2,d_scores=mxfp8_e5m2)";
    let with_points = MxSpecs {
        attention: Some(points.parse()?),
        ..MxSpecs::mxfp8_e4m3()
    };
    for shape in SHAPES {
        let print = |name: &str, time| println!("{name:6} {shape:?}: {time}");
        for (name, specs) in [("mxfp8", MxSpecs::mxfp8_e4m3()), ("none", MxSpecs::none())] {
            let operands = operands::<Mx>(shape, &device(specs)?);
            let own = || attention_scope(|| written_out(&operands));
            let peer = Some(|| written_out(&operands));
            print(&format!("scope, {name}"), times.pairs(own, peer));
        }
        let none = operands::<Mx>(shape, &device(MxSpecs::none())?);
        let plain = operands::<Autodiff<Flex>>(shape, &Default::default());
        print("op", times.pairs(|| by_op(&none), Some(|| by_op(&plain))));
        let with = operands::<Mx>(shape, &device(with_points.clone())?);
        let without = operands::<Mx>(shape, &device(MxSpecs::mxfp8_e4m3())?);
        print(
            "points",
            times.pairs(|| by_op(&with), Some(|| by_op(&without))),
        );
    }
    Ok(())
}
