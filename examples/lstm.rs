//! A recurrent network reads handwritten digits row by row, in FP32 and in MX side by side.
//!
//! ```text
//! cargo run --release --example lstm
//! cargo run --release --example lstm -- --preset mxfp8_e4m3 --preset mxfp4
//! cargo run --release --example lstm -- --preset mxfp4 --layer 'lstm.*.hidden_transform=fp32'
//! ```
//!
//! The model stands in `models/lstm.rs`; it knows nothing of MX. `support/train.rs` is the training, by burn-train's
//! learner, and `support/sweep.rs` the place where `Autodiff<Flex>` becomes `MxAutodiff<Flex>`.

use std::process::ExitCode;

fn main() -> ExitCode {
    burn_mx_examples::lstm()
}
