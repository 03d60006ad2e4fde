//! A convolutional network learns to read handwritten digits, in FP32 and in MX side by side.
//!
//! ```text
//! cargo run --release --example cnn
//! cargo run --release --example cnn -- --preset mxfp8_e4m3 --preset mxfp4
//! cargo run --release --example cnn -- --preset mxfp4 --layer 'head=mxfp8_e4m3'
//! ```
//!
//! The model stands in `models/cnn.rs`; it knows nothing of MX. `support/train.rs` is the training, by burn-train's
//! learner, and `support/sweep.rs` the place where `Autodiff<Flex>` becomes `MxAutodiff<Flex>`.

use std::process::ExitCode;

fn main() -> ExitCode {
    burn_mx_examples::cnn()
}
