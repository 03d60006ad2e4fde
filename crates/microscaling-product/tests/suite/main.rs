//! The crate's behaviour through its public API. One binary, so that tests run side by side and link once.
//!
//! `MICROSCALING_LEVEL=baseline`, `avx2` or `avx512` runs every test on this instruction set,
//! `MICROSCALING_FLUSH_TO_ZERO=1` with subnormals flushed to zero in every thread.

#![allow(clippy::too_many_lines, reason = "tests list their cases")]

#[cfg(feature = "serde")]
mod accumulator_files;
mod accumulators;
#[path = "../../../microscaling/tests/suite/float_state.rs"]
mod float_state;
mod npu;
mod product;
#[cfg(feature = "rayon")]
mod threads;
