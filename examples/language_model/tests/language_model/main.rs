//! Models of other makers, broken ones, and one that is trained here.

#![allow(
    clippy::too_many_lines,
    reason = "a test follows a model from training to export"
)]

mod backward;
mod broken;
mod end_to_end;
mod experts;
mod exports;
mod lora;
mod optimizer_states;
mod ranks;
mod recipes;
mod rotations;
mod served;
mod transformers;
mod tuning;

use std::path::{Path, PathBuf};

use burn::backend::Flex;
use burn_mx::MxBackend;

type B = MxBackend<Flex>;

/// A folder that `make_fixtures.py` wrote.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}
