//! A causal transformer of Burn's own modules learns to add, in FP32 and in MX side by side: it continues the text
//! `07+95=` with the digits of the sum. It is tested on pairs of operands that it was not trained on.
//!
//! ```text
//! cargo run --release --example transformer
//! cargo run --release --example transformer -- --preset mxfp8_e4m3 --preset mxfp4
//! cargo run --release --example transformer -- --preset mxfp4 --first-last fp32
//! ```
//!
//! The model stands in `models/transformer.rs`; it knows nothing of MX. `support/train.rs` is the training, by
//! burn-train's learner, and `support/sweep.rs` the place where `Autodiff<Flex>` becomes `MxAutodiff<Flex>`.

use std::process::ExitCode;

fn main() -> ExitCode {
    burn_mx_examples::transformer()
}
