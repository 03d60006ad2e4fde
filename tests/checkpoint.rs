//! Checkpoints and packed weights, checked through the public API. `MX_TEST_BACKEND` is as in `suite.rs`.

#![allow(clippy::too_many_lines, reason = "tests list their cases")]
#![cfg_attr(
    not(test_backend = "flex"),
    allow(
        dead_code,
        unused_imports,
        reason = "what the tests of processors alone need"
    )
)]

#[allow(dead_code, reason = "the suite has more uses for it")]
mod shared;

use shared::{backend, noise, support};

mod checkpoint {
    mod checkpoints;
    mod configs;
    mod fused;
    mod loading;
    mod packing;
    mod saving;
}
