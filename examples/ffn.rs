//! The main example: an unmodified Burn model learns to read handwritten digits, in FP32 and in MX
//! side by side.
//!
//! ```text
//! cargo run --release --example ffn
//! cargo run --release --example ffn -- --preset mxfp8_e4m3 --preset mxfp4   # a sweep
//! cargo run --release --example ffn -- --no-quantize-backprop               # any field of MxSpecs
//! ```
//!
//! The model stands in `models/ffn.rs`; it knows nothing of MX. `support/train.rs` is the training, by burn-train's
//! learner, and `support/sweep.rs` the place where `Autodiff<Flex>` becomes `MxAutodiff<Flex>`.

use std::process::ExitCode;

fn main() -> ExitCode {
    burn_mx_examples::ffn()
}
